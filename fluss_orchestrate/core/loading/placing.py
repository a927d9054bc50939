"""Where rows go in a Fluss table, decided by the rows and a given bucket alone."""

from __future__ import annotations

import zlib
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from fluss_client.aio.pieces import Deletes
from fluss_client.aio.routing import grouped
from fluss_client.codec.buckets import assign_buckets
from fluss_client.codec.keys import encode_keys, key_encoding_for
from fluss_client.codec.partition_names import partition_names
from fluss_client.model.table import TableBucket, TableInfo


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
        self._info = info
        types = {column.name: column.type for column in info.schema.columns}
        self._partition_types = [types[name] for name in info.partition_keys]
        self._keys = info.bucket_keys or info.physical_primary_keys
        self._key_types = [types[name] for name in self._keys]
        if self._keys:
            _, self._encoding = key_encoding_for(
                info.properties, info.bucket_keys, info.physical_primary_keys, types
            )

    def place(self, rows: pa.RecordBatch, changes: pa.Array | None, bucket: int) -> list[Placed]:
        """Rows in the table's wire schema by bucket; `changes` says what happened to each.

        `bucket`, modulo their number, is for tables without keys.
        """
        deletes: Deletes = None
        if changes is not None:
            kept = pc.not_equal(changes, "-U")
            rows, changes = rows.filter(kept), changes.filter(kept)
            deletes = pc.equal(changes, "-D").to_numpy(zero_copy_only=False)
        if rows.num_rows == 0:
            return []
        buckets = self._buckets(rows, bucket)
        names, codes = self._partitions(rows)
        count = self._info.num_buckets
        groups = grouped(rows, deletes, codes * count + buckets, max(1, len(names)) * count)
        placed = []
        for number, mine, mask in groups:
            code, own = divmod(number, count)
            marked = mask if mask is not None and mask.any() else None
            placed.append(Placed(names[code] if names else None, own, mine, marked))
        return placed

    def _partitions(self, rows: pa.RecordBatch) -> tuple[list[str], npt.NDArray[np.int64]]:
        if not self._partition_types:
            return [], np.zeros(rows.num_rows, np.int64)
        columns = [rows.column(name) for name in self._info.partition_keys]
        return partition_names(columns, self._partition_types)

    def numbers(self, rows: pa.RecordBatch) -> npt.NDArray[np.int32]:
        """One number per row, the same for rows of one bucket, in any batch and any process.

        The rows need no more columns than those that place them.
        """
        names, codes = self._partitions(rows)
        hashes = np.array([zlib.crc32(name.encode()) for name in names] or [0], np.uint32)
        buckets = self._buckets(rows, 0).astype(np.uint32)
        numbers: npt.NDArray[np.int32] = (hashes[codes] + buckets).view(np.int32)
        return numbers

    def _buckets(self, rows: pa.RecordBatch, bucket: int) -> npt.NDArray[np.int64]:
        count = self._info.num_buckets
        if not self._keys:
            return np.full(rows.num_rows, bucket % count, np.int64)
        columns = [rows.column(name) for name in self._keys]
        keys = encode_keys(columns, self._key_types, self._keys, self._encoding)
        return assign_buckets(keys, count, self._encoding).astype(np.int64)
