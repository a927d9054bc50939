"""Databases: names with a description, and a home for tables."""

from __future__ import annotations

import sqlite3

from fluss_client.backend.embedded.catalog import now_ms
from fluss_client.backend.embedded.tables import forget_table
from fluss_client.backend.embedded.validation import check_database_name
from fluss_client.errors import (
    DatabaseAlreadyExistError,
    DatabaseNotEmptyError,
    DatabaseNotExistError,
)
from fluss_client.model.json import database_from_json, database_to_json
from fluss_client.model.table import DatabaseDescriptor, DatabaseInfo


def create_database(
    connection: sqlite3.Connection,
    name: str,
    descriptor: DatabaseDescriptor | None,
    ignore_if_exists: bool,
) -> None:
    """Make a database; errors 16 for its name, 6 when it exists."""
    check_database_name(name)
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
    """Remove a database; errors 4 when it is missing, 5 when it has tables and not `cascade`."""
    if not database_exists(connection, name):
        if ignore_if_not_exists:
            return
        raise DatabaseNotExistError(f"database {name} does not exist")
    tables = connection.execute("SELECT id FROM tbl WHERE database = ?", (name,)).fetchall()
    if tables and not cascade:
        raise DatabaseNotEmptyError(f"database {name} still has {len(tables)} tables")
    for (table_id,) in tables:
        forget_table(connection, table_id)
    connection.execute("DELETE FROM database WHERE name = ?", (name,))


def list_databases(connection: sqlite3.Connection) -> list[str]:
    """All names."""
    return [name for (name,) in connection.execute("SELECT name FROM database ORDER BY name")]


def database_exists(connection: sqlite3.Connection, name: str) -> bool:
    """Whether there is such a database."""
    row = connection.execute("SELECT 1 FROM database WHERE name = ?", (name,)).fetchone()
    return row is not None


def get_database_info(connection: sqlite3.Connection, name: str) -> DatabaseInfo:
    """A database's description and times; error 4 when it is missing."""
    row = connection.execute(
        "SELECT descriptor, created, modified FROM database WHERE name = ?", (name,)
    ).fetchone()
    if row is None:
        raise DatabaseNotExistError(f"database {name} does not exist")
    return DatabaseInfo(name, database_from_json(row[0]), row[1], row[2])
