"""What Airflow's context says of a run: its run key, its time interval, the values of the context.

A `schedule` of plain text or `timedelta` gives runs without data intervals in Airflow 3, unless
`[scheduler] create_cron_data_intervals` is set: both ends are the logical date. The interval of
such a run is the time since the run before it.

`RunState` keeps small values of a task run over retries and clears.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from fluss_orchestrate.airflow.version_compat import CAPABILITIES

if TYPE_CHECKING:
    from airflow.sdk import Context

    from fluss_orchestrate.airflow.hooks import FlussHook

Tick = Callable[[datetime], datetime | None]
"""When a schedule fires next, strictly after a time; None if never."""
LOOK_BACK_MAX = timedelta(days=5 * 366)
"""How rarely a schedule may fire."""
RUN_KEY_PREFIX = "airflow"
_RESOLUTION = timedelta(microseconds=1)


class Window(NamedTuple):
    """The interval of time that a run reads: rows committed at or after `since`, before `until`."""

    since: datetime
    until: datetime


def window_of_run(context: Context) -> Window:
    """Return the run's data interval, or the time from the previous tick of its schedule to this.

    Raises:
        ConfigError: if the run has neither.
    """
    from fluss_client.errors import ConfigError

    since, until = context.get("data_interval_start"), context.get("data_interval_end")
    if since is not None and until is not None and since < until:
        return Window(since, until)
    moment = context.get("logical_date")
    before = None if moment is None else _tick_before(context, moment)
    if moment is None or before is None:
        raise ConfigError(
            f"run {context['ti'].run_id} has no data interval to read, and its schedule does not "
            "tell one: give the DAG schedule=CronDataIntervalTimetable('@hourly', timezone='UTC') "
            "or another schedule with data intervals, trigger it for a date on which it is "
            "scheduled, or read by the checkpoint (mode='cursor', and no backfill)"
        )
    return Window(before, moment)


def previous_tick(next_after: Tick, moment: datetime) -> datetime | None:
    """Return the tick before a tick; None if `moment` is none, or the first one.

    That is the earliest time after which the schedule fires at `moment` next. It is searched for,
    because timetables tell only what comes next.
    """

    def fires_before(time: datetime) -> bool:
        found = next_after(time)
        return found is not None and found < moment

    step = timedelta(seconds=1)
    while not fires_before(moment - step):
        step *= 2
        if step > LOOK_BACK_MAX:
            return None
    early, late = moment - step, moment - _RESOLUTION
    while late - early > _RESOLUTION:
        middle = early + (late - early) // 2
        early, late = (middle, late) if fires_before(middle) else (early, middle)
    return late if next_after(late) == moment else None


def _tick_before(context: Context, moment: datetime) -> datetime | None:
    ticks = _ticks_of(context["dag"].timetable)
    if ticks is None:
        return None
    # Pendulum's own arithmetic gives intervals that do not divide as those of datetime do.
    plain = datetime.fromtimestamp(moment.timestamp(), UTC)
    return previous_tick(ticks, plain)


def _ticks_of(timetable: Any) -> Tick | None:
    """Return the ticks of a timetable; None if they are not known here, or it has none."""
    try:
        import pendulum
        from airflow.timetables.base import DataInterval, TimeRestriction

        from fluss_orchestrate.airflow.version_compat import core_timetable
    except ImportError:  # a worker with the task SDK alone
        return None
    known = core_timetable(timetable)
    if not known.periodic:
        return None
    always = TimeRestriction(earliest=None, latest=None, catchup=True)

    def next_after(time: datetime) -> datetime | None:
        found = known.next_dagrun_info(
            last_automated_data_interval=DataInterval.exact(pendulum.instance(time)),
            restriction=always,
        )
        return None if found is None or found.run_after is None else found.run_after

    return next_after


def call_with_context(
    function: Callable[..., Any],
    arguments: Sequence[Any],
    context: Context,
    keywords: Mapping[str, Any] | None = None,
) -> Any:
    """Call `function(*arguments, **keywords)`, and pass the values of the context that it names."""
    given = dict(keywords or {})
    parameters = inspect.signature(function).parameters
    values: dict[str, Any] = {**context, "context": context}
    if any(p.kind is p.VAR_KEYWORD for p in parameters.values()):
        return function(*arguments, **{**context, **given})
    positional = list(parameters)[: len(arguments)]
    for name in parameters:
        if name in values and name not in given and name not in positional:
            given[name] = values[name]
    return function(*arguments, **given)


def run_key(context: Context) -> str:
    """Return `airflow/dag/task/run/map index`: the same for every try of one task instance."""
    ti = context["ti"]
    parts = [RUN_KEY_PREFIX, ti.dag_id, ti.task_id, ti.run_id]
    if ti.map_index is not None and ti.map_index >= 0:
        parts.append(str(ti.map_index))
    return "/".join(parts)


def is_backfill(context: Context) -> bool:
    """Return whether the run belongs to a backfill, which must not change the shared position."""
    return str(context["dag_run"].run_type).rpartition(".")[2].lower().startswith("backfill")


class RunState(Protocol):
    """Values by key, of one task run."""

    def get(self, key: str) -> Any:
        """Return the value of a key, or None."""

    def set(self, key: str, value: Any) -> None:
        """Set the value of a key."""


class ClusterRunState:
    """The state of a task run in the cluster, where Airflow has no task state (before 3.3).

    Args:
        hook: The cluster.
        key: The run key of the task run.
    """

    def __init__(self, hook: FlussHook, key: str) -> None:
        self._hook = hook
        self._key = key

    def get(self, key: str) -> Any:
        """Return the value of a key, or None."""
        from fluss_orchestrate.core.checkpoints import get_state

        return get_state(self._hook.get_conn(), f"{self._key}#{key}")

    def set(self, key: str, value: Any) -> None:
        """Set the value of a key."""
        from fluss_orchestrate.core.checkpoints import set_state

        set_state(self._hook.get_conn(), f"{self._key}#{key}", value)


def run_state(context: Context, hook: FlussHook) -> RunState:
    """Return the state of a task run: Airflow's task state, or else a table of the cluster.

    Args:
        context: Airflow's context.
        hook: The hook of the task's cluster.
    """
    store: Any = context.get("task_state_store") if CAPABILITIES.task_state else None
    return ClusterRunState(hook, run_key(context)) if store is None else store
