"""`LocalCluster`: a real Fluss cluster on the loopback interface of this machine; its status."""

from __future__ import annotations

import json
import os
import secrets
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from fluss_client.testing.errors import LocalClusterError
from fluss_client.testing.jars import FLUSS_VERSION
from fluss_client.testing.launching import choose_ports, start_servers, stop_servers
from fluss_client.testing.readiness import all_serve, wait_until_serving
from fluss_client.testing.server_config import Layout, lake_properties
from fluss_client.testing.services import BUCKET, HOST, TOKENS, set_token_life, storage_of
from fluss_client.testing.state import (
    LOCK_FILE,
    ClusterState,
    Settings,
    claim,
    load_state,
    wipe,
)
from fluss_client.testing.user_dirs import file_lock, state_dir

_STATUS_TIMEOUT_S = 2.0
LOCK_DEADLINE_S = 300.0
USERS = ("admin", "alice")


@dataclass(frozen=True)
class ClusterInfo:
    """The addresses and files of a local cluster.

    Attributes:
        bootstrap_servers: The value of `bootstrap.servers` for plaintext connections.
        sasl_bootstrap_servers: The same for SASL; None without SASL.
        users: The password of each SASL user.
        lake: The properties for PyIceberg's `load_catalog`; None without a lake.
        storage: The properties of the remote storage, its secret included; None on a local disk.
        bucket: The URI of the bucket of the remote storage; None on a local disk.
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
    storage: Mapping[str, str] | None = None
    bucket: str | None = None

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
        lake=lake_properties(layout, state) if settings.lake else None,
        pids={
            name: server.process.pid
            for name, server in state.servers.items()
            if server.process is not None and server.is_running
        },
        logs={name: str(layout.log(name)) for name in state.servers},
        dir=str(layout.directory),
        fluss_version=FLUSS_VERSION,
        storage=storage_of(state) if settings.remote else None,
        bucket=f"s3://{BUCKET}" if settings.remote else None,
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
        for server in state.servers.values()
        if listener in server.ports
    )


class LocalCluster:
    """ZooKeeper, a coordinator and tablet servers, with all their files in one directory.

    Data and ports are kept from `down` to the next `up`. Every method may be called from any
    process: a lock file lets one work at a time. As a context manager, the cluster is up inside the
    block and down after it.

    Args:
        directory: The directory of the cluster; None uses the user's state directory.
        tablet_servers: The number of tablet servers, 1 by default.
        sasl: Whether there is a SASL listener with the users `admin` and `alice`.
        lake: `iceberg` (its catalog in SQLite), `iceberg-rest` (a REST catalog), or None for no
            lake.
        port: The port of the coordinator; None chooses a free one.
        config: More configuration of the servers.
        tablet_heap: The Java heap of each tablet server, such as `512m`; 1g by default.
        remote: `s3` starts an S3 server, on which the servers keep remote logs and snapshots of
            keys, and a REST catalog its warehouse; None keeps them on the local disk.

    An argument that is None keeps the value of the existing cluster in the directory.

    Raises:
        LocalClusterError: An argument is not valid; the message says what to change.
    """

    def __init__(
        self,
        directory: str | os.PathLike[str] | None = None,
        tablet_servers: int | None = None,
        sasl: bool | None = None,
        lake: str | None = None,
        port: int | None = None,
        config: Mapping[str, str] | None = None,
        tablet_heap: str | None = None,
        remote: str | None = None,
    ) -> None:
        chosen = Path(directory) if directory is not None else state_dir() / "cluster"
        self.directory = Path(os.path.abspath(chosen.expanduser()))
        self._layout = Layout(self.directory)
        self._given = {
            "tablet_servers": tablet_servers,
            "sasl": sasl,
            "lake": lake,
            "port": port,
            "config": dict(config) if config is not None else None,
            "tablet_heap": tablet_heap,
            "remote": remote,
        }
        Settings().with_changes(**self._given)

    def up(self, fresh: bool = False) -> ClusterInfo:
        """Start the servers that do not run and wait until all of them are ready.

        Args:
            fresh: Delete the data of an earlier cluster in the directory first.

        Returns:
            The addresses and files of the cluster.

        Raises:
            ServerStartError: A server failed. The servers that this call started are stopped.
            JavaNotFoundError: There is no usable Java.
            ArtifactError: A jar could not be fetched.
            LocalClusterError: The directory or its state does not fit the arguments.
        """
        with self._locked():
            if fresh:
                self._start_over()
            state = self._wanted_state()
            missing = [name for name, server in state.servers.items() if not server.is_running]
            if missing:
                start_servers(self._layout, state, missing, wait_for=list(state.servers))
            else:
                wait_until_serving(self._layout, state, list(state.servers))
            return describe(self._layout, state)

    def down(self) -> None:
        """Stop every running server of this cluster; the data is kept."""
        if not self.directory.exists():
            return
        with self._locked():
            state = load_state(self.directory)
            if state is not None:
                stop_servers(self._layout, state, list(state.servers))

    def kill(self, name: str) -> None:
        """Kill one server, like a crash.

        Raises:
            LocalClusterError: The server does not run, or there is no such server.
        """
        with self._locked():
            state = self._existing_state(name)
            process = state.servers[name].process
            if process is None or not process.is_alive():
                raise LocalClusterError(f"{name} does not run in {self.directory}")
            process.kill(name)
            state.servers[name].process = None
            state.save(self.directory)

    def start(self, name: str) -> ClusterInfo:
        """Start one server, if it does not run, and wait until it is ready.

        Raises:
            ServerStartError: The server failed.
            LocalClusterError: There is no such server.
        """
        with self._locked():
            state = self._existing_state(name)
            if not state.servers[name].is_running:
                start_servers(self._layout, state, [name], wait_for=[name])
            return describe(self._layout, state)

    def status(self) -> ClusterStatus:
        """Return the status of the cluster, from its processes and the answers of its servers."""
        return examine(self._layout, load_state(self.directory))

    @property
    def info(self) -> ClusterInfo:
        """The addresses and files; raises `LocalClusterError` if it was never started."""
        return describe(self._layout, self._existing_state())

    def set_token_life(self, life_s: float) -> None:
        """Set how long the tokens live with which clients read the remote storage; for tests."""
        set_token_life(self._existing_state(TOKENS), self._layout.config(TOKENS), life_s)

    def log_path(self, name: str) -> Path:
        """Return the log file of a server; raise `LocalClusterError` if there is no such server."""
        self._existing_state(name)
        return self._layout.log(name)

    def __enter__(self) -> Self:
        self.up()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.down()

    @contextmanager
    def _locked(self) -> Iterator[None]:
        claim(self.directory)
        try:
            with file_lock(self.directory / LOCK_FILE, LOCK_DEADLINE_S, "working on the cluster"):
                yield
        except OSError as error:
            raise LocalClusterError(
                f"the cluster's directory {self.directory} cannot be used: {error}"
            ) from error

    def _existing_state(self, name: str | None = None) -> ClusterState:
        state = load_state(self.directory)
        if state is None:
            raise LocalClusterError(
                f"no cluster was ever started in {self.directory}: run up, or choose another --dir"
            )
        if name is not None and name not in state.servers:
            raise LocalClusterError(
                f"there is no server {name!r} here: it is one of {', '.join(state.servers)}"
            )
        return state

    def _start_over(self) -> None:
        try:
            state = load_state(self.directory)
        except LocalClusterError:
            state = None  # the file is damaged, and starting over is what its error advises
        if state is not None:
            stop_servers(self._layout, state, list(state.servers))
        wipe(self.directory)

    def _wanted_state(self) -> ClusterState:
        """Return the recorded state with the settings of this object; nothing is written yet."""
        before = load_state(self.directory)
        state = before or ClusterState(Settings())
        settings = state.settings.with_changes(**self._given)
        running = [name for name, server in state.servers.items() if server.is_running]
        if running and settings != state.settings:
            raise LocalClusterError(
                f"the cluster in {self.directory} runs with other options: run down first"
            )
        if before and settings.tablet_servers < before.settings.tablet_servers:
            raise LocalClusterError(
                f"the cluster in {self.directory} has {before.settings.tablet_servers} tablet"
                " servers with data on them: ask for as many, or start over with --fresh"
            )
        state.settings = settings
        if settings.sasl and not state.users:
            state.users = {user: secrets.token_hex(16) for user in USERS}
        choose_ports(state)
        return state
