"""Targets that are kept equal to key tables, and the proof that they are."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import fields, is_dataclass, replace
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from fluss_orchestrate.airflow.errors import (
    FlussTaskError,
    FlussTaskFailedError,
    airflow_errors,
    argument_errors,
)
from fluss_orchestrate.airflow.flows import Flow, named_table
from fluss_orchestrate.airflow.operators.base import FlussOperator
from fluss_orchestrate.airflow.operators.checks import FlussCheckFailedError
from fluss_orchestrate.airflow.operators.scanning import (
    FlussIncrementalScanOperator,
    check_scan_options,
    checked_sink,
)
from fluss_orchestrate.airflow.run_context import Window, run_key
from fluss_orchestrate.airflow.scans import until_of
from fluss_orchestrate.airflow.triggers.waiting import FlussConditionTrigger
from fluss_orchestrate.airflow.triggers.watching import default_poll_interval
from fluss_orchestrate.airflow.version_compat import AirflowSensorTimeout

if TYPE_CHECKING:
    from airflow.sdk import Context

    from fluss_client import FlussConnection, TablePath
    from fluss_orchestrate.airflow.targets import Target
    from fluss_orchestrate.core.conditions import Condition
    from fluss_orchestrate.core.incremental import IncrementalScan
    from fluss_orchestrate.core.mirror.databases import TableOutcome
    from fluss_orchestrate.core.sinks import Sink

WAIT_TIMEOUT_S = 7 * 86_400.0
"""How long a mirror waits for new rows, as long as Airflow's sensors do."""
TIMEOUT_GRACE_S = 60.0
"""How much later than our own timeout Airflow's comes, which cannot say what was waited for."""
TABLE_MARK, DATABASE_MARK = "{table}", "{database}"


class FlussMirrorOperator(FlussIncrementalScanOperator):
    """Keep a target equal to a key table, exactly once.

    The first run writes the rows of the table, each further run applies the changes since. A run
    of a backfill does the same: a mirror has no past.

    Args:
        table: The key table, as `database.table`.
        checkpoint: The name of the checkpoint.
        sink: A target with `form="mirror"` or `form="history"`.
        until: Where the changes end: `latest`, a time, offsets by bucket, or another task's
            receipt.
        columns: The columns to copy; all by default. The primary key must be among them.
        max_offsets: The most offsets that one run reads.
        min_offsets: Wait until the table has this many offsets after the checkpoint before the
            run begins. The task waits in the triggerer.
        wait_timeout: How many seconds it waits.
        poll_interval: Seconds between two looks; `[fluss] poll_interval` by default.
        scan_options: Further arguments of the core's `IncrementalScan`, such as `on_pending` or
            `store`; not those that a mirror fixes.
        **kwargs: `settle_timeout`, `fluss_conn_id`, and the arguments of Airflow's `BaseOperator`.

    Raises:
        TypeError: If `sink` is no target.
    """

    template_fields = (*FlussIncrementalScanOperator.template_fields, "min_offsets")

    def __init__(
        self,
        *,
        sink: Target,
        min_offsets: int | str | None = None,
        wait_timeout: float = WAIT_TIMEOUT_S,
        poll_interval: float | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(sink=checked_sink(sink), **kwargs)
        self.min_offsets = min_offsets
        self.wait_timeout = wait_timeout
        self.poll_interval = default_poll_interval() if poll_interval is None else poll_interval

    def execute(self, context: Context) -> Any:
        """Wait for rows if that is wanted, then bring the target up to date.

        Args:
            context: Airflow's context.

        Returns:
            The receipt, with those of plans that other runs had left unfinished.

        Raises:
            FlussTaskError: If a retry may help.
            FlussTaskFailedError: If no retry can help.
        """
        if self.min_offsets is not None:
            self.check_not_empty()
            with airflow_errors():
                condition = self._awaited(context)
            if condition is not None:
                self.log.info("waiting until %s", condition.wanted)
                self.defer(
                    trigger=FlussConditionTrigger(
                        fluss_conn_id=self.fluss_conn_id,
                        condition=condition.to_json(),
                        poll_interval=self.poll_interval,
                        deadline_ms=int((time.time() + self.wait_timeout) * 1000),
                        timeout=self.wait_timeout,
                    ),
                    method_name="execute_complete",
                    timeout=timedelta(seconds=self.wait_timeout + TIMEOUT_GRACE_S),
                )
        return super().execute(context)

    def execute_complete(self, context: Context, event: Mapping[str, Any] | None = None) -> Any:
        """Bring the target up to date, after the rows have come.

        Args:
            context: Airflow's context.
            event: The event of the trigger.

        Raises:
            FlussTaskError: If a retry may help.
            FlussTaskFailedError: If no retry can help.
            AirflowSensorTimeout: If the time has passed.
        """
        status = event.get("status") if isinstance(event, Mapping) else None
        if event is None or status not in ("success", "error", "timeout"):
            raise FlussTaskError(f"the event of the trigger cannot be understood: {event!r}")
        if status == "timeout":
            raise AirflowSensorTimeout(str(event["message"]))
        if status == "error":
            kind = FlussTaskError if event.get("retry", True) else FlussTaskFailedError
            raise kind(str(event["message"]))
        return super().execute(context)

    def _awaited(self, context: Context) -> Condition | None:
        """Return what to wait for; None if it is there, or the run has a plan already."""
        from fluss_client import TablePath
        from fluss_orchestrate.core.checkpoints import FlussCheckpointStore
        from fluss_orchestrate.core.conditions import RowsCame, holds

        client = self.hook.get_conn()
        store = self.scan_options.get("store") or FlussCheckpointStore(client)
        with argument_errors(f"what {self.task_id} waits for"):
            path, wanted = TablePath.parse(self.table), int(str(self.min_offsets))
        key = run_key(context)
        head = store.head(self.checkpoint, key)
        if store.plan_of(self.checkpoint, key, head) is not None:
            return None
        position = None if head is None else head.state.position
        condition: Condition = (
            RowsCame(path, {}, None, wanted)
            if position is None
            else RowsCame(path, position.offsets, position.table.table_id, wanted)
        )
        return None if holds(client, condition) is not None else condition

    def _window(self, context: Context) -> Window | None:
        return None

    def _scan(self, client: FlussConnection, window: Window | None) -> IncrementalScan:
        from fluss_orchestrate.core.mirror.table import mirror_scan

        check_scan_options(self.scan_options)
        options = dict(self.scan_options)
        return mirror_scan(
            client,
            self.table,
            self.checkpoint,
            form=form_of(self.sink),
            store=options.pop("store", None),
            columns=self.columns,
            scan_options=options,
        )

    def _sink(self, client: FlussConnection, context: Context) -> Sink:
        from fluss_orchestrate.core.mirror.table import require_state_form

        sink = super()._sink(client, context)
        require_state_form(sink)
        return sink


class FlussMirrorCheckOperator(FlussOperator):
    """Fail unless a mirror holds exactly the rows of its table, at the mirror's offsets.

    Counts and checksums are compared per bucket; the task log names the first keys that differ.
    Writers of the table need not stop.

    Args:
        table: The key table, as `database.table`.
        checkpoint: The checkpoint of the mirror.
        sink: The target of the mirror, with `form="mirror"`.
        columns: The columns to compare; by default those that the mirror copies.
        keys_shown_max: How many keys that differ are named.
        store: The checkpoint store; a table of the cluster by default.
        **kwargs: `fluss_conn_id`, and the arguments of Airflow's `BaseOperator`.
    """

    template_fields = ("fluss_conn_id", "table", "checkpoint", "sink", "columns")

    def __init__(
        self,
        *,
        table: str,
        checkpoint: str,
        sink: Target,
        columns: Sequence[str] | None = None,
        keys_shown_max: int = 10,
        store: Any = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.table = table
        self.checkpoint = checkpoint
        self.sink = checked_sink(sink)
        self.columns = columns
        self.keys_shown_max = keys_shown_max
        self.store = store

    def work(self, context: Context) -> dict[str, Any]:
        """Compare, and return the comparison.

        Args:
            context: The context of the Airflow task.

        Raises:
            FlussCheckFailedError: If the mirror differs.
        """
        from fluss_orchestrate.core.mirror.verification import verify_mirror

        client = self.hook.get_conn()
        found = verify_mirror(
            client,
            self.table,
            self.sink.open(client),
            self.checkpoint,
            store=self.store,
            columns=self.columns,
            keys_shown_max=self.keys_shown_max,
        )
        if not found.equal:
            raise FlussCheckFailedError(str(found))
        self.log.info("%s", found)
        return found.to_json()

    def expected_flow(self) -> Flow:
        """Return the table and the target, which are both read."""
        alias = self.hook.named_alias
        return Flow((named_table(alias, self.table), self.sink.node(alias)))


class FlussMirrorDatabaseOperator(FlussOperator):
    """Keep one target per key table of a database equal to it, new tables included.

    A table that fails does not stop the others; the task fails at the end and names it. A retry
    works on what is unfinished.

    Args:
        database: The database.
        sink: A target with `form="mirror"` in whose fields `{table}` and `{database}` stand for
            the names, such as `SqlTarget("{table}", "warehouse", form="mirror")`.
        include: The tables, by name or pattern.
        exclude: Tables to leave out, by name or pattern.
        checkpoint_prefix: Begins the names of the checkpoints; the path of the table follows.
        tables_at_once: How many tables are worked on at the same time.
        on_log_tables: `skip` leaves tables without a key out; `append` writes their new rows with
            the same target and `form="append"`.
        until: Where the changes end: `latest`, or a time.
        max_offsets: The most offsets that one plan of a table takes.
        scan_options: Further arguments of the core's `IncrementalScan`.
        **kwargs: `fluss_conn_id`, and the arguments of Airflow's `BaseOperator`.

    Raises:
        ValueError: If no field of the target has `{table}`: all tables would go into one.
    """

    template_fields = (
        "fluss_conn_id",
        "database",
        "sink",
        "include",
        "exclude",
        "checkpoint_prefix",
        "until",
        "max_offsets",
    )

    def __init__(
        self,
        *,
        database: str,
        sink: Target,
        include: str | Sequence[str] = "*",
        exclude: str | Sequence[str] = (),
        checkpoint_prefix: str = "mirror/",
        tables_at_once: int = 4,
        on_log_tables: str = "skip",
        until: Any = "latest",
        max_offsets: int | str | None = None,
        scan_options: Mapping[str, Any] | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        if TABLE_MARK not in repr(checked_sink(sink)):
            raise ValueError(f"sink has no {TABLE_MARK}: all tables would be written into one")
        self.database = database
        self.sink = sink
        self.include = include
        self.exclude = exclude
        self.checkpoint_prefix = checkpoint_prefix
        self.tables_at_once = tables_at_once
        self.on_log_tables = on_log_tables
        self.until = until
        self.max_offsets = max_offsets
        self.scan_options = dict(scan_options or {})

    def work(self, context: Context) -> dict[str, Any]:
        """Mirror the tables, and return the summary.

        Args:
            context: The context of the Airflow task.

        Raises:
            MirrorDatabaseError: If tables failed.
        """
        from fluss_client.engine import table_info
        from fluss_orchestrate.core.mirror.databases import mirror_database

        client = self.hook.get_conn()
        check_scan_options(self.scan_options)
        options = dict(self.scan_options)
        store = options.pop("store", None)
        with argument_errors(f"the arguments of {self.task_id}"):
            until = until_of(self.until, client)
            max_offsets = None if self.max_offsets is None else int(self.max_offsets)

        def open_sink(path: TablePath) -> Sink:
            keyed = table_info(client, path).has_primary_key()
            sink: Sink = target_for(self.sink, path, None if keyed else "append").open(client)
            return sink

        return mirror_database(
            client,
            self.database,
            open_sink,
            run_key(context),
            include=self.include,
            exclude=self.exclude,
            checkpoint_prefix=self.checkpoint_prefix,
            tables_at_once=self.tables_at_once,
            on_log_tables=self.on_log_tables,
            until=until,
            max_offsets=max_offsets,
            store=store,
            scan_options=options,
            done=self._said,
        ).to_json()

    def _said(self, one: TableOutcome) -> None:
        if one.error is not None:
            self.log.error("%s failed: %s", one.table, one.error)
        elif one.result is not None:
            self.log.info("%s: %d rows of its changes", one.table, one.result.rows)
        else:
            self.log.info("%s has no key: left out", one.table)


def form_of(target: Any) -> str:
    """Return the form of a target: its own, or that of the target that a contract is about."""
    inner = getattr(target, "target", target)
    return str(getattr(inner, "form", "mirror"))


def target_for(target: Any, path: TablePath, form: str | None = None) -> Any:
    """Return a target with the names of a table in place of `{table}` and `{database}`.

    Args:
        target: The target; targets in its fields are filled in as well.
        path: The table.
        form: The form to use instead of the target's own.
    """

    def filled(value: Any) -> Any:
        if isinstance(value, str):
            named = value.replace(TABLE_MARK, path.table_name)
            return named.replace(DATABASE_MARK, path.database_name)
        if isinstance(value, Mapping):
            return {key: filled(one) for key, one in value.items()}
        if is_dataclass(value) and not isinstance(value, type):
            return target_for(value, path, form)
        return value

    values = {one.name: filled(getattr(target, one.name)) for one in fields(target)}
    if form is not None and "form" in values:
        values["form"] = form
    return replace(target, **values)
