"""What the facade does in another way than `aio`, for the generated classes to inherit.

A facade object holds the `aio` object that does the work. `generate.py` writes a method for every
public method of the `aio` class, except for those that a base class here defines.
"""

from __future__ import annotations

import threading
from collections.abc import AsyncIterator, Awaitable, Callable
from functools import cached_property
from types import TracebackType
from typing import Generic, Self, TypeVar

from fluss_client import aio
from fluss_client.aio.connection import closing_after
from fluss_client.facade.handle import Handle
from fluss_client.model.records import RecordBatch, ScanRecord, ScanRecords
from fluss_client.runtime import ProcessBound, runtime

CLOSE_GRACE_S = 30.0
"""Added to `retry-timeout`, within which the rows of open writers are sent or given up."""

CoreT = TypeVar("CoreT")
WriterT = TypeVar("WriterT", bound=aio.AppendWriter | aio.UpsertWriter)
MadeT = TypeVar("MadeT")
ShownT = TypeVar("ShownT")


async def wrapped(made: Awaitable[MadeT], wrap: Callable[[MadeT], ShownT]) -> ShownT:
    """Return the facade object for the `aio` object that a coroutine returns."""
    return wrap(await made)


class Facade(Generic[CoreT]):
    """A facade object over the `aio` object that does the work."""

    def __init__(self, core: CoreT) -> None:
        self._core = core


class ConnectionBase(Facade[aio.FlussConnection], ProcessBound):
    """The life of a connection. It may be shared between threads."""

    def __init__(self, core: aio.FlussConnection) -> None:
        self._bind_process()
        super().__init__(core)
        # Two threads that close at once: the second waits until the first has flushed the rows.
        self._close_lock = threading.Lock()

    @property
    def core(self) -> aio.FlussConnection:
        """Return the `aio` connection, for code that runs coroutines on the I/O thread."""
        self._check_process()
        return self._core

    def close(self) -> None:
        """Close the connection. Writers that are open flush their rows first.

        Raises:
            FlussError: Rows of a writer could not be written. The connection is closed anyway.
        """
        self._check_process()
        with self._close_lock:
            if runtime().on_thread():
                # The I/O thread cannot wait for itself, so closing goes on after this call.
                Handle.start(self._core.close(), "FlussConnection.close")
            else:
                limit_s = self._core.config.retry_timeout_ms / 1000 + CLOSE_GRACE_S
                runtime().call(self._core.close(), limit_s)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        with closing_after(exc):
            self.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        with closing_after(exc):
            await Handle.start(self._core.close(), "FlussConnection.close")


class LogScannerBase(Facade[aio.LogScanner]):
    """Polling without a thread change where rows are ready, and iteration from any loop."""

    def poll(self, timeout_ms: int) -> ScanRecords:
        """Return the next records, at most `scanner.log.max-poll-records`.

        Args:
            timeout_ms: How long to wait for records.

        Returns:
            The records, as soon as there are some. None of them if the time is over first.
        """
        # Rows that were fetched already are turned into records on this thread: changing to the
        # I/O thread and back would cost more than a small poll itself.
        ready = self._core.poll_staged()
        return runtime().call(self._core.poll(timeout_ms)) if ready is None else ready

    async def __aiter__(self) -> AsyncIterator[ScanRecord | RecordBatch]:
        source = self._core.__aiter__()
        while True:
            try:
                yield await Handle.start(source.__anext__(), "LogScanner.__anext__")
            except StopAsyncIteration:
                return

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        runtime().call(self._core.close())


class WriteResultHandle(aio.WriteResultHandle):
    """The acknowledgement of one write. Ignore it, or wait for it."""

    __slots__ = ()

    def wait(self) -> Handle[None]:  # type: ignore[override]
        """Send the pending rows now, and return a handle of their acknowledgement."""
        return Handle(self.future(), "WriteResultHandle.wait")


class WriterBase(Facade[WriterT]):
    """Flushing and closing of both writers. Their outcome is a future, so no coroutine is run."""

    def __init__(self, core: WriterT) -> None:
        core.hand_out(WriteResultHandle)
        super().__init__(core)

    def flush(self) -> Handle[None]:
        """Send all pending rows, and return a handle of their acknowledgement.

        The handle raises the first error that neither a `WriteResultHandle` nor an earlier flush
        has raised.
        """
        return Handle(self._core.flush_future(), "flush")

    def close(self) -> None:
        """Flush, and refuse further rows.

        Raises:
            FlussError: Rows could not be written.
        """
        self._core.close_future().result()

    def metrics(self) -> dict[str, float]:
        """Return counters of rows, batches, bytes, requests and retries."""
        return self._core.metrics()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        with closing_after(exc):
            self.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        with closing_after(exc):
            await Handle(self._core.close_future(), "close")


class UpsertBuilderBase:
    """A builder of writers that is a writer too, which is how the older guide uses it."""

    def __init__(self, builder: aio.TableUpsert) -> None:
        self._builder = builder

    @cached_property
    def _core(self) -> aio.UpsertWriter:
        # Made with the first row: most code calls `create_writer`, and needs no second writer.
        writer = self._builder.create_writer()
        writer.hand_out(WriteResultHandle)
        return writer


class LookupBuilderBase:
    """A builder of look-ups that is a look-up too, which is how the older guide uses it."""

    def __init__(self, builder: aio.TableLookup) -> None:
        self._builder = builder
        # Made here, so that `new_lookup()` raises for a key that cannot be looked up.
        self._core = builder.create_lookuper()
