"""The database file of one directory: created once, opened by any number of processes.

`threads` closes all connections before a fork, so that a connection is never used in a child
process. Every write begins with `BEGIN IMMEDIATE`: SQLite then takes the write lock at once,
and no transaction fails later because another process wrote first. A directory on a network file
system is refused, because SQLite's locks do not work there.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import sqlite3
import stat
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar
from urllib.parse import quote

from fluss_client.backend.embedded.store import layout
from fluss_client.backend.embedded.store.errors import (
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
from fluss_client.errors import FlussError, UnsupportedError
from fluss_client.net.retry import Backoff

FILE_NAME = "fluss.lock"
PAUSES = Backoff(first_ms=0.2, max_ms=2)


class LockWait:
    """Short random sleeps until a deadline; one object covers both locks of a write."""

    def __init__(self, timeout_ms: int) -> None:
        self._deadline = time.monotonic() + timeout_ms / 1000
        self._attempt = 0

    def timed_out(self) -> bool:
        """Return True after the deadline; before it, sleep once and return False."""
        if time.monotonic() >= self._deadline:
            return True
        PAUSES.pause_blocking(self._attempt)
        self._attempt += 1
        return False


class WriteLock:
    """The lock file that writers of all processes take before they take SQLite's own write lock.

    SQLite gives its write lock to the first process that asks, and a writer that has just finished
    asks first, so one busy writer would starve the others. With this file a waiting writer already
    holds the place before SQLite's lock, and a writer that has just finished has to wait behind it.
    The kernel releases the lock when its process ends, also after a crash. Each connection has its
    own object.
    """

    def __init__(self, database: Path) -> None:
        self._database = database
        self._path = database.with_name(FILE_NAME)
        self._file: int | None = None

    @contextlib.contextmanager
    def acquired(self, wait: LockWait) -> Iterator[bool]:
        """Hold the lock inside the block; yield False if the deadline passed before."""
        file = self._opened()
        while not _try_lock(file):
            if wait.timed_out():
                yield False
                return
        try:
            yield True
        finally:
            fcntl.flock(file, fcntl.LOCK_UN)

    def _opened(self) -> int:
        if self._file is None:
            # The same mode as the database: every user that may write it must be able to lock it.
            mode = stat.S_IMODE(self._database.stat().st_mode)
            self._file = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, mode)
        return self._file

    def close(self) -> None:
        """Close the file; the next use opens it again."""
        file, self._file = self._file, None
        if file is not None:
            os.close(file)


def _try_lock(file: int) -> bool:
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


T = TypeVar("T")

SQLITE_VERSION_MIN = (3, 38, 0)
WAL_BYTES_BEFORE_CHECKPOINT = 32 << 20
WAL_BYTES_KEPT = 64 << 20
WRITER_CACHE_KIB = 64 << 10
READER_CACHE_KIB = 16 << 10
READER_MAP_BYTES = 1 << 30
"""Readers map so much of the file into memory: a read costs a third of a read by system call."""
STATEMENTS_CACHED = 128
DIRECTORY_MODE = 0o700
FILE_MODE = 0o600
"""Modes of a new directory and file. Existing ones keep theirs: the owner may share them."""
_LOCK_CODES = {BUSY, LOCKED}
MOUNTS = Path("/proc/mounts")
NETWORK_TYPES = frozenset(
    {
        *("nfs", "nfs4", "cifs", "smb2", "smb3", "smbfs", "ncpfs", "afs", "9p", "ceph"),
        *("glusterfs", "lustre", "beegfs", "gpfs", "orangefs", "pvfs2", "ocfs2", "gfs2"),
        *("fuse.sshfs", "fuse.s3fs", "fuse.gcsfuse", "fuse.rclone", "fuse.glusterfs"),
        *("fuse.ceph", "fuse.goofys", "fuse.juicefs", "fuse.davfs", "davfs"),
    }
)


@dataclass(frozen=True, slots=True)
class Settings:
    """How SQLite syncs commits, and how long a writer waits for the write lock."""

    synchronous: str = "full"
    lock_timeout_ms: int = 60_000


class Database:
    """The database of one directory. It opens connections and holds none itself."""

    def __init__(self, directory: Path, settings: Settings | None = None) -> None:
        self.directory = directory
        self.settings = settings or Settings()
        self.file = directory / layout.FILE_NAME
        self.read_only = False

    def prepare(self, *, create: bool = True) -> None:
        """Create the directory and the tables if they are missing, and check the format.

        Raises:
            EmbeddedLocationError: The directory cannot be used.
            EmbeddedFormatError: The file has another format, or `create` is off and it is missing.
        """
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
                self.retry_locked(lambda: self._create(connection))
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
        """Create an empty file for its owner alone; SQLite gives its other files the same mode."""
        # If this fails, SQLite fails too and its error says why.
        with contextlib.suppress(OSError):
            os.close(os.open(self.file, os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, FILE_MODE))

    def _create(self, connection: sqlite3.Connection) -> None:
        if _has_tables(connection):
            # SQLite opens a read-only file and begins a transaction on it; only a write fails.
            connection.execute("BEGIN IMMEDIATE")
            try:
                connection.execute("DELETE FROM meta WHERE false")
            finally:
                connection.execute("ROLLBACK")
            return
        connection.execute(f"PRAGMA page_size={layout.PAGE_BYTES}")
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
        for statement in layout.statements():
            connection.execute(statement)
        now = int(time.time() * 1000)
        rows = [("format_version", layout.FORMAT_VERSION_NEW), *layout.COUNTERS.items()]
        connection.executemany("INSERT INTO meta VALUES (?, ?)", rows)
        connection.execute(
            "INSERT INTO database VALUES (?, ?, ?, ?)",
            (layout.DEFAULT_DATABASE, '{"version":1,"custom_properties":{}}', now, now),
        )
        connection.execute(f"PRAGMA application_id={layout.APPLICATION_ID}")

    def _check_format(self, connection: sqlite3.Connection) -> None:
        (mark,) = connection.execute("PRAGMA application_id").fetchone()
        if mark != layout.APPLICATION_ID:
            raise EmbeddedFormatError(f"{self.file} is a SQLite database of another program")
        row = connection.execute("SELECT value FROM meta WHERE name = 'format_version'").fetchone()
        if row is None:
            raise EmbeddedDamageError(f"{self.file} has lost its format version")
        if row[0] > layout.FORMAT_VERSION:
            raise EmbeddedFormatError(
                f"{self.directory} has format version {row[0]}, this version of fluss-orchestrate "
                f"reads up to {layout.FORMAT_VERSION}: upgrade it, nothing was changed"
            )

    def connect(self, *, writer: bool, wait: bool = True) -> sqlite3.Connection:
        """Open a connection for one thread, in autocommit mode; raises SQLite's own errors."""
        # A writer does not wait inside SQLite: `begin` waits, after it took the lock file.
        wait_ms = 0 if writer or not wait else self.settings.lock_timeout_ms
        connection = self._open("ro" if self.read_only else "rw", wait_ms)
        try:
            cache = WRITER_CACHE_KIB if writer else READER_CACHE_KIB
            connection.execute(f"PRAGMA cache_size=-{cache}")
            connection.execute("PRAGMA temp_store=MEMORY")
            if writer:
                pages = WAL_BYTES_BEFORE_CHECKPOINT // layout.PAGE_BYTES
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
            # There is no WAL file and none can be created, so the database file is complete.
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

    def begin(
        self, connection: sqlite3.Connection, write_lock: WriteLock, *, wait: bool = True
    ) -> None:
        """Begin a write transaction; wait for other writers up to the lock timeout if `wait`."""
        if self.read_only:
            raise EmbeddedReadOnlyError(f"{self.directory} can be read but not written")
        lock_wait = LockWait(self.settings.lock_timeout_ms if wait else 0)
        try:
            with write_lock.acquired(lock_wait) as acquired:
                if not acquired:
                    raise locked(str(self.directory))
                self.retry_locked(lambda: connection.execute("BEGIN IMMEDIATE"), lock_wait)
        except PermissionError as error:
            raise EmbeddedReadOnlyError(f"{self.directory} cannot be written: {error}") from error
        except OSError as error:
            raise EmbeddedStorageError(f"{self.directory} cannot be locked: {error}") from error

    def retry_locked(self, attempt: Callable[[], T], lock_wait: LockWait | None = None) -> T:
        """Repeat `attempt` while other processes hold SQLite's lock, up to the lock timeout."""
        lock_wait = lock_wait or LockWait(self.settings.lock_timeout_ms)
        while True:
            try:
                return attempt()
            except sqlite3.OperationalError as error:
                code = getattr(error, "sqlite_errorcode", 0) & 0xFF
                if code not in _LOCK_CODES or lock_wait.timed_out():
                    raise

    def wrap(self, error: sqlite3.Error) -> FlussError:
        """Return the typed error for one of SQLite's errors."""
        return translate(error, str(self.directory))


def _has_tables(connection: sqlite3.Connection) -> bool:
    found = connection.execute(
        "SELECT 1 FROM sqlite_master WHERE type = 'table' AND name = 'meta'"
    ).fetchone()
    return found is not None


def network_type(path: Path, mounts: Path = MOUNTS) -> str | None:
    """Return the type of the network file system that holds `path`; None if local or unknown."""
    try:
        lines = mounts.read_text(encoding="utf-8", errors="surrogateescape").splitlines()
    except OSError:
        return None
    resolved = path.resolve()
    best, kind = -1, ""
    for line in lines:
        fields = line.split(" ")
        if len(fields) < 3:
            continue
        place = Path(_unescaped(fields[1]))
        # Of two mounts on the same path the later one hides the earlier one.
        if resolved.is_relative_to(place) and len(place.parts) >= best:
            best, kind = len(place.parts), fields[2]
    return kind if kind in NETWORK_TYPES else None


def _unescaped(field: str) -> str:
    for code, character in (("\\040", " "), ("\\011", "\t"), ("\\012", "\n"), ("\\134", "\\")):
        field = field.replace(code, character)
    return field
