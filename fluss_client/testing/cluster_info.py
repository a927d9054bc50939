"""Descriptions of a local cluster: its addresses, and the status of each server."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from fluss_client.testing.jars import FLUSS_VERSION
from fluss_client.testing.readiness import all_serve
from fluss_client.testing.server_config import HOST, ZOOKEEPER, Layout, lake_properties
from fluss_client.testing.state import ClusterState

_STATUS_TIMEOUT_S = 2.0


@dataclass(frozen=True)
class ClusterInfo:
    """The addresses and files of a local cluster.

    Attributes:
        bootstrap_servers: The value of `bootstrap.servers` for plaintext connections.
        sasl_bootstrap_servers: The same for SASL; None without SASL.
        users: The password of each SASL user.
        lake: The properties for PyIceberg's `load_catalog`; None without a lake.
        pids: The process id of each running server, by server name.
        logs: The log file of each server, by server name.
        dir: The directory of the cluster.
        fluss_version: The version of Fluss.
    """

    bootstrap_servers: str
    sasl_bootstrap_servers: str | None
    users: Mapping[str, str]
    lake: Mapping[str, str] | None
    pids: Mapping[str, int]
    logs: Mapping[str, str]
    dir: str
    fluss_version: str

    def to_dict(self) -> dict[str, Any]:
        """Return the fields as plain values, passwords included."""
        return asdict(self)

    def to_json(self) -> str:
        """Return the fields as a JSON object on one line."""
        return json.dumps(self.to_dict())


@dataclass(frozen=True)
class ServerStatus:
    """One server. `state` is running, stopped, or crashed (it was started and has ended)."""

    state: str
    pid: int | None
    ports: Mapping[str, int]
    log: str


@dataclass(frozen=True)
class ClusterStatus:
    """The status of a cluster.

    Attributes:
        state: `running`, `stopped` or `degraded` (only some servers run).
        answering: Whether the cluster's metadata lists every tablet server now.
        bootstrap_servers: The value of `bootstrap.servers`; None if it was never started.
        servers: The status of each server, by name.
        dir: The directory of the cluster.
    """

    state: str
    answering: bool
    bootstrap_servers: str | None
    servers: Mapping[str, ServerStatus]
    dir: str

    def to_json(self) -> str:
        """Return the fields as a JSON object on one line."""
        return json.dumps(asdict(self))


def describe(layout: Layout, state: ClusterState) -> ClusterInfo:
    """Return the addresses and files of a cluster."""
    settings = state.settings
    return ClusterInfo(
        bootstrap_servers=_addresses(state, "FLUSS"),
        sasl_bootstrap_servers=_addresses(state, "SASL") if settings.sasl else None,
        users=dict(state.users) if settings.sasl else {},
        lake=lake_properties(layout) if settings.lake else None,
        pids={
            name: server.process.pid
            for name, server in state.servers.items()
            if server.process is not None and server.is_running
        },
        logs={name: str(layout.log(name)) for name in state.servers},
        dir=str(layout.directory),
        fluss_version=FLUSS_VERSION,
    )


def examine(layout: Layout, state: ClusterState | None) -> ClusterStatus:
    """Return the status of a cluster, from its processes and the answers of its servers."""
    if state is None:
        return ClusterStatus("stopped", False, None, {}, str(layout.directory))
    servers = {}
    for name, server in state.servers.items():
        process = server.process
        running = process is not None and process.is_alive()
        servers[name] = ServerStatus(
            state="running" if running else "stopped" if process is None else "crashed",
            pid=process.pid if process is not None and running else None,
            ports=dict(server.ports),
            log=str(layout.log(name)),
        )
    running_count = sum(server.state == "running" for server in servers.values())
    whole = running_count == len(servers)
    return ClusterStatus(
        state="running" if whole else "degraded" if running_count else "stopped",
        answering=whole and all_serve(state, _STATUS_TIMEOUT_S),
        bootstrap_servers=_addresses(state, "FLUSS"),
        servers=servers,
        dir=str(layout.directory),
    )


def _addresses(state: ClusterState, listener: str) -> str:
    """Return the addresses of one listener: the coordinator first, then the tablet servers."""
    return ",".join(
        f"{HOST}:{server.ports[listener]}"
        for name, server in state.servers.items()
        if name != ZOOKEEPER
    )
