"""Arrow columns as SQL columns, and their values as a database driver takes them."""

from __future__ import annotations

import base64
import datetime as dt
import decimal
from typing import Any

import pyarrow as pa


def sql_type(kind: pa.DataType) -> Any:
    """The SQLAlchemy type for an Arrow type; nested values and what else has none become JSON."""
    import sqlalchemy as sa

    is_ = pa.types
    if is_.is_boolean(kind):
        return sa.Boolean()
    if is_.is_integer(kind):
        return {8: sa.SmallInteger(), 16: sa.SmallInteger(), 32: sa.Integer()}.get(
            kind.bit_width, sa.BigInteger()
        )
    if is_.is_floating(kind):
        return sa.Double() if kind.bit_width == 64 else sa.Float()
    if is_.is_decimal(kind):
        return sa.Numeric(kind.precision, kind.scale)
    if is_.is_string(kind) or is_.is_large_string(kind):
        return sa.Text()
    if is_.is_binary(kind) or is_.is_large_binary(kind) or is_.is_fixed_size_binary(kind):
        return sa.LargeBinary()
    if is_.is_date(kind):
        return sa.Date()
    if is_.is_time(kind):
        return sa.Time()
    if is_.is_timestamp(kind):
        return sa.DateTime(timezone=kind.tz is not None)
    return sa.JSON()


def as_values(batch: pa.RecordBatch) -> list[dict[str, Any]]:
    """The rows as dictionaries. SQL times have microseconds: digits below are cut."""
    columns = []
    for field in batch.schema:
        column = batch.column(field.name)
        if pa.types.is_timestamp(field.type) and field.type.unit == "ns":
            column = column.cast(pa.timestamp("us", tz=field.type.tz), safe=False)
        elif pa.types.is_time64(field.type) and field.type.unit == "ns":
            column = column.cast(pa.time64("us"), safe=False)
        values = column.to_pylist()
        if pa.types.is_nested(field.type):
            values = [_plain(value) for value in values]
        columns.append(values)
    names = batch.schema.names
    return [dict(zip(names, row, strict=True)) for row in zip(*columns, strict=True)]


def _plain(value: Any) -> Any:
    """A nested value as JSON can hold it: bytes as Base64, times and decimals as text."""
    if isinstance(value, dict):
        return {str(key): _plain(inner) for key, inner in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(inner) for inner in value]
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    if isinstance(value, (dt.date, dt.time, dt.datetime)):
        return value.isoformat()
    return str(value) if isinstance(value, decimal.Decimal) else value
