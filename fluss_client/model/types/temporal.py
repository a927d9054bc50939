"""DATE, TIME, TIMESTAMP and TIMESTAMP_LTZ.

Arrow's unit follows the precision (0: s, 1-3: ms, 4-6: us, 7-9: ns). Rows store the milliseconds,
and the nanoseconds of the millisecond for timestamps of a precision above 3. Fluss keeps no zone
with a timestamp: a TIMESTAMP_LTZ is a moment, which is shown as UTC.
"""

from __future__ import annotations

import datetime as dt
import struct
from functools import cache
from typing import Any, ClassVar, Final

import numpy as np
import pyarrow as pa

from fluss_client.errors import CorruptDataError, SchemaError
from fluss_client.model.types.base import UNUSUAL, Check, DataType, Maker, Root
from fluss_client.model.types.layout import IcebergKey, Kind, Layout, int32_layout, int64_layout

PRECISION_MAX = 9
TIMESTAMP_PRECISION_DEFAULT = 6
COMPACT_PRECISION_MAX = 3
MICRO_PRECISION = 6
NANOSECOND_FIRST = dt.datetime(1677, 9, 22)
NANOSECOND_LAST = dt.datetime(2262, 4, 11)

_UNITS = ("s", "ms", "ms", "ms", "us", "us", "us", "ns", "ns", "ns")
_PRECISION_OF_UNIT = {"s": 0, "ms": 3, "us": 6, "ns": 9}
_EPOCH: Final = dt.datetime(1970, 1, 1)
_EPOCH_UTC: Final = _EPOCH.replace(tzinfo=dt.UTC)
_EPOCH_ORDINAL: Final = _EPOCH.toordinal()
_MILLIS_PER_DAY = 86_400_000
_NANOS_PER_MILLI = 1_000_000
_NANOS_PER_SECOND = 1_000_000_000
_NANOS_OF_UNIT = {"s": _NANOS_PER_SECOND, "ms": _NANOS_PER_MILLI, "us": 1_000, "ns": 1}
_SECONDS_PER_DAY = 86_400


class DateType(DataType, root=Root.DATE):
    """DATE: the days since 1970-01-01."""

    names = ("DATE",)
    iceberg = "DateType"
    literals = (dt.date,)
    layout = int32_layout(IcebergKey.INT64)

    def to_arrow(self, zone: str | None) -> pa.DataType:
        del zone
        return pa.date32()

    @classmethod
    def of_arrow(cls, arrow: pa.DataType, nullable: bool, name: str) -> DataType | None:
        return cls.make(nullable) if pa.types.is_date32(arrow) else None

    def to_stored(self, value: Any) -> Any:
        return value.toordinal() - _EPOCH_ORDINAL if type(value) is dt.date else UNUSUAL

    def maker(self) -> Maker:
        return lambda days: dt.date.fromordinal(days + _EPOCH_ORDINAL)

    def partition_texts(self, values: pa.Array) -> list[str]:
        return [_day_text(days) for days in values.cast(pa.date32()).cast(pa.int32()).to_pylist()]

    def check(self, name: str) -> Check:
        def check(value: Any) -> dt.date:
            if isinstance(value, dt.datetime) or not isinstance(value, dt.date):
                self.refuse(name, value, "; give a datetime.date")
            return value

        return check

    def exact_test(self, value: str) -> str | None:
        return f"type({value}) is date"


class _FractionalType(DataType):
    """A type whose precision is the number of fraction digits of a second."""

    @classmethod
    def examples(cls) -> list[DataType]:
        return [cls.make(precision=precision) for precision in (0, 3, 6, 9)]

    def validate(self) -> None:
        if not 0 <= self.precision <= PRECISION_MAX:
            raise SchemaError(f"{self.names[0].lower()} takes a precision of 0 to 9")

    @property
    def is_compact(self) -> bool:
        return self.precision <= COMPACT_PRECISION_MAX


class TimeType(_FractionalType, root=Root.TIME):
    """TIME: a time of day. A row stores milliseconds, whatever the precision."""

    names = ("TIME",)
    iceberg = "TimeType"
    numbers: ClassVar[dict[str, int]] = {"precision": 0}
    literals = (dt.time,)
    layout = int32_layout(IcebergKey.MICROSECONDS)

    def to_arrow(self, zone: str | None) -> pa.DataType:
        del zone
        unit = _UNITS[self.precision]
        return pa.time32(unit) if unit in ("s", "ms") else pa.time64(unit)

    @classmethod
    def of_arrow(cls, arrow: pa.DataType, nullable: bool, name: str) -> DataType | None:
        found = pa.types.is_time(arrow)
        return cls.make(nullable, precision=_PRECISION_OF_UNIT[arrow.unit]) if found else None

    def to_stored(self, value: Any) -> Any:
        if type(value) is not dt.time or value.tzinfo is not None:
            return UNUSUAL
        seconds = (value.hour * 60 + value.minute) * 60 + value.second
        return seconds * 1000 + (value.microsecond // 1000 if self.precision else 0)

    def maker(self) -> Maker:
        with_millis = self.precision > 0

        def make(millis: int) -> dt.time:
            if not 0 <= millis < _MILLIS_PER_DAY:
                raise CorruptDataError("a time is not within a day")
            seconds, fraction = divmod(millis, 1000)
            micros = fraction * 1000 if with_millis else 0
            return dt.time(seconds // 3600, seconds // 60 % 60, seconds % 60, micros)

        return make

    def partition_texts(self, values: pa.Array) -> list[str]:
        texts = []
        for nanos in _nanos(values):
            seconds, ms = divmod(nanos // _NANOS_PER_MILLI, 1_000)
            texts.append(f"{_clock_text(seconds)}_{ms:03}")
        return texts

    def check(self, name: str) -> Check:
        def check(value: Any) -> dt.time:
            if not isinstance(value, dt.time) or value.tzinfo is not None:
                self.refuse(name, value, "; give a datetime.time without a zone")
            if value.microsecond % 1000:
                self.refuse(name, value, "; Fluss keeps milliseconds of a time")
            return value

        return check


class TimestampType(_FractionalType, root=Root.TIMESTAMP):
    """TIMESTAMP: a date and time of a clock on the wall, without a zone."""

    names: ClassVar[tuple[str, ...]] = ("TIMESTAMP", "DATETIME", "TIMESTAMP_NTZ")
    numbers: ClassVar[dict[str, int]] = {"precision": TIMESTAMP_PRECISION_DEFAULT}
    literals = (dt.datetime,)
    is_moment: ClassVar[bool] = False
    """Whether the value is a moment, so that a datetime with a zone can be stored."""
    _compact = int64_layout(IcebergKey.MICROSECONDS)
    _pair = Layout(Kind.INSTANT, "<i8", struct.Struct("<qi"), iceberg_key=IcebergKey.MICROSECONDS)

    @property
    def text(self) -> str:
        name = self.names[0].lower()
        default = self.precision == TIMESTAMP_PRECISION_DEFAULT
        return name if default else f"{name}({self.precision})"

    def to_arrow(self, zone: str | None) -> pa.DataType:
        return pa.timestamp(_UNITS[self.precision], tz=zone if self.is_moment else None)

    def why_not_cast(self, arrow: pa.DataType) -> str:
        if self.is_moment or not pa.types.is_timestamp(arrow) or arrow.tz is None:
            return ""
        return (
            f"{self}, which has no zone: convert the values to the wall clock that you mean, "
            "without a zone"
        )

    @classmethod
    def of_arrow(cls, arrow: pa.DataType, nullable: bool, name: str) -> DataType | None:
        if not pa.types.is_timestamp(arrow) or (arrow.tz is not None) != cls.is_moment:
            return None
        return cls.make(nullable, precision=_PRECISION_OF_UNIT[arrow.unit])

    @property
    def layout(self) -> Layout:
        return self._compact if self.precision <= COMPACT_PRECISION_MAX else self._pair

    def to_stored(self, value: Any) -> Any:
        if type(value) is not dt.datetime or self.precision > MICRO_PRECISION:
            return UNUSUAL
        since = value - (_EPOCH if value.tzinfo is None else _EPOCH_UTC)
        millis = (since.days * 86_400 + since.seconds) * 1000
        if self.precision == 0:
            return millis
        millis += since.microseconds // 1000
        return millis if self.is_compact else (millis, since.microseconds % 1000 * 1000)

    def maker(self) -> Maker:
        epoch = _EPOCH.replace(tzinfo=_utc()) if self.is_moment else _EPOCH
        with_millis = self.precision > 0

        def make(millis: int) -> dt.datetime:
            seconds, fraction = divmod(millis, 1000)
            return epoch + dt.timedelta(0, seconds, fraction * 1000 if with_millis else 0)

        def make_from_pair(pair: tuple[int, int]) -> dt.datetime:
            millis, nanos = pair
            if not 0 <= nanos < _NANOS_PER_MILLI:
                raise CorruptDataError("nanoseconds beyond a millisecond")
            return epoch + dt.timedelta(0, 0, nanos // 1000, millis)

        return make if self.is_compact else make_from_pair

    @property
    def needs_arrow(self) -> bool:
        # Python has no class for nanoseconds.
        return self.precision > MICRO_PRECISION

    def partition_texts(self, values: pa.Array) -> list[str]:
        texts = []
        for nanos in _nanos(values):
            seconds, fraction = divmod(nanos, _NANOS_PER_SECOND)
            days, seconds = divmod(seconds, _SECONDS_PER_DAY)
            digits = f"{fraction:09}".rstrip("0")
            texts.append(f"{_day_text(days, of_era=True)}-{_clock_text(seconds)}_{digits}")
        return texts

    def check(self, name: str) -> Check:
        bounded = self.precision > MICRO_PRECISION

        def check(value: Any) -> dt.datetime:
            if not isinstance(value, dt.datetime) or value != value:  # NaT is not itself
                self.refuse(name, value, "; give a datetime.datetime")
            if value.tzinfo is not None:
                if not self.is_moment:
                    self.refuse(name, value, "; give it without a zone")
                value = value.astimezone(dt.UTC).replace(tzinfo=None)
            moment: dt.datetime = value
            if bounded and not NANOSECOND_FIRST <= moment <= NANOSECOND_LAST:
                self.refuse(name, value, "; nanoseconds reach from 1677 to 2262 only")
            return moment

        return check

    def exact_test(self, value: str) -> str | None:
        if self.precision > MICRO_PRECISION:
            return None
        return f"type({value}) is datetime and {value}.tzinfo is None"

    def fits_literal(self, value: Any) -> bool:
        return isinstance(value, dt.datetime) and (value.tzinfo is not None) == self.is_moment


class TimestampLtzType(TimestampType, root=Root.TIMESTAMP_LTZ):
    """TIMESTAMP_LTZ: a moment."""

    names = ("TIMESTAMP_LTZ", "TIMESTAMPTZ")
    is_moment = True
    # Fluss servers and clients have no Iceberg key of this type.
    _compact = int64_layout(None)
    _pair = Layout(Kind.INSTANT, "<i8", struct.Struct("<qi"))


@cache
def _utc() -> dt.tzinfo:
    # Which class stands for UTC is Arrow's choice; take its own, so that values look the same.
    zone: dt.tzinfo = pa.scalar(0, pa.timestamp("s", "UTC")).as_py().tzinfo
    return zone


def _nanos(values: pa.Array) -> list[int]:
    """Return times and timestamps as Python ints, which do not overflow at any date."""
    whole = pa.int32() if pa.types.is_time32(values.type) else pa.int64()
    factor = _NANOS_OF_UNIT[values.type.unit]
    return [value * factor for value in values.view(whole).to_pylist()]


def _clock_text(seconds: int) -> str:
    minutes, second = divmod(seconds, 60)
    hour, minute = divmod(minutes, 60)
    return f"{hour:02}-{minute:02}-{second:02}"


def _day_text(days: int, of_era: bool = False) -> str:
    # NumPy's calendar, unlike Python's, has years before 1 and after 9999.
    day = np.datetime64(days, "D")
    year = int(day.astype("M8[Y]").astype(np.int64)) + 1970
    month = int(day.astype("M8[M]").astype(np.int64)) % 12 + 1
    day_of_month = int((day - day.astype("M8[M]").astype("M8[D]")).astype(np.int64)) + 1
    text = f"{year:04}"
    if of_era and not 1 <= year <= 9999:
        # Java counts these years from their era and signs those with five digits, which no
        # name may hold, so that they end in an error.
        text = f"+{year}" if year > 0 else f"{1 - year:04}"
    return f"{text}-{month:02}-{day_of_month:02}"
