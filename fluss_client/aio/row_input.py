"""Rows as dicts, lists or tuples: checked at the call, gathered, turned into Arrow by columns.

For each writer a function is generated that checks one row and adds it to the open chunk. It tests
every value for exactly the type that its column wants and leaves all else to `value_checks`, which
changes the value or raises; so the common row costs one call and no loop over columns.
"""

from __future__ import annotations

import datetime as dt
import itertools
import operator
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from fluss_client.aio.value_checks import (
    FLOAT32_MAX,
    NANOSECOND_PRECISION,
    checker_for,
    shown,
)
from fluss_client.aio.write_handle import WriteResultHandle
from fluss_client.errors import RowError
from fluss_client.model.schema import Schema
from fluss_client.model.types import INT_BITS, DataType, Root

CHUNK_ROWS_MAX: Final = 4096
CHUNK_BYTES_MAX: Final = 1 << 20
_ROW_COST: Final = CHUNK_BYTES_MAX // CHUNK_ROWS_MAX
_TEXT_BYTES_MAX: Final = 4
_VALUE_BYTES: Final = 16
Deletes = npt.NDArray[np.bool_] | None
_EPOCH: Final = dt.datetime(1970, 1, 1)
_MICROSECONDS: Final = pa.timestamp("us")
_MICROSECOND_SPANS: Final = pa.duration("us")
_SIZED = frozenset({Root.STRING, Root.CHAR, Root.BYTES})


class Chunk:
    """Rows that share one handle. `room` sinks with every row; at or below 0 the chunk is full.

    The values of all rows stand in one flat list: a tuple or list kept per row would make the
    garbage collector look at them again and again, which costs more than all the checks. A row is
    added without a lock: its values by one `extend`, which no other thread sees half done. Who adds
    looks at `open` after that, who takes the rows away closes the chunk before that; so a row that
    came too late is noticed by the one who added it.
    """

    __slots__ = ("due", "handle", "late", "marked", "open", "room", "values", "width")

    def __init__(self, handle: WriteResultHandle, due: float, width: int, marked: bool) -> None:
        self.handle = handle
        self.due = due
        self.width = width
        self.marked = marked
        """Whether each row has a last value that says whether it is a delete."""
        self.values: list[Any] = []
        self.room = CHUNK_BYTES_MAX
        self.open = True
        self.late: list[WriteResultHandle] = []
        """Handles of rows that came after the chunk was closed."""

    @property
    def row_count(self) -> int:
        """Rows in it."""
        return len(self.values) // self.width

    def take(self) -> list[Any]:
        """Take the rows out; the chunk is closed."""
        taken = self.values[:]
        del self.values[: len(taken)]
        return taken

    def to_arrow(self, taken: list[Any], schema: Schema) -> tuple[pa.RecordBatch, Deletes]:
        """Rows in the table's wire schema, and which of them are deletes (None: none is)."""
        columns = [
            _column(taken[at :: self.width], field.type) for at, field in enumerate(schema.wire)
        ]
        deletes = None
        if self.marked:
            marks = np.array(taken[self.width - 1 :: self.width], bool)
            deletes = marks if marks.any() else None
        return pa.RecordBatch.from_arrays(columns, schema=schema.wire), deletes


def _column(values: list[Any], data_type: pa.DataType) -> pa.Array:
    """Checked values as Arrow."""
    if data_type == _MICROSECONDS:
        # Arrow turns a timedelta into a number three times as fast as a datetime.
        try:
            spans = list(map(operator.sub, values, itertools.repeat(_EPOCH)))
        except TypeError:
            pass  # there is a null among them
        else:
            return pa.array(spans, _MICROSECOND_SPANS).view(data_type)
    return pa.array(values, data_type)


class RowSink(Protocol):
    """Where checked rows go: into the open chunk, else the slow way."""

    _chunk: Chunk

    def _add_checked(self, values: tuple[Any, ...], size: int) -> WriteResultHandle:
        """There was no open chunk with room."""

    def _rescue(self, chunk: Chunk) -> WriteResultHandle:
        """The chunk was closed while a row was being added."""


AddRow = Callable[[Any], WriteResultHandle]


def row_adder(
    schema: Schema, columns: Sequence[int], sink: RowSink, *, delete: bool | None = None
) -> AddRow:
    """A function that checks a row and adds it to the sink's open chunk.

    `columns` are the positions that a row gives, in the order of a list or tuple; all others
    become null. A dict may leave out nullable columns. RowError names the column and the value.
    `delete` marks each row as a delete or not; None where chunks have no marks.
    """
    names = [schema.columns[at].name for at in columns]
    scope: dict[str, Any] = {
        "datetime": dt.datetime,
        "date": dt.date,
        "sink": sink,
        "unpack": _unpacker(names),
        "nested_size": _nested_size,
    }
    tests: list[str] = []
    for position, at in enumerate(columns):
        column = schema.columns[at]
        scope[f"check{position}"] = checker_for(column.name, column.type)
        tests += _test_lines(f"v{position}", position, column.type)
    given = {at: f"v{position}" for position, at in enumerate(columns)}
    stored = "".join(given.get(at, "None") + ", " for at in range(len(schema.columns)))
    stored += "" if delete is None else f"{delete}, "
    values = "".join(f"v{position}, " for position in range(len(names)))
    lines = (
        "def add(row):",
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
        "chunk = sink._chunk",
        "if chunk.room > 0:",
        "    chunk.room -= size",
        f"    chunk.values.extend(({stored}))",
        "    return chunk.handle if chunk.open else sink._rescue(chunk)",
        f"return sink._add_checked(({stored}), size)",
    )
    source = "\n    ".join(lines)
    exec(compile(source, "<row checks>", "exec"), scope)  # noqa: S102 - from the schema's own parts
    add: AddRow = scope["add"]
    return add


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
    if root in (Root.TIMESTAMP, Root.TIMESTAMP_LTZ) and data_type.precision < NANOSECOND_PRECISION:
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
