"""The units of a load: rows cut at fixed row counts and placed into the buckets of the target.

The same rows give the same units and buckets, whatever batches they come in: only then can a later
attempt send them again under the same writer ids. `LoadTarget` is the table that is loaded, and
`TargetColumns` says which of its columns the rows have.

A partition keeps the bucket count that it was created with. One that does not exist yet will have
the count of the table as it is then, which may differ from the one that is known here. So whoever
sends placed rows passes the count on: the server refuses rows that were placed by another one.
"""

from __future__ import annotations

import hashlib
import zlib
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from fluss_client import ChangeType, FlussConnection, TableBucket, TableInfo, TablePath
from fluss_client.engine import (
    PINNED_BATCHES_MAX,
    ArrowInput,
    Backend,
    Deletes,
    Placement,
    backend_of,
    counts_of_rows,
    grouped,
    numbered,
    run_blocking,
    table_info,
)
from fluss_client.errors import PartitionNotExistError, RowError
from fluss_orchestrate.core.checkpoints.fluss_rows import MERGE_ENGINE
from fluss_orchestrate.core.loading.ledger import DIGEST_OF_TABLE, Cut, UnitMark
from fluss_orchestrate.core.sinks.base import SchemaPolicy, columns_to_add

CountOf = Callable[[str | None], int]
"""Returns the bucket count of a partition by its name; of the table, for None."""


def counts_of(backend: Backend, info: TableInfo) -> CountOf:
    """Return the bucket counts of the partitions of a table, asked for as they are needed. Blocks.

    The counts of partitions that do not exist yet are asked for again each time.
    """
    known: dict[str, int] = {}

    async def ask(name: str) -> int:
        try:
            partition_id = await backend.partition_id(info, name)
        except PartitionNotExistError:
            newest = await backend.get_table_info(info.table_path)
            return newest.num_buckets
        known[name] = await backend.bucket_count(info, partition_id)
        return known[name]

    def count(name: str | None) -> int:
        if name is None:
            return info.num_buckets
        return known[name] if name in known else run_blocking(ask(name))

    return count


def listed_counts(connection: FlussConnection, info: TableInfo) -> Mapping[str | None, int]:
    """Return the bucket counts of all partitions by name. Blocks.

    The value of None is that of the table, which partitions get that are created later.
    """
    if not info.is_partitioned():
        return {None: info.num_buckets}
    backend = backend_of(connection)

    async def ask() -> dict[str | None, int]:
        newest = await backend.get_table_info(info.table_path)
        listed = await backend.list_partitions(info.table_path, None)
        found: dict[str | None, int] = {None: newest.num_buckets}
        return found | {p.partition_name: newest.bucket_count_of(p) for p in listed}

    return run_blocking(ask())


@dataclass(frozen=True, slots=True)
class TargetColumns:
    """The columns that upserts write."""

    positions: tuple[int, ...] | None = None
    """None for all."""
    table: str = ""
    missing: tuple[str, ...] = ()
    """The columns that the rows lack."""
    why_not: str = ""
    """Why the server takes no partial updates of this table, if it takes none."""

    @classmethod
    def of(cls, info: TableInfo, names: Collection[str]) -> TargetColumns:
        """Return the target columns for rows with these columns.

        In tables without a primary key, and with the first_row merge engine, there is nothing to
        keep: no write changes an existing row.

        Raises:
            RowError: The rows lack a column of the primary key.
        """
        schema, keys = info.schema, info.primary_keys
        missing = tuple(c.name for c in schema.columns if c.name not in names)
        engine = info.properties.get(MERGE_ENGINE, "").lower()
        if not keys or not missing or engine == "first_row":
            return cls()
        lost = [name for name in keys if name in missing]
        if lost:
            table = info.table_path
            raise RowError(f"the rows lack {', '.join(lost)} of the primary key of {table}")
        free = {*keys, *schema.auto_increment_columns}
        strict = [c.name for c in schema.columns if not (c.type.nullable or c.name in free)]
        why_not = ""
        if engine == "versioned":
            why_not = "its merge engine is versioned"
        elif strict:
            why_not = f"it has columns that are NOT NULL beside its key ({', '.join(strict)})"
        positions = tuple(at for at, c in enumerate(schema.columns) if c.name in names)
        return cls(positions, str(info.table_path), missing, why_not)

    def refusal(self, changes: Changes, first_row: int | None) -> RowError | None:
        """Return why rows with these changes must not be sent, if so."""
        lacking = ", ".join(self.missing)
        if self.why_not:
            return RowError(
                f"the rows lack {lacking} of {self.table}. The server takes no partial updates of "
                f"this table, because {self.why_not}, so the values there would be set to null. "
                "Give the rows all columns; null in them is written as null"
            )
        if self.positions is None or changes is None:
            return None
        deletes = changes == ChangeType.Delete
        if not deletes.any():
            return None
        row = "the row"
        if first_row is not None:
            row = f"row {first_row + int(deletes.argmax())}, counted from 0,"
        return RowError(
            f"{row} is a delete, and the rows lack {lacking} of {self.table}. Rows with deletes "
            "need all columns of the table: a delete of some columns only sets them to null. Give "
            "the rows all columns; of a delete only the key counts, its other values may be null"
        )

    def check(self, changes: Changes, first_row: int | None = None) -> None:
        """Raise the refusal, if there is one."""
        refusal = self.refusal(changes, first_row)
        if refusal is not None:
            raise refusal


class LoadTarget:
    """One table, as it was when it was last looked up."""

    def __init__(
        self, connection: FlussConnection, table: TablePath | str, policy: SchemaPolicy
    ) -> None:
        self.path = TablePath.parse(table) if isinstance(table, str) else table
        self._connection = connection
        self._policy = policy
        self.info = self._look_up()

    def _look_up(self) -> TableInfo:
        return table_info(self._connection, self.path)

    def cutter(self, schema: pa.Schema, bucket: int | None = None) -> Cutter:
        """Return a cutter for rows of `schema`; add columns to the table first if allowed."""
        info = self._look_up()
        taken = [f for f in schema if not (f.name == CHANGE_TYPE and info.has_primary_key())]
        missing = columns_to_add(
            str(self.path), info.get_column_names(), pa.schema(taken), self._policy
        )
        if missing:
            admin = self._connection.get_admin().result()
            admin.alter_table(self.path, add_columns=missing).result()
            info = self._look_up()
        self.info = info
        names = [f.name for f in taken]
        count_of = counts_of(backend_of(self._connection), info)
        return Cutter(info, names, bucket, TargetColumns.of(info, names), count_of)


Changes = npt.NDArray[np.uint8] | None
"""The codes of `ChangeType`, one per row."""


@dataclass(frozen=True)
class Placed:
    """Rows for one bucket, in their order, with the deletes among them."""

    partition: str | None
    bucket: int
    rows: pa.RecordBatch
    deletes: Deletes
    bucket_count: int
    """The bucket count of the partition by which the rows were placed."""

    def table_bucket(self, table_id: int, partition_ids: dict[str, int]) -> TableBucket:
        """Return the bucket of the rows."""
        found = None if self.partition is None else partition_ids[self.partition]
        return TableBucket(table_id, self.bucket, partition_id=found)

    def cut(self, batch_rows: int) -> list[tuple[pa.RecordBatch, Deletes]]:
        """Return batches with at most this number of rows."""
        return [
            (
                self.rows.slice(start, batch_rows),
                None if self.deletes is None else self.deletes[start : start + batch_rows],
            )
            for start in range(0, self.rows.num_rows, batch_rows)
        ]


class Placer:
    """Places rows by their keys; those of a table without keys go to a given bucket.

    `count_of` returns the bucket count of a partition by its name; by default, all have that of
    the table, which holds for tables that were never rescaled.
    """

    def __init__(self, info: TableInfo, count_of: CountOf | None = None) -> None:
        self._placement = Placement(info)
        self._count_of: CountOf = count_of or (lambda _: info.num_buckets)

    def place(self, rows: pa.RecordBatch, changes: Changes, bucket: int) -> list[Placed]:
        """Return rows in the table's wire schema by bucket.

        Args:
            rows: The rows.
            changes: What happened to each row; None if all are upserts or appends. Rows as they
                were before an update are left out.
            bucket: For tables without keys; it is taken modulo the partition's number of buckets.
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
        counts = self._counts(names)
        stride = max(counts)
        numbers = numbered(codes, self._buckets(rows, bucket, counts, codes), stride)
        placed = []
        for number, mine, mask in grouped(rows, deletes, numbers, len(counts) * stride):
            code, own = divmod(number, stride)
            marked = mask if mask is not None and mask.any() else None
            name = names[code] if names else None
            placed.append(Placed(name, own, mine, marked, counts[code]))
        return placed

    def numbers(self, rows: pa.RecordBatch) -> npt.NDArray[np.int32]:
        """Return one number per row, the same for rows of one bucket, in any batch and any process.

        The rows need only the columns that decide their place.
        """
        numbers = np.zeros(rows.num_rows, np.uint32)
        names, codes = self._placement.partitions(rows)
        if codes is not None:
            numbers += np.array([zlib.crc32(name.encode()) for name in names], np.uint32)[codes]
        buckets = self._buckets(rows, 0, self._counts(names), codes)
        if buckets is not None:
            numbers += buckets.astype(np.uint32)
        return numbers.view(np.int32)

    def _counts(self, names: Sequence[str]) -> list[int]:
        return [self._count_of(name) for name in names] or [self._count_of(None)]

    def _buckets(
        self,
        rows: pa.RecordBatch,
        bucket: int,
        counts: Sequence[int],
        codes: npt.NDArray[np.int64] | None,
    ) -> npt.NDArray[np.int64] | None:
        each = counts_of_rows(counts, codes)
        if self._placement.by_key:
            return self._placement.buckets(rows, each)
        return np.broadcast_to(bucket % np.asarray(each, np.int64), (rows.num_rows,))


CHANGE_TYPE = "_change_type"
BATCH_BYTES = 1 << 20
BATCH_ROWS_MAX = 50_000


class BatchRows(Protocol):
    """How many rows a batch of a load has. The first call may decide it by its rows."""

    def __call__(self, sample: pa.RecordBatch) -> int:
        """Return how many rows a batch has."""

    @property
    def cut(self) -> Cut:
        """The decision; it is known after the first call."""


@dataclass(frozen=True)
class Unit:
    """Rows that are sent under one writer id, by their destination."""

    placed: list[Placed]
    batch_rows: int
    bytes: int
    mark: UnitMark
    target_columns: tuple[int, ...] | None = None
    """The columns that upserts write, by position; None for all."""
    refusal: RowError | None = None
    """Why these rows must not be sent. A load that is done may be verified with them."""


class Cutter:
    """Splits rows into units of an exact number of rows, and places them.

    Rows of a table without keys go to `bucket`, or to all buckets one after the other, one unit
    each. `columns` says which columns upserts write.
    """

    def __init__(
        self,
        info: TableInfo,
        names: list[str],
        bucket: int | None = None,
        columns: TargetColumns | None = None,
        count_of: CountOf | None = None,
    ) -> None:
        self._columns = columns or TargetColumns()
        targets = self._columns.positions
        given = range(len(info.schema.columns)) if targets is None else targets
        self._fit = ArrowInput(info.schema, given)
        self._info = info
        self._names = names
        self._placer = Placer(info, count_of)
        self._bucket = bucket

    def units(
        self,
        batches: Iterable[pa.RecordBatch],
        batch_rows: BatchRows,
        first: int,
        with_digest: bool,
    ) -> Iterator[Unit]:
        """Return the units of some rows; the first of them has the number `first` in its load."""
        first_row = 0
        for number, (rows, each) in enumerate(_gathered(batches, batch_rows), first):
            changes = self._changes(rows, first_row)
            fitted = self._fit.conform(rows.select(self._names))
            mark = UnitMark(rows.num_rows, "")
            if with_digest:
                mark = self._mark(fitted, rows, changes, batch_rows.cut)
            bucket = number if self._bucket is None else self._bucket
            yield Unit(
                self._placer.place(fitted, changes, bucket),
                each,
                rows.nbytes,
                mark,
                self._columns.positions,
                self._columns.refusal(changes, first_row),
            )
            first_row += rows.num_rows

    def check(self, rows: pa.RecordBatch | pa.Table) -> None:
        """Check all rows before any of them is sent.

        Raises:
            ChangeTypeError: A row's change type is null or unknown.
            RowError: The rows lack columns that they need.
        """
        self._columns.check(self._changes(rows, 0), 0)

    def _changes(self, rows: pa.RecordBatch | pa.Table, first_row: int) -> Changes:
        """Return the change type of each row; None if the rows do not have one."""
        if not self._has_changes(rows.schema):
            return None
        return ChangeType.codes_of(rows.column(CHANGE_TYPE), CHANGE_TYPE, first_row)

    def _has_changes(self, schema: pa.Schema) -> bool:
        return CHANGE_TYPE in schema.names and CHANGE_TYPE not in self._names

    def _mark(
        self, fitted: pa.RecordBatch, rows: pa.RecordBatch, changes: Changes, cut: Cut
    ) -> UnitMark:
        if cut.digest_version == DIGEST_OF_TABLE:
            raw = rows.column(CHANGE_TYPE) if self._has_changes(rows.schema) else None
            *earlier, digest = digests_of_table(fitted, raw)
            return UnitMark(rows.num_rows, digest, tuple(earlier))
        own = self._names
        begun = [name for name in cut.columns if name != CHANGE_TYPE]
        more = [name for name in own if name not in begun]
        # Rows that got columns without values since the load was begun are the same rows.
        if set(begun) <= set(own) and all(_is_null(fitted.column(name)) for name in more):
            own = begun or own
        return UnitMark(rows.num_rows, digest_of(fitted.select(sorted(own)), changes))


def _gathered(
    batches: Iterable[pa.RecordBatch], batch_rows: BatchRows
) -> Iterator[tuple[pa.RecordBatch, int]]:
    held: list[pa.RecordBatch] = []
    each = held_rows = 0
    for batch in batches:
        if batch.num_rows == 0:
            continue
        each = batch_rows(batch)
        unit_rows = each * PINNED_BATCHES_MAX
        held.append(batch)
        held_rows += batch.num_rows
        while held_rows >= unit_rows:
            whole = pa.concat_batches(held)
            yield whole.slice(0, unit_rows), each
            held = [whole.slice(unit_rows)]
            held_rows -= unit_rows
    if held_rows:
        yield pa.concat_batches(held), each


def batch_rows_of(sample: pa.RecordBatch) -> int:
    """Return how many rows make a batch of a good size, estimated from a sample of them."""
    width = max(1, int(sample.nbytes) // int(sample.num_rows))
    return max(1, min(BATCH_ROWS_MAX, BATCH_BYTES // width))


def digest_of(rows: pa.RecordBatch, changes: Changes) -> str:
    """Return a digest of the columns by name and value, independent of their memory layout."""
    hasher = hashlib.blake2b(digest_size=16)
    for name, column in zip(rows.schema.names, rows.columns, strict=True):
        hasher.update(f"{len(name)}:{name} ".encode())
        _feed(hasher, column)
    if changes is not None:
        hasher.update(f"changes {len(changes)};".encode())
        hasher.update(changes.tobytes())
    return hasher.hexdigest()


def digests_of_table(rows: pa.RecordBatch, changes: pa.Array | None) -> list[str]:
    """Return the digests of version 1 that these rows may have, the last one as of now.

    They are over all columns that the table had. Columns are only added at the end, so the table
    may have had fewer of the last ones, as long as no row has a value there.
    """
    fewest = rows.num_columns
    while fewest > 1 and _is_null(rows.column(fewest - 1)):
        fewest -= 1
    hasher = hashlib.blake2b(digest_size=16)
    for column in rows.columns[:fewest]:
        _feed(hasher, column)
    digests = []
    for at in range(fewest, rows.num_columns + 1):
        ended = hasher.copy()
        if changes is not None:
            _feed(ended, changes)
        digests.append(ended.hexdigest())
        if at < rows.num_columns:
            _feed(hasher, rows.column(at))
    return digests


def _is_null(column: pa.Array) -> bool:
    return int(column.null_count) == len(column)


def _feed(hasher: hashlib.blake2b, column: pa.Array) -> None:
    hasher.update(f"{column.type} {len(column)};".encode())
    if column.null_count and not pa.types.is_nested(column.type):
        # What lies under a null is anything; only that it is null counts.
        hasher.update(pc.is_null(column).to_numpy(zero_copy_only=False).tobytes())
        column = column.drop_null()
    if pa.types.is_boolean(column.type):
        column = column.cast(pa.uint8())  # the last byte of bits has room for anything
    if len(column):
        # Joining copies, so that equal values lie in equal bytes.
        joined = pa.concat_arrays([column, column.slice(0, 0)])
        hasher.update(memoryview(pa.record_batch([joined], ["values"]).serialize()))
