"""Databases, tables, buckets and partitions as values."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from fluss_client.errors import InvalidBucketRoutingError, RescaledTableError, SchemaError
from fluss_client.model.schema import Schema

NAME_LENGTH_MAX = 200
_NAME = re.compile(r"[A-Za-z0-9_-]+\Z")

LOG_FORMAT = "table.log.format"
KV_FORMAT = "table.kv.format"
HISTORICAL_PARTITION = "__historical__"
"""The system partition with the rows that were written for expired partitions (Fluss 1.0)."""
_HISTORICAL_ENABLED = "table.datalake.historical-partition.enabled"
_LOG_FORMATS = ("ARROW", "INDEXED", "COMPACTED")
_KV_FORMATS = ("COMPACTED", "INDEXED")


def check_name(kind: str, name: str) -> str:
    """Return the name itself, or an error that says what a name may hold."""
    if not isinstance(name, str) or not name:
        raise SchemaError(f"a {kind} name must not be empty")
    if len(name) > NAME_LENGTH_MAX or not _NAME.match(name) or name.startswith("__"):
        raise SchemaError(
            f"'{name}' cannot name a {kind}: use 1 to {NAME_LENGTH_MAX} letters, digits, '_' and "
            "'-', not starting with '__'"
        )
    return name


@dataclass(frozen=True, slots=True, order=True)
class TablePath:
    """A table's database and name.

    Attributes:
        database_name: The name of the database.
        table_name: The name of the table.
    """

    database_name: str
    table_name: str

    def __post_init__(self) -> None:
        # The server refuses other wrong names; for these it fails without a clear error.
        for kind, name in (("database", self.database_name), ("table", self.table_name)):
            if not isinstance(name, str) or not name:
                raise SchemaError(f"a {kind} name is text and not empty, not {name!r}")

    @classmethod
    def parse(cls, text: str) -> TablePath:
        """Return the path that a `text` of the form `database.table` names."""
        if not isinstance(text, str):
            raise SchemaError(f"{text!r} is not a table path; write database.table")
        database, dot, table = text.partition(".")
        if not dot or not database or not table or "." in table:
            raise SchemaError(f"'{text}' is not a table path; write database.table")
        return cls(database, table)

    def table_path_str(self) -> str:
        """Return `database.table`."""
        return f"{self.database_name}.{self.table_name}"

    def __str__(self) -> str:
        return self.table_path_str()


def check_path(path: object) -> TablePath:
    """Return the path itself, or an error that says what to pass."""
    if not isinstance(path, TablePath):
        raise SchemaError(f"pass a TablePath(database, table), not {path!r}")
    return path


@dataclass(frozen=True, slots=True, init=False, order=True)
class TableBucket:
    """One bucket of a table, or of one of its partitions.

    Attributes:
        table_id: The id of the table.
        bucket: The number of the bucket.
        partition_id: The id of the partition; None for a table without partitions.
    """

    table_id: int
    partition_id: int | None = field(compare=False)
    bucket_id: int
    _order: tuple[int, int, int] = field(repr=False)

    def __init__(self, table_id: int, bucket: int, *, partition_id: int | None = None) -> None:
        object.__setattr__(self, "table_id", table_id)
        object.__setattr__(self, "partition_id", partition_id)
        object.__setattr__(self, "bucket_id", bucket)
        partition = -1 if partition_id is None else partition_id
        object.__setattr__(self, "_order", (table_id, partition, bucket))

    @staticmethod
    def with_partition(table_id: int, partition_id: int, bucket: int) -> TableBucket:
        """Return a bucket of one partition.

        Args:
            table_id: The id of the table.
            partition_id: The id of the partition.
            bucket: The number of the bucket.
        """
        return TableBucket(table_id, bucket, partition_id=partition_id)

    def __repr__(self) -> str:
        partition = "" if self.partition_id is None else f", partition_id={self.partition_id}"
        return f"TableBucket(table_id={self.table_id}{partition}, bucket={self.bucket_id})"

    __str__ = __repr__


@dataclass(frozen=True, init=False)
class TableDescriptor:
    """What `create_table` needs: the schema, and how the table is stored.

    Args:
        schema: The columns and the primary key.
        partition_keys: The partition columns.
        bucket_count: The number of buckets; the server's default if None.
        bucket_keys: The columns that decide the bucket; the primary key by default.
        comment: A comment, or None.
        log_format: ARROW, INDEXED or COMPACTED.
        kv_format: COMPACTED or INDEXED.
        properties: Table options (`table.*`).
        custom_properties: The user's own properties.

    Raises:
        SchemaError: A column does not exist, or the keys do not fit together.
    """

    schema: Schema
    partition_keys: tuple[str, ...]
    bucket_count: int | None
    bucket_keys: tuple[str, ...]
    comment: str | None
    properties: Mapping[str, str]
    custom_properties: Mapping[str, str]

    def __init__(
        self,
        schema: Schema,
        *,
        partition_keys: Sequence[str] | None = None,
        bucket_count: int | None = None,
        bucket_keys: Sequence[str] | None = None,
        comment: str | None = None,
        log_format: str | None = None,
        kv_format: str | None = None,
        properties: Mapping[str, str] | None = None,
        custom_properties: Mapping[str, str] | None = None,
    ) -> None:
        merged = {str(k): _property_text(v) for k, v in (properties or {}).items()}
        for key, value, allowed in (
            (LOG_FORMAT, log_format, _LOG_FORMATS),
            (KV_FORMAT, kv_format, _KV_FORMATS),
        ):
            if value is not None:
                if value.upper() not in allowed:
                    raise SchemaError(f"{key} is one of {', '.join(allowed)}, not '{value}'")
                merged[key] = value.upper()
        custom = {str(k): _property_text(v) for k, v in (custom_properties or {}).items()}
        set_field = object.__setattr__
        set_field(self, "schema", schema)
        set_field(self, "partition_keys", tuple(partition_keys or ()))
        set_field(self, "bucket_count", bucket_count)
        set_field(self, "bucket_keys", tuple(bucket_keys or ()))
        set_field(self, "comment", comment)
        set_field(self, "properties", merged)
        set_field(self, "custom_properties", custom)
        self._check()

    def _check(self) -> None:
        schema = self.schema
        if not isinstance(schema, Schema):
            raise SchemaError(f"TableDescriptor takes a fluss_client.Schema, not {schema!r}")
        for name in (*self.partition_keys, *self.bucket_keys):
            schema.column(name)
        if self.bucket_count is not None and self.bucket_count < 1:
            raise SchemaError(f"bucket_count must be at least 1, not {self.bucket_count}")
        keys = schema.primary_keys
        for name in self.partition_keys:
            if keys and name not in keys:
                raise SchemaError(
                    f"partition column '{name}' must be part of the primary key {list(keys)}"
                )
        for name in self.bucket_keys:
            if name in self.partition_keys:
                raise SchemaError(f"bucket key '{name}' must not be a partition column")
            if keys and name not in keys:
                raise SchemaError(
                    f"bucket key '{name}' must be part of the primary key {list(keys)}"
                )

    def get_schema(self) -> Schema:
        """Return the table's schema."""
        return self.schema


def _property_text(value: object) -> str:
    """Return a property as text; a Python bool is written as Java writes it."""
    return str(value).lower() if isinstance(value, bool) else str(value)


@dataclass(frozen=True)
class TableInfo:
    """A table as the server describes it.

    Attributes:
        table_id: The id of the table. A table that is dropped and created again gets a new one.
        table_path: Its database and name.
        schema_id: The id of its current schema.
        schema: Its current schema.
        partition_keys: The names of the partition columns.
        bucket_keys: The names of the columns that decide the bucket of a row.
        num_buckets: The number of buckets. If the table has partitions: the number of buckets that
            new partitions get; `bucket_count_of` tells how many a partition has.
        properties: The properties that Fluss understands.
        custom_properties: Properties that Fluss stores for you.
        comment: The comment; None for none.
        created_time: When it was created, in milliseconds since 1970.
        modified_time: When it was changed last, in milliseconds since 1970.
        bucket_count_epoch: How often the bucket count was changed; 0 if never, and for servers
            before 1.0.
    """

    table_id: int
    table_path: TablePath
    schema_id: int
    schema: Schema
    partition_keys: tuple[str, ...]
    bucket_keys: tuple[str, ...]
    num_buckets: int
    properties: Mapping[str, str]
    custom_properties: Mapping[str, str]
    comment: str | None = None
    created_time: int = -1
    modified_time: int = -1
    bucket_count_epoch: int = 0

    @property
    def primary_keys(self) -> tuple[str, ...]:
        """The primary key with its partition columns."""
        return self.schema.primary_keys

    @property
    def physical_primary_keys(self) -> tuple[str, ...]:
        """The primary key without partition columns: what a bucket stores as its key."""
        return tuple(k for k in self.schema.primary_keys if k not in self.partition_keys)

    def get_primary_keys(self) -> list[str]:
        """Return the primary-key columns; empty for a log table."""
        return list(self.schema.primary_keys)

    def get_partition_keys(self) -> list[str]:
        """Return the partition columns."""
        return list(self.partition_keys)

    def get_bucket_keys(self) -> list[str]:
        """Return the columns that decide the bucket."""
        return list(self.bucket_keys)

    def has_primary_key(self) -> bool:
        """Return whether this is a primary-key table."""
        return bool(self.schema.primary_keys)

    def is_partitioned(self) -> bool:
        """Return whether the table has partition columns."""
        return bool(self.partition_keys)

    @property
    def takes_late_rows(self) -> bool:
        """Whether rows may be written for partitions that have expired (Fluss 1.0).

        They are in the partition `__historical__`, which is not listed with the others.
        """
        return self.properties.get(_HISTORICAL_ENABLED, "false").lower() == "true"

    def bucket_count_of(self, partition: PartitionInfo | None) -> int:
        """Return how many buckets a partition of this table has.

        Args:
            partition: The partition, as listed after this description was read. None for a table
                without partitions.

        Raises:
            InvalidBucketRoutingError: The table was rescaled, and the server did not say how many
                buckets the partition has.
        """
        if partition is None:
            return self.num_buckets
        if partition.bucket_count is not None:
            return partition.bucket_count
        if self.bucket_count_epoch > 0:
            # The count of the table may not be that of a partition that is older.
            raise InvalidBucketRoutingError(
                f"table {self.table_path} was rescaled, and the server did not say how many "
                f"buckets partition '{partition.partition_name}' has; try again"
            )
        return self.num_buckets

    def check_bucket_counts(self, partitions: Iterable[PartitionInfo]) -> None:
        """Raise an error if a partition has another bucket count than this table.

        Args:
            partitions: Partitions of the table; those without a count are taken.

        Raises:
            RescaledTableError: A partition has another count.
        """
        known = {p.partition_name: p.bucket_count for p in partitions}
        other = {n: c for n, c in known.items() if c is not None and c != self.num_buckets}
        if other:
            raise RescaledTableError(str(self.table_path), self.num_buckets, other)

    def get_schema(self) -> Schema:
        """Return the current schema."""
        return self.schema

    def get_column_names(self) -> list[str]:
        """Return the column names in order."""
        return self.schema.get_column_names()

    def get_column_count(self) -> int:
        """Return the number of columns."""
        return len(self.schema.columns)

    def get_properties(self) -> dict[str, str]:
        """Return the table options (`table.*`)."""
        return dict(self.properties)

    def get_custom_properties(self) -> dict[str, str]:
        """Return the user's own properties."""
        return dict(self.custom_properties)


@dataclass(frozen=True, slots=True)
class PartitionInfo:
    """One partition; a partition that is dropped and created again gets a new id.

    Attributes:
        partition_id: The id of the partition.
        partition_name: Its name: the values of the partition columns, joined by `$`.
        spec: The text of the value of each partition column.
        bucket_count: The number of its buckets, which never changes; None if the server does not
            say (before 1.0). `TableInfo.bucket_count_of` gives it in both cases.
    """

    partition_id: int
    partition_name: str
    spec: Mapping[str, str] = field(default_factory=dict, compare=False)
    bucket_count: int | None = field(default=None, compare=False)


@dataclass(frozen=True, init=False)
class DatabaseDescriptor:
    """The comment and the properties of a database, for `create_database`.

    Attributes:
        comment: The comment; None for none.
        custom_properties: Properties that Fluss stores for you.
    """

    comment: str | None
    custom_properties: Mapping[str, str]

    def __init__(
        self, comment: str | None = None, custom_properties: Mapping[str, str] | None = None
    ) -> None:
        object.__setattr__(self, "comment", comment)
        custom = {str(k): _property_text(v) for k, v in (custom_properties or {}).items()}
        object.__setattr__(self, "custom_properties", custom)

    def get_custom_properties(self) -> dict[str, str]:
        """Return the user's own properties."""
        return dict(self.custom_properties)


@dataclass(frozen=True)
class DatabaseInfo:
    """A database as the server describes it.

    Attributes:
        database_name: The name of the database.
        descriptor: Its comment and properties.
        created_time: When it was created, in milliseconds since 1970.
        modified_time: When it was changed last, in milliseconds since 1970.
    """

    database_name: str
    descriptor: DatabaseDescriptor
    created_time: int
    modified_time: int

    def get_database_descriptor(self) -> DatabaseDescriptor:
        """Return the database's comment and properties."""
        return self.descriptor
