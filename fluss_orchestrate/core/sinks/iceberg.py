"""An Iceberg table as a sink.

The plan's id and the position where it ends are table properties that are set in the same commit as
the data: `fluss.sink.<name>.plan-id`, `.position` and `.rows`. A commit is based on the snapshot
that the sink has loaded. If another commit was faster, the sink loads the table again and looks for
the plan before it tries again. The position in the table decides: a plan that neither ends before
it nor begins at it is refused.

`append` and `changes` add data files. `mirror` replaces rows by their key (`iceberg_mirror.py`).
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING

import pyarrow as pa

from fluss_client.engine import iceberg_type
from fluss_client.errors import ConfigError
from fluss_orchestrate.core.checkpoints.position import TablePosition
from fluss_orchestrate.core.lake.catalog import explained_by_catalog, open_catalog
from fluss_orchestrate.core.lake.commits import commit_append, discard_files
from fluss_orchestrate.core.lake.data_files import PartitionedWriter
from fluss_orchestrate.core.lake.errors import CommitConflictError
from fluss_orchestrate.core.lake.layout.iceberg_schema import iceberg_schema
from fluss_orchestrate.core.plan import ScanPlan
from fluss_orchestrate.core.sinks.base import (
    MirrorRows,
    ReadPlan,
    SchemaPolicy,
    SinkForm,
    SinkResult,
    columns_to_add,
)
from fluss_orchestrate.core.sinks.errors import (
    SinkContendedError,
    SinkError,
    SinkFormError,
    SinkSchemaError,
)
from fluss_orchestrate.core.sinks.iceberg_mirror import (
    IcebergMirror,
    MirrorBase,
    MirrorFiles,
    WriteMode,
    write_files,
)
from fluss_orchestrate.core.sinks.iceberg_table import (
    COMMIT_ATTEMPTS_MAX,
    COMMIT_PAUSE,
    PLAN_ID_SUMMARY,
    SinkTable,
    position_of,
)
from fluss_orchestrate.core.sinks.registry import (
    SCHEMA_POLICY,
    FieldKind,
    LineageNode,
    SinkDeclaration,
    SinkField,
    Values,
    address_node,
    form_field,
    register,
)

if TYPE_CHECKING:
    from pyiceberg.catalog import Catalog
    from pyiceberg.manifest import DataFile
    from pyiceberg.table import Table

    from fluss_client import FlussConnection


class IcebergSink:
    """Writes plans into one Iceberg table.

    A table that does not exist is created with the columns of the first plan. Existing tables may
    have any partitioning that pyiceberg can compute; a mirror in `equality` mode needs one that
    derives from the primary key. Files that a crash leaves behind belong to no snapshot; Iceberg's
    removal of orphan files deletes them.

    Args:
        catalog: A pyiceberg catalog, or the properties to open one with.
        identifier: The table, as `namespace.table`.
        form: What the sink makes of the rows: `append`, `changes` or `mirror`.
        write_mode: How a mirror replaces rows: `equality` or `copy_on_write`.
        partition_by: The partitioning of a table that is created: `region`, `day(at)`,
            `bucket(16, id)`.
        properties: The properties of a table that is created.
        schema_policy: What happens with columns that the table lacks.
        create: Whether a table that does not exist is created.

    Raises:
        ConfigError: The identifier has no namespace, or a value is none of the listed ones.
        SinkFormError: The form is `history`.
    """

    exactly_once = True

    def __init__(
        self,
        catalog: Catalog | Mapping[str, str],
        identifier: str,
        *,
        form: SinkForm | str = SinkForm.APPEND,
        write_mode: WriteMode | str = WriteMode.EQUALITY,
        partition_by: Sequence[str] = (),
        properties: Mapping[str, str] | None = None,
        schema_policy: SchemaPolicy | str = SchemaPolicy.ERROR,
        create: bool = True,
    ) -> None:
        if not all(identifier.rpartition(".")[::2]):
            raise ConfigError(f"'{identifier}' names no namespace: write namespace.table")
        self.form = _form(identifier, form)
        if write_mode not in set(WriteMode):
            raise ConfigError(f"write_mode is equality or copy_on_write, not '{write_mode}'")
        self._catalog = open_catalog(catalog) if isinstance(catalog, Mapping) else catalog
        self._identifier = identifier
        self._partition_by = tuple(partition_by)
        self._properties = dict(properties or {})
        self._policy = SchemaPolicy(schema_policy)
        self._mode = WriteMode(write_mode)
        self._target = SinkTable(self._catalog, identifier, self.form, create)

    @property
    def identity(self) -> str:
        """The configured name of the catalog, and the table."""
        return f"iceberg:{self._catalog.name}/{self._identifier}"

    def position(self, name: str) -> TablePosition | None:
        """Return the position of the checkpoint called `name` in the table.

        Returns:
            The position, or None if the table holds no plan of the checkpoint.
        """
        with self._target.store("read"):
            table = self._target.find()
            at = None if table is None else position_of(table, name)
            return None if at is None else at.offsets

    def already_done(self, plan: ScanPlan) -> SinkResult | None:
        """Return what the table holds of a `plan`; None if it does not hold the plan.

        Raises:
            SinkPositionError: The plan does not begin where the table's position is.
            SinkFormError: The checkpoint has written into the table in another form.
        """
        with self._target.store("read"):
            if self.form is SinkForm.MIRROR:
                return self._mirror.already_done(plan)
            if plan.is_empty:
                return SinkResult(0)
            table = self._target.find()
            return None if table is None else self._target.done(table, plan)

    def write(self, plan: ScanPlan, read: ReadPlan) -> SinkResult:
        """Write data files, then commit them together with the plan's id and end.

        Args:
            plan: The plan.
            read: Returns a reader of the rows of a part of the plan.

        Raises:
            SinkSchemaError: The columns of the rows do not fit the table.
            SinkPositionError: The plan does not begin where the table's position is.
            SinkFormError: The table has rows that are not of the mirror, or was written by the
                checkpoint in another form.
            SinkContendedError: Other commits were always faster; the plan can be retried.
            StorageError: The store refuses a file, or failed; the message says why.
        """
        with self._target.store("write"):
            return self._written(plan, read)

    def _written(self, plan: ScanPlan, read: ReadPlan) -> SinkResult:
        if self.form is SinkForm.MIRROR:
            return self._mirror.write(plan, read, self._write_mirror_files)
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

    def read_mirror(
        self, name: str, schema: pa.Schema
    ) -> AbstractContextManager[MirrorRows | None]:
        """Read the rows of the mirror and its position, both from one version of the table.

        Args:
            name: The checkpoint.
            schema: The columns of the source that the mirror has, with their types.

        Returns:
            The rows in the order of `schema`; None if the table holds no plan of the checkpoint.

        Raises:
            SinkFormError: The sink keeps no mirror.
        """
        if self.form is not SinkForm.MIRROR:
            raise SinkFormError(self._identifier, "it keeps no mirror: open it with form='mirror'")
        return self._mirror.read(name, schema)

    def reset_position(self, name: str, position: TablePosition | None = None) -> None:
        """Set or remove the position of a checkpoint, after the rows were corrected by hand.

        Args:
            name: The name of the checkpoint.
            position: The new position; None removes it.
        """
        self._target.reset_position(name, position)

    @property
    def _mirror(self) -> IcebergMirror:
        return IcebergMirror(
            self._target, self._mode, self._partition_by, self._properties, self._policy
        )

    def _write_mirror_files(self, base: MirrorBase, plan: ScanPlan, read: ReadPlan) -> MirrorFiles:
        return write_files(base, plan, read(plan))

    def _commit(self, plan: ScanPlan, table: Table, files: list[DataFile], rows: int) -> SinkResult:
        paths = [file.file_path for file in files]
        size = sum(file.file_size_in_bytes for file in files)
        tried: list[Table] = []
        for attempt in range(COMMIT_ATTEMPTS_MAX):
            try:
                done = self._target.done(table, plan)
            except SinkError:
                discard_files(tried, table, paths)
                raise
            if done is not None:
                # Another process has committed the same plan: its files stay, ours are deleted.
                discard_files(tried, table, paths)
                return done
            tried.append(table)
            properties = self._target.properties_after(table, plan, rows)
            try:
                snapshot_id = commit_append(
                    table, files, {PLAN_ID_SUMMARY: plan.plan_id}, properties
                )
            except CommitConflictError:
                COMMIT_PAUSE.pause_blocking(attempt)
                spec_id = table.spec().spec_id
                table = self._target.load()
                if table.spec().spec_id == spec_id:
                    continue
                break
            return SinkResult(rows, size, {"snapshot_id": snapshot_id, "files": len(files)})
        discard_files(tried, table, paths)
        raise SinkContendedError(
            self._identifier,
            f"the commits of plan {plan.plan_id} lost every race, or the partitioning changed",
        )

    def _table_for(self, schema: pa.Schema) -> Table:
        table = self._target.find()
        if table is None:
            fitting = iceberg_schema(schema)
            return self._target.created(fitting, self._partition_by, self._properties)
        added = columns_to_add(
            self._identifier, [f.name for f in table.schema().fields], schema, self._policy
        )
        if added:
            table = self._with_columns(table, added)
        self._check_required(table, schema)
        return table

    def _with_columns(self, table: Table, added: list[pa.Field]) -> Table:
        from pyiceberg.exceptions import CommitFailedException

        for attempt in range(COMMIT_ATTEMPTS_MAX):
            have = {f.name for f in table.schema().fields}
            try:
                with explained_by_catalog(self._catalog), table.update_schema() as update:
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
                table = self._target.load()
        return self._target.load()

    def _check_required(self, table: Table, schema: pa.Schema) -> None:
        given = set(schema.names)
        absent = [f.name for f in table.schema().fields if f.required and f.name not in given]
        if absent:
            raise SinkSchemaError(
                self._identifier, f"it requires columns that are not read: {absent}", absent
            )


def _form(identifier: str, form: SinkForm | str) -> SinkForm:
    if form not in set(SinkForm):
        raise ConfigError(f"form is append, changes or mirror, not '{form}'")
    if form == SinkForm.HISTORY:
        raise SinkFormError(
            identifier, "form='history' is not offered for Iceberg: keep the history in SQL"
        )
    return SinkForm(form)


def _make(values: Values, _: FlussConnection) -> IcebergSink:
    return IcebergSink(
        values["catalog"],
        values["table"],
        form=values["form"],
        write_mode=values["write_mode"],
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
            form_field("append", "changes", "mirror"),
            SinkField(
                "write_mode",
                "How a mirror replaces rows: `equality` (equality deletes, cheap to write) or "
                "`copy_on_write` (data files are written again, for readers of every kind).",
                default="equality",
            ),
        ),
        make=_make,
        dataset=_dataset,
    )
)
