"""Rows that come one by one (dicts, lists or tuples): checked, collected, converted to Arrow.

For each writer a function is generated that checks one row and adds it to the open chunk. It tests
every value for exactly the type that its column wants and leaves all else to the check of the
column's type, which changes the value or raises; so the common row costs one call and no loop over
columns.
"""

from __future__ import annotations

import datetime as dt
import itertools
import operator
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, Protocol

import numpy as np
import pyarrow as pa

from fluss_client.aio.writing.accumulator import Deletes
from fluss_client.aio.writing.results import WriteResultHandle
from fluss_client.errors import RowError
from fluss_client.model.schema import Schema
from fluss_client.model.types import DataType
from fluss_client.model.types.base import shown

CHUNK_ROWS_MAX: Final = 4096
CHUNK_BYTES_MAX: Final = 1 << 20
_ROW_COST: Final = CHUNK_BYTES_MAX // CHUNK_ROWS_MAX
_TEXT_BYTES_MAX: Final = 4
_VALUE_BYTES: Final = 16
_EPOCH: Final = dt.datetime(1970, 1, 1)
_MICROSECONDS: Final = pa.timestamp("us")
_MICROSECOND_SPANS: Final = pa.duration("us")


class Chunk:
    """Rows that share one handle. Each row reduces `room`; at or below 0 the chunk is full.

    The values of all rows are in one flat list: with a tuple or list per row the garbage collector
    would traverse them again and again, which costs more than all the checks.

    A row is added without a lock: a lock per row would slow down every writer. One `extend` adds
    all values of the row, and no other thread sees it half done. The thread that adds reads `open`
    after that; the thread that takes the rows clears `open` before that. So if a row comes too
    late, the thread that added it notices and hands it over itself (`RowSink._add_late`).
    """

    __slots__ = ("due", "handle", "late", "marked", "open", "room", "values", "width")

    def __init__(self, handle: WriteResultHandle, due: float, width: int, marked: bool) -> None:
        self.handle = handle
        self.due = due
        self.width = width
        self.marked = marked
        """Whether the last value of each row says if it is a delete."""
        self.values: list[Any] = []
        self.room = CHUNK_BYTES_MAX
        self.open = True
        self.late: list[WriteResultHandle] = []
        """Handles of rows that were added after the chunk was closed."""

    @property
    def row_count(self) -> int:
        """The number of rows."""
        return len(self.values) // self.width

    def take(self) -> list[Any]:
        """Remove the values of all rows from the closed chunk and return them."""
        taken = self.values[:]
        del self.values[: len(taken)]
        return taken

    def to_arrow(self, taken: list[Any], schema: Schema) -> tuple[pa.RecordBatch, Deletes]:
        """Return the values as a batch in the table's wire schema, and its delete marks."""
        columns = [
            _column(taken[at :: self.width], field.type) for at, field in enumerate(schema.wire)
        ]
        deletes = None
        if self.marked:
            marks = np.array(taken[self.width - 1 :: self.width], bool)
            deletes = marks if marks.any() else None
        return pa.RecordBatch.from_arrays(columns, schema=schema.wire), deletes


def _column(values: list[Any], data_type: pa.DataType) -> pa.Array:
    """Convert checked values of one column to Arrow."""
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
    """The writer that checked rows go to."""

    _chunk: Chunk

    def _add_checked(self, values: tuple[Any, ...], size: int) -> WriteResultHandle:
        """Add a row when there is no open chunk with room."""

    def _add_late(self, chunk: Chunk) -> WriteResultHandle:
        """Hand over a row that was added to a chunk while another thread closed it."""


AddRow = Callable[[Any], WriteResultHandle]


def row_adder(
    schema: Schema, columns: Sequence[int], sink: RowSink, *, delete: bool | None = None
) -> AddRow:
    """Generate the function that checks a row and adds it to the open chunk of a writer.

    A dict may leave out nullable columns. The function raises `RowError`, which names the column
    and the value.

    Args:
        schema: The schema of the table.
        columns: The positions of the columns that a row gives, in the order of a list or tuple;
            all others become null.
        sink: The writer.
        delete: Whether rows are deletes; None if chunks have no delete marks.
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
        scope[f"check{position}"] = column.type.checker(column.name)
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
        "    return chunk.handle if chunk.open else sink._add_late(chunk)",
        f"return sink._add_checked(({stored}), size)",
    )
    source = "\n    ".join(lines)
    exec(compile(source, "<row checks>", "exec"), scope)  # noqa: S102 - from the schema's own parts
    add: AddRow = scope["add"]
    return add


def _test_lines(value: str, position: int, data_type: DataType) -> list[str]:
    """Lines that pass a value of exactly the right type and hand any other to its checker."""
    check = f"{value} = check{position}({value})"
    if data_type.is_nested:
        return [check, f"size += nested_size({value})"]
    test = data_type.exact_test(value)
    if data_type.is_sized:
        return [
            f"if {test}: size += len({value})",
            "else:",
            f"    {check}",
            f"    if {value} is not None: size += {_TEXT_BYTES_MAX} * len({value})",
        ]
    return [check] if test is None else [f"if not ({test}): {check}"]


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
    """Estimate the bytes of a checked nested value."""
    if isinstance(value, str | bytes):
        return _TEXT_BYTES_MAX * len(value)
    if isinstance(value, dict):
        return _VALUE_BYTES + sum(map(_nested_size, value.values()))
    if isinstance(value, list | tuple):
        return _VALUE_BYTES + sum(map(_nested_size, value))
    return _VALUE_BYTES
