"""Tables: made, changed, described and dropped."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable

from fluss_client.backend.contract import TableChange
from fluss_client.backend.embedded import options as opt
from fluss_client.backend.embedded import validation
from fluss_client.backend.embedded.catalog import (
    Catalog,
    Stored,
    new_stamp,
    now_ms,
    take_number,
)
from fluss_client.backend.embedded.ddl import BUCKET_NUMBER_MAX, NO_PARTITION
from fluss_client.backend.embedded.evolution import with_columns
from fluss_client.errors import (
    DatabaseNotExistError,
    InvalidAlterTableError,
    InvalidConfigError,
    TableAlreadyExistError,
    TableNotExistError,
    TooManyBucketsError,
    UnknownServerError,
)
from fluss_client.model.json import descriptor_to_json, schema_to_json
from fluss_client.model.schema import Schema
from fluss_client.model.table import TableDescriptor, TablePath

FIRST_SCHEMA_ID = 1
LakeTable = Callable[[TablePath, TableDescriptor], None]


def create_table(
    connection: sqlite3.Connection,
    path: TablePath,
    descriptor: TableDescriptor,
    ignore_if_exists: bool,
    make_lake_table: LakeTable,
) -> int | None:
    """Make a table and its buckets; its id, or None when it exists and that is fine.

    Errors in the server's order: 16 and 15 for names, 17 for replicas, 39, 15 and 49 for the
    description, then what this engine lacks, 4 for the database, 8 when the table exists.
    """
    validation.check_path(path)
    full = validation.completed(descriptor)
    if not full.partition_keys:
        validation.check_replication(full)
    validation.check_descriptor(full)
    validation.check_offered(full)
    if (
        connection.execute(
            "SELECT 1 FROM database WHERE name = ?", (path.database_name,)
        ).fetchone()
        is None
    ):
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
    """The buckets of a new table or partition, empty."""
    first = take_number(connection, "next_bucket_number", count)
    if first + count > BUCKET_NUMBER_MAX:
        raise TooManyBucketsError("this directory has given out all its bucket numbers")
    connection.executemany(
        "INSERT INTO bucket (no, table_id, partition_id, bucket_id) VALUES (?, ?, ?, ?)",
        [(first + i, table_id, partition_id, i) for i in range(count)],
    )


def drop_table(connection: sqlite3.Connection, path: TablePath, ignore_if_not_exists: bool) -> None:
    """Remove a table with all its data; error 7 when it is missing."""
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
    """Remove all trace of a table; the rows of its buckets are reclaimed later."""
    connection.execute("INSERT INTO garbage SELECT no FROM bucket WHERE table_id = ?", (table_id,))
    for table in ("bucket", "part", "tbl_schema", "lake_offsets", "lake_snapshot", "lake_tiering"):
        connection.execute(f"DELETE FROM {table} WHERE table_id = ?", (table_id,))
    connection.execute("DELETE FROM tbl WHERE id = ?", (table_id,))


def list_tables(connection: sqlite3.Connection, database: str) -> list[str]:
    """The tables of a database; error 4 when it is missing."""
    found = connection.execute("SELECT 1 FROM database WHERE name = ?", (database,)).fetchone()
    if found is None:
        raise DatabaseNotExistError(f"database {database} does not exist")
    rows = connection.execute("SELECT name FROM tbl WHERE database = ? ORDER BY name", (database,))
    return [name for (name,) in rows]


def table_exists(connection: sqlite3.Connection, path: TablePath) -> bool:
    """Whether there is such a table."""
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
    """Set and reset options, add columns; error 7 when the table is missing."""
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
        (properties if key.startswith(opt.PREFIX) else custom)[key] = value
    for key in change.reset_options:
        (properties if key.startswith(opt.PREFIX) else custom).pop(key, None)
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


def _check_alterable(descriptor: TableDescriptor, keys: list[str]) -> None:
    lake = descriptor.properties.get(opt.LAKE_FORMAT)
    for key in keys:
        if key.startswith(opt.PREFIX) and key not in opt.ALTERABLE:
            raise InvalidAlterTableError(f"the option '{key}' cannot be changed")
        if key == opt.LAKE_ENABLED and lake is None:
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
