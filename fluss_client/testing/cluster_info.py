"""What a caller is told about a local cluster: where it answers, and how each server is."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any


@dataclass(frozen=True)
class ClusterInfo:
    """A running cluster. `to_json` gives what `fluss-orchestrate cluster up --json` prints."""

    bootstrap_servers: str
    sasl_bootstrap_servers: str | None
    users: Mapping[str, str]
    lake: Mapping[str, str] | None
    pids: Mapping[str, int]
    logs: Mapping[str, str]
    dir: str
    fluss_version: str

    def to_dict(self) -> dict[str, Any]:
        """The fields as plain values; `users` maps a name to its password."""
        return asdict(self)

    def to_json(self) -> str:
        """One JSON object on one line."""
        return json.dumps(self.to_dict())


@dataclass(frozen=True)
class ServerStatus:
    """One server: `state` is running, stopped, or crashed (it was started and is gone)."""

    state: str
    pid: int | None
    ports: Mapping[str, int]
    log: str


@dataclass(frozen=True)
class ClusterStatus:
    """`state` is running, stopped or degraded (some servers run); `answering` is whether every
    tablet server shows in the metadata that the cluster gives right now."""

    state: str
    answering: bool
    bootstrap_servers: str | None
    servers: Mapping[str, ServerStatus]
    dir: str

    def to_json(self) -> str:
        """One JSON object on one line."""
        return json.dumps(asdict(self))
