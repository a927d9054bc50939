"""Arrow batches as records: one `ScanRecord` with a dict row for each row.

Columns are turned into Python values one column at a time, by NumPy where that is faster than
Arrow, and rows are put together by an expression made for the column names: a loop over the values
of each row would cost several times as much. Values are those that `to_pylist` gives.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from datetime import tzinfo
from functools import lru_cache
from itertools import repeat
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from fluss_client.errors import MissingExtraError, RowError
from fluss_client.model.cluster import ChangeType
from fluss_client.model.records import ScanRecord

ROW_MAKERS_KEPT = 256

Row = dict[str, Any]
_CHANGES = tuple(ChangeType)
_DATETIME_UNITS = ("s", "ms", "us")
# What a Python datetime can hold: the years 1 to 9999.
_DATETIME_MIN = np.datetime64("0001-01-01T00:00:00", "us")
_DATETIME_MAX = np.datetime64("9999-12-31T23:59:59.999999", "us")


class RecordRun(Collection[ScanRecord]):
    """Consecutive records of one bucket, as columns of Python values.

    Iterating makes one record at a time: those that are dropped at once cost the garbage
    collector nothing, which a list of them would, and as much as making them.
    """

    __slots__ = ("_base", "_changes", "_columns", "_count", "_names", "_timestamp")

    def __init__(
        self,
        base_offset: int,
        timestamp: int,
        changes: list[ChangeType] | None,
        names: tuple[str, ...],
        columns: list[list[Any]],
        count: int,
    ) -> None:
        self._base = base_offset
        self._timestamp = timestamp
        self._changes = changes
        self._names = names
        self._columns = columns
        self._count = count

    def __len__(self) -> int:
        return self._count

    def __iter__(self) -> Iterator[ScanRecord]:
        changes = self._changes or repeat(ChangeType.AppendOnly)
        offsets = range(self._base, self._base + self._count)
        rows = _row_maker(self._names)(*self._columns)
        # The generated constructor of a named tuple takes longer than all the rest of this line.
        fields = zip(offsets, repeat(self._timestamp), changes, rows, strict=False)
        return map(tuple.__new__, repeat(ScanRecord), fields)

    def __contains__(self, record: object) -> bool:
        return any(record == mine for mine in self)


def build_records(
    batch: pa.RecordBatch,
    base_offset: int,
    timestamp: int,
    change_types: npt.NDArray[np.uint8] | None,
) -> RecordRun:
    """The rows of a batch as records with rising offsets."""
    changes = None
    if change_types is not None:
        changes = list(map(_CHANGES.__getitem__, change_types.tolist()))
    names = tuple(batch.schema.names)
    columns = []
    for name, column in zip(names, batch.columns, strict=True):
        try:
            columns.append(column_values(column))
        except (ValueError, OverflowError) as error:
            raise RowError(
                f"column '{name}': {error}; read it with a batch scanner, as Arrow"
            ) from error
    return RecordRun(base_offset, timestamp, changes, names, columns, batch.num_rows)


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
def _row_maker(names: tuple[str, ...]) -> Callable[..., Iterator[Row]]:
    """A function of columns that gives rows: a dict display, compiled for these names.

    Three times as fast as `dict(zip(names, values))`. Names enter the text as literals only.
    """
    parts = [f"c{i}" for i in range(len(names))]
    fields = ", ".join(f"{name!r}: {part}" for name, part in zip(names, parts, strict=True))
    targets = ", ".join(parts)
    source = f"lambda *columns: ({{{fields}}} for {targets}, in zip(*columns, strict=True))"
    maker: Callable[..., Iterator[Row]] = eval(source, {"__builtins__": {"zip": zip}})  # noqa: S307
    return maker
