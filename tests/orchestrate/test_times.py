"""Times: every form in which a caller has one gives the same milliseconds."""

from __future__ import annotations

import datetime as dt
from zoneinfo import ZoneInfo

import pandas as pd
import pendulum
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fluss_client.errors import ConfigError
from fluss_orchestrate.core.times import as_time_ms, time_ms

EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
MOMENTS = st.datetimes(
    dt.datetime(1900, 1, 2),
    dt.datetime(2200, 1, 1),
    timezones=st.sampled_from([dt.UTC, ZoneInfo("Europe/Berlin"), ZoneInfo("Asia/Kolkata")]),
)


@given(MOMENTS)
def test_every_form_gives_the_same_milliseconds(moment: dt.datetime) -> None:
    expected = -(-(moment - EPOCH) // dt.timedelta(milliseconds=1))
    assert time_ms(moment) == expected
    assert time_ms(pendulum.instance(moment)) == expected
    assert time_ms(pd.Timestamp(moment)) == expected
    assert time_ms(moment.astimezone(dt.UTC).isoformat()) == expected
    assert time_ms(str(expected)) == time_ms(expected) == expected


def test_a_fraction_is_rounded_up_whatever_its_unit() -> None:
    assert time_ms(pd.Timestamp("1970-01-01T00:00:00.001000001Z")) == 2
    assert time_ms("1970-01-01T00:00:00.001001Z") == 2
    assert time_ms("1970-01-01T00:00:00.001Z") == 1


@pytest.mark.parametrize("value", [dt.datetime(2026, 1, 1), "2026-01-01T00:00", "2026-01-01"])
def test_a_time_without_a_zone_is_refused(value: dt.datetime | str) -> None:
    with pytest.raises(ConfigError, match="no time zone"):
        time_ms(value)


@pytest.mark.parametrize("value", ["latest", "", "9" * 5000, True, 1.5, None])
def test_what_is_no_time_is_told_so(value: object) -> None:
    assert as_time_ms(value) is None
    with pytest.raises(ConfigError, match="is no time"):
        time_ms(value)  # type: ignore[arg-type]
