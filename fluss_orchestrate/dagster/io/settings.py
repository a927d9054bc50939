"""What an IO manager is asked for: by its config, an asset's metadata, or an output's."""

from __future__ import annotations

import enum
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Any, TypeVar

import dagster as dg
import pyarrow as pa

from fluss_client import TablePath
from fluss_client.errors import ConfigError
from fluss_orchestrate.core.provisioning import TableSpec
from fluss_orchestrate.core.sinks.base import SchemaPolicy

TABLE_NAME_LENGTH_MAX = 200
_NOT_IN_NAMES = re.compile(r"[^A-Za-z0-9_-]+")
DROP_UNREAD = "drop_unread"
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


SETTINGS = (
    "write_mode",
    "read_mode",
    "schema_policy",
    "partition_expr",
    "columns",
    "on_late_rows",
    DROP_UNREAD,
    *TABLE_OPTIONS,
)
FLUSS_SETTINGS = ("fluss/table",)
CLOSE = 0.85
"""How alike a key and a setting are for one to be taken for a misspelling of the other."""


def check_keys(metadata: Mapping[str, Any], what: str) -> None:
    """Refuse keys of an asset's metadata that are misspelled settings.

    Raises:
        ConfigError: A key is almost a setting, or is `fluss/…` and none.
    """
    for key in metadata:
        if key in SETTINGS or key in FLUSS_SETTINGS or key.startswith("dagster/"):
            continue
        known = FLUSS_SETTINGS if key.startswith("fluss/") else SETTINGS
        close = get_close_matches(key, known, n=1, cutoff=CLOSE)
        if close or key.startswith("fluss/"):
            meant = close[0] if close else ", ".join(known)
            raise ConfigError(
                f"{what}: the metadata key '{key}' is no setting of FlussIOManager: did you mean "
                f"'{meant}'? Keys of your own may have a prefix, such as 'team/{key}'"
            )


class WriteMode(enum.StrEnum):
    """What writing an output does to the table.

    `append` and `upsert` add rows, once however often a step is tried. `overwrite_partition`
    replaces the run's partitions, as a partitioned asset does by default: a log table's are
    dropped, created and loaded; of a key table's, the rows are upserted and the others deleted by
    their keys. It is not atomic: readers may see partitions empty or in between.
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

    def on_late_rows(self) -> str:
        """What to do about rows of expired partitions; `read_table` checks it."""
        return str(self.value("on_late_rows") or "read")

    def columns(self) -> list[str] | None:
        """The columns to load; None for all."""
        found = self.value("columns")
        return None if found is None else [str(name) for name in found]

    def table_spec(self, path: TablePath, schema: pa.Schema, columns: list[str]) -> TableSpec:
        """The table to create for rows of a schema, partitioned by `columns` by default."""
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


def table_of(stored: Stored, database: str, choices: Choices) -> TablePath:
    """The table of an output: the last two parts of its asset's key, or what its metadata says.

    The output of an op that is no asset gets a table of its own in the IO manager's database.
    """
    named = choices.value("fluss/table")
    if named is not None:
        return TablePath.parse(str(named))
    if stored.asset_key is not None:
        parts: Sequence[str] = stored.asset_key.path
        if len(parts) >= 2:
            return TablePath(parts[-2], parts[-1])
    else:
        parts = [_NOT_IN_NAMES.sub("_", stored.name)[:TABLE_NAME_LENGTH_MAX]]
    if not database:
        raise ConfigError(
            f"{stored.name} names no database: give {stored.ways_out}, or set the IO manager's "
            "database"
        )
    return TablePath(database, parts[-1])


@dataclass(frozen=True, slots=True)
class Stored:
    """What an IO manager stores: an asset, or the output of an op that is none."""

    asset_key: dg.AssetKey | None
    name: str
    """The asset's key, or job, op and output."""

    @property
    def ways_out(self) -> str:
        """How its table can be named."""
        if self.asset_key is not None:
            return "it a key of two parts, such as ['sales', 'orders']"
        return "it fluss/table in its metadata, or another IO manager by io_manager_key"

    @classmethod
    def of(cls, context: dg.OutputContext) -> Stored:
        """What an output is."""
        if context.has_asset_key:
            key = context.asset_key
            return cls(key, key.to_user_string())
        # The jobs that Dagster makes for assets begin so; which one it is changes nothing.
        job = "" if context.job_name.startswith("__") else f"{context.job_name}/"
        mapped = f"[{context.mapping_key}]" if context.mapping_key else ""
        return cls(None, f"{job}{context.step_key}/{context.name}{mapped}")


Choice = TypeVar("Choice", bound=enum.StrEnum)


def _one_of(kind: type[Choice], value: Any, what: str) -> Choice:
    try:
        return kind(str(value))
    except ValueError:
        known = ", ".join(str(one) for one in kind)
        raise ConfigError(f"{what}: '{value}' is none of {known}") from None
