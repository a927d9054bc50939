"""One commit that changes the columns, the files and the properties of an Iceberg table.

PyIceberg can add data files, and replace data files. `commit_change` also adds and removes delete
files, and changes columns in the same commit. `with_columns` returns the table as it will be, so
that files with the new columns can be written before the commit.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from fluss_orchestrate.core.lake.commits import commit_once, without_retries
from fluss_orchestrate.core.lake.rewrites import rewrite_class

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
    made = rewrite_class()(
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
    commit_once(table, transaction)
    return int(made.snapshot_id)
