"""Deletes expired and dropped data and shrinks the database file."""

from __future__ import annotations

import sqlite3
from dataclasses import dataclass
from pathlib import Path

from fluss_client.backend.embedded.lake import producer_offsets
from fluss_client.backend.embedded.lake.iceberg import Lake
from fluss_client.backend.embedded.log.appends import forget_expired
from fluss_client.backend.embedded.log.retention import expire_everything, reclaim_step
from fluss_client.backend.embedded.store.catalog import Catalog, now_ms
from fluss_client.backend.embedded.store.database import Database, Settings
from fluss_client.backend.embedded.store.write_lock import WriteLock


@dataclass(frozen=True, slots=True)
class Vacuumed:
    """The result of a vacuum: the number of deleted batches, the size before and after."""

    batches_expired: int
    bytes_before: int
    bytes_after: int


def vacuum(path: str | Path, settings: Settings | None = None) -> Vacuumed:
    """Delete expired batches, rows of dropped tables and expired writers; then shrink the file.

    Other processes may read meanwhile; writers wait. Blocks, so never call it on an event loop.

    Args:
        path: The directory.
        settings: How to open it; the default waits up to a minute for the write lock.

    Returns:
        What was deleted, and the size before and after.

    Raises:
        EmbeddedLockedError: Other processes were writing for longer than the lock timeout.
    """
    database = Database(Path(path).expanduser().absolute(), settings)
    database.prepare(create=False)
    before = _size(database)
    try:
        connection = database.connect(writer=True)
        try:
            expired = _clean(database, connection)
            database.retry_locked(lambda: connection.execute("VACUUM"))
            connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
        finally:
            connection.close()
    except sqlite3.Error as error:
        raise database.wrap(error) from error
    return Vacuumed(expired, before, _size(database))


def _clean(database: Database, connection: sqlite3.Connection) -> int:
    write_lock = WriteLock(database.file)
    try:
        database.begin(connection, write_lock)
    finally:
        write_lock.close()
    try:
        catalog = Catalog(Lake(database.directory).properties)
        expired = expire_everything(connection, catalog, now_ms())
        forget_expired(connection, now_ms())
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
