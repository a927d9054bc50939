"""Where this project keeps what outlives a checkout: the user's cache and state directories."""

from __future__ import annotations

import contextlib
import os
import tempfile
from pathlib import Path

FOLDER = "fluss-orchestrate"


def cache_dir() -> Path:
    """The user's cache directory for this project; it may not exist yet."""
    return _base("XDG_CACHE_HOME", ".cache") / FOLDER


def state_dir() -> Path:
    """The user's state directory for this project; it may not exist yet."""
    return _base("XDG_STATE_HOME", ".local/state") / FOLDER


def _base(variable: str, below_home: str) -> Path:
    # The XDG rules say that a relative value is to be ignored.
    value = os.environ.get(variable, "")
    return Path(value) if os.path.isabs(value) else Path.home() / below_home


def write_atomically(path: Path, content: bytes, mode: int = 0o644) -> None:
    """Put `content` at `path` so that a reader sees the old file or the new one, never a part."""
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
