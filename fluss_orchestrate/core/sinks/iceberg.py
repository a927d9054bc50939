"""An Iceberg table as a sink.

The plan's id and the position where it ends are table properties that are set in the same commit as
the data: `fluss.sink.<name>.plan-id`, `.position` and `.rows`. A commit is based on the snapshot
that the sink has loaded. If another commit was faster, the sink loads the table again and looks for
the plan before it tries again. The position in the table decides: a plan that neither ends before
it nor begins at it is refused.
"""

from __future__ import annotations

import itertools
import random
import time
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import pyarrow as pa

from fluss_client.engine import iceberg_type
from fluss_client.errors import ConfigError
from fluss_orchestrate.core.checkpoints.position import TablePosition
from fluss_orchestrate.core.lake.catalog import open_catalog
from fluss_orchestrate.core.lake.commits import commit_append
from fluss_orchestrate.core.lake.data_files import PartitionedWriter, delete_files
from fluss_orchestrate.core.lake.errors import CommitConflictError
from fluss_orchestrate.core.lake.iceberg_schema import iceberg_schema, partition_spec
from fluss_orchestrate.core.plan import ScanPlan
from fluss_orchestrate.core.sinks.base import (
    ReadPlan,
    SchemaPolicy,
    SinkForm,
    SinkResult,
    columns_to_add,
)
from fluss_orchestrate.core.sinks.errors import SinkContendedError, SinkError, SinkSchemaError
from fluss_orchestrate.core.sinks.position import (
    PlanState,
    SinkPosition,
    plan_state,
    position_after,
)
from fluss_orchestrate.core.sinks.registry import (
    SCHEMA_POLICY,
    FieldKind,
    LineageNode,
    SinkDeclaration,
    SinkField,
    Values,
    address_node,
    register,
)

if TYPE_CHECKING:
    from pyiceberg.catalog import Catalog
    from pyiceberg.manifest import DataFile
    from pyiceberg.table import Table

    from fluss_client import FlussConnection

COMMIT_ATTEMPTS_MAX = 30
COMMIT_PAUSE_MAX_S = 1.0
PROPERTY_PREFIX = "fluss.sink."
PLAN_ID_SUMMARY = "fluss-plan-id"


class IcebergSink:
    """Appends plans to one Iceberg table.

    A table that does not exist is created with the columns of the first plan. Existing tables may
    have any partitioning that pyiceberg can compute. Files that a crash leaves behind belong to no
    snapshot; Iceberg's removal of orphan files deletes them.

    Args:
        catalog: A pyiceberg catalog, or the properties to open one with.
        identifier: The table, as `namespace.table`.
        partition_by: The partitioning of a table that is created: `region`, `day(at)`,
            `bucket(16, id)`.
        properties: The properties of a table that is created.
        schema_policy: What happens with columns that the table lacks.
        create: Whether a table that does not exist is created.
    """

    exactly_once = True
    form = SinkForm.APPEND

    def __init__(
        self,
        catalog: Catalog | Mapping[str, str],
        identifier: str,
        *,
        partition_by: Sequence[str] = (),
        properties: Mapping[str, str] | None = None,
        schema_policy: SchemaPolicy | str = SchemaPolicy.ERROR,
        create: bool = True,
    ) -> None:
        if not all(identifier.rpartition(".")[::2]):
            raise ConfigError(f"'{identifier}' names no namespace: write namespace.table")
        self._catalog = open_catalog(catalog) if isinstance(catalog, Mapping) else catalog
        self._identifier = identifier
        self._partition_by = tuple(partition_by)
        self._properties = dict(properties or {})
        self._policy = SchemaPolicy(schema_policy)
        self._create = create

    @property
    def identity(self) -> str:
        """The configured name of the catalog, and the table."""
        return f"iceberg:{self._catalog.name}/{self._identifier}"

    def position(self, name: str) -> TablePosition | None:
        """Return the position of the checkpoint called `name` in the table.

        Returns:
            The position, or None if the table holds no plan of the checkpoint.
        """
        table = self._find()
        at = None if table is None else _position(table, name)
        return None if at is None else at.offsets

    def already_done(self, plan: ScanPlan) -> SinkResult | None:
        """Return what the table holds of a `plan`; None if it does not hold the plan.

        Raises:
            SinkPositionError: The plan does not begin where the table's position is.
        """
        if plan.is_empty:
            return SinkResult(0)
        table = self._find()
        return None if table is None else self._done(table, plan)

    def write(self, plan: ScanPlan, read: ReadPlan) -> SinkResult:
        """Write data files, then commit them together with the plan's id and end.

        Args:
            plan: The plan.
            read: Returns a reader of the rows of a part of the plan.

        Raises:
            SinkSchemaError: The columns of the rows do not fit the table.
            SinkPositionError: The plan does not begin where the table's position is.
            SinkContendedError: Other commits were always faster; the plan can be retried.
        """
        done = self.already_done(plan)
        if done is not None:
            return done
        reader = read(plan)
        table = self._table_for(reader.schema)
        writer = PartitionedWriter(table, plan.plan_id[:12])
        try:
            for batch in reader:
                writer.write(batch)
            files = writer.close()
        except BaseException:
            writer.abort()
            raise
        return self._commit(plan, table, files, writer.rows)

    def reset_position(self, name: str, position: TablePosition | None = None) -> None:
        """Set or remove the position of a checkpoint, after the rows were corrected by hand.

        Args:
            name: The name of the checkpoint.
            position: The new position; None removes it.
        """
        table = self._find()
        if table is None:
            return
        keys = [_key(name, what) for what in ("plan-id", "position", "rows")]
        with table.transaction() as change:
            change.remove_properties(*[key for key in keys if key in table.properties])
            if position is not None:
                change.set_properties({_key(name, "position"): SinkPosition(position).to_text()})

    def _commit(self, plan: ScanPlan, table: Table, files: list[DataFile], rows: int) -> SinkResult:
        paths = [file.file_path for file in files]
        size = sum(file.file_size_in_bytes for file in files)
        for attempt in range(COMMIT_ATTEMPTS_MAX):
            try:
                done = self._done(table, plan)
            except SinkError:
                delete_files(table, paths)
                raise
            if done is not None:
                # Another process has committed the same plan: its files stay, ours are deleted.
                delete_files(table, paths)
                return done
            end = position_after(plan, _position(table, plan.name))
            properties = {
                _key(plan.name, "plan-id"): plan.plan_id,
                _key(plan.name, "position"): end.to_text(),
                _key(plan.name, "rows"): str(rows),
            }
            try:
                snapshot_id = commit_append(
                    table, files, {PLAN_ID_SUMMARY: plan.plan_id}, properties
                )
            except CommitConflictError:
                pause = min(COMMIT_PAUSE_MAX_S, 0.01 * 2**attempt)
                time.sleep(random.uniform(0, pause))  # noqa: S311 - spreading racers, no secret
                spec_id = table.spec().spec_id
                table = self._catalog.load_table(self._identifier)
                if table.spec().spec_id == spec_id:
                    continue
                break
            return SinkResult(rows, size, {"snapshot_id": snapshot_id, "files": len(files)})
        delete_files(table, paths)
        raise SinkContendedError(
            self._identifier,
            f"the commits of plan {plan.plan_id} lost every race, or the partitioning changed",
        )

    def _done(self, table: Table, plan: ScanPlan) -> SinkResult | None:
        last = table.properties.get(_key(plan.name, "plan-id"), "")
        at = _position(table, plan.name)
        if plan_state(self._identifier, plan, last, at) is PlanState.NEXT:
            return None
        for snapshot in reversed(table.snapshots()):
            summary = snapshot.summary
            if summary is not None and summary[PLAN_ID_SUMMARY] == plan.plan_id:
                size = int(summary["added-files-size"] or 0)
                rows = int(summary["added-records"] or 0)
                return SinkResult(rows, size, {"snapshot_id": snapshot.snapshot_id}, moved=0)
        # The snapshot has expired. The number of rows is known of the last plan only.
        rows = int(table.properties.get(_key(plan.name, "rows"), 0)) if last == plan.plan_id else 0
        return SinkResult(rows, 0, {"snapshot_expired": True}, moved=0)

    def _find(self) -> Table | None:
        from pyiceberg.exceptions import NoSuchTableError

        try:
            return self._catalog.load_table(self._identifier)
        except NoSuchTableError:
            if not self._create:
                raise SinkError(self._identifier, "there is no such Iceberg table") from None
            return None

    def _table_for(self, schema: pa.Schema) -> Table:
        table = self._find()
        if table is None:
            return self._created(schema)
        added = columns_to_add(
            self._identifier, [f.name for f in table.schema().fields], schema, self._policy
        )
        if added:
            table = self._with_columns(table, added)
        self._check_required(table, schema)
        return table

    def _created(self, schema: pa.Schema) -> Table:
        from pyiceberg.exceptions import TableAlreadyExistsError

        fitting = iceberg_schema(schema)
        namespace = self._identifier.rpartition(".")[0]
        if namespace:
            self._catalog.create_namespace_if_not_exists(namespace)
        try:
            return self._catalog.create_table(
                self._identifier,
                fitting,
                partition_spec=partition_spec(fitting, self._partition_by),
                properties=self._properties,
            )
        except TableAlreadyExistsError:
            return self._catalog.load_table(self._identifier)

    def _with_columns(self, table: Table, added: list[pa.Field]) -> Table:
        from pyiceberg.exceptions import CommitFailedException

        for attempt in range(COMMIT_ATTEMPTS_MAX):
            have = {f.name for f in table.schema().fields}
            try:
                with table.update_schema() as update:
                    for field in added:
                        if field.name not in have:
                            update.add_column(
                                (field.name,), iceberg_type(field.type, itertools.count(1))
                            )
                break
            except CommitFailedException:
                # Another process changed the table; it may have added the same columns.
                if attempt + 1 == COMMIT_ATTEMPTS_MAX:
                    raise
                table = self._catalog.load_table(self._identifier)
        return self._catalog.load_table(self._identifier)

    def _check_required(self, table: Table, schema: pa.Schema) -> None:
        given = set(schema.names)
        absent = [f.name for f in table.schema().fields if f.required and f.name not in given]
        if absent:
            raise SinkSchemaError(
                self._identifier, f"it requires columns that are not read: {absent}", absent
            )


def _key(name: str, what: str) -> str:
    return f"{PROPERTY_PREFIX}{name}.{what}"


def _position(table: Table, name: str) -> SinkPosition | None:
    text = table.properties.get(_key(name, "position"))
    return None if text is None else SinkPosition.from_text(text)


def _make(values: Values, _: FlussConnection) -> IcebergSink:
    return IcebergSink(
        values["catalog"],
        values["table"],
        partition_by=values["partition_by"],
        schema_policy=values["schema_policy"],
    )


def _dataset(values: Values, _: str) -> LineageNode:
    catalog = values["catalog"]
    return address_node(catalog.get("uri", catalog.get("warehouse", "iceberg:")), values["table"])


register(
    SinkDeclaration(
        name="iceberg",
        sink=IcebergSink,
        summary="A table of an Iceberg catalog; it is created with the first increment.",
        promise="exactly once",
        how="plan id and position are table properties in the same commit as the data; the commit "
        "is based on the snapshot that was loaded, and after a lost race the table is loaded again",
        place="namespace.table",
        fields=(
            SinkField("table", "The table, as namespace.table.", templated=True),
            SinkField(
                "catalog",
                "The properties of the catalog, by the names of pyiceberg.",
                FieldKind.PROPERTIES,
                default={},
                templated=True,
                connection="catalog",
            ),
            SinkField(
                "partition_by",
                "The partitioning of a table that is created, such as region, day(at) or "
                "bucket(16, id).",
                FieldKind.NAMES,
                default=(),
            ),
            SCHEMA_POLICY,
        ),
        make=_make,
        dataset=_dataset,
    )
)
