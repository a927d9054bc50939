"""What both writers share: taking rows on any thread, handing them to the loop in order.

Adding a row needs no lock (`row_input.Chunk`). `_lock` guards the exchange of the open chunk, for a
moment at a time. `_gate` is held while rows are turned into pieces and handed over, so that pieces
reach the loop in the order of the calls; it may be held during a question to the server (which
partition is this?), so the I/O thread never takes it. Nobody holds a lock while waiting for room in
the buffer.
"""

from __future__ import annotations

import contextlib
import os
import threading
import time
import weakref
from collections.abc import Callable, Iterable, Sequence
from types import TracebackType
from typing import Any, Self

import pyarrow as pa

from fluss_client.aio.buffer_memory import BufferMemory
from fluss_client.aio.channels import Channel
from fluss_client.aio.exit_flush import flush_at_exit
from fluss_client.aio.outcome import Outcome
from fluss_client.aio.partition_ids import PartitionIds
from fluss_client.aio.pieces import Deletes, cut
from fluss_client.aio.pipeline import Pipeline
from fluss_client.aio.routing import Router
from fluss_client.aio.row_input import CHUNK_BYTES_MAX, Chunk
from fluss_client.aio.write_handle import WriteResultHandle
from fluss_client.backend.contract import Backend
from fluss_client.config import Config
from fluss_client.errors import (
    ClosedError,
    FlussError,
    ReentrantCallError,
    RowError,
)
from fluss_client.model.table import TableInfo
from fluss_client.runtime import ProcessBound, runtime, workers

STRIDE_BYTES_MAX = 8 << 20
"""How much of a table is taken at a time where no handle is asked for."""
GATE_RETRY_S = 0.005


class WriterCore(ProcessBound):
    """The caller's side of a writer. Safe to use from any number of threads."""

    _handle_type: type[WriteResultHandle] = WriteResultHandle

    def __init__(
        self, backend: Backend, table: TableInfo, config: Config, channel: Channel
    ) -> None:
        self._bind_process()
        self._backend = backend
        self._table = table
        self.name = str(table.table_path)
        self._linger_s = config.writer_batch_timeout_ms / 1000
        self._memory = BufferMemory(
            config.writer_buffer_memory_size, config.writer_buffer_wait_timeout_ms
        )
        self._channel = channel
        self._runtime = runtime()
        self._partitions = PartitionIds(backend, table)
        self._router = Router(table, config, self._find_partitions)
        self._pipeline = Pipeline(
            backend, table, config, channel, self._memory, self._partitions.forget
        )
        self._lock = threading.Lock()
        self._gate = threading.Lock()
        self._closed = False
        self._timer_set = False
        # Stands in while there is no open chunk: it has no room, so that a row takes the slow way.
        self._marked = table.has_primary_key()
        self._width = len(table.schema.columns) + self._marked
        self._no_chunk = Chunk(WriteResultHandle(_nothing), 0.0, self._width, self._marked)
        self._no_chunk.room = 0
        self._chunk = self._no_chunk
        _writers.add(self)
        flush_at_exit(self)

    def hand_out(self, handle_type: type[WriteResultHandle]) -> None:
        """Give out handles of this kind from now on; for surfaces with a handle of their own."""
        self._handle_type = handle_type

    # Rows

    def _add_checked(self, values: tuple[Any, ...], size: int) -> WriteResultHandle:
        """Add a row when the open chunk had no room, or there was none."""
        while True:
            self._renew_chunk()
            with self._lock:
                chunk = self._chunk
                if chunk.room > 0:
                    chunk.room -= size
                    chunk.values.extend(values)
                    return chunk.handle

    def _rescue(self, chunk: Chunk) -> WriteResultHandle:
        """Hand over a row that was added while its chunk was being handed over.

        It may have been just in time: the handle covers the rows before it, too.
        """
        late = self._handle_type(self._send_now)
        chunk.late.append(late)
        self._off_io_thread(self._hand_off_late, chunk, late)
        return self._handle_type.joined([chunk.handle, *chunk.late])

    def _hand_off_late(self, chunk: Chunk, handle: WriteResultHandle) -> None:
        with self._gate:
            self._pass_on(chunk, chunk.take(), handle, 0)

    def _renew_chunk(self) -> None:
        self._check_usable()
        full = self._chunk
        if full.values and full.room <= 0:
            self._refuse_io_thread()
            self._reserve(CHUNK_BYTES_MAX)
            with self._gate:
                if not self._hand_off(CHUNK_BYTES_MAX, expected=full):
                    self._memory.release(CHUNK_BYTES_MAX)
        with self._lock:
            if self._chunk is self._no_chunk and not self._closed:
                due = time.monotonic() + self._linger_s
                handle = self._handle_type(self._send_now)
                self._chunk = Chunk(handle, due, self._width, self._marked)
                if not self._timer_set:
                    self._timer_set = True
                    self._post(self._set_timer, self._linger_s)

    def _hand_off(self, reserved: int = 0, expected: Chunk | None = None) -> bool:
        """Turn the open chunk into pieces and pass them on; the gate must be held."""
        with self._lock:
            chunk = self._chunk
            if chunk is self._no_chunk or (expected is not None and chunk is not expected):
                return False
            self._chunk = self._no_chunk
            chunk.open = False
        self._pass_on(chunk, chunk.take(), chunk.handle, reserved)
        return True

    def _pass_on(
        self, chunk: Chunk, taken: list[Any], handle: WriteResultHandle, reserved: int
    ) -> None:
        try:
            rows, deletes = chunk.to_arrow(taken, self._table.schema)
            pieces = self._router.split(rows, deletes, single=True)
            for piece in pieces:
                piece.prepared = self._channel.prepare(piece.rows, piece.deletes)
        except BaseException as cause:
            # Rows of earlier calls: whatever happens here, their handle and the flush must know.
            self._memory.release(reserved)
            error = cause
            if not isinstance(cause, FlussError):
                count = len(taken) // chunk.width
                error = RowError(f"{count} rows were not written: {cause!r}")
                error.__cause__ = cause
            self._post(self._pipeline.reject, handle, error)
            if not isinstance(cause, Exception):
                raise  # an interrupt
        else:
            self._memory.force(sum(piece.nbytes for piece in pieces) - reserved)
            self._post(self._pipeline.accept, handle, pieces, chunk.due)

    # Batches

    def _write_batch(self, rows: pa.RecordBatch, deletes: Deletes = None) -> WriteResultHandle:
        """Take a batch that has the wire schema: the whole of it, or nothing and an error."""
        self._check_usable()
        self._refuse_io_thread()
        reserved = rows.nbytes
        self._reserve(reserved)
        try:
            with self._gate:
                self._check_usable()
                self._hand_off()
                pieces = self._router.split(rows, deletes)
                handle = self._handle_type(self._send_now)
                self._memory.force(sum(piece.nbytes for piece in pieces) - reserved)
                reserved = 0
                due = time.monotonic() + self._linger_s
                self._post(self._pipeline.accept, handle, pieces, due, True)
                return handle
        finally:
            if reserved:
                self._memory.release(reserved)

    def _write_batches(self, batches: Iterable[pa.RecordBatch]) -> None:
        """Take batches one after the other; an error says how many rows were taken before it."""
        taken = 0
        stride = max(1, min(STRIDE_BYTES_MAX, self._memory.limit_bytes // 2))
        try:
            for batch in batches:
                for rows, _, _ in cut(batch, None, stride):
                    self._write_batch(rows)
                    taken += rows.num_rows
        except FlussError as error:
            if taken:
                error.message = f"after the first {taken} rows were taken: {error.message}"
            raise

    # Sending

    async def flush(self) -> None:
        """Return when every row written before is acknowledged.

        Raises the first error that nobody was told of yet, by a handle or an earlier flush. Giving
        up the waiting takes nothing back.
        """
        await self.flush_future().wait()

    def flush_future(self) -> Outcome:
        """The same for code without an event loop."""
        self._check_process()
        done = Outcome()
        self._off_io_thread(self._flush_to, done)
        return done

    async def close(self) -> None:
        """Flush; writes after this raise ClosedError."""
        await self.close_future().wait()

    def close_future(self) -> Outcome:
        """The same for code without an event loop."""
        with self._lock:
            self._closed = True
        return self.flush_future()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Flush. After an exception the rows are sent too, without waiting for the answer."""
        done = self.flush_future()
        if exc_type is None:
            await done.wait()

    def metrics(self) -> dict[str, float]:
        """Counters of this writer: rows, batches and bytes acknowledged, requests, retries."""
        figures = self._pipeline.metrics()
        figures["buffered_bytes"] = float(self._memory.used_bytes)
        return figures

    def rows_pending(self) -> int:
        """Rows taken and without an answer; exact when no other thread writes."""
        return self._pipeline.rows_pending + self._chunk.row_count

    def _flush_to(self, done: Outcome) -> None:
        with self._gate:
            self._hand_off()
            self._router.batch_closed()
            self._post(self._pipeline.flush, done)

    def _send_now(self) -> None:
        self._check_process()
        self._off_io_thread(self._send_open)

    def _send_open(self) -> None:
        with self._gate:
            self._hand_off()
            self._router.batch_closed()
            self._post(self._pipeline.send_now)

    def _off_io_thread(self, work: Callable[..., None], *args: Any) -> None:
        """Run at once, but on a worker when this is the I/O thread, which must not wait."""
        if self._runtime.on_thread():
            workers().submit(work, *args)
        else:
            work(*args)

    def _post(self, call: Callable[..., None], *args: Any) -> None:
        self._runtime.loop.call_soon_threadsafe(call, *args)

    # The timer of the open chunk, on the I/O thread

    def _set_timer(self, delay_s: float) -> None:
        self._runtime.loop.call_later(max(0.0, delay_s), self._linger_over)

    def _linger_over(self) -> None:
        with self._lock:
            chunk = self._chunk
            self._timer_set = chunk is not self._no_chunk
            if not self._timer_set:
                return
        left_s = chunk.due - time.monotonic()
        if left_s > 0:
            self._set_timer(left_s)
        else:
            with contextlib.suppress(RuntimeError):  # the interpreter is shutting down
                workers().submit(self._hand_off_due)

    def _hand_off_due(self) -> None:
        # Somebody at the gate is handing over already; waiting for it would keep a worker from
        # the encoding that this somebody may be waiting for.
        if self._gate.acquire(blocking=False):
            try:
                self._hand_off()
                self._router.batch_closed()
            finally:
                self._gate.release()
        self._post(self._set_timer, max(self._linger_s, GATE_RETRY_S))

    # Checks

    def _find_partitions(self, names: Sequence[str]) -> list[int]:
        known = self._partitions.known(names)
        return self._runtime.call(self._partitions.find(names)) if known is None else known

    def _reserve(self, nbytes: int) -> None:
        if not self._memory.try_reserve(nbytes):
            self._refuse_io_thread()
            self._memory.reserve(nbytes)

    def _refuse_io_thread(self) -> None:
        if self._runtime.on_thread():
            raise ReentrantCallError(
                "a write that may have to wait was made on the client's own I/O thread"
            )

    def _check_usable(self) -> None:
        self._check_process()
        if self._closed:
            raise ClosedError(f"this writer of {self._table.table_path} was closed; make a new one")

    def _after_fork(self) -> None:
        """In the child: locks may be held by threads that do not exist here."""
        self._lock = threading.Lock()
        self._gate = threading.Lock()
        self._chunk = self._no_chunk


def _nothing() -> None:
    pass


_writers: weakref.WeakSet[WriterCore] = weakref.WeakSet()


def writers_on(backend: Backend) -> list[WriterCore]:
    """The writers of one backend that somebody still holds, or that have rows pending."""
    return [writer for writer in list(_writers) if writer._backend is backend]


def _after_fork() -> None:
    for writer in list(_writers):
        writer._after_fork()


os.register_at_fork(after_in_child=_after_fork)
