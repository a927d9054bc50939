"""Completes and checks table descriptions as the server does, with the same errors.

`completed` fills in the server's defaults, `check_descriptor` raises the server's errors, and
`check_offered` raises an error for what the embedded engine does not support. All of them run
before anything is written.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fluss_client.backend.embedded.store import options
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

BUCKETS_DEFAULT = 1
BUCKETS_MAX = 128_000
PARTITIONS_MAX = 1_000


def check_database_name(name: str) -> None:
    """Raise InvalidDatabaseError (16) if a database cannot have that name."""
    _check_name("database", name, InvalidDatabaseError)


def check_path(path: TablePath) -> None:
    """Raise error 16 or 15 if the database or table cannot have that name."""
    check_database_name(path.database_name)
    _check_name("table", path.table_name, InvalidTableError)


def _check_name(kind: str, name: str, error_class: type[ServerError]) -> None:
    try:
        check_name(kind, name)
    except SchemaError as error:
        raise error_class(str(error)) from None


def completed(descriptor: TableDescriptor) -> TableDescriptor:
    """Return the description with the server's defaults."""
    schema = descriptor.schema
    properties = dict(descriptor.properties)
    properties.setdefault(options.REPLICATION, "1")
    several_keys = len(descriptor.partition_keys) > 1
    if several_keys and properties.get(options.AUTO_ENABLED) == "true":
        properties.setdefault(options.AUTO_PRECREATE, "0")
    if is_lake_enabled(properties):
        properties.setdefault(options.LAKE_FORMAT, "iceberg")
    if schema.primary_keys:
        if _early(properties, options.MERGE_ENGINE) is not None:
            properties.setdefault(options.DELETE_BEHAVIOR, "IGNORE")
        version = _early(properties, options.KV_VERSION)
        if version is not None and version > options.KV_VERSION_CURRENT:
            raise InvalidConfigError(
                f"{options.KV_VERSION} is at most {options.KV_VERSION_CURRENT}, not {version}"
            )
        properties.setdefault(options.KV_VERSION, str(options.KV_VERSION_CURRENT))
    return _rebuilt(
        descriptor,
        bucket_count=descriptor.bucket_count or BUCKETS_DEFAULT,
        bucket_keys=descriptor.bucket_keys or _default_bucket_keys(descriptor),
        properties=properties,
    )


def with_bucket_count(descriptor: TableDescriptor, bucket_count: int) -> TableDescriptor:
    """Return the description with another bucket count."""
    return _rebuilt(descriptor, bucket_count=bucket_count)


def with_properties(
    descriptor: TableDescriptor, properties: dict[str, str], custom_properties: dict[str, str]
) -> TableDescriptor:
    """Return the description with other properties."""
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
    """Return whether the table is tiered into a lake."""
    return properties.get(options.LAKE_ENABLED, "").lower() == "true"


def check_replication(descriptor: TableDescriptor) -> None:
    """Raise error 17 for more than one replica: the embedded engine is one server."""
    factor = _early(descriptor.properties, options.REPLICATION)
    if factor is not None and factor != 1:
        raise InvalidReplicationFactorError(
            f"{options.REPLICATION} is {factor}, but the embedded engine is one server"
        )


def _early(properties: Mapping[str, str], key: str) -> Any:
    """Return an option that the server parses before its checks; error -1 if it cannot."""
    try:
        return options.option(properties, key)
    except InvalidConfigError as error:
        raise UnknownServerError(str(error)) from None


def check_descriptor(descriptor: TableDescriptor) -> None:
    """Raise the server's errors for a completed description."""
    properties, schema = descriptor.properties, descriptor.schema
    options.check_options(properties)
    if (descriptor.bucket_count or 0) > BUCKETS_MAX:
        raise TooManyBucketsError(
            f"{descriptor.bucket_count} buckets exceed the maximum of {BUCKETS_MAX}"
        )
    _check_keys(descriptor)
    if options.option(properties, options.REPLICATION) <= 0:
        raise InvalidConfigError(f"'{options.REPLICATION}' must be greater than 0")
    _check_formats(descriptor)
    if not 1 <= options.option(properties, options.ZSTD_LEVEL) <= 22:
        raise InvalidConfigError(f"{options.ZSTD_LEVEL} is 1 to 22")
    _check_merge_engine(descriptor)
    if options.option(properties, options.LOCAL_SEGMENTS) <= 0:
        raise InvalidConfigError(f"'{options.LOCAL_SEGMENTS}' must be greater than 0")
    _check_partitions(descriptor)
    reserved = RESERVED_COLUMNS.intersection(schema.get_column_names())
    if reserved:
        raise InvalidTableError(f"{sorted(reserved)} are reserved column names")


def _check_keys(descriptor: TableDescriptor) -> None:
    schema = descriptor.schema
    for kind, names in (("bucket", descriptor.bucket_keys), ("primary", schema.primary_keys)):
        for name in names:
            if schema.column(name).type.is_nested:
                raise InvalidTableError(
                    f"column '{name}' of type {schema.column(name).type} cannot be a {kind} key"
                )


def _check_formats(descriptor: TableDescriptor) -> None:
    properties = descriptor.properties
    if (
        descriptor.schema.primary_keys
        and options.option(properties, options.KV_FORMAT) == "COMPACTED"
        and options.option(properties, options.LOG_FORMAT) == "INDEXED"
    ):
        raise InvalidConfigError(
            "a primary-key table with kv format COMPACTED takes log format ARROW or COMPACTED"
        )


def _check_merge_engine(descriptor: TableDescriptor) -> None:
    properties, schema = descriptor.properties, descriptor.schema
    engine = options.option(properties, options.MERGE_ENGINE)
    behavior = options.option(properties, options.DELETE_BEHAVIOR)
    if engine is not None and not schema.primary_keys:
        raise InvalidConfigError("a merge engine needs a primary key")
    if engine == "VERSIONED":
        name = options.option(properties, options.VERSION_COLUMN)
        if name is None or name not in schema.index:
            raise InvalidConfigError(f"'{options.VERSION_COLUMN}' must name a column")
    if behavior is not None and not schema.primary_keys:
        raise InvalidConfigError(f"'{options.DELETE_BEHAVIOR}' needs a primary key")
    if engine in ("FIRST_ROW", "VERSIONED") and behavior == "ALLOW":
        raise InvalidConfigError(
            f"merge engine {engine} takes no deletes: set {options.DELETE_BEHAVIOR} to ignore or "
            "disable"
        )


def _check_partitions(descriptor: TableDescriptor) -> None:
    properties, keys = descriptor.properties, descriptor.partition_keys
    automatic = options.option(properties, options.AUTO_ENABLED)
    if not keys:
        if automatic:
            raise InvalidConfigError(f"{options.AUTO_ENABLED} needs partition keys")
        return
    for name in keys:
        kind = descriptor.schema.column(name).type
        if not kind.may_partition:
            raise InvalidTableError(f"column '{name}' of type {kind} cannot partition a table")
    if not automatic:
        return
    if len(keys) > 1:
        key = options.option(properties, options.AUTO_KEY)
        if not (key or "").strip():
            raise InvalidTableError(f"set {options.AUTO_KEY}: the table has several partition keys")
        if key not in keys:
            raise InvalidTableError(f"{options.AUTO_KEY} '{key}' is none of {list(keys)}")
        if options.option(properties, options.AUTO_PRECREATE) > 0:
            raise InvalidTableError(
                f"{options.AUTO_PRECREATE} must be 0 with several partition keys"
            )


def check_offered(descriptor: TableDescriptor) -> None:
    """Raise UnsupportedError for what only a cluster supports."""
    properties = descriptor.properties
    engine = options.option(properties, options.MERGE_ENGINE)
    if engine in ("VERSIONED", "AGGREGATION"):
        raise UnsupportedError(
            f"the embedded engine has no {engine.lower()} merge engine: use the default or "
            "first_row, or a cluster"
        )
    if descriptor.schema.auto_increment_columns:
        raise UnsupportedError("the embedded engine has no auto-increment columns: use a cluster")
    if is_lake_enabled(properties) and options.option(properties, options.LAKE_FORMAT) != "ICEBERG":
        raise UnsupportedError(
            "the embedded engine tiers into Iceberg only: leave table.datalake.format out"
        )
