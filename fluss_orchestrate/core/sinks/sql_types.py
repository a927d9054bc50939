"""The map of data types to SQL types, by way of their Arrow types, and values for a driver.

Different values are stored as different values, or they are refused with `UnfitValueError`; the one
exception are digits below a microsecond, which SQL times do not have. Special cases:

- SQLite keeps numbers as doubles, exact to 15 digits: a DECIMAL of more digits is a TEXT column
  with all its digits. A table that an earlier version made has NUMERIC there: it takes the values
  that a double holds exactly, others are refused.
- SQLite has no NaN and would store NULL: the FLOAT column holds the text `NaN`.
- JSON has neither NaN nor infinities: in nested values they are the texts `NaN`, `Infinity` and
  `-Infinity`.
- PostgreSQL's text cannot hold U+0000: it is refused, or replaced if the sink has `replace_nul`.
"""

from __future__ import annotations

import base64
import copy
import datetime as dt
import decimal
import math
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import lib

from fluss_client.engine import require_arrow_map

POSTGRES = "postgresql"
SQLITE = "sqlite"
NUL = "\x00"
SQLITE_DIGITS_MAX = 15
"""A double holds every decimal of this many digits without loss."""
_WITHOUT_NUL = (POSTGRES, "cockroachdb", "redshift")
_NS = 1_000_000_000
_UNREADABLE = (ValueError, OverflowError)
_Convert = Callable[[Any], Any]
_MakeSqlType = Callable[[pa.DataType, str], Any]


class UnfitValueError(Exception):
    """A value that the column cannot hold; the sink turns it into a public error.

    Attributes:
        column: The name of the column.
        row: The index of the row within the batch.
        kind: What kind of value it is.
        way_out: What the user can do.
    """

    def __init__(self, column: str, row: int, kind: str, way_out: str = "") -> None:
        super().__init__(kind)
        self.column = column
        self.row = row
        self.kind = kind
        self.way_out = way_out


def sql_type(kind: pa.DataType, dialect: str) -> Any:
    """Return the SQLAlchemy type for an Arrow type.

    Args:
        kind: The Arrow type. A type that the map does not have becomes JSON.
        dialect: The name of the database's dialect.
    """
    return _SQL_TYPES.get(kind.id, _json)(kind, dialect)


def _plain(name: str) -> _MakeSqlType:
    def make(kind: pa.DataType, dialect: str) -> Any:
        import sqlalchemy as sa

        return getattr(sa, name)()

    return make


def _numeric(kind: pa.DataType, dialect: str) -> Any:
    import sqlalchemy as sa

    needs_text = dialect == SQLITE and kind.precision > SQLITE_DIGITS_MAX
    return sa.Text() if needs_text else sa.Numeric(kind.precision, kind.scale)


def _date_time(kind: pa.DataType, dialect: str) -> Any:
    import sqlalchemy as sa

    return sa.DateTime(timezone=kind.tz is not None)


def _json(kind: pa.DataType, dialect: str) -> Any:
    import sqlalchemy as sa

    return sa.JSON(none_as_null=True)


_SQL_TYPES: dict[int, _MakeSqlType] = {
    lib.Type_BOOL: _plain("Boolean"),
    lib.Type_INT8: _plain("SmallInteger"),
    lib.Type_INT16: _plain("SmallInteger"),
    lib.Type_INT32: _plain("Integer"),
    lib.Type_INT64: _plain("BigInteger"),
    lib.Type_UINT8: _plain("SmallInteger"),
    lib.Type_UINT16: _plain("SmallInteger"),
    lib.Type_UINT32: _plain("Integer"),
    lib.Type_UINT64: _plain("BigInteger"),
    lib.Type_HALF_FLOAT: _plain("Float"),
    lib.Type_FLOAT: _plain("Float"),
    lib.Type_DOUBLE: _plain("Double"),
    lib.Type_DECIMAL128: _numeric,
    lib.Type_DECIMAL256: _numeric,
    lib.Type_STRING: _plain("Text"),
    lib.Type_LARGE_STRING: _plain("Text"),
    lib.Type_BINARY: _plain("LargeBinary"),
    lib.Type_LARGE_BINARY: _plain("LargeBinary"),
    lib.Type_FIXED_SIZE_BINARY: _plain("LargeBinary"),
    lib.Type_DATE32: _plain("Date"),
    lib.Type_DATE64: _plain("Date"),
    lib.Type_TIME32: _plain("Time"),
    lib.Type_TIME64: _plain("Time"),
    lib.Type_TIMESTAMP: _date_time,
    lib.Type_LIST: _json,
    lib.Type_MAP: _json,
    lib.Type_STRUCT: _json,
}
require_arrow_map("SQL", _SQL_TYPES)


class SqlValues:
    """Turns batches of one schema into parameters for one table.

    Args:
        columns: The schema of the batches.
        dialect: The name of the database's dialect.
        present: The types of the columns that the table had already, by name.
        replace_nul: What replaces U+0000 where text cannot hold it; None refuses the value.
        key: Columns in which it is never replaced: two keys could become one.
    """

    def __init__(
        self,
        columns: pa.Schema,
        dialect: str,
        present: Mapping[str, Any],
        replace_nul: str | None = None,
        key: Collection[str] = (),
    ) -> None:
        self._replace_nul = replace_nul
        self._key = key
        self._dialect = dialect
        self._fields = [(f, _values_of(f, dialect, present.get(f.name))) for f in columns]
        self._names = columns.names

    def bound_types(self) -> dict[str, Any]:
        """Return the SQL types to bind parameters with, by column."""
        import sqlalchemy as sa

        types = {f.name: sql_type(f.type, self._dialect) for f, _ in self._fields}
        for field, convert in self._fields:
            if convert is _with_nan_as_text:
                # SQLAlchemy would make a float of the text again.
                types[field.name] = sa.types.NullType()
            elif convert is _exact_doubles:
                types[field.name] = sa.Numeric(field.type.precision, field.type.scale)
        return types

    def of(self, names: Sequence[str]) -> SqlValues:
        """Return the same for batches with some of the columns."""
        found = copy.copy(self)
        by_name = {field.name: (field, convert) for field, convert in self._fields}
        found._fields = [by_name[name] for name in names]
        found._names = list(names)
        return found

    def rows(self, batch: pa.RecordBatch) -> list[dict[str, Any]]:
        """Return the rows as dictionaries.

        Raises:
            UnfitValueError: A value cannot be stored.
        """
        columns = [
            convert(field.name, self._without_nul(field.name, column, convert))
            for (field, convert), column in zip(self._fields, batch.columns, strict=True)
        ]
        return [dict(zip(self._names, row, strict=True)) for row in zip(*columns, strict=True)]

    def _without_nul(self, name: str, column: pa.Array, convert: Any) -> pa.Array:
        if convert is not _text_without_nul or self._replace_nul is None or name in self._key:
            return column
        return pc.replace_substring(column, NUL, self._replace_nul)


def _values_of(field: pa.Field, dialect: str, present: Any) -> Callable[[str, pa.Array], list[Any]]:
    """Return the function that makes the values of a column."""
    import sqlalchemy as sa

    kind, is_ = field.type, pa.types
    if is_.is_nested(kind):
        return Nested(kind)
    if is_.is_floating(kind) and dialect == SQLITE:
        return _with_nan_as_text
    if is_.is_decimal(kind) and dialect == SQLITE and kind.precision > SQLITE_DIGITS_MAX:
        keeps_text = isinstance(present, (type(None), sa.String, sa.LargeBinary, sa.types.NullType))
        return _decimal_text if keeps_text else _exact_doubles
    if (is_.is_string(kind) or is_.is_large_string(kind)) and dialect in _WITHOUT_NUL:
        return _text_without_nul
    if _is_ns(kind):
        return lambda name, column: _listed(name, without_digits_below_us(column))
    return _listed


def type_without_digits_below_us(kind: pa.DataType) -> pa.DataType:
    """Return the type of a time that SQL can store: microseconds for nanoseconds."""
    if not _is_ns(kind):
        return kind
    return pa.timestamp("us", tz=kind.tz) if pa.types.is_timestamp(kind) else pa.time64("us")


def without_digits_below_us(column: pa.Array) -> pa.Array:
    """Return a column of times with the precision that SQL times have."""
    stored = type_without_digits_below_us(column.type)
    return column if stored == column.type else column.cast(stored, safe=False)


def _listed(name: str, column: pa.Array) -> list[Any]:
    try:
        found: list[Any] = column.to_pylist()
    except _UNREADABLE:
        row = _first_unreadable(column)
    else:
        return found
    raise UnfitValueError(
        name,
        row,
        f"a value of type {column.type} that Python cannot hold (years lie in 1 to 9999)",
    )


def _first_unreadable(column: pa.Array) -> int:
    for row, value in enumerate(column):
        try:
            value.as_py()
        except _UNREADABLE:
            return row
    return 0


def _with_nan_as_text(name: str, column: pa.Array) -> list[Any]:
    values = _listed(name, column)
    if pc.any(pc.is_nan(column)).as_py():
        return ["NaN" if value is not None and math.isnan(value) else value for value in values]
    return values


def _decimal_text(name: str, column: pa.Array) -> list[Any]:
    return [None if value is None else format(value, "f") for value in _listed(name, column)]


def _exact_doubles(name: str, column: pa.Array) -> list[Any]:
    """Return values for a NUMERIC column of SQLite, which stores doubles: only exact ones."""
    values, scale = _listed(name, column), column.type.scale
    for row, value in enumerate(values):
        if value is not None and decimal.Decimal(f"{float(value):.{scale}f}") != value:
            raise UnfitValueError(
                name,
                row,
                f"a DECIMAL({column.type.precision}, {scale}) with more digits than SQLite's "
                f"NUMERIC keeps ({SQLITE_DIGITS_MAX})",
                "this column was made as NUMERIC; make it TEXT (add a TEXT column, copy the "
                "values, drop the old one, rename) and run again, and all digits are kept",
            )
    return values


def _text_without_nul(name: str, column: pa.Array) -> list[Any]:
    check_no_nul(name, column)
    return _listed(name, column)


def check_no_nul(name: str, column: pa.Array) -> None:
    """Refuse texts with U+0000.

    Raises:
        UnfitValueError: A text has it.
    """
    found = pc.match_substring(column, NUL)
    if pc.any(found).as_py():
        raise UnfitValueError(
            name,
            pc.index(found, True).as_py(),
            "a text with the character U+0000, which the text of this database cannot hold",
            "open the sink with replace_nul='', or with a text that is to stand in its place, "
            "and run again",
        )


class Nested:
    """Makes values that JSON can hold: bytes as Base64, times and decimals as text."""

    def __init__(self, kind: pa.DataType) -> None:
        self._readable = _with_numbers_for_ns(kind)
        self._convert = _plain_of(kind)

    def __call__(self, name: str, column: pa.Array) -> list[Any]:
        values = _listed(name, column.cast(self._readable))
        return [None if value is None else self._convert(value) for value in values]


def _with_numbers_for_ns(kind: pa.DataType) -> pa.DataType:
    """Return the type with numbers for nanoseconds, which Python's own times cannot hold."""
    is_ = pa.types
    if is_.is_struct(kind):
        return pa.struct([f.with_type(_with_numbers_for_ns(f.type)) for f in kind])
    if is_.is_map(kind):
        return pa.map_(_with_numbers_for_ns(kind.key_type), _with_numbers_for_ns(kind.item_type))
    if is_.is_list(kind):
        return pa.list_(kind.value_field.with_type(_with_numbers_for_ns(kind.value_type)))
    return pa.int64() if _is_ns(kind) else kind


def _is_ns(kind: pa.DataType) -> bool:
    is_time = pa.types.is_timestamp(kind) or pa.types.is_time64(kind)
    return bool(is_time and kind.unit == "ns")


def _plain_of(kind: pa.DataType) -> _Convert:
    is_ = pa.types
    if is_.is_struct(kind):
        inner = {field.name: _or_null(_plain_of(field.type)) for field in kind}
        return lambda value: {key: inner[key](part) for key, part in value.items()}
    if is_.is_map(kind):
        key_of, item_of = _plain_of(kind.key_type), _or_null(_plain_of(kind.item_type))
        return lambda value: [[key_of(key), item_of(item)] for key, item in value]
    if is_.is_nested(kind):
        one = _or_null(_plain_of(kind.value_type))
        return lambda value: [one(part) for part in value]
    if _is_ns(kind):
        return _timestamp_text(kind.tz is not None) if is_.is_timestamp(kind) else _time_text
    if is_.is_floating(kind):
        return _float_or_text
    if is_.is_binary(kind) or is_.is_large_binary(kind) or is_.is_fixed_size_binary(kind):
        return lambda value: base64.b64encode(value).decode()
    if is_.is_temporal(kind):
        return lambda value: value.isoformat()
    return str if is_.is_decimal(kind) else lambda value: value


def _or_null(convert: _Convert) -> _Convert:
    return lambda value: None if value is None else convert(value)


def _float_or_text(value: float) -> float | str:
    if math.isfinite(value):
        return value
    return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"


def _timestamp_text(is_utc: bool) -> _Convert:
    epoch = dt.datetime(1970, 1, 1)

    def text(value: int) -> str:
        seconds, ns = divmod(value, _NS)
        shown = (epoch + dt.timedelta(seconds=seconds)).isoformat() + _fraction(ns)
        return f"{shown}+00:00" if is_utc else shown

    return text


def _time_text(value: int) -> str:
    seconds, ns = divmod(value, _NS)
    return f"{seconds // 3600:02}:{seconds // 60 % 60:02}:{seconds % 60:02}{_fraction(ns)}"


def _fraction(ns: int) -> str:
    """Return the fraction as `isoformat` writes it, with nine digits where six are too few."""
    if ns == 0:
        return ""
    return f".{ns:09}" if ns % 1000 else f".{ns // 1000:06}"
