"""The steps from what exists to what a spec asks for; nothing here touches a server."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from fluss_client.errors import ClientError
from fluss_client.model.schema import Column
from fluss_client.model.table import PartitionInfo, TableInfo
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
    """What `apply` would do, in order; printing it shows one step per line."""

    changes: tuple[Change, ...]
    specs: tuple[TableSpec, ...]

    @property
    def is_empty(self) -> bool:
        """Whether everything is as the specs ask."""
        return not self.changes

    def to_json(self) -> list[dict[str, Any]]:
        """The steps as plain values."""
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
