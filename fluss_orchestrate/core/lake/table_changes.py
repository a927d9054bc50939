"""One commit that changes the columns, the files and the properties of an Iceberg table.

PyIceberg can add data files, and replace data files. `commit_change` also adds and removes delete
files, and changes columns in the same commit. `with_columns` returns the table as it will be, so
that files with the new columns can be written before the commit.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from fluss_orchestrate.core.lake.commits import commit_once, without_retries
from fluss_orchestrate.core.lake.row_delta import _producer

if TYPE_CHECKING:
    from pyiceberg.manifest import DataFile
    from pyiceberg.table import Table, Transaction
    from pyiceberg.types import IcebergType


@dataclass(frozen=True)
class ColumnChanges:
    """Columns that a table gets, and columns that become wider.

    Attributes:
        added: The types of new columns by name; they are nullable.
        widened: The new types of columns by name: `long` for `int`, `double` for `float`, and a
            decimal with more digits.
    """

    added: Mapping[str, IcebergType] = field(default_factory=dict)
    widened: Mapping[str, IcebergType] = field(default_factory=dict)

    def stage(self, transaction: Transaction) -> None:
        """Add the changes to a transaction."""
        if not self.added and not self.widened:
            return
        with transaction.update_schema() as update:
            for name, kind in self.widened.items():
                update.update_column((name,), field_type=kind)
            for name, kind in self.added.items():
                update.add_column((name,), kind)


@dataclass(frozen=True)
class TableChange:
    """What one commit changes.

    Attributes:
        data: New data files.
        deletes: New equality-delete files; they apply to the files of earlier snapshots.
        removed: The paths of data files and delete files that leave the table.
        columns: Changes of the columns.
        summary: Properties of the new snapshot.
        properties: Properties of the table.
    """

    data: Sequence[DataFile] = ()
    deletes: Sequence[DataFile] = ()
    removed: Collection[str] = ()
    columns: ColumnChanges = field(default_factory=ColumnChanges)
    summary: Mapping[str, str] = field(default_factory=dict)
    properties: Mapping[str, str] = field(default_factory=dict)


def with_columns(table: Table, changes: ColumnChanges) -> Table:
    """Return the table as it is after its columns were changed. Nothing is committed."""
    from pyiceberg.table import Table as IcebergTable

    transaction = table.transaction()
    changes.stage(transaction)
    return IcebergTable(
        identifier=table.name(),
        metadata=transaction.table_metadata,
        metadata_location=table.metadata_location,
        io=table.io,
        catalog=table.catalog,
    )


def commit_change(table: Table, change: TableChange) -> int:
    """Commit a change against the snapshot that `table` was loaded with, once.

    Args:
        table: The table, as it was loaded from its catalog.
        change: The change. Its new files stay where they are if the commit fails.

    Returns:
        The id of the new snapshot.

    Raises:
        CommitConflictError: Another commit came first; nothing of this one is in the table.
    """
    from pyiceberg.table.snapshots import Operation

    base = without_retries(table)
    transaction = base.transaction()
    change.columns.stage(transaction)
    if change.properties:
        transaction.set_properties(dict(change.properties))
    operation = Operation.APPEND
    if change.deletes or change.removed:
        operation = Operation.OVERWRITE if change.data else Operation.DELETE
    made = _changed_files()(
        operation=operation,
        transaction=transaction,
        io=base.io,
        snapshot_properties=dict(change.summary),
    )
    made.removed_paths = frozenset(change.removed)
    made.delta_deletes = list(change.deletes)
    for file in change.data:
        made.append_data_file(file)
    made.commit()
    commit_once(table, transaction, made.snapshot_id)
    return int(made.snapshot_id)


def _changed_files() -> type[Any]:
    """PyIceberg's class with what it lacks: removing data files and delete files alike."""
    from pyiceberg.manifest import ManifestContent, ManifestEntry, ManifestEntryStatus

    row_delta, deletes_writer = _producer()

    class ChangedFiles(row_delta):  # type: ignore[misc, valid-type]
        removed_paths: Collection[str] = ()
        _removed_files: Sequence[DataFile] = ()

        def _existing_manifests(self) -> list[Any]:
            found: list[Any] = super()._existing_manifests()
            if not self.removed_paths:
                return found
            kept: list[Any] = []
            removed: list[DataFile] = []
            for manifest in found:
                entries = manifest.fetch_manifest_entry(self._io, discard_deleted=True)
                gone = [e.data_file for e in entries if e.data_file.file_path in self.removed_paths]
                if gone:
                    removed += gone
                    manifest = self._rewritten(manifest, entries)
                kept.append(manifest)
            self._removed_files = removed
            return kept

        def _rewritten(self, manifest: Any, entries: Sequence[Any]) -> Any:
            """Write a manifest again, in which the removed files are marked as deleted."""
            spec = self.spec(manifest.partition_spec_id)
            if manifest.content == ManifestContent.DELETES:
                writer = deletes_writer(
                    spec,
                    self.schema(),
                    self.new_manifest_output(),
                    self._snapshot_id,
                    self._compression,
                )
            else:
                writer = self.new_manifest_writer(spec)
            with writer:
                for entry in entries:
                    is_gone = entry.data_file.file_path in self.removed_paths
                    writer.add_entry(
                        ManifestEntry.from_args(
                            status=ManifestEntryStatus.DELETED
                            if is_gone
                            else ManifestEntryStatus.EXISTING,
                            snapshot_id=self._snapshot_id if is_gone else entry.snapshot_id,
                            sequence_number=entry.sequence_number,
                            file_sequence_number=entry.file_sequence_number,
                            data_file=entry.data_file,
                        )
                    )
            return writer.to_manifest_file()

        def _summary(self, snapshot_properties: Any = None) -> Any:
            # Set here only: PyIceberg would otherwise look for them among the data files.
            self._deleted_data_files = set(self._removed_files)
            try:
                return super()._summary(snapshot_properties)
            finally:
                self._deleted_data_files = set()

    return ChangedFiles
