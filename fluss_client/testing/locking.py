"""A lock between processes, held on a file for as long as a block runs."""

from __future__ import annotations

import fcntl
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from fluss_client.testing.errors import LocalClusterError

_POLL_S = 0.1


@contextmanager
def file_lock(path: Path, deadline_s: float, doing: str) -> Iterator[None]:
    """Hold `path` alone. The system frees it when its holder dies, so it is never stale.

    Raises `LocalClusterError` when another process holds it for longer than `deadline_s`.
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
