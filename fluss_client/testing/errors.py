"""The errors of the local cluster; each message says what to do next."""

from __future__ import annotations

from fluss_client.errors import ClientError


class LocalClusterError(ClientError):
    """A local cluster cannot be started, stopped or found."""


class JavaNotFoundError(LocalClusterError):
    """This machine has no Java of a usable version; the message says what to install."""


class ArtifactError(LocalClusterError):
    """A jar could not be fetched, or its checksum is not the expected one."""


class ServerStartError(LocalClusterError):
    """A server did not start.

    Attributes:
        server: The name of the server.
        log_tail: The last lines of its log.
    """

    def __init__(self, message: str, server: str, log_tail: tuple[str, ...] = ()) -> None:
        super().__init__(message)
        self.server = server
        self.log_tail = log_tail
