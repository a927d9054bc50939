"""The table options of the server: how each value is parsed, and its default.

Values are parsed as the server does it: words in upper or lower case, times with a unit. A key or
value that the server refuses raises InvalidConfigError (39).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any
from zoneinfo import ZoneInfo

from fluss_client.errors import InvalidConfigError

PREFIX = "table."
REPLICATION = "table.replication.factor"
LOG_FORMAT = "table.log.format"
COMPRESSION = "table.log.arrow.compression.type"
ZSTD_LEVEL = "table.log.arrow.compression.zstd.level"
KV_FORMAT = "table.kv.format"
KV_VERSION = "table.kv.format-version"
AUTO_ENABLED = "table.auto-partition.enabled"
AUTO_KEY = "table.auto-partition.key"
AUTO_UNIT = "table.auto-partition.time-unit"
AUTO_ZONE = "table.auto-partition.time-zone"
AUTO_PRECREATE = "table.auto-partition.num-precreate"
AUTO_RETENTION = "table.auto-partition.num-retention"
LOG_TTL = "table.log.ttl"
LOCAL_SEGMENTS = "table.log.tiered.local-segments"
LAKE_ENABLED = "table.datalake.enabled"
LAKE_FORMAT = "table.datalake.format"
LAKE_FRESHNESS = "table.datalake.freshness"
MERGE_ENGINE = "table.merge-engine"
VERSION_COLUMN = "table.merge-engine.versioned.ver-column"
DELETE_BEHAVIOR = "table.delete.behavior"
CHANGELOG_IMAGE = "table.changelog.image"

KV_VERSION_CURRENT = 2
ALTERABLE = frozenset({LAKE_ENABLED, LAKE_FRESHNESS, LOCAL_SEGMENTS})

_DURATION = re.compile(r"(\d+)\s*(\D*)\Z")
_UNIT_NANOS = {
    **dict.fromkeys(("d", "day", "days"), 86_400_000_000_000),
    **dict.fromkeys(("h", "hour", "hours"), 3_600_000_000_000),
    **dict.fromkeys(("min", "m", "minute", "minutes"), 60_000_000_000),
    **dict.fromkeys(("s", "sec", "secs", "second", "seconds"), 1_000_000_000),
    **dict.fromkeys(("ms", "milli", "millis", "millisecond", "milliseconds"), 1_000_000),
    **dict.fromkeys(("µs", "micro", "micros", "microsecond", "microseconds"), 1_000),
    **dict.fromkeys(("ns", "nano", "nanos", "nanosecond", "nanoseconds"), 1),
}
_NANOS_PER_MS = 1_000_000
_INT32_MAX = (1 << 31) - 1


def _integer(text: str) -> int:
    if not re.fullmatch(r"[+-]?[0-9]+", text):
        raise ValueError(f"'{text}' is not a whole number")
    number = int(text)
    if not -_INT32_MAX - 1 <= number <= _INT32_MAX:
        raise ValueError(f"{number} does not fit 32 bits")
    return number


def _boolean(text: str) -> bool:
    word = text.upper()
    if word not in ("TRUE", "FALSE"):
        raise ValueError(f"'{text}' is neither true nor false")
    return word == "TRUE"


def _duration_ms(text: str) -> int:
    match = _DURATION.match(text.strip())
    unit = None if match is None else _UNIT_NANOS.get(match[2].strip().lower())
    if match is None or unit is None:
        raise ValueError(f"'{text}' is not a time such as '7 d', '3min' or '500ms'")
    return int(match[1]) * unit // _NANOS_PER_MS


def _word(*allowed: str) -> Callable[[str], str]:
    def parse(text: str) -> str:
        if text.upper() not in allowed:
            raise ValueError(f"'{text}' is none of {', '.join(allowed)}")
        return text.upper()

    return parse


def _text(text: str) -> str:
    return text


_KNOWN: dict[str, tuple[Callable[[str], Any], Any]] = {
    REPLICATION: (_integer, None),
    LOG_FORMAT: (_word("ARROW", "INDEXED", "COMPACTED"), "ARROW"),
    COMPRESSION: (_word("NONE", "LZ4_FRAME", "ZSTD"), "ZSTD"),
    ZSTD_LEVEL: (_integer, 3),
    KV_FORMAT: (_word("COMPACTED", "INDEXED"), "COMPACTED"),
    KV_VERSION: (_integer, None),
    AUTO_ENABLED: (_boolean, False),
    AUTO_KEY: (_text, None),
    AUTO_UNIT: (_word("YEAR", "QUARTER", "MONTH", "DAY", "HOUR"), "DAY"),
    AUTO_ZONE: (_text, None),
    AUTO_PRECREATE: (_integer, 2),
    AUTO_RETENTION: (_integer, 7),
    LOG_TTL: (_duration_ms, 7 * 86_400_000),
    LOCAL_SEGMENTS: (_integer, 2),
    LAKE_ENABLED: (_boolean, False),
    LAKE_FORMAT: (_word("PAIMON", "LANCE", "ICEBERG"), None),
    LAKE_FRESHNESS: (_duration_ms, 180_000),
    "table.datalake.auto-compaction": (_boolean, False),
    "table.datalake.auto-expire-snapshot": (_boolean, False),
    MERGE_ENGINE: (_word("FIRST_ROW", "VERSIONED", "AGGREGATION"), None),
    VERSION_COLUMN: (_text, None),
    DELETE_BEHAVIOR: (_word("ALLOW", "IGNORE", "DISABLE"), None),
    "table.auto-increment.cache-size": (_integer, 100_000),
    CHANGELOG_IMAGE: (_word("FULL", "WAL"), "FULL"),
}


def option(properties: Mapping[str, str], key: str) -> Any:
    """Return the value of a known option, or its default."""
    parse, default = _KNOWN[key]
    text = properties.get(key)
    if text is None:
        return default
    try:
        return parse(text)
    except ValueError as error:
        raise InvalidConfigError(f"{key}: {error}") from None


def check_options(properties: Mapping[str, str]) -> None:
    """Raise InvalidConfigError for an unknown key or a value that cannot be parsed."""
    for key in properties:
        if key in _KNOWN:
            option(properties, key)
        elif key.startswith(PREFIX):
            raise InvalidConfigError(f"'{key}' is not a table option of this version")
        else:
            raise InvalidConfigError(f"'{key}' is not a table option: make it a custom property")


def zone_of(properties: Mapping[str, str]) -> ZoneInfo:
    """Return the time zone of auto-partitions; UTC if none, or an unknown one, is set."""
    try:
        return ZoneInfo(properties.get(AUTO_ZONE, "UTC"))
    except (KeyError, ValueError, OSError):
        # Java, and so the server, uses GMT for an unknown name.
        return ZoneInfo("UTC")
