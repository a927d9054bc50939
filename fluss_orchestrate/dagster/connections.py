"""Connections of this process, shared by every resource that asks for the same one.

Dagster makes a resource anew for each step and copies it where it is nested; a sensor's process
lives for days. So connections belong to the process and not to the resource: the first use opens
one, a forked child opens its own, and the interpreter's exit closes them.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Mapping

from fluss_client import Config, FlussConnection

CONNECT_TIMEOUT_S = 120.0

_lock = threading.Lock()
_open: dict[tuple[int, tuple[tuple[str, str], ...]], FlussConnection] = {}


def shared_connection(settings: Mapping[str, str]) -> FlussConnection:
    """The process's connection with these settings, opened when nobody did before."""
    key = (os.getpid(), tuple(sorted(settings.items())))
    with _lock:
        found = _open.get(key)
        if found is None or found.core.closed:
            config = Config(dict(settings))
            found = _open[key] = FlussConnection.create(config).result(CONNECT_TIMEOUT_S)
        return found


def close_connections() -> int:
    """Close every connection of this process, as tests want to; how many there were."""
    with _lock:
        mine = [key for key in _open if key[0] == os.getpid()]
        for key in mine:
            _open.pop(key).close()
        _open.clear()
    return len(mine)


# A fork while another thread opens a connection must not leave the child with a held lock.
os.register_at_fork(
    before=_lock.acquire, after_in_parent=_lock.release, after_in_child=_lock.release
)
