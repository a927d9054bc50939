"""One Python value as rows store it, without Arrow where the value has its usual Python type.

The result by kind: RAW a bool, int or float; INT32 and INT64 an int; INSTANT a pair (milliseconds,
nanoseconds of the millisecond); BYTES bytes. Whatever is not plain (other classes that Arrow can
convert, nanosecond precision) goes through Arrow and gives what a column of it would.
"""

from __future__ import annotations

import datetime as dt
import struct
from collections.abc import Callable
from decimal import Decimal
from typing import Any

import pyarrow as pa

from fluss_client.codec.rows.columns import read_column
from fluss_client.errors import RowError
from fluss_client.model.arrow import arrow_type
from fluss_client.model.types import INT_BITS, DataType, Root

EPOCH = dt.datetime(1970, 1, 1)
EPOCH_UTC = EPOCH.replace(tzinfo=dt.UTC)
EPOCH_ORDINAL = EPOCH.toordinal()
MICRO_PRECISION = 6
RAW_STRUCTS = {
    Root.BOOLEAN: struct.Struct("<?"),
    Root.TINYINT: struct.Struct("<b"),
    Root.SMALLINT: struct.Struct("<h"),
    Root.FLOAT: struct.Struct("<f"),
    Root.DOUBLE: struct.Struct("<d"),
}

_UNUSUAL: Any = object()


def physical_value(value: Any, data_type: DataType, name: str) -> Any:
    """A value that is not None as rows store it; RowError if it does not fit the type."""
    result = _PLAIN[data_type.root](value, data_type)
    return _through_arrow(value, data_type, name) if result is _UNUSUAL else result


def shortest_bytes(unscaled: int) -> bytes:
    """A number as its shortest big-endian two's complement."""
    magnitude = unscaled if unscaled >= 0 else ~unscaled
    return unscaled.to_bytes(magnitude.bit_length() // 8 + 1, "big", signed=True)


def unscaled_value(value: bytes | int) -> int:
    """The number behind a stored decimal of either form."""
    return value if isinstance(value, int) else int.from_bytes(value, "big", signed=True)


def _through_arrow(value: Any, data_type: DataType, name: str) -> Any:
    try:
        array = pa.array([value], arrow_type(data_type))
    except (pa.ArrowException, TypeError, ValueError, OverflowError) as error:
        message = f"column '{name}': {value!r} is no {data_type.text}: {error}"
        raise RowError(message) from error
    column = read_column(array, data_type, name)
    if column.blobs is not None:
        return column.blobs[0]
    assert column.numbers is not None
    number = column.numbers[0].item()
    if column.nanos is not None:
        return number, column.nanos[0].item()
    return bool(number) if data_type.root is Root.BOOLEAN else number


def _boolean(value: Any, data_type: DataType) -> Any:
    return value if value is True or value is False else _UNUSUAL


def _integer(value: Any, data_type: DataType) -> Any:
    if type(value) is int:
        bits = INT_BITS[data_type.root] - 1
        if -(1 << bits) <= value < 1 << bits:
            return value
    return _UNUSUAL


def _double(value: Any, data_type: DataType) -> Any:
    return value if type(value) is float else _UNUSUAL


def _float(value: Any, data_type: DataType) -> Any:
    try:
        return (
            struct.unpack("<f", struct.pack("<f", value))[0] if type(value) is float else _UNUSUAL
        )
    except OverflowError:
        return _UNUSUAL


def _text(value: Any, data_type: DataType) -> Any:
    if type(value) is not str:
        return _UNUSUAL
    try:
        return value.encode()
    except UnicodeEncodeError:
        return _UNUSUAL


def _bytes(value: Any, data_type: DataType) -> Any:
    return value if type(value) is bytes else _UNUSUAL


def _binary(value: Any, data_type: DataType) -> Any:
    # Shorter than declared is stored as it is: other clients write such keys.
    return value if type(value) is bytes and len(value) <= data_type.length else _UNUSUAL


def _decimal(value: Any, data_type: DataType) -> Any:
    if type(value) is not Decimal:
        return _UNUSUAL
    sign, digits, exponent = value.as_tuple()
    if not isinstance(exponent, int) or not -data_type.scale <= exponent <= 0:
        return _UNUSUAL
    unscaled = int("".join(map(str, digits))) * 10 ** (exponent + data_type.scale)
    if unscaled >= 10**data_type.precision:
        return _UNUSUAL
    if sign:
        unscaled = -unscaled
    return unscaled if data_type.is_compact else shortest_bytes(unscaled)


def _date(value: Any, data_type: DataType) -> Any:
    return value.toordinal() - EPOCH_ORDINAL if type(value) is dt.date else _UNUSUAL


def _time(value: Any, data_type: DataType) -> Any:
    if type(value) is not dt.time or value.tzinfo is not None:
        return _UNUSUAL
    seconds = (value.hour * 60 + value.minute) * 60 + value.second
    return seconds * 1000 + (value.microsecond // 1000 if data_type.precision else 0)


def _timestamp(value: Any, data_type: DataType) -> Any:
    if type(value) is not dt.datetime or data_type.precision > MICRO_PRECISION:
        return _UNUSUAL
    since = value - (EPOCH if value.tzinfo is None else EPOCH_UTC)
    millis = (since.days * 86_400 + since.seconds) * 1000
    if data_type.precision == 0:
        return millis
    millis += since.microseconds // 1000
    return millis if data_type.is_compact else (millis, since.microseconds % 1000 * 1000)


def _nested(value: Any, data_type: DataType) -> Any:
    raise TypeError(f"{data_type.text} is no plain type")


_PLAIN: dict[Root, Callable[[Any, DataType], Any]] = {
    Root.BOOLEAN: _boolean,
    **dict.fromkeys(INT_BITS, _integer),
    Root.FLOAT: _float,
    Root.DOUBLE: _double,
    Root.STRING: _text,
    Root.CHAR: _text,
    Root.BYTES: _bytes,
    Root.BINARY: _binary,
    Root.DECIMAL: _decimal,
    Root.DATE: _date,
    Root.TIME: _time,
    Root.TIMESTAMP: _timestamp,
    Root.TIMESTAMP_LTZ: _timestamp,
    **dict.fromkeys((Root.ARRAY, Root.MAP, Root.ROW), _nested),
}
