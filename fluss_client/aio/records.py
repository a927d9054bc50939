"""Arrow batches as records: one `ScanRecord` with a dict row for each row.

Columns are turned into Python values one column at a time, by NumPy where that is faster than
Arrow, and rows are put together by a comprehension made for the column names: a loop over the
values of each row would cost several times as much. Values are those that `to_pylist` gives.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from datetime import tzinfo
from functools import lru_cache
from itertools import repeat
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from fluss_client.errors import MissingExtraError, RowError
from fluss_client.model.cluster import ChangeType
from fluss_client.model.records import ScanRecord, ScanRecords
from fluss_client.model.table import TableBucket

ROW_MAKERS_KEPT = 256

Rows = list[dict[str, Any]]
_CHANGES = tuple(ChangeType)
_DATETIME_UNITS = ("s", "ms", "us")
# What a Python datetime can hold: the years 1 to 9999.
_DATETIME_MIN = np.datetime64("0001-01-01T00:00:00", "us")
_DATETIME_MAX = np.datetime64("9999-12-31T23:59:59.999999", "us")


def build_records(
    batch: pa.RecordBatch,
    base_offset: int,
    timestamp: int,
    change_types: npt.NDArray[np.uint8] | None,
) -> list[ScanRecord]:
    """The rows of a batch as records with rising offsets."""
    rows = build_rows(batch)
    changes: Iterable[ChangeType]
    if change_types is None:
        changes = repeat(ChangeType.AppendOnly)
    else:
        changes = map(_CHANGES.__getitem__, change_types.tolist())
    offsets = range(base_offset, base_offset + len(rows))
    # The generated constructor of a named tuple takes longer than all the rest of this line.
    fields = zip(offsets, repeat(timestamp), changes, rows, strict=False)
    return list(map(tuple.__new__, repeat(ScanRecord), fields))


def build_rows(batch: pa.RecordBatch) -> Rows:
    """The rows of a batch as dicts."""
    names = tuple(batch.schema.names)
    if not names:
        return [{} for _ in range(batch.num_rows)]
    columns = []
    for name, column in zip(names, batch.columns, strict=True):
        try:
            columns.append(column_values(column))
        except (ValueError, OverflowError) as error:
            raise RowError(
                f"column '{name}': {error}; read it with a batch scanner, as Arrow"
            ) from error
    return _row_maker(names)(*columns)


def column_values(column: pa.Array) -> list[Any]:
    """The values of a column, as `to_pylist` gives them."""
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
        # Python's own datetime ends at microseconds; pandas' Timestamp does not.
        raise MissingExtraError("pandas", "pandas") from error


@lru_cache(maxsize=8)
def _zone(name: str) -> tzinfo | None:
    zone: tzinfo | None = pa.scalar(0, pa.timestamp("us", tz=name)).as_py().tzinfo
    return zone


@lru_cache(maxsize=ROW_MAKERS_KEPT)
def _row_maker(names: tuple[str, ...]) -> Callable[..., Rows]:
    """A function of columns that gives rows: a dict display, compiled for these names.

    Three times as fast as `dict(zip(names, values))`. Names enter the text as literals only.
    """
    parts = [f"c{i}" for i in range(len(names))]
    fields = ", ".join(f"{name!r}: {part}" for name, part in zip(names, parts, strict=True))
    targets = ", ".join(parts)
    source = f"lambda *columns: [{{{fields}}} for {targets}, in zip(*columns, strict=True)]"
    maker: Callable[..., Rows] = eval(source, {"__builtins__": {"zip": zip}})  # noqa: S307
    return maker


class StagedRecords:
    """Records that were built and not yet handed out, so that a cancelled poll loses none."""

    __slots__ = ("_runs", "count")

    def __init__(self) -> None:
        self._runs: deque[tuple[TableBucket, deque[ScanRecord]]] = deque()
        self.count = 0

    def add(self, bucket: TableBucket, records: list[ScanRecord]) -> None:
        """Put records of a bucket at the end."""
        if records:
            self._runs.append((bucket, deque(records)))
            self.count += len(records)

    def take(self, limit: int) -> ScanRecords:
        """At most so many records, oldest first within each bucket."""
        found: dict[TableBucket, list[ScanRecord]] = {}
        while self._runs and limit > 0:
            bucket, run = self._runs[0]
            into = found.setdefault(bucket, [])
            if len(run) <= limit:
                taken = len(run)
                into.extend(run)
                self._runs.popleft()
            else:
                taken = limit
                into.extend(run.popleft() for _ in range(limit))
            limit -= taken
            self.count -= taken
        return ScanRecords(found)

    def take_one(self) -> ScanRecord:
        """The next record; there must be one."""
        _, run = self._runs[0]
        record = run.popleft()
        if not run:
            self._runs.popleft()
        self.count -= 1
        return record

    def drop(self, bucket: TableBucket) -> None:
        """Forget a bucket's records."""
        self._runs = deque(entry for entry in self._runs if entry[0] != bucket)
        self.count = sum(len(run) for _, run in self._runs)
