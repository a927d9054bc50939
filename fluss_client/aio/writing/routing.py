"""The destination of each row: its partition by name, its bucket by hash or by an assigner.

All rows of a batch are placed with array operations: one number per row, one stable sort, one
copy of the rows in that order, then slices. A batch for one bucket is not copied at all.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from fluss_client.aio.writing.accumulator import Deletes, RecordSlice, cut, rows_max_of
from fluss_client.codec.buckets import Counts, assign_buckets
from fluss_client.codec.keys import encode_keys, key_encoding_for
from fluss_client.codec.partition_names import partition_names
from fluss_client.config import Config
from fluss_client.model.table import TableBucket, TableInfo

FindPartitions = Callable[[Sequence[str]], list[int]]
CountOf = Callable[[int | None], int]
"""Returns the bucket count of a partition."""
SMALL_SORT_KEYS = 1 << 16


class Placement:
    """Computes partition and bucket of the rows of one table.

    The rows may lack all columns that are neither partition keys nor bucket keys. Partitions may
    have different bucket counts: `Backend.bucket_count` knows them, and `buckets` takes them.

    Args:
        table: The table whose rows are placed.
    """

    def __init__(self, table: TableInfo) -> None:
        types = {column.name: column.type for column in table.schema.columns}
        self.bucket_count = table.num_buckets
        self._partition_keys = table.partition_keys
        self._partition_types = [types[name] for name in table.partition_keys]
        self._keys = table.bucket_keys or table.physical_primary_keys
        self._key_types = [types[name] for name in self._keys]
        if self._keys:
            # Also for a single bucket: it refuses tables whose keys no client can write.
            _, self._encoding = key_encoding_for(
                table.properties, table.bucket_keys, table.physical_primary_keys, types
            )

    @property
    def by_key(self) -> bool:
        """Whether the columns of a row decide on its bucket."""
        return bool(self._keys)

    def partitions(self, rows: pa.RecordBatch) -> tuple[list[str], npt.NDArray[np.int64] | None]:
        """Return the distinct partition names and the index of each row's name among them.

        Args:
            rows: The rows to place.

        Returns:
            The names and the indexes. A table without partitions has no names, and None in place of
            the indexes.
        """
        if not self._partition_keys:
            return [], None
        columns = [rows.column(name) for name in self._partition_keys]
        return partition_names(columns, self._partition_types)

    def buckets(
        self, rows: pa.RecordBatch, counts: Counts | None = None
    ) -> npt.NDArray[np.int64] | None:
        """Return the bucket of each row of a table with keys.

        Args:
            rows: The rows to place.
            counts: The bucket count of the rows' partition; an array has one for each row, see
                `counts_of_rows`. None stands for the count of the table, which is right only for a
                table without partitions.

        Returns:
            The buckets, or None if there is only one.
        """
        if counts is None:
            counts = self.bucket_count
        if isinstance(counts, int) and counts == 1:
            return None
        columns = [rows.column(name) for name in self._keys]
        keys = encode_keys(columns, self._key_types, self._keys, self._encoding)
        return assign_buckets(keys, counts, self._encoding).astype(np.int64)


def counts_of_rows(counts: Sequence[int], partitions: npt.NDArray[np.int64] | None) -> Counts:
    """Return the bucket count of each row, for `Placement.buckets`.

    Args:
        counts: The bucket count of each partition; one count for a table without partitions.
        partitions: The index of the partition of each row; None if the table has no partitions.

    Returns:
        One number if all partitions have the same count, else an array.
    """
    if partitions is None or min(counts) == max(counts):
        return counts[0]
    each: npt.NDArray[np.int64] = np.asarray(counts, np.int64)[partitions]
    return each


def numbered(
    partitions: npt.NDArray[np.int64] | None,
    buckets: npt.NDArray[np.int64] | None,
    bucket_count: int,
) -> npt.NDArray[np.int64] | None:
    """Combine the partition and the bucket of each row in one number.

    Args:
        partitions: The index of the partition of each row; None if the table has no partitions.
        buckets: The bucket of each row; None if there is only one.
        bucket_count: The largest bucket count of the partitions.

    Returns:
        The numbers, or None if all rows have the same partition and bucket.
    """
    if partitions is None:
        return buckets
    if buckets is None:
        return partitions * bucket_count
    return partitions * bucket_count + buckets


class Router:
    """Splits batches of one table by bucket.

    It keeps the state of the bucket assigner and has no lock: one caller at a time.
    """

    def __init__(
        self,
        table: TableInfo,
        config: Config,
        find_partitions: FindPartitions,
        count_of: CountOf | None = None,
    ) -> None:
        self._table = table
        self._find_partitions = find_partitions
        self._count_of = (lambda _: table.num_buckets) if count_of is None else count_of
        self._bytes_max = config.writer_batch_size
        self._rows_max = rows_max_of(table)
        self._placement = Placement(table)
        round_robin = config.writer_bucket_no_key_assigner == "round_robin"
        self._new_assigner: type[Assigner] = RoundRobin if round_robin else Sticky
        self._assigners: dict[int, Assigner] = {}
        """One for each bucket count that a partition has."""

    def batch_closed(self) -> None:
        """Note that a batch is sent before it is full: the next rows may go to another bucket."""
        for assigner in self._assigners.values():
            assigner.move_on()

    def split(
        self, rows: pa.RecordBatch, deletes: Deletes = None, *, single: bool = False
    ) -> list[RecordSlice]:
        """Cut rows by bucket and size; the order of each bucket's rows is kept.

        Args:
            rows: Rows in the table's wire schema.
            deletes: Which rows are deletes.
            single: Whether the rows came one by one, so that round robin goes by row.

        Raises:
            PartitionNotExistError: A partition of a row does not exist. No state is changed.
        """
        if rows.num_rows == 0:
            return []
        partitions, codes = self._partitions(rows)
        if not self._placement.by_key:
            return self._split_by_assigner(rows, deletes, partitions, codes, single)
        counts = [self._count_of(partition) for partition in partitions]
        stride = max(counts)
        buckets = self._placement.buckets(rows, counts_of_rows(counts, codes))
        groups = grouped(rows, deletes, numbered(codes, buckets, stride), len(partitions) * stride)
        slices: list[RecordSlice] = []
        for number, part, mask in groups:
            at, bucket = divmod(number, stride)
            slices += self._cut(self._place(partitions[at], bucket), part, mask, counts[at])
        return slices

    def reroute(self, part: RecordSlice, count: int) -> list[RecordSlice]:
        """Place rows of one partition anew, by another bucket count; any thread may call it."""
        partition = part.bucket.partition_id
        if not self._placement.by_key:
            place = self._place(partition, part.bucket.bucket_id % count)
            return [replace(part, bucket=place, bucket_count=count)]
        buckets = self._placement.buckets(part.rows, count)
        slices: list[RecordSlice] = []
        for bucket, rows, deletes in grouped(part.rows, part.deletes, buckets, count):
            slices += self._cut(self._place(partition, bucket), rows, deletes, count)
        return slices

    def _partitions(
        self, rows: pa.RecordBatch
    ) -> tuple[Sequence[int | None], npt.NDArray[np.int64] | None]:
        """Return the ids of the rows' partitions, and the index of each row's partition."""
        names, codes = self._placement.partitions(rows)
        return (self._find_partitions(names) if names else [None]), codes

    def _split_by_assigner(
        self,
        rows: pa.RecordBatch,
        deletes: Deletes,
        partitions: Sequence[int | None],
        codes: npt.NDArray[np.int64] | None,
        single: bool,
    ) -> list[RecordSlice]:
        slices: list[RecordSlice] = []
        for number, part, mask in grouped(rows, deletes, codes, len(partitions)):
            partition = partitions[number]
            count = self._count_of(partition)
            assigner = self._assigner(count)
            if single and assigner.by_row:
                buckets = assigner.next_rows(part.num_rows)
                for bucket, some, some_mask in grouped(part, mask, buckets, count):
                    slices += self._cut(self._place(partition, bucket), some, some_mask, count)
                continue
            for some, some_mask, nbytes in cut(part, mask, self._bytes_max):
                place = self._place(partition, assigner.next(nbytes, self._bytes_max))
                slices.append(RecordSlice(place, some, some_mask, nbytes, bucket_count=count))
        return slices

    def _assigner(self, count: int) -> Assigner:
        found = self._assigners.get(count)
        if found is None:
            found = self._assigners[count] = self._new_assigner(count)
        return found

    def _cut(
        self, place: TableBucket, rows: pa.RecordBatch, deletes: Deletes, count: int
    ) -> list[RecordSlice]:
        parts = cut(rows, deletes, self._bytes_max, self._rows_max)
        return [RecordSlice(place, *part, bucket_count=count) for part in parts]

    def _place(self, partition_id: int | None, bucket: int) -> TableBucket:
        return TableBucket(self._table.table_id, bucket, partition_id=partition_id)


def grouped(
    rows: pa.RecordBatch,
    deletes: Deletes,
    numbers: npt.NDArray[np.int64] | None,
    count: int,
) -> list[tuple[int, pa.RecordBatch, Deletes]]:
    """Group rows by a number of each row, and keep their order within a group.

    Args:
        rows: The rows to group.
        deletes: Which rows are deletes; None if none is.
        numbers: The number of each row, from 0 up to, but without, `count`; None means that all are
            0.
        count: The number of groups.

    Returns:
        The number, the rows and the delete flags of each group that has rows.
    """
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
    """Assigns one bucket for about a batch of bytes, then another one at random."""

    by_row = False

    def __init__(self, bucket_count: int) -> None:
        self._count = bucket_count
        self._bucket = random.randrange(bucket_count)  # noqa: S311 - spreading load needs no secret
        self._bytes = 0

    def next(self, nbytes: int, batch_bytes: int) -> int:
        """Return the bucket for rows of that size."""
        if self._bytes + nbytes > batch_bytes:
            self.move_on()
        self._bytes += nbytes
        return self._bucket

    def next_rows(self, rows: int) -> npt.NDArray[np.int64]:
        """Return the bucket of each of some rows."""
        return np.full(rows, self._bucket, np.int64)

    def move_on(self) -> None:
        """Change to another bucket, if any rows went to this one."""
        if self._bytes and self._count > 1:
            step = random.randrange(1, self._count)  # noqa: S311 - as above
            self._bucket = (self._bucket + step) % self._count
        self._bytes = 0


class RoundRobin:
    """Assigns the buckets one after the other: by row if rows come one by one, else by batch."""

    by_row = True

    def __init__(self, bucket_count: int) -> None:
        self._count = bucket_count
        self._bucket = 0

    def next(self, nbytes: int, batch_bytes: int) -> int:
        """Return the bucket for the next batch."""
        bucket = self._bucket
        self._bucket = (bucket + 1) % self._count
        return bucket

    def next_rows(self, rows: int) -> npt.NDArray[np.int64]:
        """Return the bucket of each of some rows."""
        buckets = (np.arange(rows, dtype=np.int64) + self._bucket) % self._count
        self._bucket = (self._bucket + rows) % self._count
        return buckets

    def move_on(self) -> None:
        """Do nothing: every batch gets the next bucket anyway."""


Assigner = Sticky | RoundRobin
