"""Committing data files to an Iceberg table against one base snapshot, once.

pyiceberg retries a commit that lost a race, on top of the commit that won. What was checked before
the first attempt may not be true any more: two runs of one plan would both append. So these retries
are switched off here, a lost race is an error, and the caller checks again before it commits again.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from fluss_client.engine import Backoff
from fluss_orchestrate.core.lake.errors import CommitConflictError

if TYPE_CHECKING:
    from pyiceberg.manifest import DataFile
    from pyiceberg.table import Table, Transaction

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
            files may be used again.
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
    commit_once(table, transaction, append.snapshot_id)
    return append.snapshot_id


def commit_once(table: Table, transaction: Transaction, snapshot_id: int) -> None:
    """Commit a transaction of a table from `without_retries`, which makes one snapshot.

    Raises:
        CommitConflictError: Another commit came first; nothing of this one is in the table.
    """
    from pyiceberg.exceptions import CommitFailedException

    try:
        transaction.commit_transaction()
    except CommitFailedException as error:
        raise CommitConflictError(f"{'.'.join(table.name())}: {error}") from error
    except Exception as error:
        _forget_connections(table)
        if table.refresh().snapshot_by_id(snapshot_id) is None:
            raise
        log.warning("the commit of snapshot %s was reported as failed: %s", snapshot_id, error)


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
        catalog=table.catalog,
    )
