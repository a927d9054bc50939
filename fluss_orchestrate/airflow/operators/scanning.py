"""What is new since the last successful run, brought to a target exactly once."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from fluss_orchestrate.airflow.callables import call_with_context
from fluss_orchestrate.airflow.flows import Flow, copies, named_table, table_node
from fluss_orchestrate.airflow.intervals import Window
from fluss_orchestrate.airflow.operators.base import FlussOperator
from fluss_orchestrate.airflow.run_keys import run_key
from fluss_orchestrate.airflow.scans import scan_into, until_of, window_of

if TYPE_CHECKING:
    from airflow.sdk import Context

    from fluss_client import FlussConnection
    from fluss_orchestrate.airflow.targets import Target
    from fluss_orchestrate.core.incremental import IncrementalScan, IntervalScan
    from fluss_orchestrate.core.job import JobResult
    from fluss_orchestrate.core.plan import ScanPlan
    from fluss_orchestrate.core.receipts import Receipt
    from fluss_orchestrate.core.sinks import Sink


class FlussIncrementalScanOperator(FlussOperator):
    """Bring what is new in a table to a target, and move the checkpoint when it is there.

    `sink` is a target (`ParquetTarget`, `IcebergTarget`, `FlussTarget`, `SqlTarget`), or a
    function that gets an Arrow reader and what it names of the context; a function may be called
    again with the same rows.

    `mode="cursor"` continues where the checkpoint stands, up to `until`. `mode="interval"` reads
    the rows committed in the run's data interval. Backfills always read intervals: they leave the
    checkpoint alone. Every try of a run gets the same rows.

    `options` are further arguments of the core's `IncrementalScan`, such as `start`,
    `on_pending`, `on_retention` or `metadata_columns`.
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
        options: Mapping[str, Any] | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        if mode not in ("cursor", "interval"):
            raise ValueError(f"mode is cursor or interval, not '{mode}'")
        self.table = table
        self.checkpoint = checkpoint
        # Airflow calls a function in a template field while it renders, so it stands apart.
        self.sink = None if callable(sink) else sink
        self.function = sink if callable(sink) else None
        self.mode = mode
        self.until = until
        self.columns = columns
        self.max_offsets = max_offsets
        self.settle_timeout = settle_timeout
        self.options = dict(options or {})

    def work(self, context: Context) -> dict[str, Any]:
        """Plan, write, commit; the receipt, with those of plans that other runs had left."""
        client = self.hook.get_conn()
        window = window_of(self.mode, context)
        result = scan_into(
            self._scan(client, window),
            self._sink(client, context),
            run_key(context),
            window,
            until=until_of(self.until),
            max_offsets=None if self.max_offsets is None else int(self.max_offsets),
            settle_timeout_s=self.settle_timeout,
        )
        self.hook.report_read(self.table, result.receipt)
        self.flow = self._flow(client, result.receipt)
        return self._report(result)

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
        """The table and the target."""
        alias = self.hook.named_alias
        target = () if self.sink is None else (self.sink.node(alias),)
        return Flow((named_table(alias, self.table),), target)

    def _scan(
        self, client: FlussConnection, window: Window | None
    ) -> IncrementalScan | IntervalScan:
        from fluss_orchestrate.core.incremental import IncrementalScan, IntervalScan

        options = {"columns": self.columns, **self.options}
        kind = IncrementalScan if window is None else IntervalScan
        return kind(client, self.table, self.checkpoint, **options)

    def _sink(self, client: FlussConnection, context: Context) -> Sink:
        from fluss_orchestrate.core.sinks import FunctionSink

        if self.sink is not None:
            return self.sink.open(client)

        def call(reader: Any, plan: ScanPlan) -> None:
            self.take(reader, plan, context)

        ti = context["ti"]
        return FunctionSink(call, pass_plan=True, identity=f"{ti.dag_id}.{ti.task_id}")

    def take(self, reader: Any, plan: ScanPlan, context: Context) -> None:
        """Call the user's function with the rows of a plan."""
        assert self.function is not None
        call_with_context(self.function, (reader,), context)

    def _report(self, result: JobResult) -> dict[str, Any]:
        self.log.info(
            "%s: %d rows in %d ranges under '%s'",
            self.table,
            result.rows,
            len(result.receipt.ranges),
            self.checkpoint,
        )
        return {
            **result.receipt.to_json(),
            "adopted": [receipt.to_json() for receipt in result.adopted],
        }
