"""Comparing specs with a cluster, and carrying the difference out.

`apply` may run twice at once: every step is one that a second run finds done, and the end is
checked against the specs, not assumed.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable

from fluss_client import FlussAdmin, FlussConnection
from fluss_client.errors import (
    ClientError,
    DatabaseNotExistError,
    FlussError,
    InvalidAlterTableError,
    LakeTableAlreadyExistError,
    PartitionAlreadyExistError,
    TableNotExistError,
)
from fluss_client.model.table import TablePath
from fluss_client.net.retry import Deadline
from fluss_orchestrate.core.provisioning.changes import (
    AddColumns,
    Change,
    CreateDatabase,
    CreatePartition,
    CreateTable,
    ProvisionPlan,
    SetOptions,
    table_changes,
)
from fluss_orchestrate.core.provisioning.spec import TableSpec

log = logging.getLogger(__name__)
# Every round repeats what another run's changes made necessary; two runs settle in two.
ROUNDS_MAX = 5
LAKE_RACE_WAIT_MS = 10_000
"""How long another run may take from making a lake table to recording it in Fluss."""
_LAKE_RACE_PAUSE_S = 0.05


def plan(connection: FlussConnection, specs: Iterable[TableSpec]) -> ProvisionPlan:
    """What must change so that every table is as its spec asks; changes nothing."""
    admin = connection.get_admin().result()
    wanted = tuple(specs)
    changes: list[Change] = []
    databases = set(admin.list_databases().result())
    for spec in wanted:
        database = spec.path.database_name
        if database not in databases:
            databases.add(database)
            changes.append(CreateDatabase(database))
        changes += _for_table(admin, spec)
    return ProvisionPlan(tuple(changes), wanted)


def _for_table(admin: FlussAdmin, spec: TableSpec) -> list[Change]:
    try:
        info = admin.get_table_info(spec.path).result()
    except (TableNotExistError, DatabaseNotExistError):
        partitions = [CreatePartition(spec.table, p) for p in spec.partitions]
        return [CreateTable(spec, spec.table), *partitions]
    existing = []
    if info.is_partitioned():
        existing = admin.list_partition_infos(spec.path).result()
    return table_changes(spec, info, existing)


def apply(
    connection: FlussConnection,
    planned: ProvisionPlan | Iterable[TableSpec],
    on_change: Callable[[Change], None] | None = None,
) -> list[Change]:
    """Carry a plan out and check the result; returns what this run did.

    Never drops or rebuilds anything. `on_change` is told of each step before it is taken.
    """
    if not isinstance(planned, ProvisionPlan):
        planned = plan(connection, planned)
    admin = connection.get_admin().result()
    done: list[Change] = []
    for _ in range(ROUNDS_MAX):
        for change in planned.changes:
            log.info("provisioning: %s", change)
            if on_change is not None:
                on_change(change)
            try:
                _take(admin, change)
            except LakeTableAlreadyExistError as error:
                _wait_for_other_run(connection, planned.specs, change, error)
            else:
                done.append(change)
        if planned.is_empty:
            return done
        planned = plan(connection, planned.specs)
    raise ClientError(
        f"after {ROUNDS_MAX} rounds there is still to do: {planned}; is something else changing "
        "these tables?"
    )


def _take(admin: FlussAdmin, change: Change) -> None:
    if isinstance(change, CreateDatabase):
        admin.create_database(change.database, ignore_if_exists=True).result()
    elif isinstance(change, CreateTable):
        path, descriptor = change.spec.path, change.spec.descriptor()
        admin.create_table(path, descriptor, ignore_if_exists=True).result()
    elif isinstance(change, CreatePartition):
        _unless(
            PartitionAlreadyExistError,
            lambda: admin.create_partition(
                TablePath.parse(change.table), change.spec, ignore_if_exists=True
            ).result(),
        )
    elif isinstance(change, AddColumns):
        # Another run may have added them meanwhile; the next round tells.
        _unless(
            InvalidAlterTableError,
            lambda: admin.alter_table(
                TablePath.parse(change.table), add_columns=change.columns
            ).result(),
        )
    elif isinstance(change, SetOptions):
        admin.alter_table(TablePath.parse(change.table), set_options=change.options).result()


def _wait_for_other_run(
    connection: FlussConnection,
    specs: Iterable[TableSpec],
    change: Change,
    error: LakeTableAlreadyExistError,
) -> None:
    """Wait until a change that failed because its lake table exists is made by another run.

    A server creates the table in the lake first and records it afterwards. Of two runs at once,
    the slower one finds the lake table before Fluss shows the change.
    """
    deadline = Deadline(LAKE_RACE_WAIT_MS)
    while change in plan(connection, specs).changes:
        if deadline.passed():
            raise LakeTableAlreadyExistError(
                f"cannot {change}: the lake holds a table of this name already ({error.message}), "
                "and it belongs to no table of this cluster. A dropped table leaves its lake table "
                "behind: drop or rename that one in the lake's catalog, or use another name"
            ) from error
        time.sleep(_LAKE_RACE_PAUSE_S)
    log.info("provisioning: another run has done it: %s", change)


def _unless(harmless: type[FlussError], step: Callable[[], None]) -> None:
    try:
        step()
    except harmless as error:
        log.info("provisioning: %s", error)
