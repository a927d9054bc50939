"""The database file of one directory: made once, opened by any number of processes.

A connection is never older than its process: `lanes` closes all of them before a fork. Every
write is `BEGIN IMMEDIATE`, so that two writers never find out late that they collide.
"""

from __future__ import annotations

import contextlib
import os
import sqlite3
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar
from urllib.parse import quote

from fluss_client.backend.embedded import ddl
from fluss_client.backend.embedded.errors import (
    BUSY,
    LOCKED,
    EmbeddedDamageError,
    EmbeddedFormatError,
    EmbeddedLocationError,
    EmbeddedReadOnlyError,
    EmbeddedStorageError,
    locked,
    translate,
)
from fluss_client.backend.embedded.mounts import network_type
from fluss_client.backend.embedded.turns import Turns, Waiting
from fluss_client.errors import FlussError, UnsupportedError

T = TypeVar("T")

SQLITE_VERSION_MIN = (3, 38, 0)
WAL_BYTES_BEFORE_CHECKPOINT = 32 << 20
WAL_BYTES_KEPT = 64 << 20
WRITER_CACHE_KIB = 64 << 10
READER_CACHE_KIB = 16 << 10
READER_MAP_BYTES = 1 << 30
"""So much of the file is read through a memory map, at a third of the cost."""
STATEMENTS_CACHED = 128
DIRECTORY_MODE = 0o700
FILE_MODE = 0o600
"""Modes of what is made new. What is there keeps its own: its owner may share it on purpose."""
_LOCK_CODES = {BUSY, LOCKED}


@dataclass(frozen=True, slots=True)
class Settings:
    """How a directory is used."""

    synchronous: str = "full"
    lock_timeout_ms: int = 60_000


class Database:
    """One directory. Holds no connection itself."""

    def __init__(self, directory: Path, settings: Settings | None = None) -> None:
        self.directory = directory
        self.settings = settings or Settings()
        self.file = directory / ddl.FILE_NAME
        self.read_only = False

    def prepare(self, *, create: bool = True) -> None:
        """Make the directory and its tables where they are missing; refuse what cannot be used."""
        if sqlite3.sqlite_version_info < SQLITE_VERSION_MIN:
            raise UnsupportedError(
                f"the embedded engine needs SQLite {'.'.join(map(str, SQLITE_VERSION_MIN))} or "
                f"newer; this Python has {sqlite3.sqlite_version}"
            )
        self._check_place()
        if create:
            try:
                self.directory.parent.mkdir(parents=True, exist_ok=True)
                self.directory.mkdir(mode=DIRECTORY_MODE, exist_ok=True)
            except OSError as error:
                raise EmbeddedLocationError(f"{self.directory} cannot be made: {error}") from error
        elif not self.file.exists():
            raise EmbeddedFormatError(f"{self.directory} holds no embedded database")
        try:
            connection = self._first_connection()
        except sqlite3.Error as error:
            raise translate(error, str(self.directory)) from error
        try:
            self._check_format(connection)
        except sqlite3.Error as error:
            raise translate(error, str(self.directory)) from error
        finally:
            connection.close()

    def _check_place(self) -> None:
        kind = network_type(self.directory)
        if kind is not None:
            raise EmbeddedLocationError(
                f"{self.directory} lies on a network file system ({kind}), where several "
                "processes cannot share a SQLite database safely: choose a local disk"
            )
        if self.directory.exists() and not self.directory.is_dir():
            raise EmbeddedLocationError(f"{self.directory} is not a directory")

    def _first_connection(self) -> sqlite3.Connection:
        self._make_file()
        try:
            connection = self._open("rwc", 0)
            try:
                self.waiting(lambda: self._create(connection))
            except BaseException:
                connection.close()
                raise
            return connection
        except sqlite3.Error as error:
            refused = translate(error, str(self.directory))
            readable = (EmbeddedReadOnlyError, EmbeddedLocationError)
            if not isinstance(refused, readable) or not self.file.exists():
                raise
        self.read_only = True
        return self._open("ro", self.settings.lock_timeout_ms)

    def _make_file(self) -> None:
        """Make an empty file for its owner alone; SQLite gives the files beside it its mode."""
        # Where it cannot be made, SQLite says why.
        with contextlib.suppress(OSError):
            os.close(os.open(self.file, os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, FILE_MODE))

    def _create(self, connection: sqlite3.Connection) -> None:
        if _has_tables(connection):
            # SQLite opens a file that it may not write, and begins; the first write tells.
            connection.execute("BEGIN IMMEDIATE")
            try:
                connection.execute("DELETE FROM meta WHERE false")
            finally:
                connection.execute("ROLLBACK")
            return
        connection.execute(f"PRAGMA page_size={ddl.PAGE_BYTES}")
        connection.execute("PRAGMA journal_mode=WAL").fetchone()
        connection.execute("BEGIN IMMEDIATE")
        try:
            if not _has_tables(connection):
                self._fill(connection)
            connection.execute("COMMIT")
        except BaseException:
            if connection.in_transaction:
                connection.execute("ROLLBACK")
            raise

    def _fill(self, connection: sqlite3.Connection) -> None:
        for statement in ddl.statements():
            connection.execute(statement)
        now = int(time.time() * 1000)
        rows = [("format_version", ddl.FORMAT_VERSION), *ddl.COUNTERS.items()]
        connection.executemany("INSERT INTO meta VALUES (?, ?)", rows)
        connection.execute(
            "INSERT INTO database VALUES (?, ?, ?, ?)",
            (ddl.DEFAULT_DATABASE, '{"version":1,"custom_properties":{}}', now, now),
        )
        connection.execute(f"PRAGMA application_id={ddl.APPLICATION_ID}")

    def _check_format(self, connection: sqlite3.Connection) -> None:
        (mark,) = connection.execute("PRAGMA application_id").fetchone()
        if mark != ddl.APPLICATION_ID:
            raise EmbeddedFormatError(f"{self.file} is a SQLite database of another program")
        row = connection.execute("SELECT value FROM meta WHERE name = 'format_version'").fetchone()
        if row is None:
            raise EmbeddedDamageError(f"{self.file} has lost its format version")
        if row[0] > ddl.FORMAT_VERSION:
            raise EmbeddedFormatError(
                f"{self.directory} has format version {row[0]}, this version of fluss-orchestrate "
                f"reads up to {ddl.FORMAT_VERSION}: upgrade it, nothing was changed"
            )

    def connect(self, *, writer: bool, wait: bool = True) -> sqlite3.Connection:
        """A connection of its own for one thread; autocommit, errors not yet translated."""
        # A writer waits by itself, see `begin`.
        wait_ms = 0 if writer or not wait else self.settings.lock_timeout_ms
        connection = self._open("ro" if self.read_only else "rw", wait_ms)
        try:
            cache = WRITER_CACHE_KIB if writer else READER_CACHE_KIB
            connection.execute(f"PRAGMA cache_size=-{cache}")
            connection.execute("PRAGMA temp_store=MEMORY")
            if writer:
                pages = WAL_BYTES_BEFORE_CHECKPOINT // ddl.PAGE_BYTES
                connection.execute(f"PRAGMA wal_autocheckpoint={pages}").fetchone()
                connection.execute(f"PRAGMA journal_size_limit={WAL_BYTES_KEPT}").fetchone()
                connection.execute(f"PRAGMA synchronous={self.settings.synchronous}")
            else:
                connection.execute("PRAGMA query_only=ON")
                connection.execute(f"PRAGMA mmap_size={READER_MAP_BYTES}").fetchone()
        except BaseException:
            connection.close()
            raise
        return connection

    def _open(self, mode: str, wait_ms: int) -> sqlite3.Connection:
        address = f"file:{quote(str(self.file.absolute()))}?mode={mode}"
        if mode == "ro" and self._nothing_beside():
            # Files beside the database can neither be made nor are they there: it is everything.
            address += "&immutable=1"
        return sqlite3.connect(
            address,
            uri=True,
            timeout=wait_ms / 1000,
            isolation_level=None,
            check_same_thread=False,
            cached_statements=STATEMENTS_CACHED,
        )

    def _nothing_beside(self) -> bool:
        if os.access(self.directory, os.W_OK, effective_ids=os.access in os.supports_effective_ids):
            return False
        log = self.file.with_name(self.file.name + "-wal")
        return not log.exists() or log.stat().st_size == 0

    def begin(self, connection: sqlite3.Connection, turns: Turns, *, wait: bool = True) -> None:
        """Start a write; waits for other writers up to the lock timeout, or not at all."""
        if self.read_only:
            raise EmbeddedReadOnlyError(f"{self.directory} can be read but not written")
        waiting = Waiting(self.settings.lock_timeout_ms if wait else 0)
        try:
            with turns.mine(waiting) as mine:
                if not mine:
                    raise locked(str(self.directory))
                self.waiting(lambda: connection.execute("BEGIN IMMEDIATE"), waiting)
        except PermissionError as error:
            raise EmbeddedReadOnlyError(f"{self.directory} cannot be written: {error}") from error
        except OSError as error:
            raise EmbeddedStorageError(f"{self.directory} cannot be locked: {error}") from error

    def waiting(self, attempt: Callable[[], T], waiting: Waiting | None = None) -> T:
        """Repeat an attempt while others hold SQLite's lock, up to the lock timeout."""
        waiting = waiting or Waiting(self.settings.lock_timeout_ms)
        while True:
            try:
                return attempt()
            except sqlite3.OperationalError as error:
                code = getattr(error, "sqlite_errorcode", 0) & 0xFF
                if code not in _LOCK_CODES or waiting.over():
                    raise

    def wrap(self, error: sqlite3.Error) -> FlussError:
        """The typed error for one of SQLite's."""
        return translate(error, str(self.directory))


def _has_tables(connection: sqlite3.Connection) -> bool:
    found = connection.execute(
        "SELECT 1 FROM sqlite_master WHERE type = 'table' AND name = 'meta'"
    ).fetchone()
    return found is not None
