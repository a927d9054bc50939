"""A real Fluss cluster on the loopback interface of this machine."""

from __future__ import annotations

import os
import secrets
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Self

from fluss_client.testing.artifacts import ensure_jars
from fluss_client.testing.cluster_info import ClusterInfo, ClusterStatus, ServerStatus
from fluss_client.testing.errors import LocalClusterError
from fluss_client.testing.jars import FLUSS_VERSION, ICEBERG_JARS, SERVER_JARS
from fluss_client.testing.java import JavaRuntime, find_java
from fluss_client.testing.locking import file_lock
from fluss_client.testing.ports import is_free, pick
from fluss_client.testing.probe import HOST
from fluss_client.testing.processes import spawn
from fluss_client.testing.readiness import all_serve, wait_until_serving
from fluss_client.testing.server_config import (
    COORDINATOR,
    ZOOKEEPER,
    Layout,
    command_line,
    lake_properties,
    listeners_of,
    server_names,
    write_config,
)
from fluss_client.testing.state import (
    LOCK_FILE,
    ClusterState,
    ServerState,
    Settings,
    claim,
    load_state,
    wipe,
)
from fluss_client.testing.user_dirs import state_dir

LOCK_DEADLINE_S = 300.0
USERS = ("admin", "alice")
_STATUS_TIMEOUT_S = 2.0


class LocalCluster:
    """ZooKeeper, a coordinator and tablet servers, with all their files in one directory.

    What is left out (None) is as it was in that directory before, or the default: one tablet
    server, no SASL, no lake, free ports. Data and ports survive `down` and `up`. Every method
    may be called from any process; they take turns. As a context manager it is up inside and
    down after. Raises `LocalClusterError`.
    """

    def __init__(
        self,
        directory: str | os.PathLike[str] | None = None,
        tablet_servers: int | None = None,
        sasl: bool | None = None,
        lake: str | None = None,
        port: int | None = None,
        config: Mapping[str, str] | None = None,
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
        }
        Settings().with_changes(**self._given)

    def up(self, fresh: bool = False) -> ClusterInfo:
        """Start what does not run, wait until all of it serves, and say where it is.

        Starts nothing when the cluster is up already. With `fresh` the data of an earlier
        cluster in the directory is deleted first. When a server fails, everything that this
        call started is stopped again and `ServerStartError` is raised.
        """
        with self._locked():
            if fresh:
                self._start_over()
            state = self._wanted_state()
            missing = [name for name in state.servers if not state.servers[name].is_running]
            if missing or not all_serve(state):
                self._start(state, missing)
            return self._info(state)

    def down(self) -> None:
        """Stop every server that was recorded and still runs; the data stays."""
        if not self.directory.exists():
            return
        with self._locked():
            state = load_state(self.directory)
            if state is not None:
                self._stop(state, list(state.servers))

    def kill(self, name: str) -> None:
        """End one server at once, as a crash would."""
        with self._locked():
            state = self._existing_state(name)
            process = state.servers[name].process
            if process is None or not process.is_alive():
                raise LocalClusterError(f"{name} does not run in {self.directory}")
            process.kill(name)
            state.servers[name].process = None
            state.save(self.directory)

    def start(self, name: str) -> ClusterInfo:
        """Start one server and wait until it serves; nothing happens when it runs already."""
        with self._locked():
            state = self._existing_state(name)
            if not state.servers[name].is_running:
                self._start(state, [name])
            return self._info(state)

    def status(self) -> ClusterStatus:
        """How the cluster is now, as the processes and the servers themselves say."""
        state = load_state(self.directory)
        if state is None:
            return ClusterStatus("stopped", False, None, {}, str(self.directory))
        servers = {}
        for name, server in state.servers.items():
            running = server.is_running
            gone = "crashed" if server.process is not None else "stopped"
            servers[name] = ServerStatus(
                state="running" if running else gone,
                pid=server.process.pid if server.process is not None and running else None,
                ports=dict(server.ports),
                log=str(self._layout.log(name)),
            )
        running_count = sum(server.state == "running" for server in servers.values())
        whole = running_count == len(servers) > 0
        return ClusterStatus(
            state="running" if whole else "degraded" if running_count else "stopped",
            answering=whole and all_serve(state, _STATUS_TIMEOUT_S),
            bootstrap_servers=_addresses(state, "FLUSS"),
            servers=servers,
            dir=str(self.directory),
        )

    @property
    def info(self) -> ClusterInfo:
        """Where the cluster answers; raises `LocalClusterError` when it was never started."""
        state = load_state(self.directory)
        if state is None:
            raise LocalClusterError(f"no cluster was ever started in {self.directory}")
        return self._info(state)

    def log_path(self, name: str) -> Path:
        """The log of server `name`; raises `LocalClusterError` when there is no such server."""
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
                f"the directory {self.directory} cannot be used: {error}"
            ) from error

    def _existing_state(self, name: str) -> ClusterState:
        state = load_state(self.directory)
        if state is None:
            raise LocalClusterError(f"no cluster was ever started in {self.directory}")
        if name not in state.servers:
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
            self._stop(state, list(state.servers))
        wipe(self.directory)

    def _wanted_state(self) -> ClusterState:
        """What is recorded, brought to what this object asks for; ports are chosen and saved."""
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
        if settings.sasl:
            state.users = state.users or {user: secrets.token_hex(16) for user in USERS}
        self._choose_ports(state)
        state.save(self.directory)
        return state

    def _choose_ports(self, state: ClusterState) -> None:
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

    def _start(self, state: ClusterState, names: list[str]) -> None:
        java = find_java()
        class_path = ensure_jars(SERVER_JARS, java)
        plugins = ensure_jars(ICEBERG_JARS, java) if state.settings.lake else []
        for name in names:
            for port in state.servers[name].ports.values():
                if not is_free(port):
                    raise LocalClusterError(
                        f"port {port}, which is for {name}, is in use by another process:"
                        " stop that one, or choose another with --port, or start with --fresh"
                    )
            write_config(self._layout, state, name, plugins)
        try:
            if ZOOKEEPER in names:
                self._launch(state, ZOOKEEPER, java, class_path)
                wait_until_serving(self._layout, state, [ZOOKEEPER])
            for name in names:
                if name != ZOOKEEPER:
                    self._launch(state, name, java, class_path)
            wait_until_serving(self._layout, state, names)
        except BaseException:
            self._stop(state, names)
            raise

    def _launch(
        self, state: ClusterState, name: str, java: JavaRuntime, class_path: list[Path]
    ) -> None:
        state.servers[name].process = spawn(
            command_line(self._layout, name, java, class_path),
            self._layout.work(name),
            self._layout.output(name),
        )
        state.save(self.directory)

    def _stop(self, state: ClusterState, names: list[str]) -> None:
        # One after the other: told all at once, tablet servers wait for a coordinator that is
        # gone, and everybody for a ZooKeeper that is gone.
        for name in reversed(names):
            process = state.servers[name].process
            if process is not None:
                process.terminate(name)
                state.servers[name].process = None
                state.save(self.directory)

    def _info(self, state: ClusterState) -> ClusterInfo:
        return ClusterInfo(
            bootstrap_servers=_addresses(state, "FLUSS"),
            sasl_bootstrap_servers=_addresses(state, "SASL") if state.settings.sasl else None,
            users=dict(state.users) if state.settings.sasl else {},
            lake=lake_properties(self._layout) if state.settings.lake else None,
            pids={
                name: server.process.pid
                for name, server in state.servers.items()
                if server.process is not None and server.is_running
            },
            logs={name: str(self._layout.log(name)) for name in state.servers},
            dir=str(self.directory),
            fluss_version=FLUSS_VERSION,
        )


def _addresses(state: ClusterState, listener: str) -> str:
    """The coordinator first, then the tablet servers: any of them answers a newcomer."""
    return ",".join(
        f"{HOST}:{server.ports[listener]}"
        for name, server in state.servers.items()
        if name != ZOOKEEPER
    )
