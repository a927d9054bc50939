"""Names and times of the partitions that a server creates and drops by itself.

    unit      pattern       example        A table may set a pattern of its own; it has the fields
    YEAR      yyyy          2024           from the year down to the unit, each of fixed width,
    QUARTER   yyyyQ         20244          so that names sort as their times do.
    MONTH     yyyyMM        202411
    DAY       yyyyMMdd      20241105
    HOUR      yyyyMMddHH    2024110523

Names are local times of the table's zone. Hours are counted in UTC, so that an hour that the clocks
skip has no partition, and one that they repeat has one.
"""

from __future__ import annotations

import enum
import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta, timezone, tzinfo
from functools import cached_property
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from fluss_client.errors import ConfigError, InvalidPartitionError

ENABLED = "table.auto-partition.enabled"
TIME_UNIT = "table.auto-partition.time-unit"
TIME_ZONE = "table.auto-partition.time-zone"
TIME_FORMAT = "table.auto-partition.time-format"
_HOUR = timedelta(hours=1)
_FIXED_ZONE = re.compile(r"GMT([+-])(\d{1,2}):?([0-5]\d)?")


class TimeUnit(enum.Enum):
    """How long a partition is; the value is the default pattern of its name."""

    YEAR = "yyyy"
    QUARTER = "yyyyQ"
    MONTH = "yyyyMM"
    DAY = "yyyyMMdd"
    HOUR = "yyyyMMddHH"


_TOKEN = re.compile(r"yyyy|uuuu|Q|MM|dd|HH|[_-]+|'[A-Za-z0-9_-]+'")
_FIELDS = {
    "yyyy": r"(?P<year>\d{4})",
    "uuuu": r"(?P<year>\d{4})",
    "Q": r"(?P<quarter>[1-4])",
    "MM": r"(?P<month>\d\d)",
    "dd": r"(?P<day>\d\d)",
    "HH": r"(?P<hour>\d\d)",
}
_NEEDED = {
    TimeUnit.YEAR: {"year"},
    TimeUnit.QUARTER: {"year", "quarter"},
    TimeUnit.MONTH: {"year", "month"},
    TimeUnit.DAY: {"year", "month", "day"},
    TimeUnit.HOUR: {"year", "month", "day", "hour"},
}
_MONTHS = {TimeUnit.YEAR: 12, TimeUnit.QUARTER: 3, TimeUnit.MONTH: 1}


@dataclass(frozen=True)
class AutoPartition:
    """The rule by which a table names its time partitions.

    It raises `ConfigError` if the pattern does not fit the unit.

    Attributes:
        unit: The length of a partition.
        zone: The time zone in which partitions begin.
        pattern: The format of the names, in Java's letters (`yyyy-MM-dd`); empty for the default of
            the unit.
    """

    unit: TimeUnit
    zone: tzinfo
    pattern: str = ""

    def __post_init__(self) -> None:
        object.__setattr__(self, "pattern", self.pattern or self.unit.value)
        fields = set(self._regex.groupindex)
        if not _NEEDED[self.unit] <= fields:
            raise ConfigError(f"'{self.pattern}' lacks a field that names by {self.unit.name} need")

    def name(self, when: datetime, offset: int = 0) -> str:
        """Return the name of the partition that a moment belongs to.

        Args:
            when: The moment, with a time zone.
            offset: Return the partition that is so many units later.
        """
        if when.tzinfo is None:
            raise ConfigError("give the moment a time zone: a naive datetime could mean any")
        local = when.astimezone(self.zone)
        return self._format(self._step(local, offset))

    def names(self, when: datetime, first: int, count: int) -> list[str]:
        """Return the names of consecutive partitions, each name once.

        Args:
            when: The moment to count from, with a time zone.
            first: The first partition, in units after `when`.
            count: The number of units.
        """
        found = (self.name(when, offset) for offset in range(first, first + count))
        return list(dict.fromkeys(found))

    def start(self, name: str) -> datetime:
        """Return the local time, with its zone, at which the partition called `name` starts."""
        match = self._regex.fullmatch(name)
        if match is None:
            raise InvalidPartitionError(f"'{name}' does not have the form {self.pattern}")
        parts = {key: int(text) for key, text in match.groupdict().items()}
        month = parts.get("month", 1 + 3 * (parts.get("quarter", 1) - 1))
        try:
            local = datetime(
                parts["year"], month, parts.get("day", 1), parts.get("hour", 0), tzinfo=self.zone
            )
        except ValueError as error:
            raise InvalidPartitionError(f"'{name}' is not a time: {error}") from error
        return local

    def next(self, name: str) -> str:
        """Return the name of the partition after the one called `name`."""
        return self._neighbour(name, 1)

    def previous(self, name: str) -> str:
        """Return the name of the partition before the one called `name`."""
        return self._neighbour(name, -1)

    def _neighbour(self, name: str, direction: int) -> str:
        start = self.start(name)
        found = self._format(self._step(start, direction))
        # An hour that the clocks repeat has the same name twice.
        return found if found != name else self._format(self._step(start, 2 * direction))

    def _step(self, local: datetime, offset: int) -> datetime:
        try:
            if self.unit is TimeUnit.HOUR:
                return (local.astimezone(UTC) + offset * _HOUR).astimezone(self.zone)
            if self.unit is TimeUnit.DAY:
                return local + timedelta(days=offset)
            months = local.year * 12 + local.month - 1 + offset * _MONTHS[self.unit]
            return local.replace(year=months // 12, month=months % 12 + 1, day=1)
        except (OverflowError, ValueError) as error:
            raise InvalidPartitionError(f"no partition lies {offset} units from {local}") from error

    def _format(self, local: datetime) -> str:
        texts = {
            "yyyy": f"{local.year:04}",
            "uuuu": f"{local.year:04}",
            "Q": str((local.month + 2) // 3),
            "MM": f"{local.month:02}",
            "dd": f"{local.day:02}",
            "HH": f"{local.hour:02}",
        }
        return "".join(texts.get(token, token.strip("'")) for token in _tokens(self.pattern))

    @cached_property
    def _regex(self) -> re.Pattern[str]:
        parts = (_FIELDS.get(t, re.escape(t.strip("'"))) for t in _tokens(self.pattern))
        try:
            return re.compile("".join(parts), re.ASCII)
        except re.error as error:
            raise ConfigError(f"'{self.pattern}' has a field twice") from error


def auto_partition_of(properties: Mapping[str, str], server_zone: str = "UTC") -> AutoPartition:
    """Return the rule that the properties of a table define.

    Args:
        properties: The properties of the table.
        server_zone: The time zone of the server, for tables that do not set one.
    """
    unit = properties.get(TIME_UNIT, "DAY").strip().upper()
    if unit not in TimeUnit.__members__:
        raise ConfigError(f"{TIME_UNIT} is one of {', '.join(TimeUnit.__members__)}, not '{unit}'")
    zone = time_zone(properties.get(TIME_ZONE, server_zone))
    return AutoPartition(TimeUnit[unit], zone, properties.get(TIME_FORMAT, ""))


def time_zone(name: str) -> tzinfo:
    """Return a time zone by its `name` (`Europe/Berlin`) or by Java's fixed form (`GMT+8`)."""
    fixed = _FIXED_ZONE.fullmatch(name)
    if fixed is not None:
        sign, hours, minutes = fixed.groups()
        offset = timedelta(hours=int(hours), minutes=int(minutes or 0))
        if offset < timedelta(days=1):
            return timezone(-offset if sign == "-" else offset)
    try:
        return ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError) as error:
        raise ConfigError(f"{TIME_ZONE}: this system knows no time zone '{name}'") from error


def _tokens(pattern: str) -> list[str]:
    tokens = _TOKEN.findall(pattern)
    if "".join(tokens) != pattern:
        raise ConfigError(
            f"the pattern '{pattern}' may hold yyyy, Q, MM, dd, HH, '-', '_' and quoted text"
        )
    return tokens
