"""A connection on the caller's event loop.

Reads, look-ups and administration run on that loop. Writers block their caller when the buffer is
full, which would stop the loop that must empty it; so they send from the process's I/O thread,
over a backend of their own that is opened with the first writer.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
from collections.abc import Sequence
from types import TracebackType

from fluss_client.aio.admin import FlussAdmin
from fluss_client.aio.table import FlussTable
from fluss_client.aio.writer_core import writers_on
from fluss_client.backend.contract import Backend
from fluss_client.backend.factory import open_backend
from fluss_client.config import Config
from fluss_client.errors import ClosedError
from fluss_client.leaving import leaving
from fluss_client.model.table import TablePath, check_path
from fluss_client.net.metrics import TraceHook
from fluss_client.runtime import ProcessBound, runtime


class FlussConnection(ProcessBound):
    """The way into a cluster, or into an embedded directory."""

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
        """Connect; fails with a typed error when no server answers."""
        own = config.copy()
        return FlussConnection(await open_backend(own), own)

    connect = create

    @property
    def config(self) -> Config:
        """The settings of this connection."""
        return self._config

    @property
    def backend(self) -> Backend:
        """The backend behind this connection, for code that builds on the seam itself."""
        self._check_open()
        return self._backend

    def get_admin(self) -> FlussAdmin:
        """The administration of the cluster."""
        self._check_open()
        return FlussAdmin(self._backend)

    async def get_table(self, table_path: TablePath) -> FlussTable:
        """Open a table."""
        self._check_open()
        info = await self._backend.get_table_info(check_path(table_path))
        return FlussTable(self._backend, self.writer_backend, info, self._config)

    def writer_backend(self) -> Backend:
        """The backend that writers use: it lives on the process's I/O thread."""
        self._check_open()
        if self._loop is runtime().loop:
            return self._backend
        if self._writer_backend is None:
            self._writer_backend = runtime().call(open_backend(self._config))
            _trace(self._writer_backend, self._trace_hook)
        return self._writer_backend

    def metrics(self) -> dict[str, float]:
        """Bytes, requests, retries and times so far, reads and writes together."""
        figures = dict(self._backend.metrics())
        if self._writer_backend is not None:
            for name, value in self._writer_backend.metrics().items():
                figures[name] = figures.get(name, 0) + value
        return figures

    def set_trace_hook(self, hook: TraceHook | None) -> None:
        """Call `hook(call, server, seconds, error)` after every request; None stops it."""
        self._trace_hook = hook
        for backend in (self._backend, self._writer_backend):
            _trace(backend, hook)

    @property
    def closed(self) -> bool:
        """Whether it was closed; then nothing can be done with it any more."""
        return self._closed

    async def close(self) -> None:
        """Close the connection: writers flush their rows, then requests under way fail.

        When rows could not be written the connection is closed all the same, and the first
        writer's error is raised.
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
        with leaving(exc):
            await self.close()

    def __enter__(self) -> FlussConnection:
        return self

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Close without awaiting: writers are waited for on this thread; prefer `async with`."""
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
        close_lines = getattr(self._backend, "close_lines", None)
        if close_lines is not None:
            close_lines()
        with leaving(exc):
            errors = (future.exception() for future in pending)
            _raise_first([error for error in errors if error is not None])


def _raise_first(failures: Sequence[BaseException]) -> None:
    """Raise the first error of several writers; the others are notes of it."""
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
    metrics = getattr(backend, "net_metrics", None)
    if metrics is not None:
        metrics.trace = hook
