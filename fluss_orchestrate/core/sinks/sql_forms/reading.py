"""Reading rows back from a SQL table, as the Arrow values that a sink has stored.

It is the inverse of `sql_types`: texts of decimals, `NaN` in a FLOAT column of SQLite, and JSON of
nested values become the values that they were.
"""

from __future__ import annotations

import base64
import datetime as dt
import decimal
import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from fluss_orchestrate.core.sinks.sql_forms.tables import TargetTable
from fluss_orchestrate.core.sinks.sql_types import (
    POSTGRES,
    SQLITE,
    sql_type,
    type_without_digits_below_us,
)

if TYPE_CHECKING:
    from sqlalchemy import Connection, Engine

BATCH_ROWS = 10_000
_EPOCH = dt.datetime(1970, 1, 1)
_Value = Callable[[Any], Any]


@contextmanager
def snapshot(engine: Engine) -> Iterator[Connection]:
    """Open a connection whose queries all see the database as it was at the first one."""
    if engine.dialect.name == SQLITE:
        with engine.connect() as connection:
            connection.exec_driver_sql("BEGIN")  # the driver begins only before a change
            yield connection
            connection.rollback()
        return
    with engine.connect().execution_options(isolation_level="REPEATABLE READ") as connection:
        yield connection
        connection.rollback()


def stored_schema(schema: pa.Schema) -> pa.Schema:
    """Return the schema of what is read back: times have at most microseconds."""
    fields = [f.with_type(type_without_digits_below_us(f.type)) for f in schema]
    return pa.schema(fields, schema.metadata)


def read_rows(
    connection: Connection, target: TargetTable, schema: pa.Schema
) -> Iterator[pa.RecordBatch]:
    """Return the rows of the table in batches of `stored_schema(schema)`.

    Args:
        connection: The connection; rows are taken from the server as they are read.
        target: The table.
        schema: The columns to read, with the types of the Fluss table.
    """
    import sqlalchemy as sa

    fields = stored_schema(schema)
    values = [_reader(field.type, target.dialect) for field in fields]
    kinds = {
        field.name: sa.types.NullType() if _is_raw(field.type, target.dialect) else kind
        for field in fields
        for kind in [sql_type(field.type, target.dialect)]
    }
    table = target.described(kinds)
    query = sa.select(*table.c)
    options = {"stream_results": True, "max_row_buffer": BATCH_ROWS}
    with connection.execution_options(**options).execute(query) as found:
        for rows in found.partitions(BATCH_ROWS):
            columns = zip(*rows, strict=True)
            yield pa.RecordBatch.from_arrays(
                [
                    pa.array(list(column) if make is None else _made(make, column), field.type)
                    for column, make, field in zip(columns, values, fields, strict=True)
                ],
                schema=fields,
            )


def _made(make: _Value, column: Sequence[Any]) -> list[Any]:
    return [None if value is None else make(value) for value in column]


def _is_raw(kind: pa.DataType, dialect: str) -> bool:
    """Return whether values are taken as the driver gives them, without SQLAlchemy's types."""
    if pa.types.is_nested(kind):
        return True
    return dialect == SQLITE and (pa.types.is_floating(kind) or pa.types.is_decimal(kind))


def _reader(kind: pa.DataType, dialect: str) -> _Value | None:
    """Return the function that makes Arrow's value of a stored one; None where it is the same."""
    is_ = pa.types
    if is_.is_nested(kind):
        value_of = value_from_json(kind)
        return lambda stored: value_of(json.loads(stored) if isinstance(stored, str) else stored)
    if is_.is_floating(kind):
        return float
    if is_.is_decimal(kind) and dialect == SQLITE:
        return lambda stored: decimal.Decimal(
            stored if isinstance(stored, str) else f"{stored:.{kind.scale}f}"
        )
    if is_.is_binary(kind) or is_.is_large_binary(kind) or is_.is_fixed_size_binary(kind):
        return bytes
    if is_.is_timestamp(kind) and kind.tz is not None and dialect != POSTGRES:
        return lambda stored: stored.replace(tzinfo=dt.UTC)
    return None


def value_from_json(kind: pa.DataType) -> _Value:
    """Return the function that makes a value of a type of what JSON holds for it."""
    is_ = pa.types
    if is_.is_struct(kind):
        inner = {field.name: _or_null(value_from_json(field.type)) for field in kind}
        return lambda value: {name: make(value.get(name)) for name, make in inner.items()}
    if is_.is_map(kind):
        key_of, item_of = value_from_json(kind.key_type), _or_null(value_from_json(kind.item_type))
        return lambda value: [(key_of(key), item_of(item)) for key, item in value]
    if is_.is_nested(kind):
        one = _or_null(value_from_json(kind.value_type))
        return lambda value: [one(part) for part in value]
    if is_.is_floating(kind):
        return float
    if is_.is_binary(kind) or is_.is_large_binary(kind) or is_.is_fixed_size_binary(kind):
        return base64.b64decode
    if is_.is_decimal(kind):
        return decimal.Decimal
    if is_.is_date(kind):
        return dt.date.fromisoformat
    if is_.is_time(kind):
        return lambda value: _number(_time_ns(value), kind)
    if is_.is_timestamp(kind):
        return lambda value: _number(_timestamp_ns(value), kind)
    return lambda value: value


def _or_null(make: _Value) -> _Value:
    return lambda value: None if value is None else make(value)


_NS_OF = {"s": 10**9, "ms": 10**6, "us": 10**3, "ns": 1}


def _number(ns: int, kind: pa.DataType) -> pa.Scalar:
    """Return a time as Arrow has it: Python's own times have no nanoseconds."""
    return pa.scalar(
        ns // _NS_OF[kind.unit], pa.int64() if kind.bit_width == 64 else pa.int32()
    ).cast(kind)


def _timestamp_ns(text: str) -> int:
    whole, _, fraction = text.removesuffix("+00:00").partition(".")
    seconds = (dt.datetime.fromisoformat(whole) - _EPOCH) // dt.timedelta(seconds=1)
    return seconds * 10**9 + int(fraction.ljust(9, "0") or 0)


def _time_ns(text: str) -> int:
    whole, _, fraction = text.partition(".")
    hours, minutes, seconds = (int(part) for part in whole.split(":"))
    return ((hours * 60 + minutes) * 60 + seconds) * 10**9 + int(fraction.ljust(9, "0") or 0)
