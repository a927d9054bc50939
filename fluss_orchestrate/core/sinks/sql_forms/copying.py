"""Rows into a table of a SQL database in bulk: COPY on PostgreSQL, many inserts elsewhere.

COPY takes CSV that Arrow writes: a null is an empty field, and every text is in quotes, so that an
empty text is not a null. Bytes are `\\x` and hexadecimal digits, nested values are JSON. Rows with
a text that CSV cannot hold safely go in COPY's own text format.
"""

from __future__ import annotations

import datetime as dt
import io
import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as csv

from fluss_orchestrate.core.plan import ScanPlan
from fluss_orchestrate.core.read_ahead import read_ahead
from fluss_orchestrate.core.sinks.errors import SinkError, SinkValueError
from fluss_orchestrate.core.sinks.sql_types import (
    POSTGRES,
    Nested,
    SqlValues,
    UnfitValueError,
    check_no_nul,
    without_digits_below_us,
)
from fluss_orchestrate.core.sql_engine import plain_text, reason

if TYPE_CHECKING:
    from sqlalchemy import Connection, Table

ROWS_PER_INSERT = 2_000
ROWS_PER_COPY = 50_000
"""The rows of one COPY, whose CSV is held in memory."""
WITHOUT_THE_COLUMN = (
    "read without this column: `abandon` the plan, which keeps its columns, then set columns="
)
_END_MARKS = ("\n\\.", "\r\\.")
"""PostgreSQL before 17 takes a line `\\.` for the end of a COPY, even within a text in quotes."""
_ESCAPES = {"\\": "\\\\", "\t": "\\t", "\n": "\\n", "\r": "\\r"}
"""What the text format of COPY has for the characters that structure it."""
_HEX = np.frombuffer(bytes(range(256)).hex().encode(), np.uint16)
_FIRST_DAY, _LAST_DAY = dt.date.min, dt.date.max

Convert = Callable[[str, pa.Array], pa.Array]


@dataclass(frozen=True, slots=True)
class CopyData:
    """Rows for COPY, in its layout `csv` or `text`."""

    data: pa.Buffer
    layout: str


EncodedRows = CopyData | list[dict[str, Any]]
"""Rows as the database takes them: for COPY, or as parameters of an INSERT."""


class BulkInsert:
    """Adds batches of one schema to one table, within a transaction.

    Args:
        connection: The connection, in the transaction.
        table: The table, with the columns of the batches.
        columns: The schema of the batches.
        values: Makes parameters of the batches, where the database has no COPY.
        replace_nul: What replaces U+0000 where text cannot hold it; None refuses the value.
        key: Columns of a key, in which U+0000 is never replaced.
    """

    def __init__(
        self,
        connection: Connection,
        table: Table,
        columns: pa.Schema,
        values: SqlValues,
        replace_nul: str | None = None,
        key: Sequence[str] = (),
    ) -> None:
        self._connection = connection
        self._table = table
        self._names = columns.names
        self._values = values
        self._encoder = None
        if connection.dialect.name == POSTGRES and connection.dialect.driver in _COPY:
            self._encoder = CopyRows(columns, replace_nul, key)

    def add(self, rows: pa.RecordBatch) -> None:
        """Add rows.

        Raises:
            UnfitValueError: A value cannot be stored.
        """
        for part in self.encoded(rows):
            self.write(part)

    def encoded(self, rows: pa.RecordBatch) -> Iterator[EncodedRows]:
        """Return rows as the database takes them, some at a time. May be called on any thread.

        Raises:
            UnfitValueError: A value cannot be stored.
        """
        step = ROWS_PER_INSERT if self._encoder is None else ROWS_PER_COPY
        for start in range(0, rows.num_rows, step):
            part = rows.slice(start, step)
            if self._encoder is None:
                yield self._values.rows(part)
            elif _has_end_mark(part):
                yield CopyData(self._encoder.encode_text(part), "text")
            else:
                yield CopyData(self._encoder.encode(part), "csv")

    def write(self, rows: EncodedRows) -> None:
        """Add rows that were encoded."""
        if isinstance(rows, CopyData):
            self._copy(rows.data, rows.layout)
        else:
            self._connection.execute(self._table.insert(), rows)

    def _copy(self, data: pa.Buffer, layout: str) -> None:
        import sqlalchemy as sa

        dialect = self._connection.dialect
        preparer = dialect.identifier_preparer
        names = ", ".join(preparer.quote_identifier(name) for name in self._names)
        statement = (
            f"COPY {preparer.format_table(self._table)} ({names}) FROM STDIN "
            f"WITH (FORMAT {layout}, ENCODING 'UTF8')"
        )
        driver: Any = self._connection.connection.driver_connection
        errors: Any = dialect.dbapi
        failure: Exception
        try:
            with driver.cursor() as cursor:
                _COPY[dialect.driver](cursor, plain_text(dialect, statement), data)
            return
        except errors.Error as error:
            # As SQLAlchemy raises the errors of its own statements.
            failure = sa.exc.DBAPIError.instance(None, None, error, errors.Error, dialect=dialect)
        raise failure


def add_all(rows: Iterable[tuple[BulkInsert, pa.RecordBatch]]) -> None:
    """Add rows to their tables. While the database works, the next rows are read and encoded.

    Args:
        rows: The rows with where they go. They are made on another thread.

    Raises:
        UnfitValueError: A value cannot be stored.
    """
    encoded = ((into, part) for into, batch in rows for part in into.encoded(batch))
    with read_ahead(encoded) as parts:
        for into, part in parts:
            into.write(part)


def _copy_psycopg2(cursor: Any, statement: str, data: pa.Buffer) -> None:
    cursor.copy_expert(statement, io.BytesIO(data))


def _copy_psycopg(cursor: Any, statement: str, data: pa.Buffer) -> None:
    with cursor.copy(statement) as copy:
        copy.write(memoryview(data))


_COPY = {"psycopg2": _copy_psycopg2, "psycopg": _copy_psycopg}
"""How each driver does a COPY."""


def _has_end_mark(rows: pa.RecordBatch) -> bool:
    return any(
        pc.any(pc.match_substring(column, mark)).as_py()
        for column in rows.columns
        if pa.types.is_string(column.type) or pa.types.is_large_string(column.type)
        for mark in _END_MARKS
    )


class CopyRows:
    """Turns batches of one schema into what PostgreSQL's COPY reads.

    Args:
        columns: The schema of the batches.
        replace_nul: What replaces U+0000 in texts; None refuses the value.
        key: Columns in which it is never replaced: two keys could become one.
    """

    def __init__(self, columns: pa.Schema, replace_nul: str | None, key: Sequence[str]) -> None:
        self._converts = [
            (f.name, _column_of(f.type, None if f.name in key else replace_nul)) for f in columns
        ]

    def encode(self, rows: pa.RecordBatch) -> pa.Buffer:
        """Return the rows as CSV without a header.

        Raises:
            UnfitValueError: A value cannot be stored.
        """
        names = [name for name, _ in self._converts]
        sink = pa.BufferOutputStream()
        options = csv.WriteOptions(include_header=False)
        csv.write_csv(pa.RecordBatch.from_arrays(self._columns(rows), names=names), sink, options)
        return sink.getvalue()

    def encode_text(self, rows: pa.RecordBatch) -> pa.Buffer:
        """Return the rows in the text format of COPY, which takes more steps than CSV.

        Raises:
            UnfitValueError: A value cannot be stored.
        """
        columns = []
        for column in self._columns(rows):
            texts = column.cast(pa.large_string())
            for character, escaped in _ESCAPES.items():
                texts = pc.replace_substring(texts, character, escaped)
            columns.append(pc.fill_null(texts, "\\N"))
        tab, empty, end = (pa.scalar(text, pa.large_string()) for text in ("\t", "", "\n"))
        lines = pc.binary_join_element_wise(*columns, tab)
        lines = pc.binary_join_element_wise(lines, empty, end)
        _, offsets, data = lines.buffers()
        return data[: np.frombuffer(offsets, np.int64)[len(lines)]]

    def _columns(self, rows: pa.RecordBatch) -> list[pa.Array]:
        return [
            convert(name, column)
            for (name, convert), column in zip(self._converts, rows.columns, strict=True)
        ]


def _column_of(kind: pa.DataType, replace_nul: str | None) -> Convert:
    """Return the function that makes a column whose texts PostgreSQL reads as its values."""
    is_ = pa.types
    if is_.is_nested(kind):
        nested = Nested(kind)
        return lambda name, column: pa.array(
            [None if v is None else json.dumps(v) for v in nested(name, column)], pa.string()
        )
    if is_.is_string(kind) or is_.is_large_string(kind):
        return lambda name, column: _text(name, column, replace_nul)
    if is_.is_binary(kind) or is_.is_large_binary(kind) or is_.is_fixed_size_binary(kind):
        return lambda _, column: _hex(column)
    if is_.is_floating(kind):
        # As a double, whose digits are those of the float: the column is a double, too.
        return lambda _, column: column.cast(pa.float64())
    if is_.is_timestamp(kind) or is_.is_date(kind):
        return _in_years_of_python
    if is_.is_time(kind):
        return lambda _, column: without_digits_below_us(column)
    if is_.is_decimal(kind):
        return lambda _, column: column.cast(pa.string())
    return lambda _, column: column


def _text(name: str, column: pa.Array, replace_nul: str | None) -> pa.Array:
    if replace_nul is not None:
        column = pc.replace_substring(column, "\x00", replace_nul)
    check_no_nul(name, column)
    return column


def _hex(column: pa.Array) -> pa.Array:
    """Return bytes as PostgreSQL reads them: `\\x` and two digits per byte."""
    column = column.cast(pa.large_binary())
    count, prefix = len(column), pa.scalar("\\x", pa.large_string())
    _, offsets, data = column.buffers()
    if not count or data is None:
        return pc.if_else(column.is_valid(), prefix, pa.scalar(None, prefix.type))
    bounds = np.frombuffer(offsets, np.int64)[column.offset : column.offset + count + 1]
    digits = _HEX[np.frombuffer(data, np.uint8)[bounds[0] : bounds[-1]]]
    places = pa.py_buffer(((bounds - bounds[0]) * 2).tobytes())
    texts = pa.LargeStringArray.from_buffers(count, places, pa.py_buffer(digits.tobytes()))
    texts = pc.binary_join_element_wise(prefix, texts, pa.scalar("", prefix.type))
    return pc.if_else(column.is_valid(), texts, pa.scalar(None, prefix.type))


def _in_years_of_python(name: str, column: pa.Array) -> pa.Array:
    days = column.cast(pa.date32(), safe=False)
    outside = pc.or_(
        pc.less(days, pa.scalar(_FIRST_DAY, pa.date32())),
        pc.greater(days, pa.scalar(_LAST_DAY, pa.date32())),
    )
    if pc.any(outside).as_py():
        raise UnfitValueError(
            name,
            pc.index(outside, True).as_py(),
            f"a value of type {column.type} that Python cannot hold (years lie in 1 to 9999)",
        )
    return without_digits_below_us(column)


@contextmanager
def explained_values(sink: str, plan: ScanPlan) -> Iterator[None]:
    """Raise `SinkValueError` for rows that the database does not take; values are not shown.

    Args:
        sink: The sink's name, for the error.
        plan: The plan whose rows are written.
    """
    import sqlalchemy as sa

    failure: SinkError
    try:
        yield
        return
    except UnfitValueError as unfit:
        way_outs = "; or ".join(filter(None, (unfit.way_out, WITHOUT_THE_COLUMN)))
        failure = SinkValueError(
            sink,
            f"a row of plan {plan.plan_id} has in column '{unfit.column}' {unfit.kind}; nothing "
            f"of the plan was written. Ways out: {way_outs}",
            unfit.column,
            None,
            unfit.kind,
        )
    except sa.exc.OperationalError:
        raise  # The connection, a lock or the disk failed: the rows are not the reason.
    except sa.exc.SQLAlchemyError as error:
        failure = refused_rows(sink, plan, "rows", reason(error))
    except (ValueError, OverflowError, TypeError) as error:
        failure = refused_rows(sink, plan, "rows", type(error).__name__)
    raise failure


def refused_rows(sink: str, plan: ScanPlan, which: str, why: str) -> SinkValueError:
    """Return the error for rows that the database refused.

    Args:
        sink: The sink's name.
        plan: The plan whose rows are written.
        which: Which rows of the plan.
        why: What the database said, without values.
    """
    return SinkValueError(
        sink,
        f"the database refused {which} of plan {plan.plan_id}: {why}; nothing of the plan was "
        "written. Ways out: let the table take such rows (its types and constraints), and run "
        f"again; or {WITHOUT_THE_COLUMN}",
        None,
        None,
        why,
    )
