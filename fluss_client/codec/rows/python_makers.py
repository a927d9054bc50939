"""What rows store as one Python value each, with the values that Arrow's `to_pylist` gives."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable
from decimal import Decimal
from functools import cache
from typing import Any

import pyarrow as pa

from fluss_client.codec.rows.python_values import EPOCH, EPOCH_ORDINAL
from fluss_client.errors import CorruptDataError
from fluss_client.model.types import DataType, Root

Maker = Callable[[Any], Any]

_MILLIS_PER_DAY = 86_400_000
_NANOS_PER_MILLI = 1_000_000
_DECIMAL_BYTES = 16


def value_maker(data_type: DataType) -> Maker:
    """A function from a stored value of this plain type to the Python value.

    Stored are, by kind: numbers, pairs (milliseconds, nanoseconds), bytes.
    """
    root = data_type.root
    if root in (Root.STRING, Root.CHAR):
        return _text
    if root is Root.BINARY:
        return _binary_maker(data_type)
    if root is Root.DECIMAL:
        return _decimal_maker(data_type)
    if root is Root.DATE:
        return _date
    if root is Root.TIME:
        return _time_maker(data_type)
    if root in (Root.TIMESTAMP, Root.TIMESTAMP_LTZ):
        return _timestamp_maker(data_type)
    return _same


def _same(value: Any) -> Any:
    return value


def _text(value: bytes) -> str:
    return value.decode()


def _date(days: int) -> dt.date:
    return dt.date.fromordinal(days + EPOCH_ORDINAL)


def _binary_maker(data_type: DataType) -> Maker:
    length = data_type.length

    def make(value: bytes) -> bytes:
        if len(value) > length:
            raise CorruptDataError(f"more bytes than {data_type.text} holds")
        return value.ljust(length, b"\0")

    return make


def _decimal_maker(data_type: DataType) -> Maker:
    limit, scale = 10**data_type.precision, data_type.scale

    def make(unscaled: int) -> Decimal:
        if not -limit < unscaled < limit:
            raise CorruptDataError(f"a number is too large for {data_type.text}")
        # From text, because arithmetic would round to the context's precision.
        return Decimal(f"{unscaled}E-{scale}")

    def make_from_bytes(value: bytes) -> Decimal:
        if not 1 <= len(value) <= _DECIMAL_BYTES:
            raise CorruptDataError("a decimal has no bytes, or more than 16")
        return make(int.from_bytes(value, "big", signed=True))

    return make if data_type.is_compact else make_from_bytes


def _time_maker(data_type: DataType) -> Maker:
    with_millis = data_type.precision > 0

    def make(millis: int) -> dt.time:
        if not 0 <= millis < _MILLIS_PER_DAY:
            raise CorruptDataError("a time is not within a day")
        seconds, fraction = divmod(millis, 1000)
        micros = fraction * 1000 if with_millis else 0
        return dt.time(seconds // 3600, seconds // 60 % 60, seconds % 60, micros)

    return make


def _timestamp_maker(data_type: DataType) -> Maker:
    epoch = EPOCH if data_type.root is Root.TIMESTAMP else EPOCH.replace(tzinfo=_utc())
    with_millis = data_type.precision > 0

    def make(millis: int) -> dt.datetime:
        seconds, fraction = divmod(millis, 1000)
        return epoch + dt.timedelta(0, seconds, fraction * 1000 if with_millis else 0)

    def make_from_pair(pair: tuple[int, int]) -> dt.datetime:
        millis, nanos = pair
        if not 0 <= nanos < _NANOS_PER_MILLI:
            raise CorruptDataError("nanoseconds beyond a millisecond")
        return epoch + dt.timedelta(0, 0, nanos // 1000, millis)

    return make if data_type.is_compact else make_from_pair


@cache
def _utc() -> dt.tzinfo:
    # Which class stands for UTC is Arrow's choice; take its own, so that values look the same.
    zone: dt.tzinfo = pa.scalar(0, pa.timestamp("s", "UTC")).as_py().tzinfo
    return zone
