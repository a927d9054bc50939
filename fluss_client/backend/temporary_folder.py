"""Temporary folders that do not stay behind when a process is killed.

Each folder has a lock file, which the operating system unlocks when its process ends. The next
process that makes a folder deletes those whose process is gone.
"""

from __future__ import annotations

import contextlib
import fcntl
import shutil
import tempfile
from pathlib import Path

from fluss_client.errors import StorageError

FOLDER_PREFIX = "fluss-state-"
LOCK_FILE = "in-use"


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
            self.path = Path(tempfile.mkdtemp(prefix=FOLDER_PREFIX, dir=parent))
            self._lock = open(self.path / LOCK_FILE, "wb")  # noqa: SIM115 (held until `close`)
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            raise StorageError(
                f"cannot make a temporary folder in {parent}: {error}; set scanner.state.folder to "
                "a folder that can be written"
            ) from error

    def close(self) -> None:
        """Delete the folder with all its files. May be called more than once."""
        shutil.rmtree(self.path, ignore_errors=True)
        self._lock.close()


def sweep(base: Path) -> None:
    """Delete the folders of processes that are gone."""
    for folder in base.glob(f"{FOLDER_PREFIX}*"):
        # A folder without a lock file is being made at this moment, or is somebody else's.
        with contextlib.suppress(OSError), open(folder / LOCK_FILE, "rb") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            shutil.rmtree(folder, ignore_errors=True)
