"""What a database component remembers of a cluster, so that definitions load without one."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

import dagster as dg

from fluss_client import FlussConnection, TableInfo, TablePath
from fluss_client.errors import CorruptDataError
from fluss_orchestrate.core.identity import table_uri
from fluss_orchestrate.core.provisioning.spec import LAKE_ENABLED
from fluss_orchestrate.dagster.metadata import (
    COLUMN_SCHEMA,
    STORAGE,
    STORAGE_KIND,
    TABLE_NAME,
    URI,
)

STATE_VERSION = 1


@dataclass(frozen=True)
class TableState:
    """One table as it was when the state was written."""

    table: str
    uri: str
    columns: tuple[Mapping[str, Any], ...]
    primary_key: tuple[str, ...] = ()
    partition_keys: tuple[str, ...] = ()
    properties: Mapping[str, str] = field(default_factory=dict)
    comment: str | None = None

    @classmethod
    def of(cls, alias: str, info: TableInfo) -> TableState:
        """What matters of a table."""
        columns = tuple(
            {
                "name": column.name,
                "type": str(column.type),
                "nullable": column.type.nullable,
                "comment": column.comment,
            }
            for column in info.schema.columns
        )
        return cls(
            str(info.table_path),
            table_uri(alias, info.table_path),
            columns,
            tuple(info.get_primary_keys()),
            tuple(info.get_partition_keys()),
            dict(info.properties),
            info.comment,
        )

    @property
    def has_lake(self) -> bool:
        """Whether it is tiered."""
        return self.properties.get(LAKE_ENABLED, "false").lower() == "true"

    @property
    def names(self) -> tuple[str, str]:
        """Database and table."""
        database, _, table = self.table.partition(".")
        return database, table

    def metadata(self) -> dict[str, Any]:
        """What Dagster shows of the table."""
        columns = [
            dg.TableColumn(
                column["name"],
                column["type"],
                column["comment"],
                dg.TableColumnConstraints(nullable=column["nullable"]),
            )
            for column in self.columns
        ]
        return {
            TABLE_NAME: self.table,
            STORAGE: STORAGE_KIND,
            URI: self.uri,
            COLUMN_SCHEMA: dg.TableSchema(columns),
        }


def describe_tables(
    connection: FlussConnection,
    databases: Sequence[str],
    include: Sequence[str],
    exclude: Sequence[str],
) -> list[TableState]:
    """Every wanted table of some databases, by name."""
    admin = connection.get_admin().result()
    alias = connection.config.resolved_alias()
    found = []
    for database in databases:
        for table in sorted(admin.list_tables(database).result()):
            taken = any(fnmatchcase(table, pattern) for pattern in include)
            if taken and not any(fnmatchcase(table, pattern) for pattern in exclude):
                info = admin.get_table_info(TablePath(database, table)).result()
                found.append(TableState.of(alias, info))
    return found


def write_state(path: Path, tables: Sequence[TableState]) -> None:
    """Keep the tables in a file."""
    value = {"version": STATE_VERSION, "tables": [asdict(table) for table in tables]}
    path.write_text(json.dumps(value, indent=1, sort_keys=True))


def read_state(path: Path) -> list[TableState]:
    """The tables of a file; one of another version must be written anew."""
    try:
        value = json.loads(path.read_text())
        if value["version"] != STATE_VERSION:
            raise ValueError(f"version {value['version']}")
        return [
            TableState(
                **{
                    **table,
                    "columns": tuple(table["columns"]),
                    "primary_key": tuple(table["primary_key"]),
                    "partition_keys": tuple(table["partition_keys"]),
                }
            )
            for table in value["tables"]
        ]
    except (KeyError, TypeError, ValueError) as error:
        raise CorruptDataError(
            f"the state in {path.name} cannot be used ({error}): run dg utils refresh-defs-state"
        ) from error
