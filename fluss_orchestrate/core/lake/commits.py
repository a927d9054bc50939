"""Committing data files to an Iceberg table against one base snapshot, once.

pyiceberg retries a commit that lost a race, on top of the commit that won. What was checked before
the first attempt may not be true any more: two runs of one plan would both append. So these retries
are switched off here, a lost race is an error, and the caller checks again before it commits again.

A commit that is reported as failed may have landed: a gateway before the catalog that waited too
long for an answer sends the request again, and the second one conflicts with the first. pyiceberg
would delete the manifests then, and callers their data files. So the table is looked at before a
commit counts as failed, and before files of such a commit are deleted.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, cast

from fluss_client.engine import Backoff
from fluss_orchestrate.core.lake.catalog import catalog_place
from fluss_orchestrate.core.lake.catalog_failures import catalog_error, reason_of
from fluss_orchestrate.core.lake.data_files import delete_files
from fluss_orchestrate.core.lake.errors import CommitConflictError, CommitUnknownError

if TYPE_CHECKING:
    from pyiceberg.catalog import Catalog
    from pyiceberg.manifest import DataFile
    from pyiceberg.table import CommitTableResponse, Table, Transaction
    from pyiceberg.table.update import TableRequirement, TableUpdate

log = logging.getLogger(__name__)
RETRIES_PROPERTY = "commit.retry.num-retries"
CONFLICT_PAUSE = Backoff(first_ms=20, max_ms=1_280, jitter_low=0)
"""The pauses after another commit to the same table came first. They begin at 0, so that racing
commits spread."""


def commit_append(
    table: Table,
    files: Sequence[DataFile],
    snapshot_properties: Mapping[str, str],
    table_properties: Mapping[str, str] | None = None,
) -> int:
    """Append files to the snapshot that `table` was loaded with, and return the new snapshot's id.

    Raises:
        CommitConflictError: Another commit came first. Nothing of this one is in the table, and the
            files may be used again; `discard_files` deletes them.
        CommitUnknownError: It failed, and the catalog does not say whether it landed.
    """
    base = without_retries(table)
    transaction = base.transaction()
    if table_properties:
        transaction.set_properties(dict(table_properties))
    with transaction.update_snapshot(
        snapshot_properties=dict(snapshot_properties)
    ).merge_append() as append:
        for file in files:
            append.append_data_file(file)
    commit_once(table, transaction)
    return append.snapshot_id


def commit_once(table: Table, transaction: Transaction) -> None:
    """Commit a transaction of a table from `without_retries`.

    Raises:
        CommitConflictError: Another commit came first; nothing of this one is in the table.
        CommitUnknownError: It failed, and the catalog does not say whether it landed.
    """
    from pyiceberg.exceptions import CommitFailedException

    try:
        transaction.commit_transaction()
    except CommitFailedException as error:
        raise CommitConflictError(f"{'.'.join(table.name())}: {error}") from error


class _LandingCatalog:
    """The catalog of a table, which looks whether a commit landed before it reports a failure.

    Everything else is done by the catalog itself.
    """

    def __init__(self, catalog: Catalog) -> None:
        self._catalog = catalog

    def __getattr__(self, name: str) -> Any:
        return getattr(self._catalog, name)

    def commit_table(
        self,
        table: Table,
        requirements: tuple[TableRequirement, ...],
        updates: tuple[TableUpdate, ...],
    ) -> CommitTableResponse:
        """Commit updates to a table; see pyiceberg's `Catalog`."""
        from pyiceberg.exceptions import CommitFailedException
        from pyiceberg.table import CommitTableResponse

        try:
            return self._catalog.commit_table(table, requirements, updates)
        except Exception as error:
            name = ".".join(table.name())
            is_conflict = isinstance(error, CommitFailedException)
            if not is_conflict:
                _forget_connections(table)
            try:
                now = self._catalog.load_table(table.name())
            except Exception as silent:  # noqa: BLE001 (it is told beside the first one)
                raise CommitUnknownError(
                    f"{name}: a commit failed, and the catalog does not say whether it landed "
                    f"({reason_of(error)}; then {reason_of(silent)}): run it again when the "
                    "catalog answers; that looks first"
                ) from error
            if _has_landed(now, updates):
                log.warning("%s: a commit that landed was reported as failed: %s", name, error)
                return CommitTableResponse.model_validate(
                    {"metadata": now.metadata, "metadata-location": now.metadata_location}
                )
            if is_conflict and not _is_outdated(now, requirements):
                # The first of two requests may still be on its way. pyiceberg deletes manifests
                # after its own exception only.
                raise CommitConflictError(f"{name}: {error}") from error
            found = catalog_error(error, catalog_place(self._catalog))
            if found is None:
                raise
            raise found from error


def _has_landed(now: Table, updates: Iterable[TableUpdate]) -> bool:
    from pyiceberg.table.update import AddSnapshotUpdate

    ids = [u.snapshot.snapshot_id for u in updates if isinstance(u, AddSnapshotUpdate)]
    return bool(ids) and all(now.snapshot_by_id(one) is not None for one in ids)


def _is_outdated(now: Table, requirements: Iterable[TableRequirement]) -> bool:
    """Return whether a commit with these requirements can never land any more."""
    from pyiceberg.exceptions import CommitFailedException

    try:
        for requirement in requirements:
            requirement.validate(now.metadata)
    except CommitFailedException:
        return True
    return False


def discard_files(tried: Sequence[Table], table: Table, paths: Sequence[str]) -> None:
    """Delete files that were written for commits which failed, unless the table has them.

    Files stay if the catalog does not answer, or if a request that it has not answered yet could
    still bring them into the table. Maintenance deletes such files as orphans.

    Args:
        tried: The table as it was loaded for each of the commits, in their order.
        table: The table.
        paths: The files.
    """
    if not paths:
        return
    if not tried:
        delete_files(table, paths)
        return
    try:
        now = table.catalog.load_table(table.name())
        head = _head(now)
        may_land = any(_head(base) == head for base in tried)
        used = set() if may_land else set(paths) & set(_added_since(tried[0], now))
    except Exception as error:  # noqa: BLE001 (without an answer nothing is deleted)
        log.warning("%s files stay, they may be in use: %s", len(paths), error)
        return
    if may_land:
        log.warning("%s files of a commit that failed stay: it may still land", len(paths))
        return
    delete_files(table, [path for path in paths if path not in used])


def _head(table: Table) -> int | None:
    current = table.current_snapshot()
    return None if current is None else current.snapshot_id


def _added_since(base: Table, now: Table) -> Iterator[str]:
    """Return the paths of the files that came into the table after `base`."""
    floor = getattr(base.metadata, "last_sequence_number", 0)
    known = {snapshot.snapshot_id for snapshot in base.metadata.snapshots}
    read: set[str] = set()
    for snapshot in now.metadata.snapshots:
        if snapshot.snapshot_id in known:
            continue
        for manifest in snapshot.manifests(now.io):
            # Tables of format version 1 have no sequence numbers.
            if manifest.manifest_path in read or 0 < manifest.sequence_number <= floor:
                continue
            read.add(manifest.manifest_path)
            for entry in manifest.fetch_manifest_entry(now.io):
                yield entry.data_file.file_path


def _forget_connections(table: Table) -> None:
    """Make a SQL catalog open new connections.

    If SQLite refused a commit because a reader held the file for too long, the transaction stays
    open on its connection. A reader on that connection would see rows that were not committed, and
    the transaction would lock everybody else out.
    """
    engine = getattr(table.catalog, "engine", None)
    if engine is not None:
        engine.dispose()


def without_retries(table: Table) -> Table:
    """Return a copy of the table with which pyiceberg does not retry commits.

    pyiceberg reads the number of retries from the loaded properties. Only this copy has 0: a commit
    is built from the metadata of the catalog.
    """
    from pyiceberg.table import Table as IcebergTable

    properties = {**table.metadata.properties, RETRIES_PROPERTY: "0"}
    return IcebergTable(
        identifier=table.name(),
        metadata=table.metadata.model_copy(update={"properties": properties}),
        metadata_location=table.metadata_location,
        io=table.io,
        catalog=cast("Catalog", _LandingCatalog(table.catalog)),
    )
