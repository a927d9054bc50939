"""Rows of a scan in the form that users get: records, Arrow tables and DataFrames.

Rows stay Arrow batches until a caller polls for records. The records are made on the thread of the
caller, so that a blocking caller does not load the event loop with it.

A loop over the values of each row would be several times slower, so columns become Python values
one column at a time, by NumPy where it is faster than Arrow, and a compiled dict expression makes
the rows. The values are the same as those of `to_pylist`.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Collection, Iterator, Sequence
from datetime import tzinfo
from functools import lru_cache
from itertools import repeat
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from fluss_client.aio.projection import Projection
from fluss_client.errors import FlussError, MissingExtraError, RowError
from fluss_client.model.cluster import ChangeType
from fluss_client.model.records import RecordBatch, ScanRecord, ScanRecords
from fluss_client.model.table import TableBucket, TableInfo

if TYPE_CHECKING:
    import pandas as pd

ROW_MAKERS_KEPT = 256
"""Compiled row expressions that are kept, one for each list of column names."""
ROWS_AT_ONCE_MAX = 4096
"""Records that are made at a time, because this may happen on the event loop."""
CHANGE_TYPE_COLUMN = "_change_type"

Row = dict[str, Any]
_CHANGES = tuple(ChangeType)
_CHANGE_TYPE_FIELD = pa.field(CHANGE_TYPE_COLUMN, pa.string(), nullable=False)
_DATETIME_UNITS = ("s", "ms", "us")
# A Python datetime can hold the years 1 to 9999.
_DATETIME_MIN = np.datetime64("0001-01-01T00:00:00", "us")
_DATETIME_MAX = np.datetime64("9999-12-31T23:59:59.999999", "us")


class RecordRun(Collection[ScanRecord]):
    """Consecutive records of one bucket, as columns of Python values.

    Iterating makes one record at a time. A list of records would cost the garbage collector as
    much time as making them; records that the caller drops at once cost it nothing.
    """

    __slots__ = ("_changes", "_columns", "_count", "_names", "_offsets", "_timestamp")

    def __init__(
        self,
        offsets: Sequence[int],
        timestamp: int,
        changes: list[ChangeType] | None,
        names: tuple[str, ...],
        columns: list[list[Any]],
        count: int,
    ) -> None:
        self._offsets = offsets
        self._timestamp = timestamp
        self._changes = changes
        self._names = names
        self._columns = columns
        self._count = count

    def __len__(self) -> int:
        return self._count

    def __iter__(self) -> Iterator[ScanRecord]:
        changes = self._changes or repeat(ChangeType.AppendOnly)
        rows = _row_maker(self._names)(*self._columns)
        # The generated constructor of a named tuple takes longer than all the rest of this line.
        fields = zip(self._offsets, repeat(self._timestamp), changes, rows, strict=False)
        return map(tuple.__new__, repeat(ScanRecord), fields)

    def __contains__(self, record: object) -> bool:
        return any(record == mine for mine in self)


def build_records(
    batch: pa.RecordBatch,
    base_offset: int,
    timestamp: int,
    change_types: pa.Array | None,
    offsets: Sequence[int] | None = None,
) -> RecordRun:
    """Return the rows of a batch as records with rising offsets: `offsets`, or consecutive ones."""
    changes = None
    if change_types is not None:
        changes = list(map(_CHANGES.__getitem__, change_types.to_numpy().tolist()))
    names = tuple(batch.schema.names)
    columns = []
    for name, column in zip(names, batch.columns, strict=True):
        try:
            columns.append(column_values(column))
        except (ValueError, OverflowError) as error:
            raise RowError(
                f"column '{name}': {error}; read it with a batch scanner, as Arrow"
            ) from error
    count = batch.num_rows
    if offsets is None:
        offsets = range(base_offset, base_offset + count)
    return RecordRun(offsets, timestamp, changes, names, columns, count)


def column_values(column: pa.Array) -> list[Any]:
    """Return the values of a column, equal to those of `to_pylist`."""
    kind = column.type
    types = pa.types
    if types.is_timestamp(kind):
        return _timestamps(column)
    if types.is_integer(kind) or types.is_floating(kind) or types.is_boolean(kind):
        # NumPy has no null for these.
        numpy_does = not column.null_count
    else:
        numpy_does = (
            types.is_string(kind)
            or types.is_binary(kind)
            or types.is_fixed_size_binary(kind)
            or types.is_decimal(kind)
            or types.is_date32(kind)
            or types.is_time32(kind)
            or (types.is_time64(kind) and kind.unit == "us")
        )
    if numpy_does:
        values: list[Any] = column.to_numpy(zero_copy_only=False).tolist()
        return values
    return list(column.to_pylist())


def _timestamps(column: pa.Array) -> list[Any]:
    kind = column.type
    if kind.unit not in _DATETIME_UNITS:
        return _nanoseconds(column)
    if kind.tz not in (None, "UTC"):
        return list(column.to_pylist())
    moments = column.to_numpy(zero_copy_only=False)
    known = moments[~np.isnat(moments)] if column.null_count else moments
    if len(known) and (known.min() < _DATETIME_MIN or known.max() > _DATETIME_MAX):
        raise ValueError("a timestamp lies outside the years 1 to 9999 of Python's datetime")
    values: list[Any] = moments.tolist()
    if kind.tz is None:
        return values
    zone = _zone(kind.tz)
    return [None if value is None else value.replace(tzinfo=zone) for value in values]


def _nanoseconds(column: pa.Array) -> list[Any]:
    try:
        return list(column.to_pylist())
    except ValueError as error:
        # A Python datetime has microseconds only; Arrow needs pandas for nanoseconds.
        raise MissingExtraError("pandas", "pandas") from error


@lru_cache(maxsize=8)
def _zone(name: str) -> tzinfo | None:
    zone: tzinfo | None = pa.scalar(0, pa.timestamp("us", tz=name)).as_py().tzinfo
    return zone


@lru_cache(maxsize=ROW_MAKERS_KEPT)
def _row_maker(names: tuple[str, ...]) -> Callable[..., Iterator[Row]]:
    """Return a function that makes rows of columns: a dict expression for these names.

    It is three times as fast as `dict(zip(names, values))`. The names are inserted with `repr`,
    so they cannot become code.
    """
    parts = [f"c{i}" for i in range(len(names))]
    fields = ", ".join(f"{name!r}: {part}" for name, part in zip(names, parts, strict=True))
    targets = ", ".join(parts)
    source = f"lambda *columns: ({{{fields}}} for {targets}, in zip(*columns, strict=True))"
    maker: Callable[..., Iterator[Row]] = eval(source, {"__builtins__": {"zip": zip}})  # noqa: S307
    return maker


class StagedRecords:
    """Fetched rows that no poll has returned yet, so that a cancelled poll loses none.

    Any thread may use it: a blocking caller takes records on its own thread while the event loop
    adds rows.
    """

    __slots__ = ("_at", "_batches", "_lock", "_one_by_one", "count")

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._batches: deque[RecordBatch] = deque()
        self._at = 0
        """How many rows of the first batch were returned."""
        self._one_by_one: Iterator[ScanRecord] = iter(())
        """The next rows of the first batch, while records are taken one by one."""
        self.count = 0

    def add(self, rows: RecordBatch) -> None:
        """Add rows at the end."""
        with self._lock:
            if rows.batch.num_rows:
                self._batches.append(rows)
                self.count += rows.batch.num_rows

    def take(self, limit: int, at_least: int = 1) -> ScanRecords:
        """Return at most `limit` records, in the order of their offsets within each bucket.

        Returns:
            The records. It is empty if there are less than `at_least`.
        """
        with self._lock:
            if self.count < at_least:
                return ScanRecords({})
            self._one_by_one = iter(())
            found: dict[TableBucket, Collection[ScanRecord]] = {}
            left = min(limit, ROWS_AT_ONCE_MAX)
            while self._batches and left > 0:
                bucket = self._batches[0].bucket
                try:
                    run = self._first_rows(left)
                except FlussError:
                    # No row is skipped: the next call begins with these rows again.
                    if not found:
                        raise
                    break
                before = found.get(bucket)
                found[bucket] = run if before is None else [*before, *run]
                left -= len(run)
                self._advance(len(run))
            return ScanRecords(found)

    def take_one(self) -> ScanRecord:
        """Return the next record. There must be one."""
        with self._lock:
            record = next(self._one_by_one, None)
            if record is None:
                self._one_by_one = iter(self._first_rows(ROWS_AT_ONCE_MAX))
                record = next(self._one_by_one)
            self._advance(1)
            return record

    def _first_rows(self, limit: int) -> RecordRun:
        first = self._batches[0]
        count = min(limit, first.batch.num_rows - self._at)
        changes = first.change_types
        offsets = first.offsets
        return build_records(
            first.batch.slice(self._at, count),
            first.base_offset + self._at,
            first.timestamp,
            None if changes is None else changes.slice(self._at, count),
            None if offsets is None else offsets[self._at : self._at + count].tolist(),
        )

    def _advance(self, taken: int) -> None:
        self.count -= taken
        self._at += taken
        if self._at == self._batches[0].batch.num_rows:
            self._batches.popleft()
            self._at = 0

    def drop(self, bucket: TableBucket) -> None:
        """Drop the rows of a bucket."""
        with self._lock:
            if self._batches and self._batches[0].bucket == bucket:
                self._one_by_one = iter(())
                self._at = 0
            self._batches = deque(rows for rows in self._batches if rows.bucket != bucket)
            self.count = sum(rows.batch.num_rows for rows in self._batches) - self._at


def shown_schema(projection: Projection, table: TableInfo) -> pa.Schema:
    """Return the schema of the Arrow tables of a scan.

    Rows of a changelog mean nothing without their change types, so a scan of a primary-key table
    adds a last column `_change_type` with the signs of `ChangeType`.
    """
    schema = projection.schema
    return schema.append(_CHANGE_TYPE_FIELD) if table.has_primary_key() else schema


def shown_batch(rows: RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """Return rows of a scan in the schema of `shown_schema`."""
    batch = rows.batch
    if rows.change_types is None:
        return batch
    signs = ChangeType.signs_of(rows.change_types.to_numpy())
    return pa.RecordBatch.from_arrays([*batch.columns, signs], schema=schema)


def to_frame(table: pa.Table) -> pd.DataFrame:
    """Return an Arrow table as a DataFrame.

    Raises:
        MissingExtraError: pandas is not installed.
    """
    try:
        import pandas  # noqa: F401
    except ImportError:
        raise MissingExtraError("pandas", "pandas") from None
    return table.to_pandas()
