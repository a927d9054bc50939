"""The errors of the local cluster, each one sentence that says what to do next."""

from __future__ import annotations

from fluss_client.errors import ClientError


class LocalClusterError(ClientError):
    """A local cluster, or something that it needs, cannot be had."""


class JavaNotFoundError(LocalClusterError):
    """No Java of a usable version is on this machine."""


class ArtifactError(LocalClusterError):
    """A jar could not be fetched, or is not the one that this version pins."""


class ServerStartError(LocalClusterError):
    """A server did not come up; `server` names it and `log_tail` holds its last log lines."""

    def __init__(self, message: str, server: str, log_tail: tuple[str, ...] = ()) -> None:
        super().__init__(message)
        self.server = server
        self.log_tail = log_tail
