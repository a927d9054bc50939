"""A real Fluss cluster on the loopback interface of this machine."""

from __future__ import annotations

import os
import secrets
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Self

from fluss_client.testing.cluster_info import ClusterInfo, ClusterStatus, describe, examine
from fluss_client.testing.errors import LocalClusterError
from fluss_client.testing.launching import choose_ports, start_servers, stop_servers
from fluss_client.testing.locking import file_lock
from fluss_client.testing.readiness import wait_until_serving
from fluss_client.testing.server_config import Layout
from fluss_client.testing.state import (
    LOCK_FILE,
    ClusterState,
    Settings,
    claim,
    load_state,
    wipe,
)
from fluss_client.testing.user_dirs import state_dir

LOCK_DEADLINE_S = 300.0
USERS = ("admin", "alice")


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
            missing = [name for name, server in state.servers.items() if not server.is_running]
            if missing:
                start_servers(self._layout, state, missing, wait_for=list(state.servers))
            else:
                wait_until_serving(self._layout, state, list(state.servers))
            return describe(self._layout, state)

    def down(self) -> None:
        """Stop every server that was recorded and still runs; the data stays."""
        if not self.directory.exists():
            return
        with self._locked():
            state = load_state(self.directory)
            if state is not None:
                stop_servers(self._layout, state, list(state.servers))

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
                start_servers(self._layout, state, [name], wait_for=[name])
            return describe(self._layout, state)

    def status(self) -> ClusterStatus:
        """How the cluster is now, as the processes and the servers themselves say."""
        return examine(self._layout, load_state(self.directory))

    @property
    def info(self) -> ClusterInfo:
        """Where the cluster answers; raises `LocalClusterError` when it was never started."""
        return describe(self._layout, self._existing_state())

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
        """What is recorded, brought to what this object asks for; nothing is written yet."""
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
