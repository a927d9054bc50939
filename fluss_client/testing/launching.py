"""Giving servers ports, starting them in order, and stopping them in the opposite order."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from fluss_client.testing.artifacts import ensure_jars
from fluss_client.testing.errors import LocalClusterError
from fluss_client.testing.jars import ICEBERG_JARS, SERVER_JARS
from fluss_client.testing.java import JavaRuntime, find_java
from fluss_client.testing.ports import is_free, pick
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
from fluss_client.testing.state import ClusterState, ServerState


def choose_ports(state: ClusterState) -> None:
    """Give each server that the settings ask for the ports that it does not have yet."""
    settings = state.settings
    taken = {port for server in state.servers.values() for port in server.ports.values()}
    if settings.port is not None:
        taken.add(settings.port)
    for name in server_names(settings.tablet_servers):
        server = state.servers.setdefault(name, ServerState(ports={}))
        if name == COORDINATOR and settings.port is not None:
            server.ports["FLUSS"] = settings.port
        for listener in listeners_of(name, settings.sasl):
            if listener not in server.ports:
                server.ports[listener] = pick(taken)


def start_servers(
    layout: Layout, state: ClusterState, names: Sequence[str], wait_for: Sequence[str]
) -> None:
    """Start `names` and wait until `wait_for` serve; on any failure `names` are stopped again."""
    java = find_java()
    class_path = ensure_jars(SERVER_JARS, java)
    plugins = ensure_jars(ICEBERG_JARS, java) if state.settings.lake else []
    for name in names:
        _check_ports(name, state.servers[name])
    state.save(layout.directory)
    for name in names:
        write_config(layout, state, name, plugins)
    try:
        if ZOOKEEPER in names:
            _launch(layout, state, ZOOKEEPER, java, class_path)
            wait_until_serving(layout, state, [ZOOKEEPER])
        for name in names:
            if name != ZOOKEEPER:
                _launch(layout, state, name, java, class_path)
        wait_until_serving(layout, state, wait_for)
    except BaseException:
        stop_servers(layout, state, names)
        raise


def stop_servers(layout: Layout, state: ClusterState, names: Sequence[str]) -> None:
    """Stop those of `names` that run: tablet servers, coordinator, ZooKeeper, each waited for."""
    # Told all at once, tablet servers would wait for a coordinator that is gone, and everybody
    # for a ZooKeeper that is gone.
    for name in reversed(names):
        process = state.servers[name].process
        if process is not None:
            process.terminate(name)
            state.servers[name].process = None
            state.save(layout.directory)


def _launch(
    layout: Layout, state: ClusterState, name: str, java: JavaRuntime, class_path: list[Path]
) -> None:
    state.servers[name].process = spawn(
        command_line(layout, name, java, class_path), layout.work(name), layout.output(name)
    )
    state.save(layout.directory)


def _check_ports(name: str, server: ServerState) -> None:
    for port in server.ports.values():
        if not is_free(port):
            raise LocalClusterError(
                f"port {port}, which is for {name}, is in use by another process:"
                " stop that one, or choose another with --port, or start over with --fresh"
            )
