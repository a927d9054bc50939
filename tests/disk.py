"""A disk without room, as the system tells it to a process that may write no larger files."""

from __future__ import annotations

import resource
from collections.abc import Iterator
from contextlib import contextmanager

FILE_BYTES_MAX = 64 << 10


@contextmanager
def full_disk(pid: int = 0, file_bytes_max: int = FILE_BYTES_MAX) -> Iterator[None]:
    """A process, by default this one, can write no file of more than `file_bytes_max`."""
    soft, hard = resource.prlimit(pid, resource.RLIMIT_FSIZE)
    resource.prlimit(pid, resource.RLIMIT_FSIZE, (file_bytes_max, hard))
    try:
        yield
    finally:
        resource.prlimit(pid, resource.RLIMIT_FSIZE, (soft, hard))
