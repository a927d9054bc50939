"""Temporary folders that do not stay behind when a process is killed.

Each folder has a lock file, which the operating system unlocks when its process ends. The next
process that makes a folder deletes those whose process is gone.
"""

from __future__ import annotations

import contextlib
import fcntl
import shutil
import tempfile
import time
from pathlib import Path
from typing import IO

from fluss_client.errors import StorageError

FOLDER_PREFIX = "fluss-state-"
LOCK_FILE = "in-use"
ATTEMPTS_MAX = 10
YOUNG_S = 60.0
"""A folder without a lock file that is younger than this is being made by another process."""


class TemporaryFolder:
    """A new folder, locked by this process until `close`. Making and closing one blocks.

    Args:
        base: Where to make it; the empty text is the temporary folder of the system.

    Raises:
        StorageError: The folder cannot be made.
    """

    def __init__(self, base: str) -> None:
        parent = Path(base or tempfile.gettempdir())
        try:
            parent.mkdir(parents=True, exist_ok=True)
            sweep(parent)
            self.path, self._lock = _locked_folder(parent)
        except OSError as error:
            raise StorageError(
                f"cannot make a temporary folder in {parent}: {error}; set scanner.state.folder to "
                "a folder that can be written"
            ) from error

    def close(self) -> None:
        """Delete the folder with all its files. May be called more than once."""
        shutil.rmtree(self.path, ignore_errors=True)
        self._lock.close()


def _locked_folder(parent: Path) -> tuple[Path, IO[bytes]]:
    """Make a folder and lock it. The lock ends when the file is closed."""
    for _ in range(ATTEMPTS_MAX):
        path = Path(tempfile.mkdtemp(prefix=FOLDER_PREFIX, dir=parent))
        try:
            lock = open(path / LOCK_FILE, "wb")  # noqa: SIM115 (held until it is closed)
        except OSError:
            path.rmdir()
            raise
        if _lock(lock) and (path / LOCK_FILE).exists():
            return path, lock
        # Another process swept between the two calls, and took the folder for a dead one's.
        lock.close()
    raise OSError(f"{ATTEMPTS_MAX} new folders were deleted by other processes at once")


def _lock(file: IO[bytes]) -> bool:
    """Lock a file if no other process has locked it."""
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def sweep(base: Path) -> None:
    """Delete the folders of processes that are gone."""
    for folder in base.glob(f"{FOLDER_PREFIX}*"):
        # Folders of other users cannot be opened; others may be deleted at this moment.
        with contextlib.suppress(OSError):
            try:
                with open(folder / LOCK_FILE, "rb") as lock:
                    if _lock(lock):
                        shutil.rmtree(folder, ignore_errors=True)
            except FileNotFoundError:
                if time.time() - folder.stat().st_mtime > YOUNG_S:
                    shutil.rmtree(folder, ignore_errors=True)
