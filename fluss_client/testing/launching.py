"""Chooses ports for the servers, starts the servers in order and stops them in reverse order."""

from __future__ import annotations

import random
import socket
from collections.abc import Mapping, Sequence
from pathlib import Path

from fluss_client.testing.artifacts import ensure_jars
from fluss_client.testing.errors import LocalClusterError
from fluss_client.testing.jars import (
    CATALOG_JARS,
    CATALOG_SERVLET_JARS,
    ICEBERG_JARS,
    S3_PLUGIN_JARS,
    S3_STORE_JARS,
    SERVER_JARS,
    Jar,
)
from fluss_client.testing.java import JavaRuntime, find_java
from fluss_client.testing.processes import spawn
from fluss_client.testing.readiness import wait_until_serving
from fluss_client.testing.server_config import (
    COORDINATOR,
    ZOOKEEPER,
    Layout,
    command_line,
    listeners_of,
    server_names,
    write_config,
)
from fluss_client.testing.services import (
    CATALOG,
    HOST,
    SERVICES,
    STORE,
    choose_secret,
    service_command,
)
from fluss_client.testing.state import REST_LAKE, ClusterState, ServerState, Settings

PLUGINS = ("iceberg", "s3-plugin")
"""What the servers of Fluss load from their folder of plugins."""
_LOWEST = 15_000
_HIGHEST = 32_000
_TRIES_MAX = 1000


def is_free(port: int) -> bool:
    """Return whether a server can listen on `port` now."""
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        # Servers set this option too: closed connections of an earlier run do not block the port.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((HOST, port))
        except OSError:
            return False
    return True


def pick(taken: set[int]) -> int:
    """Return a free port that is not in `taken`, and add it there.

    The port is below the range for outgoing connections. A port of that range could be used by a
    connection while its server is down, and the server could not start again.
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


def choose_ports(state: ClusterState) -> None:
    """Choose a port for each listener of each server that has none yet."""
    settings = state.settings
    taken = {port for server in state.servers.values() for port in server.ports.values()}
    if settings.port is not None:
        taken.add(settings.port)
    for name in server_names(settings):
        server = state.servers.setdefault(name, ServerState(ports={}))
        if name == COORDINATOR and settings.port is not None:
            server.ports["FLUSS"] = settings.port
        for listener in listeners_of(name, settings.sasl):
            if listener not in server.ports:
                server.ports[listener] = pick(taken)
    # The order of their start, also if a service was added to an existing cluster.
    state.servers = {name: state.servers[name] for name in server_names(settings)}
    choose_secret(state)


def start_servers(
    layout: Layout, state: ClusterState, names: Sequence[str], wait_for: Sequence[str]
) -> None:
    """Start `names` and wait until `wait_for` are ready; on any failure stop `names` again."""
    java = find_java()
    wanted = _jars_of(state.settings)
    # All at once: what is missing is fetched by one run of the tool.
    every = list(dict.fromkeys(jar for some in wanted.values() for jar in some))
    paths = dict(zip(every, ensure_jars(every, java), strict=True))
    jars = {use: [paths[jar] for jar in some] for use, some in wanted.items()}
    plugins = {use: jars[use] for use in PLUGINS if use in jars}
    for name in names:
        _check_ports(name, state.servers[name])
    state.save(layout.directory)
    for name in names:
        write_config(layout, state, name, plugins)
    try:
        first = [name for name in names if name in SERVICES or name == ZOOKEEPER]
        for name in first:
            _launch(layout, state, name, java, jars)
        wait_until_serving(layout, state, first)
        for name in names:
            if name not in first:
                _launch(layout, state, name, java, jars)
        wait_until_serving(layout, state, wait_for)
    except BaseException:
        stop_servers(layout, state, names)
        raise


def stop_servers(layout: Layout, state: ClusterState, names: Sequence[str]) -> None:
    """Stop the running servers of `names` one by one, in the reverse order of their start."""
    # Stopped all at once, tablet servers would wait for a coordinator that is gone, and all
    # servers for a ZooKeeper that is gone.
    for name in reversed(names):
        process = state.servers[name].process
        if process is not None:
            process.terminate(name)
            state.servers[name].process = None
            state.save(layout.directory)


def _jars_of(settings: Settings) -> dict[str, tuple[Jar, ...]]:
    """Return the jars that a cluster needs, by their use."""
    wanted: dict[str, tuple[Jar, ...]] = {"server": SERVER_JARS}
    if settings.lake:
        wanted["iceberg"] = ICEBERG_JARS
    if settings.remote:
        wanted |= {"s3-plugin": S3_PLUGIN_JARS, STORE: S3_STORE_JARS}
    if settings.lake == REST_LAKE:
        # Hadoop's file system on S3 needs the other classes of its own version.
        hadoop = S3_PLUGIN_JARS if settings.remote else ()
        wanted[CATALOG] = (*CATALOG_JARS, *hadoop, *ICEBERG_JARS[1:], *CATALOG_SERVLET_JARS)
    return wanted


def _launch(
    layout: Layout,
    state: ClusterState,
    name: str,
    java: JavaRuntime,
    jars: Mapping[str, list[Path]],
) -> None:
    command = (
        service_command(state, name, layout.config(name), java, jars.get(name, []))
        if name in SERVICES
        else command_line(layout, name, java, jars["server"], state.settings.tablet_heap)
    )
    state.servers[name].process = spawn(
        command,
        layout.work(name),
        layout.output(name),
    )
    state.save(layout.directory)


def _check_ports(name: str, server: ServerState) -> None:
    for port in server.ports.values():
        if not is_free(port):
            raise LocalClusterError(
                f"port {port}, which is for {name}, is in use by another process:"
                " stop that one, or choose another with --port, or start over with --fresh"
            )
