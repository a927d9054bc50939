"""A connection, for code with or without an event loop.

Generated from `fluss_client.aio` by `fluss_client.facade.generate`; do not edit.
"""

from __future__ import annotations

from fluss_client import aio
from fluss_client.backend.contract import Backend
from fluss_client.config import Config
from fluss_client.facade.admin import FlussAdmin
from fluss_client.facade.base import ConnectionBase, wrapped
from fluss_client.facade.handle import Handle
from fluss_client.facade.table import FlussTable
from fluss_client.model.table import TablePath
from fluss_client.net.metrics import TraceHook


class FlussConnection(ConnectionBase):
    """A connection to a cluster, or to an embedded directory.

    Open it with `FlussConnection.create(config)`; do not call the constructor. Close it with
    `close()` or a `with` block.
    """

    @staticmethod
    def create(config: Config) -> Handle[FlussConnection]:
        """Connect to a cluster, or open an embedded directory.

        Args:
            config: The settings. `bootstrap.servers` is required. The connection keeps a copy.

        Raises:
            ConfigError: A setting is missing or invalid.
            FlussError: No server answered, or the login failed.
        """
        return Handle.start(
            wrapped(aio.FlussConnection.create(config), FlussConnection), "FlussConnection.create"
        )

    connect = create
    """The name of `create` in the older guide."""

    @property
    def config(self) -> Config:
        """Return the settings of this connection."""
        return self._core.config

    @property
    def backend(self) -> Backend:
        """Return the backend of this connection, for code that calls the contract itself."""
        return self._core.backend

    def get_admin(self) -> Handle[FlussAdmin]:
        """Return the administration of the cluster."""
        return Handle.of(FlussAdmin(self._core.get_admin()))

    def get_table(self, table_path: TablePath) -> Handle[FlussTable]:
        """Open a table for reading and writing.

        Args:
            table_path: The table.

        Raises:
            TableNotExistError: There is no such table.
            ClosedError: The connection is closed.
        """
        return Handle.start(
            wrapped(self._core.get_table(table_path), FlussTable), "FlussConnection.get_table"
        )

    def metrics(self) -> dict[str, float]:
        """Return counters of bytes, requests, retries and times, of reads and writes together."""
        return self._core.metrics()

    def set_trace_hook(self, hook: TraceHook | None) -> None:
        """Call a function after every request.

        Args:
            hook: Called as `hook(call, server, seconds, error)` on the thread of the connection.
                None removes the hook.
        """
        self._core.set_trace_hook(hook)

    @property
    def closed(self) -> bool:
        """Return whether the connection is closed."""
        return self._core.closed
