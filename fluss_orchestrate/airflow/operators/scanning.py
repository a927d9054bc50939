"""The operator that brings the new rows of a table to a target exactly once."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from fluss_orchestrate.airflow.errors import argument_errors
from fluss_orchestrate.airflow.flows import Flow, copies, named_table, table_node
from fluss_orchestrate.airflow.operators.base import FlussOperator
from fluss_orchestrate.airflow.run_context import Window, call_with_context, run_key
from fluss_orchestrate.airflow.scans import scan_into, until_of, window_of
from fluss_orchestrate.airflow.targets import IcebergTarget, SqlTarget
from fluss_orchestrate.airflow.task_log import Progress, log_plan, log_result
from fluss_orchestrate.deprecated import accepts_old_parameters

if TYPE_CHECKING:
    from airflow.sdk import Context

    from fluss_client import FlussConnection
    from fluss_orchestrate.airflow.targets import Target
    from fluss_orchestrate.core.incremental import IncrementalScan, IntervalScan
    from fluss_orchestrate.core.plan import ScanPlan
    from fluss_orchestrate.core.receipts import Receipt
    from fluss_orchestrate.core.sinks import Sink


class FlussIncrementalScanOperator(FlussOperator):
    """Bring what is new in a table to a target, and move the checkpoint when it is there.

    Every try of a run gets the same rows. Backfills always read intervals, and leave the
    checkpoint as it is.

    Args:
        table: The table, as `database.table`.
        checkpoint: The name of the checkpoint.
        sink: A target (`ParquetTarget`, `IcebergTarget`, `FlussTarget`, `SqlTarget`), or a
            function. The function gets an Arrow reader, and those values of Airflow's context that
            it has parameters for; it may be called again with the same rows.
        mode: `cursor` continues at the checkpoint, up to `until`. `interval` reads the rows
            committed in the run's data interval.
        until: Where a run in mode `cursor` ends: `latest`, `lake`, a time, offsets by bucket, or
            another task's receipt.
        columns: The columns to read; all by default.
        max_offsets: The most offsets that one run reads.
        settle_timeout: How many seconds a run waits for an end in time that is not final yet.
        scan_options: Further arguments of the core's `IncrementalScan`, such as `start`,
            `on_pending`, `on_retention` or `metadata_columns`.
        **kwargs: `fluss_conn_id`, and the arguments of Airflow's `BaseOperator`.

    Raises:
        ValueError: If `mode` is neither.
        TypeError: If `sink` is neither a target nor a function.
    """

    template_fields: Sequence[str] = (
        "fluss_conn_id",
        "table",
        "checkpoint",
        "sink",
        "until",
        "columns",
        "max_offsets",
    )

    @accepts_old_parameters("FlussIncrementalScanOperator")
    def __init__(
        self,
        *,
        table: str,
        checkpoint: str,
        sink: Target | Callable[..., Any],
        mode: str = "cursor",
        until: Any = "latest",
        columns: Sequence[str] | None = None,
        max_offsets: int | str | None = None,
        settle_timeout: float = 300.0,
        scan_options: Mapping[str, Any] | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        if mode not in ("cursor", "interval"):
            raise ValueError(f"mode is cursor or interval, not '{mode}'")
        self.table = table
        self.checkpoint = checkpoint
        # Airflow calls a function in a template field while it renders, so it stands apart.
        self.sink = None if callable(sink) else checked_sink(sink)
        self.function = sink if callable(sink) else None
        self.mode = mode
        self.until = until
        self.columns = columns
        self.max_offsets = max_offsets
        self.settle_timeout = settle_timeout
        self.scan_options = dict(scan_options or {})
        self.read_checkpoint = ""
        """The checkpoint that the run has used, for its link; empty before it begins."""

    def work(self, context: Context) -> dict[str, Any]:
        """Plan, write and commit.

        Args:
            context: The context of the Airflow task.

        Returns:
            The receipt, with those of plans that other runs had left unfinished.
        """
        client = self.hook.get_conn()
        window = self._window(context)
        with argument_errors(f"the scan of {self.task_id}"):
            until = until_of(self.until, client)
            max_offsets = None if self.max_offsets is None else int(self.max_offsets)
            scan, sink = self._scan(client, window), self._sink(client, context)
        self.read_checkpoint = _checkpoint_of(scan, window)
        progress = Progress(self.log, "read")
        result = scan_into(
            scan,
            sink,
            run_key(context),
            window,
            until=until,
            max_offsets=max_offsets,
            settle_timeout_s=self.settle_timeout,
            progress=progress.scanned,
            planned=lambda run: log_plan(self.log, run),
        )
        log_result(self.log, result, progress, self.table, self.checkpoint)
        self.hook.report_read(self.table, result.receipt)
        self.flow = self._flow(client, result.receipt)
        return {
            **result.receipt.to_json(),
            "adopted": [receipt.to_json() for receipt in result.adopted],
        }

    def _flow(self, client: FlussConnection, receipt: Receipt) -> Flow:
        source = table_node(client, self.table)
        if self.sink is None:
            return Flow((source,), receipt=receipt)
        chosen = source.fields
        if self.columns is not None:
            chosen = tuple(f for f in chosen if f[0] in self.columns)
        target = replace(self.sink.node(client.config.resolved_alias()), fields=chosen)
        return Flow((source,), (target,), receipt, copies(target))

    def expected_flow(self) -> Flow:
        """Return the table and the target."""
        alias = self.hook.named_alias
        target = () if self.sink is None else (self.sink.node(alias),)
        return Flow((named_table(alias, self.table),), target)

    def _window(self, context: Context) -> Window | None:
        return window_of(self.mode, context)

    def _scan(
        self, client: FlussConnection, window: Window | None
    ) -> IncrementalScan | IntervalScan:
        from fluss_orchestrate.core.incremental import IncrementalScan, IntervalScan

        check_scan_options(self.scan_options)
        options = {"columns": self.columns, **self.scan_options}
        kind = IncrementalScan if window is None else IntervalScan
        return kind(client, self.table, self.checkpoint, **options)

    def _sink(self, client: FlussConnection, context: Context) -> Sink:
        from fluss_orchestrate.core.sinks import FunctionSink

        if self.sink is not None:
            opened: Sink = checked_sink(self.sink).open(client)
            return opened

        def call(reader: Any, plan: ScanPlan) -> None:
            self.take(reader, plan, context)

        ti = context["ti"]
        return FunctionSink(call, pass_plan=True, identity=f"{ti.dag_id}.{ti.task_id}")

    def take(self, reader: Any, plan: ScanPlan, context: Context) -> None:
        """Call the user's function with the rows of a plan.

        Args:
            reader: The rows.
            plan: The plan.
            context: Airflow's context.
        """
        assert self.function is not None
        call_with_context(self.function, (reader,), context)


def _checkpoint_of(scan: IncrementalScan | IntervalScan, window: Window | None) -> str:
    """Return the checkpoint of a run; each interval has one of its own."""
    from fluss_orchestrate.core.incremental import IntervalScan

    if window is None or not isinstance(scan, IntervalScan):
        return scan.name
    return scan.interval_name(window.since, window.until)


def check_scan_options(options: Mapping[str, Any]) -> None:
    """Check the names of scan options.

    Raises:
        ConfigError: If a name is not known; it suggests one that is.
    """
    from dataclasses import fields
    from difflib import get_close_matches

    from fluss_client.errors import ConfigError
    from fluss_orchestrate.core.incremental.planning.settings import ScanSettings

    own = {"name", "path", "columns"}
    known = sorted({f.name for f in fields(ScanSettings)} - own | {"store", "lake_reader"})
    for name in options:
        if name not in known:
            near = get_close_matches(name, known, 1)
            said = f"did you mean '{near[0]}'?" if near else f"there are {', '.join(known)}"
            raise ConfigError(f"scan_options has no '{name}': {said}")


def checked_sink(sink: Any) -> Any:
    """Return the sink if it is a target, or an argument of Airflow that becomes one later.

    Raises:
        TypeError: If it is neither.
    """
    if hasattr(sink, "open") and hasattr(sink, "node"):
        return sink
    if hasattr(sink, "resolve"):  # the output of another task
        return sink
    said = f"{sink!r}" if sink is None or isinstance(sink, str) else type(sink).__name__
    raise TypeError(
        f"sink is a target or a function, not {said}: give ParquetTarget(path), "
        "IcebergTarget(table, catalog), SqlTarget(table, conn_id), FlussTarget(table), or a "
        "function that takes an Arrow reader"
    )


class FlussToIcebergOperator(FlussIncrementalScanOperator):
    """Bring what is new in a table into an Iceberg table, exactly once.

    It is `FlussIncrementalScanOperator` with an `IcebergTarget`.

    Args:
        iceberg_table: The Iceberg table, as `namespace.table`; it is created with the first
            increment.
        catalog: The properties of the catalog, by the names of pyiceberg. No secrets.
        catalog_conn_id: The Airflow connection with the other properties of the catalog.
        partition_by: The partitioning of a table that is created.
        schema_policy: What happens with columns that the table lacks: `error` or `add_columns`.
        **kwargs: The arguments of `FlussIncrementalScanOperator` but `sink`.
    """

    def __init__(
        self,
        *,
        iceberg_table: str,
        catalog: Mapping[str, str] | None = None,
        catalog_conn_id: str | None = None,
        partition_by: Sequence[str] = (),
        schema_policy: str = "error",
        **kwargs: Any,
    ) -> None:
        super().__init__(
            sink=IcebergTarget(
                iceberg_table, dict(catalog or {}), catalog_conn_id, partition_by, schema_policy
            ),
            **kwargs,
        )


class FlussToSqlOperator(FlussIncrementalScanOperator):
    """Bring what is new in a table into a table of a SQL database, exactly once.

    It is `FlussIncrementalScanOperator` with a `SqlTarget`.

    Args:
        sql_table: The table; it is created with the first increment.
        sql_conn_id: The Airflow connection of the database.
        schema: The schema of the table.
        schema_policy: What happens with columns that the table lacks: `error` or `add_columns`.
        **kwargs: The arguments of `FlussIncrementalScanOperator` but `sink`.
    """

    def __init__(
        self,
        *,
        sql_table: str,
        sql_conn_id: str,
        schema: str | None = None,
        schema_policy: str = "error",
        **kwargs: Any,
    ) -> None:
        super().__init__(sink=SqlTarget(sql_table, sql_conn_id, schema, schema_policy), **kwargs)
