"""A Fluss table as a sink: rows are appended to a log table and upserted into a key table.

A plan is written as a load whose id is the plan's id (see `core/loading`), so the servers recognise
rows that are sent again, by any process and at any time. A process that was paused while others
wrote newer plans does not overwrite their values. A finished plan is recorded in the ledger of
loads and is never sent again.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager

import pyarrow as pa

from fluss_client import FlussConnection, TablePath
from fluss_client.engine import table_info
from fluss_orchestrate.core.checkpoints.fluss_rows import (
    MERGE_ENGINE,
    REPLICAS_WANTED,
    CheckpointTable,
)
from fluss_orchestrate.core.loading.errors import MirroredTableError
from fluss_orchestrate.core.loading.ledger import DEFAULT_LEDGER, open_ledger
from fluss_orchestrate.core.loading.sending import (
    BatchRows,
    Loaded,
    PinnedLoad,
)
from fluss_orchestrate.core.loading.units import CHANGE_TYPE, LoadTarget, Unit
from fluss_orchestrate.core.plan import ScanPlan
from fluss_orchestrate.core.provisioning import TableSpec, apply_tables
from fluss_orchestrate.core.sinks.base import (
    MirrorRows,
    ReadPlan,
    SchemaPolicy,
    SinkForm,
    SinkResult,
    form_of,
    range_plan,
)
from fluss_orchestrate.core.sinks.errors import SinkFormError, SinkSchemaError
from fluss_orchestrate.core.sinks.fluss_mirror import FlussMirror
from fluss_orchestrate.core.sinks.registry import (
    SCHEMA_POLICY,
    FieldKind,
    LineageNode,
    SinkDeclaration,
    SinkField,
    Values,
    form_field,
    register,
)

PINS_KIND = "sink"
FORMS = (SinkForm.APPEND, SinkForm.MIRROR)
VERSIONED = "versioned"
"""Tables of this engine keep the row with the highest version, whenever it comes."""


class FlussTableSink:
    """Writes plans into another Fluss table, of the same cluster or of another one.

    Rows for a key table are upserts. If `_change_type` is among the metadata columns of the plan,
    `-D` rows are deletes and `-U` rows are left out. In a table without a bucket key, the rows of
    one source bucket go into one bucket and keep their order. Intervals into a key table are
    written one after the other, in their order, because an older row would overwrite a newer one.

    With `form="mirror"` the table, a key table with the same primary key, is kept equal to the one
    that is read. It must be empty before the first plan, and nobody else may write to it. A reset
    of the checkpoint to `start` upserts the state and then deletes the keys that the state does
    not have; rows of dropped partitions are deleted. **Readers of the table see rows of a plan as
    they arrive**: it equals the mirrored table when a plan is finished, and not in between.

    Args:
        connection: The connection to the cluster of the table.
        table: The table.
        schema_policy: What happens with columns that the table lacks.
        create_partitions: Whether partitions that do not exist are created.
        create_from: The connection to the cluster that is read. With it, a table that does not
            exist is created with the columns, the key and the buckets of the table that is read;
            partitioned like it only with `create_partitions`.
        ledger: The table that records the loads.
        ledger_replicas: The number of replicas of the ledger, if it has to be created.
        form: What the sink makes of the rows: `append` or `mirror`.
    """

    exactly_once = True

    def __init__(
        self,
        connection: FlussConnection,
        table: TablePath | str,
        *,
        schema_policy: SchemaPolicy | str = SchemaPolicy.ERROR,
        create_partitions: bool = False,
        create_from: FlussConnection | None = None,
        ledger: TablePath = DEFAULT_LEDGER,
        ledger_replicas: int = REPLICAS_WANTED,
        form: SinkForm | str = SinkForm.APPEND,
    ) -> None:
        self._form = form_of(form, FORMS)
        self._connection = connection
        self._path = TablePath.parse(table) if isinstance(table, str) else table
        self._policy = SchemaPolicy(schema_policy)
        self._create_partitions = create_partitions
        self._create_from = create_from
        self._ledger_path = ledger
        self._replicas = ledger_replicas
        self._ledger: CheckpointTable | None = None

    @property
    def form(self) -> SinkForm:
        """What the sink makes of the rows."""
        return self._form

    @property
    def identity(self) -> str:
        """The cluster's alias and the table."""
        return f"fluss:{self._connection.config.resolved_alias()}/{self._path}"

    def needs_order(self, plan: ScanPlan) -> bool:
        """Return whether rows must come in the order of the log: an older one overwrites a newer.

        Args:
            plan: A plan of the table that is read.
        """
        if self._create_from is not None and self._must_create():
            return table_info(self._create_from, plan.table.path).has_primary_key()
        info = table_info(self._connection, self._path)
        return info.has_primary_key() and info.properties.get(MERGE_ENGINE, "").lower() != VERSIONED

    def already_done(self, plan: ScanPlan) -> SinkResult | None:
        """Return what was written for a `plan`; None if the plan is not finished."""
        if self._form is SinkForm.MIRROR:
            return None if self._must_create() else self._mirror(self._target()).done(plan)
        if plan.is_empty:
            return SinkResult(0)
        if self._must_create():
            return None
        done = self._load(plan.plan_id, self._target()).done()
        return None if done is None else self._result(done, moved=0)

    def write(self, plan: ScanPlan, read: ReadPlan) -> SinkResult:
        """Send every unit of the plan, then record that the plan is finished.

        Args:
            plan: The plan.
            read: Returns a reader of the rows of a part of the plan.

        Raises:
            SinkSchemaError: The plan has the column `_change_type` and the table is a log table.
            SinkFormError: The table of a mirror has other rows, or belongs to another mirror; rows
                would be added to a mirror; or the table is the one that is read.
            SinkPositionError: The plan does not begin where the mirror's position is.
            PinExpiredError: The plan was begun more than six days ago and not finished. The servers
                do not know any more which of its rows they have.
        """
        if plan.is_empty and self._form is not SinkForm.MIRROR:
            return SinkResult(0)
        if self._must_create():
            self._create(plan)
        target = self._target()
        read_table = (plan.table.table_id, plan.table.created_time)
        if read_table == (target.info.table_id, target.info.created_time):
            raise SinkFormError(
                str(self._path),
                "it is the table that is read: each run would write the rows of the run before "
                "once more. Name another table",
            )
        if CHANGE_TYPE in plan.metadata_columns and not target.info.has_primary_key():
            raise SinkSchemaError(
                str(self._path),
                f"it is a log table, and Fluss reserves the name {CHANGE_TYPE}, so it cannot say "
                "what change a row is. Write changes into a key table, or into another kind of "
                "sink: `abandon` the pending plan first",
                [CHANGE_TYPE],
            )

        def units(batch_rows: BatchRows) -> Iterator[Unit]:
            number = 0
            for part in plan.ranges:
                reader = read(range_plan(plan, part))
                cutter = target.cutter(reader.schema, part.bucket)
                for unit in cutter.units(reader, batch_rows, number, with_digest=False):
                    yield unit
                    number += 1

        if self._form is SinkForm.MIRROR:
            return self._mirror(target).write(plan, read, units)
        load = self._load(plan.plan_id, target)
        done = load.done()
        if done is not None:
            return self._result(done, moved=0)
        self._enter(load)
        return self._result(load.run(units))

    def read_mirror(
        self, name: str, schema: pa.Schema
    ) -> AbstractContextManager[MirrorRows | None]:
        """Read the rows of a mirror, as they were when its last plan was finished.

        Args:
            name: The checkpoint.
            schema: The columns of the table that the mirror has, with the types of the table.

        Returns:
            The rows in the order of `schema`; None if the table holds no plan of the checkpoint.
        """
        return self._mirror(self._target()).read(name, schema)

    def _enter(self, load: PinnedLoad) -> None:
        """Refuse to add rows to a mirror."""
        try:
            load.enter()
            return
        except MirroredTableError as error:
            owner = error.checkpoint
        raise SinkFormError(
            str(self._path),
            f"it is the mirror of checkpoint '{owner}', which other rows would make wrong: write "
            "into another table, or open the sink with form='mirror' for that checkpoint",
        )

    def _must_create(self) -> bool:
        """Return whether the table is to be created and does not exist yet."""
        if self._create_from is None:
            return False
        return not self._connection.get_admin().result().table_exists(self._path).result()

    def _create(self, plan: ScanPlan) -> None:
        """Create the table for the columns of a plan; harmless if another process did it."""
        assert self._create_from is not None, "only tables that _must_create names are created"
        info = table_info(self._create_from, plan.table.path)
        spec = TableSpec.like(
            str(self._path), info, plan.columns, partitioned=self._create_partitions
        )
        apply_tables(self._connection, [spec])

    def _mirror(self, target: LoadTarget) -> FlussMirror:
        return FlussMirror(
            self._connection,
            self._opened_ledger(),
            target,
            lambda load_id: self._load(load_id, target),
        )

    def _target(self) -> LoadTarget:
        return LoadTarget(self._connection, self._path, self._policy)

    def _opened_ledger(self) -> CheckpointTable:
        if self._ledger is None:
            self._ledger = open_ledger(self._connection, self._ledger_path, self._replicas)
        return self._ledger

    def _load(self, load_id: str, target: LoadTarget) -> PinnedLoad:
        return PinnedLoad(
            self._connection,
            self._opened_ledger(),
            target,
            PINS_KIND,
            load_id,
            create_partitions=self._create_partitions,
        )

    def _result(self, loaded: Loaded, moved: int | None = None) -> SinkResult:
        return SinkResult(loaded.rows, loaded.bytes, {"table": str(self._path)}, moved)


def _make(values: Values, connection: FlussConnection) -> FlussTableSink:
    return FlussTableSink(
        values["connection"] or connection,
        values["table"],
        create_partitions=values["create_partitions"],
        create_from=connection if values["create_table"] else None,
        schema_policy=values["schema_policy"],
        form=values["form"],
    )


register(
    SinkDeclaration(
        name="fluss_table",
        short="fluss",
        sink=FlussTableSink,
        summary="Another Fluss table; it is created with the first increment.",
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
            SinkField(
                "create_table",
                "Whether a table that does not exist is created like the one that is read.",
                FieldKind.FLAG,
                default=True,
            ),
            SCHEMA_POLICY,
            form_field(*FORMS),
        ),
        make=_make,
        dataset=lambda values, alias: LineageNode(f"fluss://{alias}", values["table"]),
    )
)
