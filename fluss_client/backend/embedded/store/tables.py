"""Databases and tables: created, altered, listed and dropped.

Every function runs inside a transaction of its caller. Comments give the error codes that the
server answers with in the same case.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Sequence
from dataclasses import replace

from fluss_client.backend.contract import DatabaseChange, TableChange
from fluss_client.backend.embedded.store import options, validation
from fluss_client.backend.embedded.store.catalog import (
    Catalog,
    Stored,
    forget_bucket_count_epoch,
    new_stamp,
    now_ms,
    raise_bucket_count_epoch,
    take_number,
)
from fluss_client.backend.embedded.store.layout import BUCKET_NUMBER_MAX, NO_PARTITION
from fluss_client.errors import (
    DatabaseAlreadyExistError,
    DatabaseNotEmptyError,
    DatabaseNotExistError,
    InvalidAlterTableError,
    InvalidConfigError,
    TableAlreadyExistError,
    TableNotExistError,
    TooManyBucketsError,
    UnknownServerError,
)
from fluss_client.model.json import (
    database_from_json,
    database_to_json,
    descriptor_to_json,
    schema_to_json,
)
from fluss_client.model.schema import Column, Schema
from fluss_client.model.table import DatabaseDescriptor, DatabaseInfo, TableDescriptor, TablePath
from fluss_client.model.types import DataType

FIRST_SCHEMA_ID = 1
BUCKET_COUNT_MAX = 4096
"""The default of the server's `max.bucket.num`."""
LakeTable = Callable[[TablePath, TableDescriptor], None]
"""Creates the Iceberg table of a lake-enabled table."""


def create_database(
    connection: sqlite3.Connection,
    name: str,
    descriptor: DatabaseDescriptor | None,
    ignore_if_exists: bool,
) -> None:
    """Create a database; errors 16 for its name, 6 if it exists."""
    validation.check_database_name(name)
    text = database_to_json(descriptor or DatabaseDescriptor()).decode()
    now = now_ms()
    made = connection.execute(
        "INSERT INTO database VALUES (?, ?, ?, ?) ON CONFLICT DO NOTHING", (name, text, now, now)
    ).rowcount
    if not made and not ignore_if_exists:
        raise DatabaseAlreadyExistError(f"database {name} exists already")


def drop_database(
    connection: sqlite3.Connection, name: str, ignore_if_not_exists: bool, cascade: bool
) -> None:
    """Drop a database; errors 4 if it is missing, 5 if it has tables and `cascade` is off."""
    if not database_exists(connection, name):
        if ignore_if_not_exists:
            return
        raise DatabaseNotExistError(f"database {name} does not exist")
    tables = connection.execute("SELECT id FROM tbl WHERE database = ?", (name,)).fetchall()
    if tables and not cascade:
        raise DatabaseNotEmptyError(
            f"database {name} still has {len(tables)} tables: drop them first, or use cascade"
        )
    for (table_id,) in tables:
        forget_table(connection, table_id)
    connection.execute("DELETE FROM database WHERE name = ?", (name,))


def alter_database(
    connection: sqlite3.Connection, name: str, change: DatabaseChange, ignore_if_not_exists: bool
) -> None:
    """Change the properties and the comment of a database; error 4 if it is missing."""
    if not database_exists(connection, name) and ignore_if_not_exists:
        return
    before = get_database_info(connection, name).descriptor
    properties = {**before.custom_properties, **change.set_properties}
    for key in change.reset_properties:
        properties.pop(key, None)
    comment = before.comment if change.comment is None else change.comment
    after = DatabaseDescriptor(comment=comment, custom_properties=properties)
    connection.execute(
        "UPDATE database SET descriptor = ?, modified = ? WHERE name = ?",
        (database_to_json(after).decode(), now_ms(), name),
    )


def list_databases(connection: sqlite3.Connection) -> list[str]:
    """Return the names of all databases."""
    return [name for (name,) in connection.execute("SELECT name FROM database ORDER BY name")]


def database_exists(connection: sqlite3.Connection, name: str) -> bool:
    """Return whether the database exists."""
    row = connection.execute("SELECT 1 FROM database WHERE name = ?", (name,)).fetchone()
    return row is not None


def get_database_info(connection: sqlite3.Connection, name: str) -> DatabaseInfo:
    """Return the description and times of a database; error 4 if it is missing."""
    row = connection.execute(
        "SELECT descriptor, created, modified FROM database WHERE name = ?", (name,)
    ).fetchone()
    if row is None:
        raise DatabaseNotExistError(f"database {name} does not exist")
    return DatabaseInfo(name, database_from_json(row[0]), row[1], row[2])


def create_table(
    connection: sqlite3.Connection,
    path: TablePath,
    descriptor: TableDescriptor,
    ignore_if_exists: bool,
    make_lake_table: LakeTable,
) -> int | None:
    """Create a table and its buckets; return its id, or None if it exists and may.

    Errors come in the server's order: 16 and 15 for names, 17 for replicas, 39, 15 and 49 for the
    description, then what this engine does not support, 4 for the database, 8 if the table exists.
    """
    validation.check_path(path)
    full = validation.completed(descriptor)
    if not full.partition_keys:
        validation.check_replication(full)
    validation.check_descriptor(full)
    validation.check_offered(full)
    if not database_exists(connection, path.database_name):
        raise DatabaseNotExistError(f"database {path.database_name} does not exist")
    if table_exists(connection, path):
        if ignore_if_exists:
            return None
        raise TableAlreadyExistError(f"table {path} exists already")
    if validation.is_lake_enabled(full.properties):
        make_lake_table(path, full)
    now = now_ms()
    table_id = take_number(connection, "next_table_id")
    connection.execute(
        "INSERT INTO tbl VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
        (
            table_id,
            path.database_name,
            path.table_name,
            descriptor_to_json(full).decode(),
            FIRST_SCHEMA_ID,
            now,
            now,
            new_stamp(),
        ),
    )
    _add_schema(connection, table_id, FIRST_SCHEMA_ID, full.schema)
    if not full.partition_keys:
        add_buckets(connection, table_id, NO_PARTITION, full.bucket_count or 1)
    return table_id


def _add_schema(
    connection: sqlite3.Connection, table_id: int, schema_id: int, schema: Schema
) -> None:
    connection.execute(
        "INSERT INTO tbl_schema VALUES (?, ?, ?)",
        (table_id, schema_id, schema_to_json(schema).decode()),
    )


def add_buckets(
    connection: sqlite3.Connection, table_id: int, partition_id: int, count: int
) -> None:
    """Create the empty buckets of a new table or partition."""
    first = take_number(connection, "next_bucket_number", count)
    if first + count > BUCKET_NUMBER_MAX:
        raise TooManyBucketsError("this directory has given out all its bucket numbers")
    connection.executemany(
        "INSERT INTO bucket (no, table_id, partition_id, bucket_id) VALUES (?, ?, ?, ?)",
        [(first + i, table_id, partition_id, i) for i in range(count)],
    )


def drop_table(connection: sqlite3.Connection, path: TablePath, ignore_if_not_exists: bool) -> None:
    """Drop a table with all its data; error 7 if it is missing."""
    row = connection.execute(
        "SELECT id FROM tbl WHERE database = ? AND name = ?",
        (path.database_name, path.table_name),
    ).fetchone()
    if row is None:
        if ignore_if_not_exists:
            return
        raise TableNotExistError(f"table {path} does not exist")
    forget_table(connection, row[0])


def forget_table(connection: sqlite3.Connection, table_id: int) -> None:
    """Delete all metadata of a table. Its rows are reclaimed later (`log.retention`)."""
    connection.execute("INSERT INTO garbage SELECT no FROM bucket WHERE table_id = ?", (table_id,))
    for table in ("bucket", "part", "tbl_schema", "lake_offsets", "lake_snapshot", "lake_tiering"):
        connection.execute(f"DELETE FROM {table} WHERE table_id = ?", (table_id,))
    connection.execute("DELETE FROM tbl WHERE id = ?", (table_id,))
    forget_bucket_count_epoch(connection, table_id)


def list_tables(connection: sqlite3.Connection, database: str) -> list[str]:
    """Return the names of a database's tables; error 4 if the database is missing."""
    if not database_exists(connection, database):
        raise DatabaseNotExistError(f"database {database} does not exist")
    rows = connection.execute("SELECT name FROM tbl WHERE database = ? ORDER BY name", (database,))
    return [name for (name,) in rows]


def table_exists(connection: sqlite3.Connection, path: TablePath) -> bool:
    """Return whether the table exists."""
    row = connection.execute(
        "SELECT 1 FROM tbl WHERE database = ? AND name = ?",
        (path.database_name, path.table_name),
    ).fetchone()
    return row is not None


def alter_table(
    connection: sqlite3.Connection,
    catalog: Catalog,
    path: TablePath,
    change: TableChange,
    ignore_if_not_exists: bool,
    make_lake_table: LakeTable,
) -> None:
    """Set and reset options and add columns; error 7 if the table is missing."""
    validation.check_path(path)
    try:
        stored = catalog.by_path(connection, path)
    except TableNotExistError:
        if ignore_if_not_exists:
            return
        raise
    if change.set_options or change.reset_options:
        _alter_options(connection, stored, change, make_lake_table)
    if change.add_columns:
        _add_columns(connection, stored, change)
    if change.bucket_count is not None:
        _rescale(connection, catalog.by_path(connection, path), change.bucket_count)


def _alter_options(
    connection: sqlite3.Connection,
    stored: Stored,
    change: TableChange,
    make_lake_table: LakeTable,
) -> None:
    before = stored.descriptor
    _check_alterable(before, [*change.set_options, *change.reset_options])
    properties, custom = dict(before.properties), dict(before.custom_properties)
    for key, value in change.set_options.items():
        (properties if key.startswith(options.PREFIX) else custom)[key] = value
    for key in change.reset_options:
        (properties if key.startswith(options.PREFIX) else custom).pop(key, None)
    if properties == before.properties and custom == before.custom_properties:
        return
    after = validation.with_properties(before, properties, custom)
    validation.check_descriptor(after)
    validation.check_offered(after)
    lake_before = validation.is_lake_enabled(before.properties)
    if validation.is_lake_enabled(properties) and not lake_before:
        make_lake_table(stored.info.table_path, after)
    connection.execute(
        "UPDATE tbl SET descriptor = ?, modified = ?, stamp = ? WHERE id = ?",
        (descriptor_to_json(after).decode(), now_ms(), new_stamp(), stored.info.table_id),
    )


def _rescale(connection: sqlite3.Connection, stored: Stored, bucket_count: int) -> None:
    """Set the bucket count of partitions that are created later; error 56 where it is fixed.

    The same count again changes nothing. Partitions that exist keep theirs.
    """
    before, path = stored.descriptor, stored.info.table_path
    if not before.partition_keys:
        raise InvalidAlterTableError(
            f"table {path} has no partitions, so its bucket count is fixed: its rows would have to "
            "be distributed anew. Copy them into a new table"
        )
    if validation.is_lake_enabled(before.properties):
        raise InvalidAlterTableError(
            f"table {path} has an Iceberg table, whose buckets cannot be changed: the bucket count "
            "of such a table is fixed"
        )
    if not 1 <= bucket_count <= BUCKET_COUNT_MAX:
        raise InvalidAlterTableError(
            f"table {path} takes 1 to {BUCKET_COUNT_MAX} buckets, not {bucket_count}"
        )
    if bucket_count == stored.info.num_buckets:
        return
    raise_bucket_count_epoch(connection, stored.info.table_id)
    after = validation.with_bucket_count(before, bucket_count)
    connection.execute(
        "UPDATE tbl SET descriptor = ?, modified = ?, stamp = ? WHERE id = ?",
        (descriptor_to_json(after).decode(), now_ms(), new_stamp(), stored.info.table_id),
    )


def _check_alterable(descriptor: TableDescriptor, keys: list[str]) -> None:
    lake = descriptor.properties.get(options.LAKE_FORMAT)
    for key in keys:
        if key.startswith(options.PREFIX) and key not in options.ALTERABLE:
            raise InvalidAlterTableError(f"the option '{key}' cannot be changed")
        if key == options.LAKE_ENABLED and lake is None:
            raise InvalidAlterTableError(
                f"'{key}' cannot be changed for a table that was made without a lake format"
            )
        if (
            validation.is_lake_enabled(descriptor.properties)
            and lake is not None
            and key.startswith(f"{lake.lower()}.")
        ):
            raise InvalidConfigError(f"'{key}' belongs to the lake table and cannot be changed")


def _add_columns(connection: sqlite3.Connection, stored: Stored, change: TableChange) -> None:
    if validation.is_lake_enabled(stored.descriptor.properties):
        raise UnknownServerError("a table with an Iceberg table behind it takes no new columns")
    schema = with_columns(stored.info.schema, change.add_columns)
    schema_id = stored.info.schema_id + 1
    _add_schema(connection, stored.info.table_id, schema_id, schema)
    connection.execute(
        "UPDATE tbl SET schema_id = ?, stamp = ? WHERE id = ?",
        (schema_id, new_stamp(), stored.info.table_id),
    )


def with_columns(schema: Schema, columns: Sequence[Column]) -> Schema:
    """Return `schema` with columns added at its end.

    New ids continue above the highest id of the schema, nested fields included, so that an id is
    never used for two columns. Raises error 56 for a name that exists, -1 for NOT NULL.
    """
    taken = set(schema.index)
    for column in columns:
        if column.name in taken:
            raise InvalidAlterTableError(f"column '{column.name}' exists already")
        if not column.type.nullable:
            raise UnknownServerError(f"column '{column.name}' must be nullable to be added")
        taken.add(column.name)
    added = Schema.of([replace(column, id=-1) for column in columns])
    shift = schema.highest_field_id + 1
    shifted = [
        replace(column, id=column.id + shift, type=_shifted(column.type, shift))
        for column in added.columns
    ]
    return Schema.of(
        [*schema.columns, *shifted], schema.primary_keys, schema.auto_increment_columns
    )


def _shifted(kind: DataType, shift: int) -> DataType:
    if not kind.is_nested:
        return kind
    fields = tuple(replace(f, id=f.id + shift, type=_shifted(f.type, shift)) for f in kind.fields)
    element = None if kind.element is None else _shifted(kind.element, shift)
    key = None if kind.key is None else _shifted(kind.key, shift)
    return replace(kind, fields=fields, element=element, key=key)
