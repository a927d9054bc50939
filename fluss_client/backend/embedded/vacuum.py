"""Giving back the room that expired and dropped data took."""

from __future__ import annotations

import sqlite3
from dataclasses import dataclass
from pathlib import Path

from fluss_client.backend.embedded import producer_offsets, writers
from fluss_client.backend.embedded.catalog import Catalog, now_ms
from fluss_client.backend.embedded.database import Database, Settings
from fluss_client.backend.embedded.iceberg import Lake
from fluss_client.backend.embedded.retention import expire_everything, reclaim_step
from fluss_client.backend.embedded.turns import Turns


@dataclass(frozen=True, slots=True)
class Vacuumed:
    """What was reclaimed."""

    batches_expired: int
    bytes_before: int
    bytes_after: int


def vacuum(path: str | Path, settings: Settings | None = None) -> Vacuumed:
    """Drop expired batches, what is left of dropped tables, and forgotten writers; then shrink.

    Other processes may go on reading; writers wait. Blocks, so never call it on an event loop.
    """
    database = Database(Path(path).expanduser().absolute(), settings)
    database.prepare(create=False)
    before = _size(database)
    try:
        connection = database.connect(writer=True)
        try:
            expired = _clean(database, connection)
            database.waiting(lambda: connection.execute("VACUUM"))
            connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
        finally:
            connection.close()
    except sqlite3.Error as error:
        raise database.wrap(error) from error
    return Vacuumed(expired, before, _size(database))


def _clean(database: Database, connection: sqlite3.Connection) -> int:
    turns = Turns(database.file)
    try:
        database.begin(connection, turns)
    finally:
        turns.close()
    try:
        catalog = Catalog(Lake(database.directory).properties)
        expired = expire_everything(connection, catalog, now_ms())
        writers.forget_expired(connection, now_ms())
        producer_offsets.sweep(connection)
        while reclaim_step(connection):
            pass
        connection.execute("COMMIT")
    except BaseException:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise
    return expired


def _size(database: Database) -> int:
    files = (database.file, database.file.with_name(database.file.name + "-wal"))
    return sum(file.stat().st_size for file in files if file.exists())
