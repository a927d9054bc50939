"""What a Python value must be to stand in a column, and how it is made to fit.

Each checker takes one value that the fast test of `row_input` did not accept and returns the value
to store, or raises RowError with the column's name and the value. Only what loses nothing is
changed: an int for a float column, NumPy numbers, `bytearray`, a value of a subclass. Two
exceptions follow the other Fluss clients: digits beyond a DECIMAL's scale are rounded half up, and
fractions finer than a TIMESTAMP's precision are cut off.
"""

from __future__ import annotations

import datetime as dt
import decimal
import math
import numbers
import operator
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NoReturn

import numpy as np

from fluss_client.errors import RowError
from fluss_client.model.types import INT_BITS, DataType, Root

Check = Callable[[Any], Any]

FLOAT32_MAX = 3.4028234663852886e38
NANOSECOND_PRECISION = 7
NANOSECOND_FIRST = dt.datetime(1677, 9, 22)
NANOSECOND_LAST = dt.datetime(2262, 4, 11)
SHOWN_CHARACTERS_MAX = 80
_DECIMALS = decimal.Context(prec=120, rounding=decimal.ROUND_HALF_UP)


def shown(value: object) -> str:
    """A value for an error message, cut when it is long."""
    text = repr(value)
    return text if len(text) <= SHOWN_CHARACTERS_MAX else text[:SHOWN_CHARACTERS_MAX] + "…"


def _wrong(name: str, data_type: DataType, value: object, hint: str = "") -> NoReturn:
    kind = type(value).__name__
    raise RowError(f"column '{name}' is {data_type}: {shown(value)} ({kind}) does not fit{hint}")


def checker_for(name: str, data_type: DataType, role: str = "field") -> Check:
    """The checker of one column, or of a part of a nested one."""
    inner = _MAKERS[data_type.root](name, data_type)
    if data_type.nullable:
        return lambda value: None if value is None else inner(value)

    def not_null(value: Any) -> Any:
        if value is None:
            field = name.rpartition(".")[2] if role == "row field" else name
            raise RowError(
                f"column '{name}' is {data_type}: null or no value for the non-nullable {role} "
                f"'{field}'"
            )
        return inner(value)

    return not_null


def _boolean(name: str, data_type: DataType) -> Check:
    def check(value: Any) -> bool:
        if isinstance(value, bool | np.bool_):
            return bool(value)
        _wrong(name, data_type, value, "; give True or False")

    return check


def _integer(name: str, data_type: DataType) -> Check:
    high = 1 << (INT_BITS[data_type.root] - 1)

    def check(value: Any) -> int:
        if isinstance(value, bool | np.bool_):
            _wrong(name, data_type, value, "; give 0 or 1")
        try:
            number = operator.index(value)
        except TypeError:
            _wrong(name, data_type, value)
        if not -high <= number < high:
            _wrong(name, data_type, value, f"; it takes {-high} to {high - 1}")
        return number

    return check


def _floating(name: str, data_type: DataType) -> Check:
    single = data_type.root is Root.FLOAT

    def check(value: Any) -> float:
        if isinstance(value, bool) or not isinstance(value, numbers.Real):
            _wrong(name, data_type, value)
        try:
            number = float(value)
        except OverflowError:
            _wrong(name, data_type, value, "; it is too large")
        if single and math.isfinite(number) and abs(number) > FLOAT32_MAX:
            _wrong(name, data_type, value, "; it is too large")
        return number

    return check


def _text(name: str, data_type: DataType) -> Check:
    limit = data_type.length if data_type.root is Root.CHAR else 0

    def check(value: Any) -> str:
        if not isinstance(value, str):
            _wrong(name, data_type, value)
        try:
            value.encode()
        except UnicodeEncodeError:
            _wrong(name, data_type, value, "; it is not valid Unicode text")
        if limit and len(value) > limit:
            _wrong(name, data_type, value, f"; it takes {limit} characters")
        return str.__str__(value)  # of a subclass too, whatever its own __str__ says

    return check


def _binary(name: str, data_type: DataType) -> Check:
    exact = data_type.length if data_type.root is Root.BINARY else 0

    def check(value: Any) -> bytes:
        if not isinstance(value, bytes | bytearray | memoryview):
            _wrong(name, data_type, value)
        data = bytes(value)
        if exact and len(data) != exact:
            _wrong(name, data_type, value, f"; it takes exactly {exact} bytes, not {len(data)}")
        return data

    return check


def _decimal(name: str, data_type: DataType) -> Check:
    unit = decimal.Decimal(1).scaleb(-data_type.scale)
    limit = decimal.Decimal(10) ** (data_type.precision - data_type.scale)

    def check(value: Any) -> decimal.Decimal:
        if not isinstance(value, decimal.Decimal) or not value.is_finite():
            _wrong(name, data_type, value, "; give a finite decimal.Decimal")
        if value.adjusted() <= data_type.precision:
            fitted = value.quantize(unit, context=_DECIMALS)
            if -limit < fitted < limit:
                return fitted
        _wrong(name, data_type, value, "; it has too many digits")

    return check


def _date(name: str, data_type: DataType) -> Check:
    def check(value: Any) -> dt.date:
        if isinstance(value, dt.datetime) or not isinstance(value, dt.date):
            _wrong(name, data_type, value, "; give a datetime.date")
        return value

    return check


def _time(name: str, data_type: DataType) -> Check:
    def check(value: Any) -> dt.time:
        if not isinstance(value, dt.time) or value.tzinfo is not None:
            _wrong(name, data_type, value, "; give a datetime.time without a zone")
        if value.microsecond % 1000:
            _wrong(name, data_type, value, "; Fluss keeps milliseconds of a time")
        return value

    return check


def _timestamp(name: str, data_type: DataType) -> Check:
    local = data_type.root is Root.TIMESTAMP_LTZ
    bounded = data_type.precision >= NANOSECOND_PRECISION

    def check(value: Any) -> dt.datetime:
        if not isinstance(value, dt.datetime) or value != value:  # NaT is not itself
            _wrong(name, data_type, value, "; give a datetime.datetime")
        if value.tzinfo is not None:
            if not local:
                _wrong(name, data_type, value, "; give it without a zone")
            value = value.astimezone(dt.UTC).replace(tzinfo=None)
        moment: dt.datetime = value
        if bounded and not NANOSECOND_FIRST <= moment <= NANOSECOND_LAST:
            _wrong(name, data_type, value, "; nanoseconds reach from 1677 to 2262 only")
        return moment

    return check


def _array(name: str, data_type: DataType) -> Check:
    assert data_type.element is not None
    element = checker_for(f"{name}[]", data_type.element)

    def check(value: Any) -> list[Any]:
        if isinstance(value, str | bytes | bytearray | Mapping) or not hasattr(value, "__iter__"):
            _wrong(name, data_type, value, f". Expected sequence for Array column '{name}'")
        return [element(item) for item in value]

    return check


def _map(name: str, data_type: DataType) -> Check:
    assert data_type.key is not None
    assert data_type.element is not None
    key = checker_for(f"{name}{{key}}", data_type.key.with_nullable(False))
    item = checker_for(f"{name}{{value}}", data_type.element)

    def check(value: Any) -> list[tuple[Any, Any]]:
        pairs = value.items() if isinstance(value, Mapping) else value
        if isinstance(pairs, str | bytes) or not hasattr(pairs, "__iter__"):
            _wrong(name, data_type, value, "; give a dict or a list of pairs")
        checked = []
        for pair in pairs:
            if not isinstance(pair, tuple | list) or len(pair) != 2:
                _wrong(name, data_type, value, "; give a dict or a list of pairs")
            checked.append((key(pair[0]), item(pair[1])))
        return checked

    return check


def _row(name: str, data_type: DataType) -> Check:
    fields = {
        f.name: checker_for(f"{name}.{f.name}", f.type, "row field") for f in data_type.fields
    }

    def check(value: Any) -> dict[str, Any]:
        if isinstance(value, Mapping):
            unknown = value.keys() - fields.keys()
            if unknown:
                _wrong(name, data_type, value, f"; it has no field {sorted(map(str, unknown))[0]}")
            return {field: test(value.get(field)) for field, test in fields.items()}
        if isinstance(value, Sequence) and not isinstance(value, str | bytes | bytearray):
            if len(value) != len(fields):
                _wrong(name, data_type, value, f"; it takes {len(fields)} values")
            return {f: test(v) for (f, test), v in zip(fields.items(), value, strict=True)}
        _wrong(name, data_type, value, "; give a dict, list or tuple")

    return check


_MAKERS: dict[Root, Callable[[str, DataType], Check]] = {
    Root.BOOLEAN: _boolean,
    Root.TINYINT: _integer,
    Root.SMALLINT: _integer,
    Root.INTEGER: _integer,
    Root.BIGINT: _integer,
    Root.FLOAT: _floating,
    Root.DOUBLE: _floating,
    Root.CHAR: _text,
    Root.STRING: _text,
    Root.BINARY: _binary,
    Root.BYTES: _binary,
    Root.DECIMAL: _decimal,
    Root.DATE: _date,
    Root.TIME: _time,
    Root.TIMESTAMP: _timestamp,
    Root.TIMESTAMP_LTZ: _timestamp,
    Root.ARRAY: _array,
    Root.MAP: _map,
    Root.ROW: _row,
}
