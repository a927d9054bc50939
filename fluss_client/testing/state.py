"""The state file of a local cluster: its settings, users, ports and processes."""

from __future__ import annotations

import json
import os
import re
import shutil
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from fluss_client.testing.errors import LocalClusterError
from fluss_client.testing.processes import ProcessMark
from fluss_client.testing.user_dirs import write_atomically

STATE_FILE = "cluster.json"
LOCK_FILE = ".lock"
TABLET_SERVERS_MAX = 32
REST_LAKE = "iceberg-rest"
LAKES = ("iceberg", REST_LAKE)
REMOTES = ("s3",)
TABLET_HEAP_MIN_MB = 128
TABLET_HEAP = "1g"
_FORMAT = 1
# Keys that the launcher sets; with another value it could not find the cluster again.
_OWNED_KEYS = frozenset(
    (
        *("zookeeper.address", "zookeeper.path.root", "data.dir", "remote.data.dir"),
        *("bind.listeners", "advertised.listeners", "internal.listener.name", "tablet-server.id"),
        "security.protocol.map",
    )
)


@dataclass(frozen=True)
class Settings:
    """The settings of a cluster that a user chooses."""

    tablet_servers: int = 1
    sasl: bool = False
    lake: str | None = None
    remote: str | None = None
    port: int | None = None
    config: Mapping[str, str] = field(default_factory=dict)
    tablet_heap: str = TABLET_HEAP

    def with_changes(self, **given: Any) -> Settings:
        """Return these settings with the values of `given` that are not None, after a check."""
        settings = replace(
            self, **{key: value for key, value in given.items() if value is not None}
        )
        settings._check()
        return settings

    def _check(self) -> None:
        if not 1 <= self.tablet_servers <= TABLET_SERVERS_MAX:
            raise LocalClusterError(
                f"{self.tablet_servers} tablet servers cannot be started:"
                f" choose 1 to {TABLET_SERVERS_MAX}"
            )
        if self.lake is not None and self.lake not in LAKES:
            raise LocalClusterError(f"the lake {self.lake!r} is unknown: choose {', '.join(LAKES)}")
        if self.remote is not None and self.remote not in REMOTES:
            raise LocalClusterError(
                f"the remote storage {self.remote!r} is unknown: choose {', '.join(REMOTES)}"
            )
        if self.port is not None and not 1 <= self.port <= 65535:
            raise LocalClusterError(f"{self.port} is not a port: choose 1 to 65535")
        _check_heap(self.tablet_heap)
        for key, value in self.config.items():
            _check_config(key, value)


def _check_heap(heap: str) -> None:
    found = re.fullmatch(r"([1-9][0-9]{0,5})([mMgG])", heap)
    if not found or int(found[1]) << 10 * (found[2] in "gG") < TABLET_HEAP_MIN_MB:
        raise LocalClusterError(
            f"{heap!r} is not a heap of a tablet server: give megabytes or gigabytes such as 512m "
            f"or 2g, at least {TABLET_HEAP_MIN_MB}m"
        )


def _check_config(key: str, value: str) -> None:
    if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]*", key):
        raise LocalClusterError(f"{key!r} is not a configuration key: give KEY=VALUE")
    if key in _OWNED_KEYS:
        raise LocalClusterError(f"{key} is set by the launcher itself and cannot be given")
    if not value.strip() or not value.isprintable():
        raise LocalClusterError(f"the value of {key} must be one line of text: got {value!r}")


@dataclass
class ServerState:
    """One server: its ports by listener, and its process if it was started."""

    ports: dict[str, int]
    process: ProcessMark | None = None

    @property
    def is_running(self) -> bool:
        """Whether the recorded process is alive."""
        return self.process is not None and self.process.is_alive()


@dataclass
class ClusterState:
    """The state of a cluster between two commands."""

    settings: Settings
    users: dict[str, str] = field(default_factory=dict)
    servers: dict[str, ServerState] = field(default_factory=dict)
    storage_secret: str = ""

    def save(self, directory: Path) -> None:
        """Write the state file with mode 0600, because it holds passwords."""
        content = json.dumps({"format": _FORMAT, **asdict(self)}, indent=1)
        write_atomically(directory / STATE_FILE, content.encode(), mode=0o600)


def load_state(directory: Path) -> ClusterState | None:
    """Return the state of the cluster in `directory`; None if none was started there."""
    try:
        content = json.loads((directory / STATE_FILE).read_bytes())
        return ClusterState(
            settings=Settings(**content["settings"]),
            users=content["users"],
            servers={
                name: ServerState(
                    ports=server["ports"],
                    process=ProcessMark(**server["process"]) if server["process"] else None,
                )
                for name, server in content["servers"].items()
            },
            # Clusters of earlier versions have no store.
            storage_secret=content.get("storage_secret", ""),
        )
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        raise LocalClusterError(f"{directory} cannot be read: {error.strerror}") from error
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise LocalClusterError(
            f"{directory / STATE_FILE} is damaged: start over with --fresh, which deletes the data"
        ) from error


def claim(directory: Path) -> None:
    """Create the directory if needed; raise `LocalClusterError` if it has other files."""
    try:
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        names = set(os.listdir(directory)) - {LOCK_FILE}
        writable = os.access(directory, os.W_OK | os.X_OK)
    except (FileExistsError, NotADirectoryError) as error:
        raise LocalClusterError(
            f"{directory} is not a directory: choose another with --dir"
        ) from error
    except OSError as error:
        raise LocalClusterError(
            f"the directory {directory} cannot be made or read ({error.strerror}):"
            " choose another with --dir"
        ) from error
    if names and STATE_FILE not in names:
        raise LocalClusterError(
            f"{directory} holds files and no {STATE_FILE}, so it is not a cluster's directory:"
            " choose another with --dir"
        )
    if not writable:
        raise LocalClusterError(
            f"the directory {directory} cannot be written: choose another with --dir"
        )


def wipe(directory: Path) -> None:
    """Delete all files of a cluster, the state file last, so that a failed call can be repeated."""
    for path in sorted(directory.iterdir(), key=lambda path: path.name == STATE_FILE):
        if path.name == LOCK_FILE:
            continue
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        else:
            path.unlink()
