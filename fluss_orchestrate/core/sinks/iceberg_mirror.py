"""A mirror in an Iceberg table: the current row of each primary key, one commit per plan.

A plan becomes one snapshot. Its commit sets the position and the plan's id too, and changes the
columns if the source got new ones. `equality` writes the last row of each key and, for keys that
had a row before, an equality delete. `copy_on_write` writes the data files again that have such
keys. The first plan of a generation removes all files of the table and adds the state.

The commit is based on the table as it was loaded. After a lost race, the table is loaded again; if
the plan still comes next, what depends on the table's files is made again, then committed.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

from fluss_client.errors import FlussError
from fluss_orchestrate.core.lake.commits import discard_files
from fluss_orchestrate.core.lake.data_files import conform
from fluss_orchestrate.core.lake.equality_deletes import read_with_deletes
from fluss_orchestrate.core.lake.errors import CommitConflictError
from fluss_orchestrate.core.lake.row_delta import (
    FORMAT_VERSION,
    EqualityDeleteWriter,
    RowDelta,
    RowDeltaWriter,
    key_field_ids,
)
from fluss_orchestrate.core.lake.table_changes import (
    ColumnChanges,
    TableChange,
    commit_change,
    with_columns,
)
from fluss_orchestrate.core.last_images import LastImages
from fluss_orchestrate.core.plan import ScanPlan
from fluss_orchestrate.core.read_ahead import read_ahead
from fluss_orchestrate.core.sinks.base import MirrorRows, ReadPlan, SchemaPolicy, SinkResult
from fluss_orchestrate.core.sinks.copy_on_write import CopyWriter, TouchedKeys, rewrite_without
from fluss_orchestrate.core.sinks.errors import (
    SinkContendedError,
    SinkFormError,
    SinkPositionError,
)
from fluss_orchestrate.core.sinks.iceberg_columns import MirrorColumns
from fluss_orchestrate.core.sinks.iceberg_folders import others_in_folder
from fluss_orchestrate.core.sinks.iceberg_table import (
    COMMIT_ATTEMPTS_MAX,
    COMMIT_PAUSE,
    PLAN_ID_SUMMARY,
    PLAN_ROWS_SUMMARY,
    SinkTable,
    checkpoints_in,
    position_of,
    stored_position,
)
from fluss_orchestrate.core.sinks.partition_values import partition_rows
from fluss_orchestrate.core.sinks.position import SinkPosition, dropped_names

if TYPE_CHECKING:
    from pyiceberg.manifest import DataFile
    from pyiceberg.schema import Schema
    from pyiceberg.table import Table

REWRITES_MAX = 3
"""How often the files of a plan are written anew because the table's columns or partitioning were
changed meanwhile."""


class WriteMode(enum.StrEnum):
    """How a mirror in Iceberg replaces rows.

    `equality` adds equality deletes: cheap to write, for readers that apply them.

    `copy_on_write` writes data files again, for readers of every kind.
    """

    EQUALITY = "equality"
    COPY_ON_WRITE = "copy_on_write"


@dataclass(frozen=True)
class MirrorBase:
    """A table that a plan is written for.

    Attributes:
        loaded: The table as it was loaded from its catalog.
        table: The table as it will be, with the columns of the rows.
        columns: The columns of the rows.
        changes: How the columns of the table change.
        begins: Whether the plan is the first one of the mirror, or of a generation: the table
            holds nothing that stays.
        dropped: The names of the dropped partitions whose rows the table holds.
        mode: How rows are replaced.
    """

    loaded: Table
    table: Table
    columns: MirrorColumns
    changes: ColumnChanges
    begins: bool
    dropped: tuple[str, ...]
    mode: WriteMode

    def is_written_alike(self, other: MirrorBase) -> bool:
        """Return whether the files that were written for one can be committed to the other."""
        return (
            self.table.schema() == other.table.schema()
            and self.table.spec().spec_id == other.table.spec().spec_id
            and self.begins == other.begins
        )


@dataclass(frozen=True)
class MirrorFiles:
    """The files of a plan, not committed yet.

    Attributes:
        delta: The data files, and the equality-delete files.
        changes: How many rows the plan has.
        touched: The keys to leave out of the files of the table, for copy-on-write.
    """

    delta: RowDelta
    changes: int
    touched: TouchedKeys | None = None

    def close(self) -> None:
        """Delete temporary files."""
        if self.touched is not None:
            self.touched.close()


WriteFiles = Callable[[MirrorBase, ScanPlan, ReadPlan], MirrorFiles]


def write_files(base: MirrorBase, plan: ScanPlan, batches: Iterable[pa.RecordBatch]) -> MirrorFiles:
    """Write the last row of each key of a plan, or of a part of it, as files of the table.

    Args:
        base: The table.
        plan: The plan, or a part of it that has all changes of its keys.
        batches: The rows, in the order of the plan.
    """
    writer: RowDeltaWriter | CopyWriter
    keys, label = base.columns.keys, plan.plan_id[:12]
    if base.mode is WriteMode.EQUALITY:
        writer = RowDeltaWriter(base.table, keys, label)
    else:
        writer = CopyWriter(base.table, keys, label)
    try:
        if plan.kind == "state":
            changes = _write_state(base, writer, batches)
        else:
            changes = _write_changes(base, writer, batches)
        delta = writer.close()
    except BaseException:
        writer.abort()
        raise
    return MirrorFiles(delta, changes, writer.touched if isinstance(writer, CopyWriter) else None)


def _write_state(
    base: MirrorBase, writer: RowDeltaWriter | CopyWriter, batches: Iterable[pa.RecordBatch]
) -> int:
    count = 0
    for batch in batches:
        count += batch.num_rows
        writer.insert(batch.select(base.columns.schema.names))
    return count


def _write_changes(
    base: MirrorBase, writer: RowDeltaWriter | CopyWriter, batches: Iterable[pa.RecordBatch]
) -> int:
    names = [*base.columns.schema.names, "_change_type"]
    with LastImages(base.columns.keys) as last:
        for batch in batches:
            last.add(batch.select(names))
        # Parquet is written while the next images are made.
        with read_ahead(last.images()) as found:
            for images in found:
                if base.begins:
                    writer.insert(images.upserts)
                    continue
                writer.insert(images.upserts.filter(images.inserted))
                writer.upsert(images.upserts.filter(pc.invert(images.inserted)))
                writer.delete(images.deletes.filter(pc.invert(images.vanished)))
        return last.changes


class IcebergMirror:
    """Writes plans into a mirror.

    Args:
        target: The table.
        mode: How rows are replaced.
        partition_by: The partitioning of a table that is created.
        properties: The properties of a table that is created.
        policy: Whether columns of the table may be added and widened.
    """

    def __init__(
        self,
        target: SinkTable,
        mode: WriteMode,
        partition_by: Sequence[str],
        properties: Mapping[str, str],
        policy: SchemaPolicy,
    ) -> None:
        self._target = target
        self._mode = mode
        self._partition_by = tuple(partition_by)
        self._properties = dict(properties)
        self._policy = policy

    def already_done(self, plan: ScanPlan) -> SinkResult | None:
        """Return what the table holds of the plan; None if the plan comes next."""
        table = self._target.find()
        if table is None:
            return SinkResult(0) if plan.is_empty else None
        if plan.is_empty and not _replaces(plan, position_of(table, plan.name)):
            return SinkResult(0)
        return self._target.done(table, plan)

    def write(self, plan: ScanPlan, read: ReadPlan, write_plan: WriteFiles) -> SinkResult:
        """Write the files of a plan and commit them.

        Args:
            plan: The plan.
            read: Returns the rows of the plan.
            write_plan: Writes the files, in this process or on Spark.
        """
        done = self.already_done(plan)
        if done is not None:
            return done
        for _ in range(REWRITES_MAX):
            base = self._base(plan, read(plan).schema)
            files = write_plan(base, plan, read)
            tried: list[Table] = []
            try:
                result = self._commit(plan, base, files, tried)
            except FlussError:
                discard_files(tried, base.table, files.delta.paths)
                raise
            finally:
                files.close()
            if result is not None:
                return result
            discard_files(tried, base.table, files.delta.paths)
        raise SinkContendedError(
            self._target.identifier,
            f"its columns or partitioning were changed while plan {plan.plan_id} was written",
        )

    def _base(self, plan: ScanPlan, rows: pa.Schema) -> MirrorBase:
        """Load or create the table, and check that the plan can be written into it."""
        columns = MirrorColumns.of(self._target.identifier, plan, rows)
        table = self._target.find()
        if table is None:
            self._check_begin(plan, None)
            self._check_partitioning(columns)
            table = self._target.created(
                columns.iceberg_schema(),
                self._partition_by,
                {**self._properties, "format-version": str(FORMAT_VERSION)},
            )
        return self._based_on(plan, table, columns)

    def _based_on(self, plan: ScanPlan, table: Table, columns: MirrorColumns) -> MirrorBase:
        at = position_of(table, plan.name)
        begins = at is None or _replaces(plan, at)
        if begins:
            self._check_begin(plan, table if at is None else None)
        held = () if begins or at is None else at.columns
        changes = columns.changes_for(self._target.identifier, table, self._policy, held)
        evolved = with_columns(table, changes)
        if self._mode is WriteMode.EQUALITY:
            key_field_ids(evolved, columns.keys)
        dropped = () if begins else tuple(dropped_names(plan, at))
        return MirrorBase(table, evolved, columns, changes, begins, dropped, self._mode)

    def _check_partitioning(self, columns: MirrorColumns) -> None:
        """Refuse a partitioning before the table is created with it."""
        from fluss_orchestrate.core.lake.layout.iceberg_schema import partition_spec

        schema = columns.iceberg_schema()
        spec = partition_spec(schema, self._partition_by)
        outside = [f.name for f in spec.fields if f.source_id not in schema.identifier_field_ids]
        if outside and self._mode is WriteMode.EQUALITY:
            raise SinkFormError(
                self._target.identifier,
                f"partition_by has {outside}, which does not derive from the primary key "
                f"{list(columns.keys)}: a row that changes its partition would stay in the old "
                "one. Partition it by columns of the key, or use write_mode='copy_on_write'",
            )

    def _check_begin(self, plan: ScanPlan, table: Table | None) -> None:
        """Refuse to begin a mirror with a part of the rows, or among rows of others."""
        name = self._target.identifier
        known = any(r.start for r in plan.ranges) or any((plan.begin or {}).values())
        if plan.kind != "state" and known:
            raise SinkPositionError(
                name,
                plan.name,
                plan.plan_id,
                "the plan begins in the middle of the changelog, and the table holds no earlier "
                "rows of this generation; `reset` the checkpoint to start, which writes the whole "
                "state",
            )
        if table is None:
            return
        self._check_folder(plan, table)
        others = checkpoints_in(table.properties)
        if others or _has_data(table):
            whose = f" of checkpoint {', '.join(others)}" if others else ""
            raise SinkFormError(
                name,
                f"it has rows{whose} that are not of this mirror, which would stay in it: write "
                "into another table, or delete all its rows and call reset_position of those "
                "checkpoints",
            )

    def _check_folder(self, plan: ScanPlan, table: Table) -> None:
        """Refuse the folder of a table of others; an earlier table of this mirror may be there."""
        for other in others_in_folder(table):
            at = stored_position(other.properties, plan.name)
            if at is not None and at.offsets.table.uri == plan.table.uri:
                continue
            whose = checkpoints_in(other.properties)
            if not whose and other.current_snapshot_id is None:
                continue  # Somebody has begun to create it, as we have.
            raise SinkFormError(
                self._target.identifier,
                f"its folder {table.location()} has the files of another table"
                + (f", with rows of checkpoint {', '.join(whose)}" if whose else "")
                + ". Another catalog with the same warehouse may have it under this name, and a "
                "folder is one mirror: write into a table of another name; or, if that table was "
                "dropped, delete its files",
            )

    def _commit(
        self, plan: ScanPlan, base: MirrorBase, files: MirrorFiles, tried: list[Table]
    ) -> SinkResult | None:
        """Commit the files; None if they must be written anew.

        `tried` gets the table as it was for each commit that failed or may have failed.
        """
        now = base
        for attempt in range(COMMIT_ATTEMPTS_MAX):
            done = self._target.done(now.loaded, plan)
            if done is not None:
                discard_files(tried, base.table, files.delta.paths)
                return done
            part = _dependent_files(now, plan, files)
            change = TableChange(
                [*files.delta.data, *part.data],
                [*files.delta.deletes, *part.deletes],
                part.removed,
                now.changes,
                {PLAN_ID_SUMMARY: plan.plan_id, PLAN_ROWS_SUMMARY: str(files.changes)},
                self._target.properties_after(now.loaded, plan, files.changes),
            )
            tried.append(now.loaded)
            try:
                snapshot_id = commit_change(now.loaded, change)
            except CommitConflictError:
                discard_files([now.loaded], base.table, part.paths)
                COMMIT_PAUSE.pause_blocking(attempt)
                now = self._based_on(plan, self._target.load(), base.columns)
                if not now.is_written_alike(base):
                    return None
                continue
            return _result(files, change, snapshot_id)
        raise SinkContendedError(
            self._target.identifier, f"the commits of plan {plan.plan_id} lost every race"
        )

    @contextmanager
    def read(self, name: str, schema: pa.Schema) -> Iterator[MirrorRows | None]:
        """Read the rows of a mirror and its position, both from one version of the table."""
        table = self._target.find()
        at = None if table is None else position_of(table, name)
        if table is None or at is None:
            yield None
            return
        rows = read_with_deletes(table, schema.names)
        shown = pa.schema([_kept(field, rows.schema.field(field.name).type) for field in schema])
        batches = (conform(batch, shown) for batch in rows)
        yield MirrorRows(at.offsets, pa.RecordBatchReader.from_batches(shown, batches))


def _replaces(plan: ScanPlan, at: SinkPosition | None) -> bool:
    """Return whether the plan begins a generation after the one that the table holds."""
    return at is not None and at.generation != plan.generation


def _has_data(table: Table) -> bool:
    return any(True for _ in _all_files(table))


def _all_files(table: Table) -> Iterator[DataFile]:
    """Return all data files and delete files of the current snapshot."""
    snapshot = table.current_snapshot()
    if snapshot is None:
        return
    for manifest in snapshot.manifests(table.io):
        for entry in manifest.fetch_manifest_entry(table.io, discard_deleted=True):
            yield entry.data_file


def _kept(field: pa.Field, stored: pa.DataType) -> pa.Field:
    """Return the field with the type of the table, or with the stored one if that is coarser."""
    fine = (pa.types.is_timestamp(field.type) or pa.types.is_time(field.type)) and (
        field.type.unit == "ns"
    )
    return pa.field(field.name, stored if fine or pa.types.is_nested(stored) else field.type)


def _result(files: MirrorFiles, change: TableChange, snapshot_id: int) -> SinkResult:
    written = [*change.data, *change.deletes]
    details = {
        "snapshot_id": snapshot_id,
        "data_files": len(change.data),
        "delete_files": len(change.deletes),
        "files_removed": len(change.removed),
        "rows_written": files.delta.rows,
        "keys_replaced_or_deleted": files.delta.deleted_keys,
    }
    size = sum(file.file_size_in_bytes for file in written)
    return SinkResult(files.changes, size, details)


@dataclass(frozen=True)
class DependentFiles:
    """What a commit changes depending on the files that the table has.

    Attributes:
        data: Data files that were written again.
        deletes: Equality-delete files of dropped partitions.
        removed: The paths of files that leave the table.
    """

    data: Sequence[DataFile] = ()
    deletes: Sequence[DataFile] = ()
    removed: Sequence[str] = ()

    @property
    def paths(self) -> list[str]:
        """The paths of the new files."""
        return [file.file_path for file in (*self.data, *self.deletes)]


def _dependent_files(base: MirrorBase, plan: ScanPlan, files: MirrorFiles) -> DependentFiles:
    if base.begins:
        return DependentFiles(removed=[file.file_path for file in _all_files(base.loaded)])
    dropped = None if not base.dropped else _dropped_rows(base)
    label = plan.plan_id[:12]
    if files.touched is not None:
        data, removed = rewrite_without(base.table, files.touched, dropped, label)
        return DependentFiles(data, removed=removed)
    return DependentFiles() if dropped is None else _partition_deletes(base.table, dropped, label)


def _dropped_rows(base: MirrorBase) -> pa.Table:
    """The values of the partition columns of the dropped partitions, as the table stores them."""
    from pyiceberg.io.pyarrow import schema_to_pyarrow

    columns = [base.columns.schema.field(name) for name in base.columns.partition_keys]
    rows = partition_rows(".".join(base.table.name()), base.dropped, columns)
    kinds = schema_to_pyarrow(base.table.schema(), include_field_ids=False)
    target = pa.schema([kinds.field(column.name) for column in columns])
    return pa.Table.from_batches([conform(rows, target)], target)


def _partition_deletes(table: Table, dropped: pa.Table, label: str) -> DependentFiles:
    """Delete the rows of dropped partitions from every partition of the Iceberg table.

    A delete file applies to one partition of the table. Where the values of the dropped partition
    are those of the table's partition, its files are removed as they are.
    """
    from pyiceberg.schema import Schema
    from pyiceberg.transforms import IdentityTransform
    from pyiceberg.typedef import Record

    fields = {name: table.schema().find_field(name) for name in dropped.column_names}
    ids = {field.field_id: name for name, field in fields.items()}
    identity = {
        at: ids[part.source_id]
        for at, part in enumerate(table.spec().fields)
        if part.source_id in ids and isinstance(part.transform, IdentityTransform)
    }
    rows = [
        (number, {at: _partition_value(table, at, row[name]) for at, name in identity.items()})
        for number, row in enumerate(dropped.to_pylist())
    ]
    is_covered = set(identity.values()) == set(fields)
    schema = Schema(*sorted(fields.values(), key=lambda field: field.field_id))
    removed: list[str] = []
    deletes: dict[Any, tuple[Any, list[int]]] = {}
    for file in _all_files(table):
        matching = [n for n, values in rows if all(file.partition[i] == values[i] for i in values)]
        if matching and is_covered:
            removed.append(file.file_path)
        elif matching:
            # A delete file without a partition applies to all partitions.
            scope = Record() if table.spec().is_unpartitioned() else file.partition
            deletes.setdefault(repr(scope), (scope, matching))
    made = []
    for scope, numbers in deletes.values():
        writer = _ScopedDeletes(table, scope, label, schema)
        for batch in dropped.take(numbers).to_batches():
            writer.write(batch)
        made.append(writer.close())
    return DependentFiles(deletes=made, removed=removed)


@dataclass(frozen=True)
class _Scope:
    """A partition as manifests have it."""

    partition: Any


class _ScopedDeletes(EqualityDeleteWriter):
    """A delete file for a partition of which only the values in manifests are known."""

    def __init__(self, table: Table, scope: Any, label: str, schema: Schema) -> None:
        super().__init__(table, None, label, schema)
        self._partition: Any = _Scope(scope)


def _partition_value(table: Table, at: int, value: Any) -> Any:
    """Return a value of a partition column as manifests have it."""
    from pyiceberg.partitioning import partition_record_value

    return partition_record_value(table.spec().fields[at], value, table.schema())
