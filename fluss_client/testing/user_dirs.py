"""The cache and state directories of the user, and safe ways to write and lock files there."""

from __future__ import annotations

import contextlib
import fcntl
import os
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from fluss_client.testing.errors import LocalClusterError

FOLDER = "fluss-orchestrate"
_POLL_S = 0.1


def cache_dir() -> Path:
    """Return the user's cache directory for this project; it may not exist yet."""
    return _base("XDG_CACHE_HOME", ".cache") / FOLDER


def state_dir() -> Path:
    """Return the user's state directory for this project; it may not exist yet."""
    return _base("XDG_STATE_HOME", ".local/state") / FOLDER


def _base(variable: str, below_home: str) -> Path:
    # The XDG specification says that a relative value must be ignored.
    value = os.environ.get(variable, "")
    return Path(value) if os.path.isabs(value) else Path.home() / below_home


def write_atomically(path: Path, content: bytes, mode: int = 0o644) -> None:
    """Replace a file so that a reader sees the old content or the new one, never a part."""
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(content)
            os.fchmod(file.fileno(), mode)
        os.replace(name, path)
    except BaseException:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(name)
        raise


@contextmanager
def file_lock(path: Path, deadline_s: float, doing: str) -> Iterator[None]:
    """Hold an exclusive lock between processes while the block runs.

    The kernel releases the lock when its process ends, so it is never stale.

    Args:
        path: The lock file; it is created if it is missing.
        deadline_s: How long to wait for another process.
        doing: What the holder does, for the error text.

    Raises:
        LocalClusterError: Another process held the lock for longer than `deadline_s`.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        give_up_at = time.monotonic() + deadline_s
        while True:
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if time.monotonic() > give_up_at:
                    raise LocalClusterError(
                        f"another process has been {doing} for more than {deadline_s:.0f} s"
                        f" (it holds {path}): wait for it or stop it"
                    ) from None
                time.sleep(_POLL_S)
        yield
    finally:
        os.close(handle)
