"""The lock file that writers of all processes take before they take SQLite's own write lock.

SQLite gives its write lock to the first process that asks, and a writer that has just finished
asks first, so one busy writer would starve the others. With this file a waiting writer already
holds the place before SQLite's lock, and a writer that has just finished has to wait behind it.
The kernel releases the lock when its process ends, also after a crash.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import stat
import time
from collections.abc import Iterator
from pathlib import Path

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
    """The lock file of one database, as one connection uses it."""

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
