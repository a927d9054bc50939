"""Which interval of time a run stands for, by its data interval or by its schedule."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import Any

import pendulum
import pytest

from fluss_client.errors import ConfigError
from fluss_orchestrate.airflow.run_context import Window, window_of_run
from fluss_orchestrate.airflow.scans import until_of

pytestmark = pytest.mark.usefixtures("airflow_home")
ZONE = "Europe/Berlin"


def context(schedule: Any, moment: Any, **given: Any) -> Any:
    """The context of a run at a date, as Airflow has it: with pendulum's times."""
    from airflow.sdk import DAG

    dag = DAG("any", schedule=schedule, start_date=datetime(2026, 1, 1, tzinfo=pendulum.UTC))
    found = None if moment is None else pendulum.instance(moment)
    interval = {"data_interval_start": found, "data_interval_end": found}
    ti = SimpleNamespace(run_id="run")
    return {"dag": dag, "ti": ti, "logical_date": found, **interval, **given}


def at(*parts: int) -> datetime:
    return datetime(*parts, tzinfo=UTC)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("schedule", "moment", "before"),
    [
        ("@hourly", at(2026, 11, 17, 5), at(2026, 11, 17, 4)),
        ("@monthly", at(2026, 3, 1), at(2026, 2, 1)),
        ("0 0 29 2 *", at(2028, 2, 29), at(2024, 2, 29)),
        (timedelta(seconds=7), at(2026, 11, 17, 5, 0, 3), at(2026, 11, 17, 4, 59, 56)),
        (timedelta(days=1), at(2026, 11, 17, 5, 30), at(2026, 11, 16, 5, 30)),
    ],
)
def test_a_run_without_interval_reads_since_the_tick_before(
    schedule: Any, moment: datetime, before: datetime
) -> None:
    assert window_of_run(context(schedule, moment)) == Window(before, moment)


def test_the_tick_before_follows_the_zone() -> None:
    """A day of 25 hours, when summer time ends; and several cron texts at once."""
    try:
        from airflow.sdk import CronTriggerTimetable, MultipleCronTriggerTimetable
    except ImportError:  # before 3.2
        from airflow.timetables.trigger import CronTriggerTimetable, MultipleCronTriggerTimetable

    daily = CronTriggerTimetable("0 0 * * *", timezone=ZONE)
    moment = at(2026, 10, 25, 23)  # midnight of the 26th in Berlin
    assert window_of_run(context(daily, moment)).since == at(2026, 10, 24, 22)
    several = MultipleCronTriggerTimetable("0 1 * * *", "0 4 * * *", timezone="UTC")
    assert window_of_run(context(several, at(2026, 11, 17, 4))).since == at(2026, 11, 17, 1)


def test_a_data_interval_is_taken_as_it_is() -> None:
    since, until = pendulum.instance(at(2026, 11, 17, 4)), pendulum.instance(at(2026, 11, 17, 5))
    given = {"data_interval_start": since, "data_interval_end": until}
    assert window_of_run(context(None, since, **given)) == Window(since, until)


@pytest.mark.parametrize(
    ("schedule", "moment"),
    [("@hourly", at(2026, 11, 17, 5, 20)), ("@hourly", None), (None, at(2026, 11, 17))],
    ids=["between ticks", "without a date", "without a schedule"],
)
def test_a_run_that_stands_for_no_time_is_an_error(schedule: Any, moment: Any) -> None:
    with pytest.raises(ConfigError, match="CronDataIntervalTimetable"):
        window_of_run(context(schedule, moment))


def test_ends_in_all_forms_that_templates_give() -> None:
    moment = at(2026, 11, 17, 5)
    wanted = int(moment.timestamp() * 1000)
    found = pendulum.instance(moment)
    assert [until_of(form) for form in (found, str(found), found.isoformat(), str(wanted))] == [
        wanted
    ] * 4
    assert until_of("{0: 31}") == until_of('{"0": 31}') == {0: 31}
    with pytest.raises(ConfigError, match="is no time"):
        until_of("tomorrow")
