"""Replacing files of an Iceberg table in one snapshot, data files and delete files alike.

PyIceberg replaces data files only, and gives new files the sequence number of the new snapshot.
Here delete files can be removed too, and rewritten rows keep an earlier sequence number: a delete
that another commit adds meanwhile still applies to them.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from fluss_orchestrate.core.lake.commits import commit_once, without_retries
from fluss_orchestrate.core.lake.row_delta import row_delta_classes

if TYPE_CHECKING:
    from pyiceberg.manifest import DataFile
    from pyiceberg.table import Table


def rewrite_class() -> type[Any]:
    """PyIceberg's class for a snapshot, with what it lacks: removing files of both kinds."""
    from pyiceberg.manifest import ManifestContent, ManifestEntry, ManifestEntryStatus
    from pyiceberg.table.snapshots import Operation, Summary

    files, deletes_writer = row_delta_classes()

    class RewriteFiles(files):  # type: ignore[misc, valid-type]
        _added_data_files: list[DataFile]
        removed_paths: Collection[str] = ()
        data_sequence: int | None = None
        data_sequences: Mapping[str, int] = {}
        is_same_data = False

        def _writer(self, content: Any, spec_id: int) -> Any:
            if content == ManifestContent.DELETES:
                metadata = self._transaction.table_metadata
                return deletes_writer(
                    self.spec(spec_id),
                    metadata.schema(),
                    self.new_manifest_output(),
                    self._snapshot_id,
                    self._compression,
                )
            return self.new_manifest_writer(self.spec(spec_id))

        def _existing_manifests(self) -> list[Any]:
            """The manifests of the parent; those with a removed file are written anew, together."""
            kept: list[Any] = []
            entries: dict[tuple[Any, int], list[Any]] = {}
            self._removed: list[DataFile] = []
            if not self.removed_paths:
                return super()._existing_manifests()  # type: ignore[no-any-return]
            for manifest in super()._existing_manifests():
                found = manifest.fetch_manifest_entry(self._io, discard_deleted=True)
                if not any(e.data_file.file_path in self.removed_paths for e in found):
                    kept.append(manifest)
                    continue
                group = entries.setdefault((manifest.content, manifest.partition_spec_id), [])
                group += [self._copied(entry) for entry in found]
            for (content, spec_id), found in entries.items():
                with self._writer(content, spec_id) as writer:
                    for entry in found:
                        writer.add_entry(entry)
                kept.append(writer.to_manifest_file())
            return kept

        def _copied(self, entry: Any) -> Any:
            is_gone = entry.data_file.file_path in self.removed_paths
            if is_gone:
                self._removed.append(entry.data_file)
            status = ManifestEntryStatus.DELETED if is_gone else ManifestEntryStatus.EXISTING
            return ManifestEntry.from_args(
                status=status,
                snapshot_id=self._snapshot_id if is_gone else entry.snapshot_id,
                sequence_number=entry.sequence_number,
                file_sequence_number=entry.file_sequence_number,
                data_file=entry.data_file,
            )

        def _manifests(self) -> list[Any]:
            added = self._added_data_files
            if self.data_sequence is None or not added:
                return super()._manifests()  # type: ignore[no-any-return]
            self._added_data_files = []
            try:
                found = super()._manifests()
            finally:
                self._added_data_files = added
            with self.new_manifest_writer(self._transaction.table_metadata.spec()) as writer:
                for file in added:
                    writer.add(
                        ManifestEntry.from_args(
                            status=ManifestEntryStatus.ADDED,
                            snapshot_id=self._snapshot_id,
                            sequence_number=self.data_sequences.get(
                                file.file_path, self.data_sequence
                            ),
                            file_sequence_number=None,
                            data_file=file,
                        )
                    )
            return [writer.to_manifest_file(), *found]

        def _summary(self, snapshot_properties: Any = None) -> Any:
            self._deleted_data_files = set(self._removed)
            try:
                summary = super()._summary(snapshot_properties)
            finally:
                self._deleted_data_files = set()
            if not self.is_same_data:
                return summary
            # PyIceberg counts for other operations only.
            return Summary(Operation.REPLACE, **summary.additional_properties)

    return RewriteFiles


def commit_rewrite(
    table: Table,
    removed: Collection[str],
    added: Sequence[DataFile],
    snapshot_properties: Mapping[str, str],
    *,
    added_deletes: Sequence[DataFile] = (),
    data_sequence: int | None = None,
    data_sequences: Mapping[str, int] | None = None,
    is_same_data: bool = False,
) -> int:
    """Replace files against the snapshot that `table` was loaded with, once.

    Args:
        table: The table.
        removed: The paths of data files and delete files of that snapshot.
        added: Data files. They stay where they are if the commit fails.
        snapshot_properties: Properties of the new snapshot.
        added_deletes: Equality-delete files.
        data_sequence: The sequence number of the added data files; by default, that of the new
            snapshot. Deletes with a higher one apply to them.
        data_sequences: The sequence numbers of single data files, by their paths.
        is_same_data: The table holds the same rows as before (a compaction).

    Returns:
        The id of the new snapshot.

    Raises:
        CommitConflictError: Another commit came first; nothing of this one is in the table.
    """
    from pyiceberg.table.snapshots import Operation

    base = without_retries(table)
    transaction = base.transaction()
    made = rewrite_class()(
        operation=Operation.OVERWRITE,
        transaction=transaction,
        io=base.io,
        snapshot_properties=dict(snapshot_properties),
    )
    made.removed_paths = frozenset(removed)
    made.data_sequence = data_sequence
    made.data_sequences = dict(data_sequences or {})
    made.is_same_data = is_same_data
    made.delta_deletes = list(added_deletes)
    for file in added:
        made.append_data_file(file)
    made.commit()
    commit_once(table, transaction)
    return int(made.snapshot_id)
