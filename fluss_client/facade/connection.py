"""A connection for code with or without an event loop."""

from __future__ import annotations

import threading
from types import TracebackType

from fluss_client.aio.connection import FlussConnection as AsyncConnection
from fluss_client.backend.contract import Backend
from fluss_client.config import Config
from fluss_client.facade.admin import FlussAdmin
from fluss_client.facade.handle import Handle
from fluss_client.facade.table import FlussTable
from fluss_client.leaving import leaving
from fluss_client.model.table import TablePath
from fluss_client.net.metrics import TraceHook
from fluss_client.runtime import ProcessBound, runtime

CLOSE_GRACE_S = 30.0
"""Added to the time that rows on their way may take."""


class FlussConnection(ProcessBound):
    """The way into a cluster, or into an embedded directory. Safe to share between threads."""

    def __init__(self, core: AsyncConnection) -> None:
        self._bind_process()
        self._core = core
        self._close_lock = threading.Lock()

    @staticmethod
    def create(config: Config) -> Handle[FlussConnection]:
        """Connect; await the connection, or call `.result()`."""

        async def connect() -> FlussConnection:
            return FlussConnection(await AsyncConnection.create(config))

        return Handle.start(connect(), "FlussConnection.create")

    connect = create
    """The name of `create` in the older guide."""

    @property
    def config(self) -> Config:
        """The settings of this connection."""
        return self._core.config

    @property
    def backend(self) -> Backend:
        """The backend behind this connection; its coroutines run on the I/O thread."""
        return self._core.backend

    @property
    def core(self) -> AsyncConnection:
        """The async connection underneath, for code that runs coroutines on the I/O thread."""
        self._check_process()
        return self._core

    def get_admin(self) -> Handle[FlussAdmin]:
        """The administration of the cluster."""
        return Handle.of(FlussAdmin(self._core.get_admin()))

    def get_table(self, table_path: TablePath) -> Handle[FlussTable]:
        """Open a table."""
        self._check_process()

        async def open_table() -> FlussTable:
            return FlussTable(await self._core.get_table(table_path))

        return Handle.start(open_table(), "get_table")

    def metrics(self) -> dict[str, float]:
        """Bytes, requests, retries and times so far."""
        return self._core.metrics()

    def set_trace_hook(self, hook: TraceHook | None) -> None:
        """Call `hook(call, server, seconds, error)` after every request; None stops it."""
        self._core.set_trace_hook(hook)

    def close(self) -> None:
        """Close the connection. Writers that are still open flush their rows first.

        Raises what went wrong with those rows; the connection is closed all the same.
        """
        self._check_process()
        with self._close_lock:
            if runtime().on_thread():
                Handle.start(self._core.close(), "close")
            else:
                limit_s = self.config.retry_timeout_ms / 1000 + CLOSE_GRACE_S
                runtime().call(self._core.close(), limit_s)

    def __enter__(self) -> FlussConnection:
        return self

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        with leaving(exc):
            self.close()

    async def __aenter__(self) -> FlussConnection:
        return self

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        with leaving(exc):
            await Handle.start(self._core.close(), "close")
