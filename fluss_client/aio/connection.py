"""A connection on the caller's event loop.

Reads, look-ups and administration run on that loop. Writers block their caller while the buffer is
full. On the caller's loop this would stop the loop that must empty the buffer, so writers send
from the process's I/O thread, over a second backend that is opened with the first writer.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from types import TracebackType

from fluss_client.aio.admin import FlussAdmin
from fluss_client.aio.table import FlussTable
from fluss_client.aio.writing.writer_core import writers_on
from fluss_client.backend.contract import Backend
from fluss_client.backend.factory import open_backend
from fluss_client.config import Config
from fluss_client.errors import ClosedError, FlussError
from fluss_client.model.table import TablePath, check_path
from fluss_client.net.metrics import TraceHook
from fluss_client.runtime import ProcessBound, runtime


class FlussConnection(ProcessBound):
    """A connection to a cluster, or to an embedded directory.

    Open it with `FlussConnection.create(config)`; do not call the constructor. Close it with
    `close()` or a `with` block.
    """

    def __init__(self, backend: Backend, config: Config) -> None:
        self._bind_process()
        self._backend = backend
        self._config = config
        self._loop = asyncio.get_running_loop()
        self._writer_backend: Backend | None = None
        self._trace_hook: TraceHook | None = None
        self._closed = False
        self._ending: asyncio.Task[None] | None = None

    @staticmethod
    async def create(config: Config) -> FlussConnection:
        """Connect to a cluster, or open an embedded directory.

        Args:
            config: The settings. `bootstrap.servers` is required. The connection keeps a copy.

        Raises:
            ConfigError: A setting is missing or invalid.
            FlussError: No server answered, or the login failed.
        """
        own = config.copy()
        return FlussConnection(await open_backend(own), own)

    connect = create
    """The name of `create` in the older guide."""

    @property
    def config(self) -> Config:
        """Return the settings of this connection."""
        return self._config

    @property
    def backend(self) -> Backend:
        """Return the backend of this connection, for code that calls the contract itself."""
        self._check_open()
        return self._backend

    def get_admin(self) -> FlussAdmin:
        """Return the administration of the cluster."""
        self._check_open()
        return FlussAdmin(self._backend)

    async def get_table(self, table_path: TablePath) -> FlussTable:
        """Open a table for reading and writing.

        Args:
            table_path: The table.

        Raises:
            TableNotExistError: There is no such table.
            ClosedError: The connection is closed.
        """
        self._check_open()
        info = await self._backend.get_table_info(check_path(table_path))
        return FlussTable(self._backend, self.writer_backend, info, self._config)

    def writer_backend(self) -> Backend:
        """Return the backend of the writers, which runs on the process's I/O thread."""
        self._check_open()
        # A connection that was made on the I/O thread itself needs no second backend.
        if self._loop is runtime().loop:
            return self._backend
        if self._writer_backend is None:
            self._writer_backend = runtime().call(open_backend(self._config))
            _trace(self._writer_backend, self._trace_hook)
        return self._writer_backend

    def metrics(self) -> dict[str, float]:
        """Return counters of bytes, requests, retries and times, of reads and writes together."""
        figures = dict(self._backend.metrics())
        if self._writer_backend is not None:
            for name, value in self._writer_backend.metrics().items():
                figures[name] = figures.get(name, 0) + value
        return figures

    def set_trace_hook(self, hook: TraceHook | None) -> None:
        """Call a function after every request.

        Args:
            hook: Called as `hook(call, server, seconds, error)` on the thread of the connection.
                None removes the hook.
        """
        self._trace_hook = hook
        for backend in (self._backend, self._writer_backend):
            _trace(backend, hook)

    @property
    def closed(self) -> bool:
        """Return whether the connection is closed."""
        return self._closed

    async def close(self) -> None:
        """Close the connection. Writers that are open flush their rows first.

        Requests that are still in flight after that fail. Closing twice does nothing.

        Raises:
            FlussError: Rows of a writer could not be written. The connection is closed anyway.
        """
        if self._closed:
            return
        self._check_process()
        self._closed = True
        writing = self._writer_backend or self._backend
        pending = [w.close_future().wait() for w in writers_on(writing)]
        failures = [
            error
            for error in await asyncio.gather(*pending, return_exceptions=True)
            if isinstance(error, BaseException)
        ]
        await self._backend.close()
        if self._writer_backend is not None:
            await asyncio.wrap_future(runtime().start(self._writer_backend.close()))
        _raise_first(failures)

    def _check_open(self) -> None:
        self._check_process()
        if self._closed:
            raise ClosedError("this connection was closed; make a new FlussConnection")
        if self._loop is not runtime().loop and _running_loop() not in (None, self._loop):
            raise ClosedError(
                "this connection belongs to another event loop: make a new FlussConnection on "
                "this one, or use fluss_client, whose connections serve any loop"
            )

    async def __aenter__(self) -> FlussConnection:
        return self

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        with closing_after(exc):
            await self.close()

    def __enter__(self) -> FlussConnection:
        return self

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Close without awaiting, which blocks this thread until writers have flushed.

        Prefer `async with`.
        """
        if self._closed:
            return
        self._check_process()
        self._closed = True
        pending = [w.close_future() for w in writers_on(self._writer_backend or self._backend)]
        concurrent.futures.wait(pending)
        if self._writer_backend is not None:
            runtime().call(self._writer_backend.close())
        if _running_loop() is self._loop:
            self._ending = self._loop.create_task(self._backend.close())
        # The loop may stop before that has run; its sockets must not outlive it.
        self._backend.close_sockets()
        with closing_after(exc):
            errors = (future.exception() for future in pending)
            _raise_first([error for error in errors if error is not None])


@contextmanager
def closing_after(error: BaseException | None) -> Iterator[None]:
    """Wrap the closing in an `__exit__`, so that it does not hide the error that came first.

    Args:
        error: The exception that `__exit__` was given. A `FlussError` of the closing is added to
            it as a note; without an exception it is raised.
    """
    try:
        yield
    except FlussError as closing:
        if error is None:
            raise
        error.add_note(f"closing failed as well: {closing}")


def _raise_first(failures: Sequence[BaseException]) -> None:
    """Raise the first error of several writers, with the others as its notes."""
    for failure in failures[1:]:
        failures[0].add_note(f"another writer failed as well: {failure}")
    if failures:
        raise failures[0]


def _running_loop() -> asyncio.AbstractEventLoop | None:
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        return None


def _trace(backend: Backend | None, hook: TraceHook | None) -> None:
    if backend is not None:
        backend.set_trace_hook(hook)
