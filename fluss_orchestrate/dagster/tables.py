"""Tables of Fluss as assets: their keys, groups and metadata, in one place for all that needs them.

`DagsterFlussTranslator` says which asset a table is. Everything that makes an asset beside a table
(its lake, its increments) asks it for the key to depend on, the group, the owners and the tags, so
that they stay together. A mirror of a table is to do the same.
"""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from datetime import datetime
from fnmatch import fnmatchcase
from pathlib import Path
from typing import TYPE_CHECKING, Any

import dagster as dg

from fluss_client import FlussConnection, TableInfo, TablePath
from fluss_client.errors import ConfigError, CorruptDataError, FlussError
from fluss_orchestrate.core.identity import table_uri
from fluss_orchestrate.core.provisioning import TableSpec
from fluss_orchestrate.core.provisioning.spec import LAKE_ENABLED
from fluss_orchestrate.dagster.compat import valid_name
from fluss_orchestrate.dagster.metadata import (
    COLUMN_LINEAGE,
    COLUMN_SCHEMA,
    STORAGE,
    STORAGE_KIND,
    TABLE_NAME,
    URI,
    column_lineage,
    column_schema,
    columns_of,
)
from fluss_orchestrate.dagster.partitions import partitions_from

if TYPE_CHECKING:
    from fluss_orchestrate.dagster.resource import FlussResource

STATE_VERSION = 1
STATE_FOLDER = "fluss_tables"
_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class FlussTableProps:
    """What is known of a table without asking for it; of one that was only named, little.

    Attributes:
        table: The table, as `database.table`.
        uri: The URI of its asset.
        columns: Its columns: name, type and more of each.
        primary_key: The columns of its primary key.
        partition_keys: The columns that partition it.
        properties: Its properties.
        comment: Its comment.
    """

    table: str
    uri: str = ""
    columns: tuple[Mapping[str, Any], ...] = ()
    primary_key: tuple[str, ...] = ()
    partition_keys: tuple[str, ...] = ()
    properties: Mapping[str, str] = field(default_factory=dict)
    comment: str | None = None

    @classmethod
    def of(cls, alias: str, info: TableInfo) -> FlussTableProps:
        """Return what matters of a table.

        Args:
            alias: The alias of the cluster.
            info: The table.
        """
        return cls(
            str(info.table_path),
            table_uri(alias, info.table_path),
            columns_of(info.schema),
            tuple(info.get_primary_keys()),
            tuple(info.get_partition_keys()),
            dict(info.properties),
            info.comment,
        )

    @classmethod
    def of_spec(cls, spec: TableSpec) -> FlussTableProps:
        """Return the same of a table that a spec describes.

        Args:
            spec: The spec.
        """
        return cls(
            spec.table,
            "",
            columns_of(spec.schema()),
            tuple(spec.primary_key),
            tuple(spec.partition_keys),
            spec.options(),
            spec.comment,
        )

    @property
    def has_lake(self) -> bool:
        """Whether it is tiered."""
        return self.properties.get(LAKE_ENABLED, "false").lower() == "true"

    @property
    def names(self) -> tuple[str, str]:
        """Database and table."""
        path = TablePath.parse(self.table)
        return path.database_name, path.table_name

    def metadata(self) -> dict[str, Any]:
        """Return what Dagster shows of the table."""
        found: dict[str, Any] = {TABLE_NAME: self.table, STORAGE: STORAGE_KIND}
        if self.uri:
            found[URI] = self.uri
        if self.columns:
            found[COLUMN_SCHEMA] = column_schema(
                self.columns, self.primary_key, self.partition_keys
            )
        return found


class DagsterFlussTranslator:
    """Says which asset a table of Fluss is. Subclass it and override what shall be different.

    Args:
        partitions_start: With a time, auto-partitioned tables have time partitions from there on;
            without one, their partitions are dynamic.
    """

    def __init__(self, partitions_start: datetime | str | None = None) -> None:
        self.partitions_start = partitions_start

    def get_asset_spec(self, table: FlussTableProps) -> dg.AssetSpec:
        """Return the asset of a table: the key `database/table` in the group of its database.

        It is also asked for tables of which only the name is known; then the columns are empty.
        """
        database, name = table.names
        return dg.AssetSpec(
            [database, name],
            description=table.comment,
            group_name=valid_name(database),
            kinds={"fluss"},
            metadata=table.metadata(),
            partitions_def=partitions_from(
                table.table, table.partition_keys, table.properties, self.partitions_start
            ),
        )

    def get_lake_asset_spec(self, table: FlussTableProps) -> dg.AssetSpec:
        """Return the asset of a table's lake: the table's key after `lake`, downstream of it.

        Args:
            table: What is known of the table.
        """
        source = self.get_asset_spec(table)
        metadata: dict[str, Any] = {TABLE_NAME: table.table, STORAGE: STORAGE_KIND}
        if table.columns:
            names = [column["name"] for column in table.columns]
            metadata[COLUMN_LINEAGE] = column_lineage(source.key, names)
        return dg.AssetSpec(
            ["lake", *source.key.path],
            deps=[source.key],
            description=f"The rows of {table.table} in its lake.",
            kinds={"fluss", "iceberg"},
            metadata=metadata,
            **shared_attributes(source),
        )

    def spec_of(self, table: str) -> dg.AssetSpec:
        """Return the asset of a table by its name alone.

        Args:
            table: The table, as `database.table`.
        """
        return self.get_asset_spec(FlussTableProps(table))


def shared_attributes(source: dg.AssetSpec) -> dict[str, Any]:
    """What an asset beside a table takes over from the table's: group, owners and tags."""
    tags = {key: value for key, value in source.tags.items() if not key.startswith("dagster/")}
    given = {"group_name": source.group_name, "owners": source.owners, "tags": tags}
    return {name: value for name, value in given.items() if value}


def load_fluss_asset_specs(
    fluss: FlussResource,
    databases: Sequence[str],
    *,
    include: Sequence[str] = ("*",),
    exclude: Sequence[str] = (),
    lake_assets: bool = True,
    translator: DagsterFlussTranslator | None = None,
    state_path: Path | str | None = None,
) -> list[dg.AssetSpec]:
    """Return the tables of some databases as external assets, and their lakes.

    The cluster is asked as the code location loads. What it said is kept in a file, and the file is
    used, with a warning, while the cluster does not answer; so a location does not fail because a
    cluster is away. Without such a file there are no assets then.

    Args:
        fluss: The resource.
        databases: The databases.
        include: Patterns of table names.
        exclude: Patterns of table names that are left out.
        lake_assets: Whether tables with a lake have an asset for it.
        translator: Which asset a table is.
        state_path: The file; by default in `$DAGSTER_HOME/fluss_tables`, and none without that
            variable.
    """
    chosen = translator or DagsterFlussTranslator()
    tables = _remembered(fluss, databases, state_path, include, exclude)
    lakes = [table for table in tables if table.has_lake] if lake_assets else []
    return [
        *(chosen.get_asset_spec(table) for table in tables),
        *(chosen.get_lake_asset_spec(table) for table in lakes),
    ]


def _remembered(
    fluss: FlussResource,
    databases: Sequence[str],
    state_path: Path | str | None,
    include: Sequence[str],
    exclude: Sequence[str],
) -> list[FlussTableProps]:
    made = fluss.process_config_and_initialize()
    name = valid_name("+".join([made.cluster_alias or made.bootstrap_servers, *databases]))
    home = os.environ.get("DAGSTER_HOME")
    path = Path(state_path) if state_path is not None else None
    if path is None and home:
        path = Path(home) / STATE_FOLDER / f"{name}.json"
    try:
        tables = describe_tables(made.connection, databases, include, exclude)
    except FlussError as error:
        if isinstance(error, ConfigError):
            raise
        known = read_state(path) if path is not None and path.exists() else []
        _log.warning(
            "%s does not answer (%s); %s",
            made.bootstrap_servers,
            error.message,
            f"{len(known)} tables are taken from {path}"
            if known
            else "no tables are known of it, so there are no assets of them",
        )
        return known
    if path is not None:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_state(path, tables)
    return tables


def describe_tables(
    connection: FlussConnection,
    databases: Sequence[str],
    include: Sequence[str],
    exclude: Sequence[str],
) -> list[FlussTableProps]:
    """Every wanted table of some databases, by name."""
    admin = connection.get_admin().result()
    alias = connection.config.resolved_alias()
    found = []
    for database in databases:
        for table in sorted(admin.list_tables(database).result()):
            taken = any(fnmatchcase(table, pattern) for pattern in include)
            if taken and not any(fnmatchcase(table, pattern) for pattern in exclude):
                info = admin.get_table_info(TablePath(database, table)).result()
                found.append(FlussTableProps.of(alias, info))
    return found


def write_state(path: Path, tables: Sequence[FlussTableProps]) -> None:
    """Keep the tables in a file, which is replaced as a whole."""
    value = {"version": STATE_VERSION, "tables": [asdict(table) for table in tables]}
    draft = path.with_name(f"{path.name}.{os.getpid()}")
    draft.write_text(json.dumps(value, indent=1, sort_keys=True))
    draft.replace(path)


def read_state(path: Path) -> list[FlussTableProps]:
    """The tables of a file.

    Raises:
        CorruptDataError: It is of another version, or damaged, and must be written anew.
    """
    try:
        value = json.loads(path.read_text())
        if value["version"] != STATE_VERSION:
            raise ValueError(f"version {value['version']}")
        return [
            replace(
                FlussTableProps(**table),
                columns=tuple(table["columns"]),
                primary_key=tuple(table["primary_key"]),
                partition_keys=tuple(table["partition_keys"]),
            )
            for table in value["tables"]
        ]
    except (KeyError, TypeError, ValueError) as error:
        raise CorruptDataError(
            f"the state in {path.name} cannot be used ({error}): run dg utils refresh-defs-state"
        ) from error
