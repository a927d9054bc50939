"""Rows as dicts, lists or tuples: checked at the call, gathered, turned into Arrow by columns.

For each table a function is generated that checks one row and adds it to a chunk. It tests every
value for exactly the type that its column wants and leaves all else to `value_checks`, which
changes the value or raises; so the common row costs one call and no loop over columns.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import numpy as np
import pyarrow as pa

from fluss_client.aio.value_checks import (
    FLOAT32_MAX,
    INT_BITS,
    NANOSECOND_PRECISION,
    checker_for,
    shown,
)
from fluss_client.aio.write_handle import WriteResultHandle
from fluss_client.errors import RowError
from fluss_client.model.schema import Schema
from fluss_client.model.types import DataType, Root

CHUNK_ROWS_MAX: Final = 4096
CHUNK_BYTES_MAX: Final = 1 << 20
_ROW_COST: Final = CHUNK_BYTES_MAX // CHUNK_ROWS_MAX
_TEXT_BYTES_MAX: Final = 4
_VALUE_BYTES: Final = 16
_SIZED = frozenset({Root.STRING, Root.CHAR, Root.BYTES})


class Chunk:
    """Rows that share one handle. `room` sinks with every row; at or below 0 the chunk is full."""

    __slots__ = ("deletes", "due", "handle", "room", "rows")

    def __init__(self, handle: WriteResultHandle, due: float) -> None:
        self.handle = handle
        self.due = due
        self.rows: list[tuple[Any, ...]] = []
        self.deletes: list[int] = []
        self.room = CHUNK_BYTES_MAX

    def to_arrow(self, schema: Schema) -> pa.RecordBatch:
        """The rows in the table's wire schema."""
        wire = schema.wire
        columns = [
            pa.array(values, field.type)
            for values, field in zip(zip(*self.rows, strict=True), wire, strict=True)
        ]
        return pa.RecordBatch.from_arrays(columns, schema=wire)

    def delete_mask(self) -> np.ndarray | None:
        """Which rows are deletes; None when none is."""
        if not self.deletes:
            return None
        mask = np.zeros(len(self.rows), bool)
        mask[self.deletes] = True
        return mask


Take = Callable[[Any, Chunk], None]


def row_taker(schema: Schema, columns: Sequence[int]) -> Take:
    """A function that checks a row and adds it to a chunk.

    `columns` are the positions that a row gives, in the order of a list or tuple; all others
    become null. A dict may leave out nullable columns. RowError names the column and the value.
    """
    names = [schema.columns[at].name for at in columns]
    scope: dict[str, Any] = {
        "datetime": dt.datetime,
        "date": dt.date,
        "unpack": _unpacker(names),
        "nested_size": _nested_size,
    }
    tests: list[str] = []
    for position, at in enumerate(columns):
        column = schema.columns[at]
        scope[f"check{position}"] = checker_for(column.name, column.type)
        tests += _test_lines(f"v{position}", position, column.type)
    given = {at: f"v{position}" for position, at in enumerate(columns)}
    stored = ", ".join(given.get(at, "None") for at in range(len(schema.columns)))
    values = "".join(f"v{position}, " for position in range(len(names)))
    source = "\n    ".join(
        (
            "def take(row, chunk):",
            "kind = type(row)",
            f"if kind is dict and len(row) == {len(names)}:",
            "    try:",
            *(f"        v{position} = row[{name!r}]" for position, name in enumerate(names)),
            "    except KeyError:",
            f"        {values}= unpack(row)",
            f"elif (kind is tuple or kind is list) and len(row) == {len(names)}:",
            f"    {values}= row",
            "else:",
            f"    {values}= unpack(row)",
            f"size = {max(_ROW_COST, _VALUE_BYTES * len(names))}",
            *tests,
            f"chunk.rows.append(({stored},))",
            "chunk.room -= size",
        )
    )
    exec(compile(source, "<row checks>", "exec"), scope)  # noqa: S102 - from the schema's own parts
    take: Take = scope["take"]
    return take


def _test_lines(value: str, position: int, data_type: DataType) -> list[str]:
    """Lines that pass a value of exactly the right type and hand any other to its checker."""
    root = data_type.root
    check = f"{value} = check{position}({value})"
    if root in INT_BITS:
        high = 1 << (INT_BITS[root] - 1)
        return [f"if type({value}) is not int or not {-high} <= {value} < {high}: {check}"]
    if root is Root.FLOAT:
        most = FLOAT32_MAX
        return [f"if type({value}) is not float or not {-most!r} <= {value} <= {most!r}: {check}"]
    if root is Root.TIMESTAMP and data_type.precision < NANOSECOND_PRECISION:
        return [f"if type({value}) is not datetime or {value}.tzinfo is not None: {check}"]
    if root in _SIZED:
        fast = f"type({value}) is bytes"
        if root is not Root.BYTES:
            fast = f"type({value}) is str and {value}.isascii()"
        if root is Root.CHAR:
            fast += f" and len({value}) <= {data_type.length}"
        return [
            f"if {fast}: size += len({value})",
            "else:",
            f"    {check}",
            f"    if {value} is not None: size += {_TEXT_BYTES_MAX} * len({value})",
        ]
    if data_type.is_nested:
        return [check, f"size += nested_size({value})"]
    exact = {Root.BOOLEAN: "bool", Root.DOUBLE: "float", Root.DATE: "date"}.get(root)
    return [check] if exact is None else [f"if type({value}) is not {exact}: {check}"]


def _unpacker(names: Sequence[str]) -> Callable[[Any], Sequence[Any]]:
    known = set(names)

    def unpack(row: Any) -> Sequence[Any]:
        if isinstance(row, Mapping):
            unknown = row.keys() - known
            if unknown:
                raise RowError(
                    f"no column '{min(map(str, unknown))}' here; the columns are {', '.join(names)}"
                )
            return [row.get(name) for name in names]
        if isinstance(row, list | tuple):
            if len(row) != len(names):
                raise RowError(
                    f"a row of {len(names)} values is needed ({', '.join(names)}), "
                    f"not of {len(row)}: {shown(row)}"
                )
            return row
        raise RowError(f"a row is a dict, list or tuple, not {type(row).__name__}: {shown(row)}")

    return unpack


def _nested_size(value: Any) -> int:
    """Roughly the bytes of a checked nested value."""
    if isinstance(value, str | bytes):
        return _TEXT_BYTES_MAX * len(value)
    if isinstance(value, dict):
        return _VALUE_BYTES + sum(map(_nested_size, value.values()))
    if isinstance(value, list | tuple):
        return _VALUE_BYTES + sum(map(_nested_size, value))
    return _VALUE_BYTES
