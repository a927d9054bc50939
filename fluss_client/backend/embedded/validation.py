"""Table descriptions as the server completes and checks them, with its errors.

`completed` fills in what the server would, `checked` refuses what it would refuse, then what this
engine does not offer; both before anything is written.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fluss_client.backend.embedded import options as opt
from fluss_client.errors import (
    InvalidConfigError,
    InvalidDatabaseError,
    InvalidReplicationFactorError,
    InvalidTableError,
    SchemaError,
    ServerError,
    TooManyBucketsError,
    UnknownServerError,
    UnsupportedError,
)
from fluss_client.model.schema import RESERVED_COLUMNS
from fluss_client.model.table import TableDescriptor, TablePath, check_name
from fluss_client.model.types import NESTED, Root

BUCKETS_DEFAULT = 1
BUCKETS_MAX = 128_000
PARTITIONS_MAX = 1_000
_NOT_FOR_PARTITIONS = NESTED | {Root.DECIMAL}


def check_database_name(name: str) -> None:
    """InvalidDatabaseError (16) for a name that no database can have."""
    _check_name("database", name, InvalidDatabaseError)


def check_path(path: TablePath) -> None:
    """Errors 16 and 15 for names that no database and no table can have."""
    check_database_name(path.database_name)
    _check_name("table", path.table_name, InvalidTableError)


def _check_name(kind: str, name: str, error_class: type[ServerError]) -> None:
    try:
        check_name(kind, name)
    except SchemaError as error:
        raise error_class(str(error)) from None


def completed(descriptor: TableDescriptor) -> TableDescriptor:
    """The description with the server's defaults filled in."""
    schema = descriptor.schema
    properties = dict(descriptor.properties)
    properties.setdefault(opt.REPLICATION, "1")
    several_keys = len(descriptor.partition_keys) > 1
    if several_keys and properties.get(opt.AUTO_ENABLED) == "true":
        properties.setdefault(opt.AUTO_PRECREATE, "0")
    if is_lake_enabled(properties):
        properties.setdefault(opt.LAKE_FORMAT, "iceberg")
    if schema.primary_keys:
        if _early(properties, opt.MERGE_ENGINE) is not None:
            properties.setdefault(opt.DELETE_BEHAVIOR, "IGNORE")
        version = _early(properties, opt.KV_VERSION)
        if version is not None and version > opt.KV_VERSION_CURRENT:
            raise InvalidConfigError(
                f"{opt.KV_VERSION} is at most {opt.KV_VERSION_CURRENT}, not {version}"
            )
        properties.setdefault(opt.KV_VERSION, str(opt.KV_VERSION_CURRENT))
    return _rebuilt(
        descriptor,
        bucket_count=descriptor.bucket_count or BUCKETS_DEFAULT,
        bucket_keys=descriptor.bucket_keys or _default_bucket_keys(descriptor),
        properties=properties,
    )


def with_properties(
    descriptor: TableDescriptor, properties: dict[str, str], custom_properties: dict[str, str]
) -> TableDescriptor:
    """The same table with other properties."""
    return _rebuilt(descriptor, properties=properties, custom_properties=custom_properties)


def _rebuilt(descriptor: TableDescriptor, **changes: Any) -> TableDescriptor:
    fields: dict[str, Any] = {
        "partition_keys": descriptor.partition_keys,
        "bucket_count": descriptor.bucket_count,
        "bucket_keys": descriptor.bucket_keys,
        "comment": descriptor.comment,
        "properties": descriptor.properties,
        "custom_properties": descriptor.custom_properties,
    }
    return TableDescriptor(descriptor.schema, **(fields | changes))


def _default_bucket_keys(descriptor: TableDescriptor) -> tuple[str, ...]:
    keys = descriptor.schema.primary_keys
    return tuple(key for key in keys if key not in descriptor.partition_keys)


def is_lake_enabled(properties: Mapping[str, str]) -> bool:
    """Whether the table is tiered into a lake."""
    return properties.get(opt.LAKE_ENABLED, "").lower() == "true"


def check_replication(descriptor: TableDescriptor) -> None:
    """Error 17 when replicas and servers do not go together: there is one server here."""
    factor = _early(descriptor.properties, opt.REPLICATION)
    if factor is not None and factor != 1:
        raise InvalidReplicationFactorError(
            f"{opt.REPLICATION} is {factor}, but the embedded engine is one server"
        )


def _early(properties: Mapping[str, str], key: str) -> Any:
    """An option that the server reads before it checks any: what it cannot read is a -1."""
    try:
        return opt.option(properties, key)
    except InvalidConfigError as error:
        raise UnknownServerError(str(error)) from None


def check_descriptor(descriptor: TableDescriptor) -> None:
    """Raise what the server raises for a completed description that it refuses."""
    properties, schema = descriptor.properties, descriptor.schema
    opt.check_options(properties)
    if (descriptor.bucket_count or 0) > BUCKETS_MAX:
        raise TooManyBucketsError(
            f"{descriptor.bucket_count} buckets exceed the maximum of {BUCKETS_MAX}"
        )
    _check_keys(descriptor)
    if opt.option(properties, opt.REPLICATION) <= 0:
        raise InvalidConfigError(f"'{opt.REPLICATION}' must be greater than 0")
    _check_formats(descriptor)
    if not 1 <= opt.option(properties, opt.ZSTD_LEVEL) <= 22:
        raise InvalidConfigError(f"{opt.ZSTD_LEVEL} is 1 to 22")
    _check_merge_engine(descriptor)
    if opt.option(properties, opt.LOCAL_SEGMENTS) <= 0:
        raise InvalidConfigError(f"'{opt.LOCAL_SEGMENTS}' must be greater than 0")
    _check_partitions(descriptor)
    reserved = RESERVED_COLUMNS.intersection(schema.get_column_names())
    if reserved:
        raise InvalidTableError(f"{sorted(reserved)} are reserved column names")


def _check_keys(descriptor: TableDescriptor) -> None:
    schema = descriptor.schema
    for kind, names in (("bucket", descriptor.bucket_keys), ("primary", schema.primary_keys)):
        for name in names:
            if schema.column(name).type.root in NESTED:
                raise InvalidTableError(
                    f"column '{name}' of type {schema.column(name).type} cannot be a {kind} key"
                )


def _check_formats(descriptor: TableDescriptor) -> None:
    properties = descriptor.properties
    if (
        descriptor.schema.primary_keys
        and opt.option(properties, opt.KV_FORMAT) == "COMPACTED"
        and opt.option(properties, opt.LOG_FORMAT) == "INDEXED"
    ):
        raise InvalidConfigError(
            "a primary-key table with kv format COMPACTED takes log format ARROW or COMPACTED"
        )


def _check_merge_engine(descriptor: TableDescriptor) -> None:
    properties, schema = descriptor.properties, descriptor.schema
    engine = opt.option(properties, opt.MERGE_ENGINE)
    behavior = opt.option(properties, opt.DELETE_BEHAVIOR)
    if engine is not None and not schema.primary_keys:
        raise InvalidConfigError("a merge engine needs a primary key")
    if engine == "VERSIONED":
        name = opt.option(properties, opt.VERSION_COLUMN)
        if name is None or name not in schema.index:
            raise InvalidConfigError(f"'{opt.VERSION_COLUMN}' must name a column")
    if behavior is not None and not schema.primary_keys:
        raise InvalidConfigError(f"'{opt.DELETE_BEHAVIOR}' needs a primary key")
    if engine in ("FIRST_ROW", "VERSIONED") and behavior == "ALLOW":
        raise InvalidConfigError(
            f"merge engine {engine} takes no deletes: set {opt.DELETE_BEHAVIOR} to ignore or "
            "disable"
        )


def _check_partitions(descriptor: TableDescriptor) -> None:
    properties, keys = descriptor.properties, descriptor.partition_keys
    automatic = opt.option(properties, opt.AUTO_ENABLED)
    if not keys:
        if automatic:
            raise InvalidConfigError(f"{opt.AUTO_ENABLED} needs partition keys")
        return
    for name in keys:
        kind = descriptor.schema.column(name).type
        if kind.root in _NOT_FOR_PARTITIONS:
            raise InvalidTableError(f"column '{name}' of type {kind} cannot partition a table")
    if not automatic:
        return
    if len(keys) > 1:
        key = opt.option(properties, opt.AUTO_KEY)
        if not (key or "").strip():
            raise InvalidTableError(f"set {opt.AUTO_KEY}: the table has several partition keys")
        if key not in keys:
            raise InvalidTableError(f"{opt.AUTO_KEY} '{key}' is none of {list(keys)}")
        if opt.option(properties, opt.AUTO_PRECREATE) > 0:
            raise InvalidTableError(f"{opt.AUTO_PRECREATE} must be 0 with several partition keys")


def check_offered(descriptor: TableDescriptor) -> None:
    """UnsupportedError for what a cluster has and this engine has not."""
    properties = descriptor.properties
    engine = opt.option(properties, opt.MERGE_ENGINE)
    if engine in ("VERSIONED", "AGGREGATION"):
        raise UnsupportedError(
            f"the embedded engine has no {engine.lower()} merge engine: use the default or "
            "first_row, or a cluster"
        )
    if descriptor.schema.auto_increment_columns:
        raise UnsupportedError("the embedded engine has no auto-increment columns: use a cluster")
    if is_lake_enabled(properties) and opt.option(properties, opt.LAKE_FORMAT) != "ICEBERG":
        raise UnsupportedError(
            "the embedded engine tiers into Iceberg only: leave table.datalake.format out"
        )
