"""Changes that bring tables to their specs: they are planned, and then applied in order."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from fluss_client import Column, FlussAdmin, FlussConnection, PartitionInfo, TableInfo, TablePath
from fluss_client.engine import Backoff, Deadline
from fluss_client.errors import (
    ClientError,
    DatabaseNotExistError,
    FlussError,
    InvalidAlterTableError,
    LakeTableAlreadyExistError,
    PartitionAlreadyExistError,
    TableNotExistError,
)
from fluss_orchestrate.core.provisioning.spec import TableSpec

# Options that a server of this generation lets one change after creation.
ALTERABLE_OPTIONS = frozenset(
    {
        "table.datalake.enabled",
        "table.datalake.freshness",
        "table.log.tiered.local-segments",
    }
)


class RebuildNeededError(ClientError):
    """A table differs from its spec in ways that only a new table could mend."""

    def __init__(self, table: str, reasons: tuple[str, ...]) -> None:
        super().__init__(
            f"{table} cannot become what its spec asks for: {'; '.join(reasons)}. Change the spec, "
            "or create a new table and load it"
        )
        self.table = table
        self.reasons = reasons


@dataclass(frozen=True, slots=True)
class CreateDatabase:
    """Create a database."""

    database: str

    def __str__(self) -> str:
        return f"create database {self.database}"


@dataclass(frozen=True, slots=True)
class CreateTable:
    """Create a table."""

    spec: TableSpec = field(compare=False)
    table: str

    def __str__(self) -> str:
        return f"create table {self.table}"


@dataclass(frozen=True, slots=True)
class AddColumns:
    """Add columns at the end of a table."""

    table: str
    columns: tuple[Column, ...]

    def __str__(self) -> str:
        added = ", ".join(f"{c.name} {c.type}" for c in self.columns)
        return f"add to {self.table}: {added}"


@dataclass(frozen=True, slots=True)
class SetOptions:
    """Set options of a table."""

    table: str
    options: Mapping[str, str] = field(hash=False)

    def __str__(self) -> str:
        pairs = ", ".join(f"{k}={v}" for k, v in self.options.items())
        return f"set on {self.table}: {pairs}"


@dataclass(frozen=True, slots=True)
class CreatePartition:
    """Create a partition."""

    table: str
    spec: Mapping[str, str] = field(hash=False)

    def __str__(self) -> str:
        pairs = ", ".join(f"{k}={v}" for k, v in self.spec.items())
        return f"create partition {pairs} of {self.table}"


Change = CreateDatabase | CreateTable | AddColumns | SetOptions | CreatePartition


@dataclass(frozen=True, slots=True)
class ProvisionPlan:
    """The changes that `apply_tables` would make, in order. Printing it shows one change per line.

    Attributes:
        changes: The changes.
        specs: The specs that they come from.
    """

    changes: tuple[Change, ...]
    specs: tuple[TableSpec, ...]

    @property
    def is_empty(self) -> bool:
        """Whether everything is as the specs ask."""
        return not self.changes

    def to_json(self) -> list[dict[str, Any]]:
        """Return the changes as plain values."""
        return [{"change": type(c).__name__, "what": str(c)} for c in self.changes]

    def __str__(self) -> str:
        return "\n".join(str(change) for change in self.changes) or "nothing to change"


def table_changes(
    spec: TableSpec, info: TableInfo, partitions: list[PartitionInfo]
) -> list[Change]:
    """The steps for a table that exists; `RebuildNeededError` where no step would do."""
    reasons = [*_key_differences(spec, info), *_column_differences(spec, info)]
    options, refused = _option_changes(spec, info)
    reasons += refused
    if reasons:
        raise RebuildNeededError(spec.table, tuple(reasons))
    changes: list[Change] = []
    added = spec.schema().columns[len(info.schema.columns) :]
    if added:
        changes.append(AddColumns(spec.table, added))
    if options:
        changes.append(SetOptions(spec.table, options))
    existing = [dict(p.spec) for p in partitions]
    changes += [
        CreatePartition(spec.table, wanted)
        for wanted in spec.partitions
        if dict(wanted) not in existing
    ]
    return changes


def _key_differences(spec: TableSpec, info: TableInfo) -> list[str]:
    pairs = [
        ("primary key", list(spec.primary_key), info.get_primary_keys()),
        ("partition columns", list(spec.partition_keys), info.get_partition_keys()),
    ]
    if spec.bucket_keys:
        pairs.append(("bucket key", list(spec.bucket_keys), info.get_bucket_keys()))
    found = [f"the {what} is {has}, not {wants}" for what, wants, has in pairs if wants != has]
    if spec.buckets is not None and spec.buckets != info.num_buckets:
        found.append(f"it has {info.num_buckets} buckets, not {spec.buckets}")
    return found


def _column_differences(spec: TableSpec, info: TableInfo) -> list[str]:
    wanted = spec.schema().columns
    found = []
    for at, has in enumerate(info.schema.columns):
        if at >= len(wanted):
            found.append(f"column '{has.name}' is not in the spec, and columns cannot be dropped")
            continue
        wants = wanted[at]
        if wants.name != has.name:
            found.append(
                f"column {at + 1} is '{has.name}', not '{wants.name}': columns cannot be renamed "
                "or moved, new ones go to the end"
            )
        elif str(wants.type) != str(has.type):
            found.append(f"column '{has.name}' is {has.type}, not {wants.type}")
    found += [
        f"new column '{wants.name}' must be nullable: rows that exist have no value for it"
        for wants in wanted[len(info.schema.columns) :]
        if not wants.type.nullable
    ]
    return found


def _option_changes(spec: TableSpec, info: TableInfo) -> tuple[dict[str, str], list[str]]:
    changes, refused = {}, []
    for key, value in spec.options().items():
        has = info.properties.get(key)
        if has is not None and has.lower() == value.lower():
            continue
        if has is None and _is_default(key, value):
            continue
        if key in ALTERABLE_OPTIONS:
            changes[key] = value
        else:
            refused.append(
                f"option {key} is {has or 'not set'}, not {value}, and cannot be changed"
            )
    own = info.custom_properties
    changes |= {k: v for k, v in spec.custom_properties.items() if own.get(k) != v}
    return changes, refused


def _is_default(key: str, value: str) -> bool:
    return key == "table.datalake.enabled" and value.lower() == "false"


log = logging.getLogger(__name__)
# Every round repeats what another run's changes made necessary; two runs settle in two.
ROUNDS_MAX = 5
LAKE_RACE_WAIT_MS = 10_000
"""How long another run may take from making a lake table to recording it in Fluss."""
LAKE_RACE_PAUSE = Backoff(first_ms=50, max_ms=50)


def plan_tables(connection: FlussConnection, specs: Iterable[TableSpec]) -> ProvisionPlan:
    """Return the changes that bring every table in line with its spec; make none of them.

    Args:
        connection: The connection to the cluster.
        specs: The tables as they shall be.
    """
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


def apply_tables(
    connection: FlussConnection,
    planned: ProvisionPlan | Iterable[TableSpec],
    on_change: Callable[[Change], None] | None = None,
) -> list[Change]:
    """Make the changes of a plan, and check the result. Nothing is dropped or rebuilt.

    Args:
        connection: The connection to the cluster.
        planned: The plan, or the specs to plan and apply.
        on_change: Called with each change before it is made.

    Returns:
        The changes that this call made.
    """
    if not isinstance(planned, ProvisionPlan):
        planned = plan_tables(connection, planned)
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
        planned = plan_tables(connection, planned.specs)
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
    deadline = Deadline(LAKE_RACE_WAIT_MS, LAKE_RACE_PAUSE)
    while change in plan_tables(connection, specs).changes:
        if deadline.passed():
            raise LakeTableAlreadyExistError(
                f"cannot {change}: the lake holds a table of this name already ({error.message}), "
                "and it belongs to no table of this cluster. A dropped table leaves its lake table "
                "behind: drop or rename that one in the lake's catalog, or use another name"
            ) from error
        deadline.backoff.pause_blocking(0)
    log.info("provisioning: another run has done it: %s", change)


def _unless(harmless: type[FlussError], step: Callable[[], None]) -> None:
    try:
        step()
    except harmless as error:
        log.info("provisioning: %s", error)
