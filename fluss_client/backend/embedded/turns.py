"""Whose turn it is to write: a lock file that keeps a busy writer from starving the others.

SQLite lets whoever asks first have its write lock, and a writer that has just finished asks
first. So writers queue at this file before they ask SQLite, and leave it once they have the lock:
one that has just finished stands behind the one that waits. The kernel gives the lock up when its
process ends, however it ends.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import random
import stat
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TypeVar

T = TypeVar("T")

FILE_NAME = "fluss.lock"
FIRST_WAIT_S = 0.0002
LONGEST_WAIT_S = 0.002


class Waiting:
    """Short random sleeps until a deadline."""

    def __init__(self, timeout_ms: int) -> None:
        self._deadline = time.monotonic() + timeout_ms / 1000
        self._wait_s = FIRST_WAIT_S

    def over(self) -> bool:
        """Whether the time is up; else a moment has passed."""
        if time.monotonic() >= self._deadline:
            return True
        time.sleep(random.uniform(self._wait_s / 2, self._wait_s))  # noqa: S311
        self._wait_s = min(self._wait_s * 2, LONGEST_WAIT_S)
        return False


class Turns:
    """One writer's place at the lock file."""

    def __init__(self, database: Path) -> None:
        self._database = database
        self._path = database.with_name(FILE_NAME)
        self._file: int | None = None

    @contextlib.contextmanager
    def mine(self, waiting: Waiting) -> Iterator[bool]:
        """Stand first in the queue; False when the time was over before."""
        file = self._opened()
        while not _locked(file):
            if waiting.over():
                yield False
                return
        try:
            yield True
        finally:
            fcntl.flock(file, fcntl.LOCK_UN)

    def _opened(self) -> int:
        if self._file is None:
            # Whoever may write the database may wait for it.
            mode = stat.S_IMODE(self._database.stat().st_mode)
            self._file = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, mode)
        return self._file

    def close(self) -> None:
        """Forget the file; the next turn opens it again."""
        file, self._file = self._file, None
        if file is not None:
            os.close(file)


def _locked(file: int) -> bool:
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
