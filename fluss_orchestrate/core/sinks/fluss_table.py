"""A Fluss table as a sink: rows are appended to a log table and upserted into a key table.

A plan is written as a load whose id is the plan's id (see `core/loading`), so the servers recognise
rows that are sent again, by any process and at any time. A process that was paused while others
wrote newer plans does not overwrite their values. A finished plan is recorded in the ledger of
loads and is never sent again.
"""

from __future__ import annotations

from collections.abc import Iterator

from fluss_client import FlussConnection, TablePath
from fluss_orchestrate.core.checkpoints.fluss_rows import REPLICAS_WANTED, CheckpointTable
from fluss_orchestrate.core.loading.ledger import DEFAULT_LEDGER, open_ledger
from fluss_orchestrate.core.loading.sending import (
    BatchRows,
    Loaded,
    PinnedLoad,
)
from fluss_orchestrate.core.loading.units import CHANGE_TYPE, LoadTarget, Unit
from fluss_orchestrate.core.plan import ScanPlan
from fluss_orchestrate.core.sinks.base import (
    ReadPlan,
    SchemaPolicy,
    SinkForm,
    SinkResult,
    range_plan,
)
from fluss_orchestrate.core.sinks.errors import SinkSchemaError
from fluss_orchestrate.core.sinks.registry import (
    SCHEMA_POLICY,
    FieldKind,
    LineageNode,
    SinkDeclaration,
    SinkField,
    Values,
    register,
)

PINS_KIND = "sink"


class FlussTableSink:
    """Writes plans into another Fluss table, of the same cluster or of another one.

    Rows for a key table are upserts. If `_change_type` is among the metadata columns of the plan,
    `-D` rows are deletes and `-U` rows are left out. In a table without a bucket key, the rows of
    one source bucket go into one bucket and keep their order.

    Args:
        connection: The connection to the cluster of the table.
        table: The table.
        schema_policy: What happens with columns that the table lacks.
        create_partitions: Whether partitions that do not exist are created.
        ledger: The table that records the loads.
        ledger_replicas: The number of replicas of the ledger, if it has to be created.
    """

    exactly_once = True
    form = SinkForm.APPEND

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
        """Return what was written for a `plan`; None if the plan is not finished."""
        if plan.is_empty:
            return SinkResult(0)
        done = self._load(plan, self._target()).done()
        return None if done is None else self._result(done, moved=0)

    def write(self, plan: ScanPlan, read: ReadPlan) -> SinkResult:
        """Send every unit of the plan, then record that the plan is finished.

        Args:
            plan: The plan.
            read: Returns a reader of the rows of a part of the plan.

        Raises:
            SinkSchemaError: The plan has the column `_change_type` and the table is a log table.
            PinExpiredError: The plan was begun more than six days ago and not finished. The servers
                do not know any more which of its rows they have.
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


def _make(values: Values, connection: FlussConnection) -> FlussTableSink:
    return FlussTableSink(
        values["connection"] or connection,
        values["table"],
        create_partitions=values["create_partitions"],
        schema_policy=values["schema_policy"],
    )


register(
    SinkDeclaration(
        name="fluss_table",
        short="fluss",
        sink=FlussTableSink,
        summary="Another Fluss table.",
        promise="exactly once",
        how="every unit of rows has a writer id that is pinned to the plan; servers drop batches "
        "that they know. A plan that was begun and not finished within six days is refused "
        "(`PinExpiredError`)",
        place="database.table",
        fields=(
            SinkField("table", "The table, as database.table.", templated=True),
            SinkField(
                "connection",
                "The cluster of the table; the one that is read, if not given.",
                FieldKind.CLUSTER,
                default=None,
                templated=True,
                connection="fluss",
            ),
            SinkField(
                "create_partitions",
                "Whether partitions that do not exist are created.",
                FieldKind.FLAG,
                default=False,
            ),
            SCHEMA_POLICY,
        ),
        make=_make,
        dataset=lambda values, alias: LineageNode(f"fluss://{alias}", values["table"]),
    )
)
