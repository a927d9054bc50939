"""Waiting until servers serve, and telling why when they do not."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Collection
from pathlib import Path

from fluss_client.testing.errors import ServerStartError
from fluss_client.testing.probe import NotServingError, ask_metadata, zookeeper_serves
from fluss_client.testing.server_config import COORDINATOR, ZOOKEEPER, Layout, tablet_name
from fluss_client.testing.state import ClusterState

START_DEADLINE_S = 180.0
LOG_TAIL_LINES = 20
_ASK_TIMEOUT_S = 5.0
_POLL_S = 0.1


def serves(state: ClusterState, name: str, timeout_s: float = _ASK_TIMEOUT_S) -> bool:
    """Whether server `name` answers now.

    A coordinator or tablet server counts when its metadata lists all of them that run, at the
    ports where they listen. While no coordinator runs nobody can tell it, and any answer counts.
    """
    ports = state.servers[name].ports
    if name == ZOOKEEPER:
        return zookeeper_serves(ports["CLIENT"], timeout_s)
    try:
        metadata = ask_metadata(ports["FLUSS"], timeout_s)
    except NotServingError:
        return False
    if not state.servers[COORDINATOR].is_running:
        return True
    listed = {(tablet_name(node.node_id), node.port) for node in metadata.tablet_servers}
    if metadata.HasField("coordinator_server"):
        listed.add((COORDINATOR, metadata.coordinator_server.port))
    return listed >= {
        (other, server.ports["FLUSS"])
        for other, server in state.servers.items()
        if other != ZOOKEEPER and server.is_running
    }


def all_serve(state: ClusterState, timeout_s: float = _ASK_TIMEOUT_S) -> bool:
    """Whether every server of the cluster runs and answers now."""
    return all(server.is_running for server in state.servers.values()) and all(
        serves(state, name, timeout_s) for name in state.servers
    )


def wait_until_serving(layout: Layout, state: ClusterState, names: Collection[str]) -> None:
    """Return when all of `names` serve; `ServerStartError` when one ends or the time is over."""
    waiting = list(names)
    give_up_at = time.monotonic() + START_DEADLINE_S
    while True:
        for name in names:
            if not state.servers[name].is_running:
                raise start_error(layout, name, "ended while the cluster was starting")
        waiting = [name for name in waiting if not serves(state, name)]
        if not waiting:
            return
        if time.monotonic() > give_up_at:
            raise start_error(layout, waiting[0], f"was not ready after {START_DEADLINE_S:.0f} s")
        time.sleep(_POLL_S)


def start_error(layout: Layout, name: str, what: str) -> ServerStartError:
    """The error for server `name`, with the last lines that it wrote."""
    # A server that cannot even begin says so on its output, and its log may be an older one's.
    printed = log_tail(layout.output(name), LOG_TAIL_LINES)
    logged = log_tail(layout.log(name), LOG_TAIL_LINES)
    return ServerStartError(
        f"{name} {what}: see the last lines above, or all of them in {layout.log(name)}",
        server=name,
        log_tail=(*logged, *printed),
    )


def log_tail(path: Path, lines_max: int) -> tuple[str, ...]:
    """The last lines of a log; empty when there is none."""
    try:
        with path.open(errors="replace") as file:
            return tuple(line.rstrip("\n") for line in deque(file, maxlen=lines_max))
    except FileNotFoundError:
        return ()
