"""Checks that fail a task: a table is fresh, a checkpoint keeps up, the rows are as many as wanted.

A failed check is retried as the task's `retries` say, because rows may still come.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

from fluss_orchestrate.airflow.errors import FlussTaskError, argument_errors
from fluss_orchestrate.airflow.operators.base import FlussOperator
from fluss_orchestrate.airflow.operators.checkpoints import check_exists

if TYPE_CHECKING:
    from airflow.sdk import Context

    from fluss_client import FlussConnection, TableBucket, TableInfo
    from fluss_orchestrate.core.checkpoints.report import Lag
    from fluss_orchestrate.core.row_filter import RowFilter


class FlussCheckFailedError(FlussTaskError):
    """A check failed: the data is not as it should be."""


def seconds_of(value: timedelta | float | str | None) -> float | None:
    """Return a duration in seconds, or None."""
    if value is None:
        return None
    return value.total_seconds() if isinstance(value, timedelta) else float(value)


class FlussFreshnessCheckOperator(FlussOperator):
    """Fail unless rows were committed to a table lately.

    Args:
        table: The table, as `database.table`.
        max_age: The age that the newest row may have: a `timedelta`, or seconds.
        **kwargs: `fluss_conn_id`, and the arguments of Airflow's `BaseOperator`.
    """

    template_fields = ("fluss_conn_id", "table", "max_age")

    def __init__(self, *, table: str, max_age: timedelta | float | str, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.table = table
        self.max_age = max_age

    def work(self, context: Context) -> dict[str, Any]:
        """Check the table, and return how many offsets are new enough.

        Args:
            context: The context of the Airflow task.

        Raises:
            FlussCheckFailedError: If there is none.
        """
        with argument_errors("max_age"):
            age_s = seconds_of(self.max_age)
        assert age_s is not None
        since = datetime.now(UTC) - timedelta(seconds=age_s)
        fresh = _offsets_since(self.hook.get_conn(), self.table, since)
        if not fresh:
            raise FlussCheckFailedError(
                f"{self.table} is not fresh: no row was committed since {since.isoformat()} "
                f"({age_s:g} s ago); see whether its writers run"
            )
        self.log.info("%s is fresh: %d offsets are younger than %g s", self.table, fresh, age_s)
        return {"table": self.table, "fresh_offsets": fresh, "max_age_s": age_s}


class FlussLagCheckOperator(FlussOperator):
    """Fail if a checkpoint is too far behind its table, or about to lose rows to retention.

    Rows that retention has deleted before they were read always fail the check.

    Args:
        checkpoint: The name of the checkpoint.
        max_offsets: The most unread offsets.
        max_age: The age that the oldest unread row may have: a `timedelta`, or seconds.
        min_time_left: The least time until retention may delete unread rows.
        **kwargs: `fluss_conn_id`, and the arguments of Airflow's `BaseOperator`.

    Raises:
        ValueError: If no limit is given.
    """

    template_fields = ("fluss_conn_id", "checkpoint", "max_offsets", "max_age", "min_time_left")

    def __init__(
        self,
        *,
        checkpoint: str,
        max_offsets: int | str | None = None,
        max_age: timedelta | float | str | None = None,
        min_time_left: timedelta | float | str | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        if max_offsets is None and max_age is None and min_time_left is None:
            raise ValueError("give max_offsets, max_age or min_time_left: a check needs a limit")
        self.checkpoint = checkpoint
        self.max_offsets = max_offsets
        self.max_age = max_age
        self.min_time_left = min_time_left

    def work(self, context: Context) -> dict[str, Any]:
        """Check the checkpoint, and return its lag.

        Args:
            context: The context of the Airflow task.

        Raises:
            FlussCheckFailedError: If a limit is passed.
        """
        lag = lag_of(self.hook.get_conn(), self.checkpoint)
        with argument_errors("the limits of the check"):
            problems = lag_problems(
                lag,
                None if self.max_offsets is None else int(self.max_offsets),
                seconds_of(self.max_age),
                seconds_of(self.min_time_left),
            )
        if problems:
            raise FlussCheckFailedError(f"'{self.checkpoint}' of {lag.table}: {problems}")
        self.log.info("'%s' is %d offsets behind", self.checkpoint, lag.offsets)
        return lag_values(lag)


def lag_of(client: FlussConnection, checkpoint: str) -> Lag:
    """Return the lag of a checkpoint.

    Raises:
        ConfigError: If there is none of the name.
    """
    from fluss_orchestrate.core.checkpoints import FlussCheckpointStore
    from fluss_orchestrate.core.checkpoints.report import checkpoint_lag

    store = FlussCheckpointStore(client)
    check_exists(store, checkpoint, "check")
    return checkpoint_lag(client, store, checkpoint)


def lag_values(lag: Lag) -> dict[str, Any]:
    """Return the sums of a lag, without its buckets."""
    return {key: value for key, value in lag.to_json().items() if key != "places"}


def lag_problems(
    lag: Lag, max_offsets: int | None, max_age_s: float | None, min_left_s: float | None
) -> str:
    """Return which limits a lag passes, as one sentence; empty if none."""
    left_ms = lag.expires_in_ms
    found = [
        f"retention has deleted {lag.lost} offsets that were not read" if lag.lost else "",
        f"it is {lag.offsets} offsets behind, more than {max_offsets}"
        if max_offsets is not None and lag.offsets > max_offsets
        else "",
        f"its oldest unread row is {lag.age_ms / 1000:.0f} s old, more than {max_age_s:g} s"
        if max_age_s is not None and lag.age_ms > max_age_s * 1000
        else "",
        f"retention may delete unread rows in {left_ms / 1000:.0f} s, less than {min_left_s:g} s"
        if min_left_s is not None and left_ms is not None and left_ms < min_left_s * 1000
        else "",
    ]
    return "; ".join(text for text in found if text)


class FlussRowCountCheckOperator(FlussOperator):
    """Fail unless a table has as many rows as wanted, or as many that fit a filter.

    Without `where` the servers' own counts are used. With it the rows are read: all that the log
    holds, or the current rows of a key table. Rows that were written for expired partitions (Fluss
    1.0) count in a log table. A key table that takes such rows is refused (`LateRowsError`) unless
    `on_late_rows` is `note`: then the rows of the partitions that exist are counted.

    Args:
        table: The table, as `database.table`.
        min_rows: The fewest rows.
        max_rows: The most rows; 0 with `where` says that no row may be so.
        where: Which rows are counted, such as `amount < 0 or region is null`.
        on_late_rows: What to do about rows of expired partitions: `read` them, leave them out
            (`note`), or `fail`.
        **kwargs: `fluss_conn_id`, and the arguments of Airflow's `BaseOperator`.

    Raises:
        ValueError: If neither `min_rows` nor `max_rows` is given.
    """

    template_fields = (
        "fluss_conn_id",
        "table",
        "min_rows",
        "max_rows",
        "where",
        "on_late_rows",
    )

    def __init__(
        self,
        *,
        table: str,
        min_rows: int | str | None = None,
        max_rows: int | str | None = None,
        where: str | None = None,
        on_late_rows: str = "read",
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        if min_rows is None and max_rows is None:
            raise ValueError("give min_rows or max_rows: a check needs a limit")
        self.table = table
        self.min_rows = min_rows
        self.max_rows = max_rows
        self.where = where
        self.on_late_rows = on_late_rows

    def work(self, context: Context) -> dict[str, Any]:
        """Count the rows, and return their number.

        Args:
            context: The context of the Airflow task.

        Raises:
            FlussCheckFailedError: If there are too few or too many.
        """
        with argument_errors("the limits of the check"):
            least = None if self.min_rows is None else int(self.min_rows)
            most = None if self.max_rows is None else int(self.max_rows)
        rows = _count(self.hook.get_conn(), self.table, self.where, self.on_late_rows)
        which = "rows" if self.where is None else f"rows where {self.where}"
        if (least is not None and rows < least) or (most is not None and rows > most):
            limits = {"at least": least, "at most": most}
            wanted = " and ".join(f"{k} {v}" for k, v in limits.items() if v is not None)
            raise FlussCheckFailedError(f"{self.table} has {rows} {which}, not {wanted}")
        self.log.info("%s has %d %s", self.table, rows, which)
        return {"table": self.table, "rows": rows, "where": self.where}


def _offsets_since(client: FlussConnection, table: str, since: datetime) -> int:
    from fluss_client import TablePath
    from fluss_client.engine import async_connection, backend_of, run_blocking
    from fluss_orchestrate.core.incremental.planning.observation import observe_table
    from fluss_orchestrate.core.incremental.time.timestamps import resolve_timestamp
    from fluss_orchestrate.core.times import time_ms

    core = async_connection(client)

    async def ask() -> int:
        view = await observe_table(core, TablePath.parse(table))
        cut = await resolve_timestamp(backend_of(core), core.config, view, time_ms(since))
        return sum(latest - cut.get(place, latest) for place, latest in view.latest.items())

    return run_blocking(ask())


def _count(client: FlussConnection, table: str, where: str | None, on_late_rows: str) -> int:
    from fluss_client import TableBucket, TablePath
    from fluss_client.engine import async_connection, backend_of, run_blocking
    from fluss_orchestrate.core.incremental.planning.late_rows import observe_for_read
    from fluss_orchestrate.core.row_filter import RowFilter

    core = async_connection(client)
    info = run_blocking(backend_of(core).get_table_info(TablePath.parse(table)))
    wanted = None if where is None else RowFilter.parse(where)
    if wanted is not None:
        wanted.check(info.schema.arrow)
    view = run_blocking(observe_for_read(core, info, on_late_rows))
    places = [TableBucket(info.table_id, b, partition_id=p) for p, b in view.latest]
    if wanted is None:
        counted = client.get_admin().result().get_table_stats(info.table_path, places)
        return sum(counted.result().values())
    read = _state if info.has_primary_key() else _log
    return sum(wanted.apply(batch).num_rows for batch in read(client, info, places, wanted))


def _log(
    client: FlussConnection, info: TableInfo, places: Sequence[TableBucket], wanted: RowFilter
) -> Iterator[Any]:
    from fluss_client import EARLIEST_OFFSET

    scan = client.get_table(info.table_path).result().new_scan()
    scan = scan.project_by_name(list(wanted.columns))
    condition = wanted.predicate(info.schema)
    if condition is not None:
        scan = scan.filter(condition)
    scanner = scan.create_record_batch_log_scanner().result()
    for place in places:
        if place.partition_id is None:
            scanner.subscribe(place.bucket_id, EARLIEST_OFFSET)
        else:
            scanner.subscribe_partition(place.partition_id, place.bucket_id, EARLIEST_OFFSET)
    if places:
        yield from scanner.to_arrow_batch_reader()


def _state(
    client: FlussConnection, info: TableInfo, places: Sequence[TableBucket], wanted: RowFilter
) -> Iterator[Any]:
    from fluss_client.engine import BlockingState, async_connection

    core = async_connection(client)
    for place in places:
        with BlockingState(core, info, place, columns=list(wanted.columns)) as rows:
            yield from rows
