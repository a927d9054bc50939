"""Choosing ports on the loopback interface."""

from __future__ import annotations

import random
import socket
from pathlib import Path

from fluss_client.testing.errors import LocalClusterError
from fluss_client.testing.probe import HOST

_LOWEST = 15_000
_HIGHEST = 32_000
_TRIES_MAX = 1000


def is_free(port: int) -> bool:
    """Whether a server can listen on `port` now."""
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        # As servers do: connections of an earlier run that linger do not count.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((HOST, port))
        except OSError:
            return False
    return True


def pick(taken: set[int]) -> int:
    """A free port that is not in `taken`, and adds it there.

    It lies below the ports that the system gives to outgoing connections: one of those could
    take it while its server is down, and the server could not come back.
    """
    highest = min(_HIGHEST, _outgoing_from() - 1)
    for _ in range(_TRIES_MAX):
        port = random.randint(min(_LOWEST, highest - 1000), highest)  # noqa: S311
        if port not in taken and is_free(port):
            taken.add(port)
            return port
    raise LocalClusterError(f"no free port was found on {HOST} in {_TRIES_MAX} tries")


def _outgoing_from() -> int:
    try:
        text = Path("/proc/sys/net/ipv4/ip_local_port_range").read_text()
        return max(int(text.split()[0]), 2048)
    except (OSError, ValueError):
        return _HIGHEST
