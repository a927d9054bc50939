"""Times as the core takes them: UTC milliseconds, from any form in which a caller has a time.

The forms are integer milliseconds since 1970, `datetime` with a zone (subclasses such as pendulum's
and pandas' too), and text: ISO 8601 with a zone, or milliseconds as digits.
"""

from __future__ import annotations

import calendar
import datetime as dt
import re
from typing import Any

from fluss_client.errors import ConfigError

Time = int | dt.datetime | str
"""Milliseconds since 1970, a `datetime` with its zone, or either of them as text."""

_MILLISECONDS = re.compile("-?[0-9]{1,18}")


def time_ms(value: Time) -> int:
    """Return a time in milliseconds since 1970.

    A fraction of a millisecond is rounded up: a batch of that millisecond may be older than the
    time.

    Raises:
        ConfigError: if the value is no time, or has no zone and so means nothing.
    """
    found = as_time_ms(value)
    if found is None:
        raise ConfigError(
            f"{value!r} is no time: give milliseconds since 1970, a datetime with a zone, or text "
            "such as 2026-11-16T08:00:00Z"
        )
    return found


def as_time_ms(value: Any) -> int | None:
    """Return a time in milliseconds since 1970, or None for what is no time in any form."""
    if isinstance(value, bool):
        return None
    if isinstance(value, int):
        return value
    if isinstance(value, str):
        return _of_text(value)
    return _of_datetime(value) if isinstance(value, dt.datetime) else None


def _of_text(text: str) -> int | None:
    if _MILLISECONDS.fullmatch(text):
        return int(text)
    try:
        return _of_datetime(dt.datetime.fromisoformat(text))
    except ValueError:
        return None


def _of_datetime(value: dt.datetime) -> int:
    offset = value.utcoffset()
    if offset is None:
        raise ConfigError(f"{value} has no time zone: add one, such as datetime.timezone.utc or Z")
    # Not by subtracting: subclasses give differences of their own kinds, which divide otherwise.
    # Nor by converting to UTC, which the first and the last day of all times do not survive.
    seconds = calendar.timegm(value.timetuple()) - offset.days * 86_400 - offset.seconds
    microseconds = value.microsecond - offset.microseconds + bool(getattr(value, "nanosecond", 0))
    return seconds * 1000 - (-microseconds // 1000)
