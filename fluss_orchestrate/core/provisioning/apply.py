"""Changes that bring tables to their specs: they are planned, and then applied in order."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from fluss_client import Column, FlussAdmin, FlussConnection, PartitionInfo, TableInfo, TablePath
from fluss_client.engine import Backoff, Deadline, backend_of
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
    """A table differs from its spec in a way that only a new table could change."""

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
class RescaleTable:
    """Raise the number of buckets that new partitions of a table get."""

    table: str
    before: int
    buckets: int

    def __str__(self) -> str:
        return (
            f"rescale {self.table}: new partitions get {self.buckets} buckets instead of "
            f"{self.before}; those that exist keep theirs"
        )


@dataclass(frozen=True, slots=True)
class CreatePartition:
    """Create a partition."""

    table: str
    spec: Mapping[str, str] = field(hash=False)

    def __str__(self) -> str:
        pairs = ", ".join(f"{k}={v}" for k, v in self.spec.items())
        return f"create partition {pairs} of {self.table}"


Change = CreateDatabase | CreateTable | AddColumns | SetOptions | RescaleTable | CreatePartition


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
        """Whether everything is as the specs say."""
        return not self.changes

    def to_json(self) -> list[dict[str, Any]]:
        """Return the changes as plain values."""
        return [{"change": type(c).__name__, "what": str(c)} for c in self.changes]

    def __str__(self) -> str:
        return "\n".join(str(change) for change in self.changes) or "nothing to change"


def table_changes(
    spec: TableSpec, info: TableInfo, partitions: list[PartitionInfo], *, rescaling: bool = False
) -> list[Change]:
    """Return the changes for a table that exists.

    Args:
        spec: The table as it shall be.
        info: The table as it is.
        partitions: Its partitions.
        rescaling: Whether the server can change bucket counts (Fluss 1.0).

    Raises:
        RebuildNeededError: No change of the table would be enough.
    """
    reasons = [*_key_differences(spec, info), *_column_differences(spec, info)]
    reasons += _rescale_refusals(spec, info, rescaling)
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
    if spec.buckets is not None and spec.buckets != info.num_buckets:
        # Before partitions are created, so that these get the new count.
        changes.append(RescaleTable(spec.table, info.num_buckets, spec.buckets))
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
    return [f"the {what} is {has}, not {wants}" for what, wants, has in pairs if wants != has]


def _rescale_refusals(spec: TableSpec, info: TableInfo, rescaling: bool) -> list[str]:
    """Return why the table cannot have as many buckets as the spec wants."""
    if spec.buckets is None or spec.buckets == info.num_buckets:
        return []
    what = f"it has {info.num_buckets} buckets, not {spec.buckets}"
    if not info.is_partitioned():
        return [f"{what}, and the count of a table without partitions is fixed"]
    if not rescaling:
        return [f"{what}, and servers before Fluss 1.0 cannot change that"]
    if info.properties.get("table.datalake.enabled", "false").lower() == "true":
        return [f"{what}, and the count of a table with a lake is fixed: Iceberg's buckets are"]
    if spec.buckets < info.num_buckets:
        return [
            f"{what}, and a spec only raises the count: to lower it for new partitions, use "
            "alter_table(bucket_count=...)"
        ]
    return []


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
# A round plans again after the changes of another run; two runs need two rounds.
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
        # Asked for each table: a cluster says it once a server has answered.
        rescaling = backend_of(connection).capabilities.rescaling
        changes += _for_table(admin, spec, rescaling)
    return ProvisionPlan(tuple(changes), wanted)


def _for_table(admin: FlussAdmin, spec: TableSpec, rescaling: bool) -> list[Change]:
    try:
        info = admin.get_table_info(spec.path).result()
    except (TableNotExistError, DatabaseNotExistError):
        partitions = [CreatePartition(spec.table, p) for p in spec.partitions]
        return [CreateTable(spec, spec.table), *partitions]
    existing = []
    if info.is_partitioned():
        existing = admin.list_partition_infos(spec.path).result()
    return table_changes(spec, info, existing, rescaling=rescaling)


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
        # Another run may have added them meanwhile; the next round finds out.
        _unless(
            InvalidAlterTableError,
            lambda: admin.alter_table(
                TablePath.parse(change.table), add_columns=change.columns
            ).result(),
        )
    elif isinstance(change, RescaleTable):
        admin.alter_table(TablePath.parse(change.table), bucket_count=change.buckets).result()
    elif isinstance(change, SetOptions):
        admin.alter_table(TablePath.parse(change.table), set_options=change.options).result()


def _wait_for_other_run(
    connection: FlussConnection,
    specs: Iterable[TableSpec],
    change: Change,
    error: LakeTableAlreadyExistError,
) -> None:
    """Wait until another run has made a change that failed here because its lake table exists.

    A server creates the table in the lake first and records it afterwards. Of two runs at the same
    time, the slower one finds the lake table before Fluss shows the change.
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
