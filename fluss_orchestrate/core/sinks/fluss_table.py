"""A Fluss table that holds every plan exactly once: a log table by appends, a key table by upserts.

A plan is a load whose id is the plan's (see `loading`): it does not matter who sends its rows, how
often, or how late. A run that wakes up after newer plans were written does not put its old values
over theirs. A finished plan is recorded and never sent again.
"""

from __future__ import annotations

from collections.abc import Iterator

from fluss_client.facade.connection import FlussConnection
from fluss_client.model.table import TablePath
from fluss_orchestrate.core.checkpoints.fluss_rows import REPLICAS_WANTED, CheckpointTable
from fluss_orchestrate.core.loading.sending import (
    DEFAULT_LEDGER,
    BatchRows,
    Loaded,
    PinnedLoad,
    open_ledger,
)
from fluss_orchestrate.core.loading.target import LoadTarget
from fluss_orchestrate.core.loading.units import CHANGE_TYPE, Unit
from fluss_orchestrate.core.plan import ScanPlan
from fluss_orchestrate.core.schema_policy import SchemaPolicy
from fluss_orchestrate.core.sink_errors import SinkSchemaError
from fluss_orchestrate.core.sinks.base import ReadPlan, SinkResult, range_plan

PINS_KIND = "sink"


class FlussTableSink:
    """Writes plans into another Fluss table, of the same cluster or another one.

    Into a key table, rows are upserts; with `_change_type` among the plan's metadata columns,
    `-D` rows are deletes and `-U` rows are left out. A target without a bucket key gets each
    source bucket's rows in one bucket, in their order. Partitions of the target must exist, unless
    `create_partitions`.
    """

    exactly_once = True
    needs_change_type = True

    def __init__(
        self,
        connection: FlussConnection,
        table: TablePath | str,
        *,
        schema_policy: SchemaPolicy | str = SchemaPolicy.ERROR,
        create_partitions: bool = False,
        ledger: TablePath = DEFAULT_LEDGER,
        ledger_replicas: int = REPLICAS_WANTED,
    ) -> None:
        self._connection = connection
        self._path = TablePath.parse(table) if isinstance(table, str) else table
        self._policy = SchemaPolicy(schema_policy)
        self._create_partitions = create_partitions
        self._ledger_path = ledger
        self._replicas = ledger_replicas
        self._ledger: CheckpointTable | None = None

    @property
    def identity(self) -> str:
        """The cluster's alias and the table."""
        return f"fluss:{self._connection.config.resolved_alias()}/{self._path}"

    def already_done(self, plan: ScanPlan) -> SinkResult | None:
        """What was written for the plan, if all of it was."""
        if plan.is_empty:
            return SinkResult(0)
        done = self._load(plan, self._target()).done()
        return None if done is None else self._result(done, moved=0)

    def write(self, plan: ScanPlan, read: ReadPlan) -> SinkResult:
        """Send every unit of the plan, then record that it is done.

        `PinExpiredError` for a plan that was begun more than six days ago and not finished: its
        rows may be there or not, and servers cannot tell any more.
        """
        if plan.is_empty:
            return SinkResult(0)
        target = self._target()
        if CHANGE_TYPE in plan.metadata_columns and not target.info.has_primary_key():
            raise SinkSchemaError(
                str(self._path),
                f"it is a log table, and Fluss reserves the name {CHANGE_TYPE}, so it cannot say "
                "what change a row is. Write changes into a key table, or into another kind of "
                "sink: `abandon` the pending plan first",
                [CHANGE_TYPE],
            )
        load = self._load(plan, target)
        done = load.done()
        if done is not None:
            return self._result(done, moved=0)

        def units(batch_rows: BatchRows) -> Iterator[Unit]:
            number = 0
            for part in plan.ranges:
                reader = read(range_plan(plan, part))
                cutter = target.cutter(reader.schema, part.bucket)
                for unit in cutter.units(reader, batch_rows, number, with_digest=False):
                    yield unit
                    number += 1

        return self._result(load.run(units))

    def _target(self) -> LoadTarget:
        return LoadTarget(self._connection, self._path, self._policy)

    def _load(self, plan: ScanPlan, target: LoadTarget) -> PinnedLoad:
        if self._ledger is None:
            self._ledger = open_ledger(self._connection, self._ledger_path, self._replicas)
        return PinnedLoad(
            self._connection,
            self._ledger,
            target,
            PINS_KIND,
            plan.plan_id,
            create_partitions=self._create_partitions,
        )

    def _result(self, loaded: Loaded, moved: int | None = None) -> SinkResult:
        return SinkResult(loaded.rows, loaded.bytes, {"table": str(self._path)}, moved)
