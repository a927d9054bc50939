"""Where rows go in a Fluss table, decided by the rows and a given bucket alone."""

from __future__ import annotations

import zlib
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from fluss_client.aio.pieces import Deletes
from fluss_client.aio.placement import Placement, numbered
from fluss_client.aio.routing import grouped
from fluss_client.model.cluster import ChangeType
from fluss_client.model.table import TableBucket, TableInfo

Changes = npt.NDArray[np.uint8] | None
"""The codes of `ChangeType`, one per row."""


@dataclass(frozen=True)
class Placed:
    """Rows for one bucket, in their order, with the deletes among them."""

    partition: str | None
    bucket: int
    rows: pa.RecordBatch
    deletes: Deletes

    def table_bucket(self, table_id: int, partition_ids: dict[str, int]) -> TableBucket:
        """The bucket as the client names it."""
        found = None if self.partition is None else partition_ids[self.partition]
        return TableBucket(table_id, self.bucket, partition_id=found)

    def cut(self, batch_rows: int) -> list[tuple[pa.RecordBatch, Deletes]]:
        """Batches of at most so many rows."""
        return [
            (
                self.rows.slice(start, batch_rows),
                None if self.deletes is None else self.deletes[start : start + batch_rows],
            )
            for start in range(0, self.rows.num_rows, batch_rows)
        ]


class Placer:
    """Places rows by their keys; those of a table without keys go where they are told."""

    def __init__(self, info: TableInfo) -> None:
        self._placement = Placement(info)

    def place(self, rows: pa.RecordBatch, changes: Changes, bucket: int) -> list[Placed]:
        """Rows in the table's wire schema by bucket.

        Args:
            rows: The rows.
            changes: What happened to each row; None if all are upserts or appends. Rows as they
                were before an update are left out.
            bucket: For tables without keys; it is taken modulo their number of buckets.
        """
        deletes: Deletes = None
        if changes is not None:
            kept = changes != ChangeType.UpdateBefore
            if not kept.all():
                rows, changes = rows.filter(pa.array(kept)), changes[kept]
            deletes = changes == ChangeType.Delete
        if rows.num_rows == 0:
            return []
        names, codes = self._placement.partitions(rows)
        count = self._placement.bucket_count
        numbers = numbered(codes, self._buckets(rows, bucket), count)
        placed = []
        for number, mine, mask in grouped(rows, deletes, numbers, max(1, len(names)) * count):
            code, own = divmod(number, count)
            marked = mask if mask is not None and mask.any() else None
            placed.append(Placed(names[code] if names else None, own, mine, marked))
        return placed

    def numbers(self, rows: pa.RecordBatch) -> npt.NDArray[np.int32]:
        """One number per row, the same for rows of one bucket, in any batch and any process.

        The rows need no more columns than those that place them.
        """
        numbers = np.zeros(rows.num_rows, np.uint32)
        names, codes = self._placement.partitions(rows)
        if codes is not None:
            numbers += np.array([zlib.crc32(name.encode()) for name in names], np.uint32)[codes]
        buckets = self._buckets(rows, 0)
        if buckets is not None:
            numbers += buckets.astype(np.uint32)
        return numbers.view(np.int32)

    def _buckets(self, rows: pa.RecordBatch, bucket: int) -> npt.NDArray[np.int64] | None:
        if self._placement.by_key:
            return self._placement.buckets(rows)
        return np.full(rows.num_rows, bucket % self._placement.bucket_count, np.int64)
