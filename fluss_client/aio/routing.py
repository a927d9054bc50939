"""Where each row goes: its partition by name, its bucket by hash or by turn.

All rows of a batch are placed with array operations: one number per row, one stable sort, one
copy of the rows in that order, then slices. A batch for one bucket is not copied at all.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from fluss_client.aio.batching import rows_max_of
from fluss_client.aio.pieces import Deletes, Piece, cut
from fluss_client.aio.placement import Placement, numbered
from fluss_client.config import Config
from fluss_client.model.table import TableBucket, TableInfo

FindPartitions = Callable[[Sequence[str]], list[int]]
SMALL_SORT_KEYS = 1 << 16


class Router:
    """Splits batches of one table; keeps the state of the assigners, so one caller at a time."""

    def __init__(self, table: TableInfo, config: Config, find_partitions: FindPartitions) -> None:
        self._table = table
        self._find_partitions = find_partitions
        self._bytes_max = config.writer_batch_size
        self._rows_max = rows_max_of(table)
        self._placement = Placement(table)
        in_turn = config.writer_bucket_no_key_assigner == "round_robin"
        self._assigner: Assigner = (RoundRobin if in_turn else Sticky)(table.num_buckets)

    def batch_closed(self) -> None:
        """Rows are being sent before their batch is full: the next ones may go elsewhere."""
        self._assigner.move_on()

    def split(
        self, rows: pa.RecordBatch, deletes: Deletes = None, *, single: bool = False
    ) -> list[Piece]:
        """The rows cut by bucket and size, each bucket's in their order.

        `single` says that the rows came one by one, so that taking turns means row by row.
        PartitionNotExistError names a partition that is not there; nothing is kept of the rows.
        """
        if rows.num_rows == 0:
            return []
        partitions, codes = self._partitions(rows)
        if not self._placement.by_key:
            return self._split_by_turn(rows, deletes, partitions, codes, single)
        count = self._table.num_buckets
        numbers = numbered(codes, self._placement.buckets(rows), count)
        groups = grouped(rows, deletes, numbers, len(partitions) * count)
        pieces: list[Piece] = []
        for number, part, mask in groups:
            partition, bucket = divmod(number, count)
            pieces += self._cut(self._place(partitions[partition], bucket), part, mask)
        return pieces

    def _partitions(
        self, rows: pa.RecordBatch
    ) -> tuple[Sequence[int | None], npt.NDArray[np.int64] | None]:
        """The ids of the rows' partitions, and which one each row belongs to."""
        names, codes = self._placement.partitions(rows)
        return (self._find_partitions(names) if names else [None]), codes

    def _split_by_turn(
        self,
        rows: pa.RecordBatch,
        deletes: Deletes,
        partitions: Sequence[int | None],
        codes: npt.NDArray[np.int64] | None,
        single: bool,
    ) -> list[Piece]:
        pieces: list[Piece] = []
        for number, part, mask in grouped(rows, deletes, codes, len(partitions)):
            partition = partitions[number]
            if single and self._assigner.by_row:
                turns = self._assigner.next_rows(part.num_rows)
                spread = grouped(part, mask, turns, self._table.num_buckets)
                for bucket, some, some_mask in spread:
                    pieces += self._cut(self._place(partition, bucket), some, some_mask)
                continue
            for some, some_mask, nbytes in cut(part, mask, self._bytes_max):
                bucket = self._assigner.next(nbytes, self._bytes_max)
                pieces.append(Piece(self._place(partition, bucket), some, some_mask, nbytes))
        return pieces

    def _cut(self, place: TableBucket, rows: pa.RecordBatch, deletes: Deletes) -> list[Piece]:
        parts = cut(rows, deletes, self._bytes_max, self._rows_max)
        return [Piece(place, *part) for part in parts]

    def _place(self, partition_id: int | None, bucket: int) -> TableBucket:
        return TableBucket(self._table.table_id, bucket, partition_id=partition_id)


def grouped(
    rows: pa.RecordBatch,
    deletes: Deletes,
    numbers: npt.NDArray[np.int64] | None,
    count: int,
) -> list[tuple[int, pa.RecordBatch, Deletes]]:
    """The rows of each number, in their order; `numbers` lie below `count`, None means all 0."""
    if numbers is None or count == 1:
        return [(0, rows, deletes)]
    first = int(numbers[0])
    if (numbers == first).all():
        return [(first, rows, deletes)]
    # NumPy sorts 16-bit numbers in linear time.
    keys = numbers.astype(np.uint16) if count <= SMALL_SORT_KEYS else numbers
    order = np.argsort(keys, kind="stable")
    sorted_rows = rows.take(pa.array(order))
    sorted_deletes = None if deletes is None else deletes[order]
    sorted_numbers = numbers[order]
    starts = np.flatnonzero(np.diff(sorted_numbers, prepend=-1))
    groups: list[tuple[int, pa.RecordBatch, Deletes]] = []
    for start, end in zip(starts.tolist(), [*starts[1:].tolist(), len(order)], strict=True):
        mask = None if sorted_deletes is None else sorted_deletes[start:end]
        part = sorted_rows.slice(start, end - start)
        groups.append((int(sorted_numbers[start]), part, mask))
    return groups


class Sticky:
    """Stays on one bucket for about a batch of bytes, then goes to another one at random."""

    by_row = False

    def __init__(self, bucket_count: int) -> None:
        self._count = bucket_count
        self._bucket = random.randrange(bucket_count)  # noqa: S311 - spreading load needs no secret
        self._bytes = 0

    def next(self, nbytes: int, batch_bytes: int) -> int:
        """The bucket for rows of that size."""
        if self._bytes + nbytes > batch_bytes:
            self.move_on()
        self._bytes += nbytes
        return self._bucket

    def next_rows(self, rows: int) -> npt.NDArray[np.int64]:
        """The bucket of each of some rows."""
        return np.full(rows, self._bucket, np.int64)

    def move_on(self) -> None:
        """Leave the bucket, if anything went there."""
        if self._bytes and self._count > 1:
            step = random.randrange(1, self._count)  # noqa: S311 - as above
            self._bucket = (self._bucket + step) % self._count
        self._bytes = 0


class RoundRobin:
    """Takes the buckets in turn: per row where rows come one by one, else per batch."""

    by_row = True

    def __init__(self, bucket_count: int) -> None:
        self._count = bucket_count
        self._bucket = 0

    def next(self, nbytes: int, batch_bytes: int) -> int:
        """The bucket for the next batch."""
        bucket = self._bucket
        self._bucket = (bucket + 1) % self._count
        return bucket

    def next_rows(self, rows: int) -> npt.NDArray[np.int64]:
        """The bucket of each of some rows."""
        turns = (np.arange(rows, dtype=np.int64) + self._bucket) % self._count
        self._bucket = (self._bucket + rows) % self._count
        return turns

    def move_on(self) -> None:
        """Turns go on as they are."""


Assigner = Sticky | RoundRobin
