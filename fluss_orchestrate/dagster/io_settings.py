"""What an IO manager is asked for: by its config, an asset's metadata, or an output's."""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

import dagster as dg
import pyarrow as pa

from fluss_client import TablePath
from fluss_client.errors import ConfigError
from fluss_orchestrate.core.provisioning import TableSpec
from fluss_orchestrate.core.schema_policy import SchemaPolicy

TABLE_OPTIONS = (
    "primary_key",
    "partition_keys",
    "bucket_keys",
    "buckets",
    "properties",
    "custom_properties",
    "lake",
    "lake_freshness",
    "comment",
)


class WriteMode(enum.StrEnum):
    """What writing an output does to the table.

    `append` and `upsert` add rows, once however often a step is tried. `overwrite_partition` drops
    the run's partitions, creates them and loads the rows: not atomic, readers may see them empty.
    `error` refuses when the table, or the run's partitions, hold rows of anybody else.
    """

    APPEND = "append"
    UPSERT = "upsert"
    OVERWRITE_PARTITION = "overwrite_partition"
    ERROR = "error"


class ReadMode(enum.StrEnum):
    """What loading an input gives: the whole `table`, or the `last` materialisation's ranges."""

    TABLE = "table"
    LAST = "last"


@dataclass(frozen=True, slots=True)
class Choices:
    """Settings in the order in which they count: the output's, the asset's, the IO manager's."""

    layers: tuple[Mapping[str, Any], ...]
    what: str

    def value(self, key: str) -> Any:
        """The first setting that there is, without Dagster's wrapping."""
        for layer in self.layers:
            if layer.get(key) is not None:
                found = layer[key]
                return found.value if isinstance(found, dg.MetadataValue) else found
        return None

    def write_mode(self) -> WriteMode | None:
        """How to write; None leaves it to the table."""
        found = self.value("write_mode")
        return None if found is None else _one_of(WriteMode, found, self.what)

    def read_mode(self) -> ReadMode:
        """What to load."""
        return _one_of(ReadMode, self.value("read_mode") or ReadMode.TABLE, self.what)

    def schema_policy(self) -> SchemaPolicy:
        """What to do with columns that the table lacks."""
        return _one_of(SchemaPolicy, self.value("schema_policy") or SchemaPolicy.ERROR, self.what)

    def columns(self) -> list[str] | None:
        """The columns to load; None for all."""
        found = self.value("columns")
        return None if found is None else [str(name) for name in found]

    def table_spec(self, path: TablePath, schema: pa.Schema, columns: list[str]) -> TableSpec:
        """The table to create for rows of a schema, partitioned by `columns` unless told."""
        options = {key: self.value(key) for key in TABLE_OPTIONS}
        given = {key: value for key, value in options.items() if value is not None}
        for key in ("primary_key", "partition_keys", "bucket_keys"):
            if isinstance(given.get(key), str):
                given[key] = [given[key]]
            if key in given:
                given[key] = tuple(given[key])
        if columns:
            given.setdefault("partition_keys", tuple(columns))
        needed = {*given.get("primary_key", ()), *given.get("partition_keys", ())}
        # Keys cannot be null, and frames do not say so.
        fields = [f.with_nullable(False) if f.name in needed else f for f in schema]
        return TableSpec.of_arrow(str(path), pa.schema(fields), **given)


def table_of(asset_key: dg.AssetKey, database: str, choices: Choices) -> TablePath:
    """The table of an asset: the last two parts of its key, or what its metadata says."""
    named = choices.value("fluss/table")
    if named is not None:
        return TablePath.parse(str(named))
    parts = asset_key.path
    if len(parts) >= 2:
        return TablePath(parts[-2], parts[-1])
    if not database:
        raise ConfigError(
            f"asset {asset_key.to_user_string()} names no database: give it a key of two parts, "
            "such as ['sales', 'orders'], or set the IO manager's database"
        )
    return TablePath(database, parts[-1])


Choice = TypeVar("Choice", bound=enum.StrEnum)


def _one_of(kind: type[Choice], value: Any, what: str) -> Choice:
    try:
        return kind(str(value))
    except ValueError:
        known = ", ".join(str(one) for one in kind)
        raise ConfigError(f"{what}: '{value}' is none of {known}") from None
