"""Auto-partition rules at the edges of calendars, clocks and patterns."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fluss_client.codec.auto_partition import (
    TIME_FORMAT,
    TIME_UNIT,
    TIME_ZONE,
    AutoPartition,
    TimeUnit,
    auto_partition_of,
)
from fluss_client.errors import ConfigError, FlussError, InvalidPartitionError

BERLIN = ZoneInfo("Europe/Berlin")
MOMENTS = st.datetimes(datetime(1971, 1, 1), datetime(2200, 1, 1), timezones=st.just(UTC))


@given(MOMENTS, st.sampled_from(TimeUnit))
def test_a_moment_lies_in_its_partition(moment: datetime, unit: TimeUnit) -> None:
    rule = AutoPartition(unit, BERLIN)
    name = rule.name(moment)
    start, end = rule.start(name), rule.start(rule.next(name))
    assert start.astimezone(UTC) <= moment < end.astimezone(UTC)
    assert rule.previous(name) < name < rule.next(name)


def test_clock_changes() -> None:
    rule = AutoPartition(TimeUnit.HOUR, BERLIN)
    assert rule.next("2024033101") == "2024033103"
    assert rule.previous("2024033103") == "2024033101"
    assert rule.next("2024102702") == "2024102703"
    assert rule.previous("2024102703") == "2024102702"
    before = datetime(2024, 10, 26, 22, tzinfo=UTC)
    assert rule.names(before, 0, 5) == ["2024102700", "2024102701", "2024102702", "2024102703"]


def test_windows() -> None:
    rule = auto_partition_of({TIME_UNIT: "month"})
    moment = datetime(2024, 1, 31, tzinfo=UTC)
    assert rule.names(moment, -1, 4) == ["202312", "202401", "202402", "202403"]
    assert auto_partition_of({}).name(moment) == "20240131"


def test_patterns_of_a_table() -> None:
    rule = auto_partition_of({TIME_FORMAT: "yyyy-MM-dd", TIME_ZONE: "GMT-03:30"})
    assert rule.name(datetime(2024, 1, 1, 3, tzinfo=UTC)) == "2023-12-31"
    assert rule.next("2023-12-31") == "2024-01-01"
    assert rule.start("2024-01-01").utcoffset() == -timedelta(hours=3, minutes=30)
    quoted = auto_partition_of({TIME_FORMAT: "yyyy'Q'Q", TIME_UNIT: "QUARTER"})
    assert quoted.next("2024Q4") == "2025Q1"


@pytest.mark.parametrize(
    "properties",
    [
        {TIME_UNIT: "WEEK"},
        {TIME_ZONE: "Mars/Olympus"},
        {TIME_ZONE: "../etc"},
        {TIME_ZONE: "GMT+99"},
        {TIME_FORMAT: "yyyy-MM"},
        {TIME_FORMAT: "yyyy/MM/dd"},
        {TIME_FORMAT: "yyyyMMddyyyy"},
        {TIME_FORMAT: "yyyy-M-dd"},
    ],
)
def test_rules_that_make_no_sense(properties: dict[str, str]) -> None:
    with pytest.raises(ConfigError):
        auto_partition_of(properties)


def test_names_that_are_no_times() -> None:
    rule = auto_partition_of({})
    for name in ("", "2024", "20241301", "20240230", "2024010\uff11", "00000101", "__historical__"):
        with pytest.raises(InvalidPartitionError):
            rule.start(name)
    with pytest.raises(InvalidPartitionError):
        rule.next("99991231")
    with pytest.raises(ConfigError, match="time zone"):
        rule.name(datetime(2024, 1, 1))


@given(st.text(max_size=12), st.sampled_from(TimeUnit))
def test_any_text(text: str, unit: TimeUnit) -> None:
    try:
        AutoPartition(unit, UTC).next(text)
        AutoPartition(unit, UTC, text).name(datetime(2024, 1, 1, tzinfo=UTC))
    except FlussError:
        return
