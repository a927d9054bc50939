"""Committing data files to an Iceberg table against one base snapshot, once.

pyiceberg repeats a commit that lost a race, on top of whatever the winner wrote. What was checked
before the first attempt need not hold then: two runs of one plan would both append. So its own
repetition is switched off here, a lost race is an error, and who commits looks again first.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from fluss_orchestrate.core.lake.errors import CommitConflictError

if TYPE_CHECKING:
    from pyiceberg.manifest import DataFile
    from pyiceberg.table import Table, Transaction

log = logging.getLogger(__name__)
RETRIES_PROPERTY = "commit.retry.num-retries"


def commit_append(
    table: Table,
    files: Sequence[DataFile],
    snapshot_properties: Mapping[str, str],
    table_properties: Mapping[str, str] | None = None,
) -> int:
    """Append files to the snapshot that `table` was loaded with; the id of the new snapshot.

    The table properties change in the same commit. `CommitConflictError` when another commit came
    first: then nothing of this one is in the table, and the files may be used again. When the
    outcome is not known, the table is looked at; if it does not show the snapshot, the error is
    raised as it is, and the commit may still appear.
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
    """Let a SQL catalog connect anew.

    A commit that SQLite refused, because a reader held the file for too long, stays open on its
    connection: who looks through that sees what is not there, and locks everybody else out.
    """
    engine = getattr(table.catalog, "engine", None)
    if engine is not None:
        engine.dispose()


def without_retries(table: Table) -> Table:
    """The same table; pyiceberg reads how often to retry from its loaded properties.

    Only this copy says 0: what is committed is built from the catalog's own metadata.
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
