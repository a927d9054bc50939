"""The part that both writers share: rows of any thread reach the event loop in order.

Rows that come one by one are collected in the open chunk without a lock (`row_input.Chunk`). Two
locks keep the rest in order:

- `_lock` guards the exchange of the open chunk and is held for a moment only.
- `_order_lock` is held while rows become slices and are handed to the accumulator, so that slices
  reach the loop in the order of the calls. Its holder may ask the server for a partition id, which
  the I/O thread answers; so the I/O thread never takes this lock.

No thread holds a lock while it waits for room in the buffer: a full buffer must not stop a flush.

Rows that nobody flushed are flushed at interpreter exit, within a deadline. If that fails, stderr
says how many rows are lost and why, and the process exits with `LOST_ROWS_STATUS`. At this stage
only `os._exit` can change the status, so it is called in the very last step, after streams and
logging are flushed; functions that were registered with `atexit` before this module was imported
do not run then. `os._exit`, a fatal signal and `kill -9` leave no chance to flush.
"""

from __future__ import annotations

import atexit
import concurrent.futures
import contextlib
import logging
import os
import sys
import threading
import time
import weakref
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from types import TracebackType
from typing import Any, Self

import pyarrow as pa

from fluss_client.aio.existence import PartitionIds
from fluss_client.aio.writing.accumulator import (
    Accumulator,
    BufferMemory,
    CurrentPlacement,
    Deletes,
    cut,
)
from fluss_client.aio.writing.channels import Channel
from fluss_client.aio.writing.results import Outcome, WriteResultHandle
from fluss_client.aio.writing.routing import Router
from fluss_client.aio.writing.row_input import CHUNK_BYTES_MAX, Chunk
from fluss_client.aio.writing.sender import Sender, line_rules
from fluss_client.backend.contract import Backend
from fluss_client.config import Config
from fluss_client.errors import (
    ClosedError,
    FlussError,
    ReentrantCallError,
    RowError,
)
from fluss_client.model.table import TableInfo
from fluss_client.runtime import ProcessBound, at_exit, runtime, workers

LOST_ROWS_STATUS = 74
"""EX_IOERR of sysexits.h: the exit status if rows could not be flushed at exit."""
METRICS = ("rows", "rows_failed", "batches", "bytes", "requests", "retries", "throttles")
STRIDE_BYTES_MAX = 8 << 20
"""Bytes of a table that are accepted at a time when no handle is asked for."""
LOCK_RETRY_S = 0.005
"""The least time between two attempts to hand over a chunk that is due."""


class WriterCore(ProcessBound):
    """The caller's side of a writer. Safe to use from any number of threads.

    Args:
        backend: Where the table is. It must belong to the loop of `runtime()`.
        table: The table to write.
        config: Settings of the writer.
        channel: How batches are encoded and sent.
    """

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
        self._router = Router(table, config, self._find_partitions, self._partitions.bucket_count)
        rules = replace(line_rules(config, channel), correctable=self._correctable())
        self._sender = Sender(backend, table, config, channel, rules)
        self._accumulator = Accumulator(
            table,
            config,
            self._memory,
            self._partitions,
            rules.inflight_max,
            self._sender.push,
            self._corrected_by() if rules.correctable else None,
        )
        self._lock = threading.Lock()
        self._order_lock = threading.Lock()
        self._closed = False
        self._timer_set = False
        # Used while there is no open chunk. It has no room, so a row takes the path with a lock.
        self._marked = table.has_primary_key()
        self._width = len(table.schema.columns) + self._marked
        self._no_chunk = Chunk(WriteResultHandle(_nothing), 0.0, self._width, self._marked)
        self._no_chunk.room = 0
        self._chunk = self._no_chunk
        _writers.add(self)
        _flush_at_exit(self)

    def _correctable(self) -> bool:
        """Return whether a server could say that rows were placed by a wrong bucket count.

        The counts of an embedded directory come from the same file as its rows: they are right.
        """
        offered = self._backend.capabilities
        distributed = offered.rescaling and offered.local_directory is None
        return distributed and self._table.is_partitioned()

    def _corrected_by(self) -> CurrentPlacement:
        """Return how rows are placed anew, and let the sender do it."""
        self._sender.correct_with(self._router.reroute, lambda p: self._accumulator.close_open(p))

        def count_of(partition_id: int | None) -> int | None:
            return self._backend.known_bucket_count(self._table, partition_id)

        return CurrentPlacement(count_of, self._router.reroute)

    def hand_out(self, handle_type: type[WriteResultHandle]) -> None:
        """Return handles of this type from now on; for an API with handles of its own."""
        self._handle_type = handle_type

    # Rows

    def _add_checked(self, values: tuple[Any, ...], size: int) -> WriteResultHandle:
        """Add a row when there is no open chunk with room."""
        while True:
            self._renew_chunk()
            with self._lock:
                chunk = self._chunk
                if chunk.room > 0:
                    chunk.room -= size
                    chunk.values.extend(values)
                    return chunk.handle

    def _add_late(self, chunk: Chunk) -> WriteResultHandle:
        """Hand over a row that another thread may have missed when it closed the chunk.

        The row may also have been in time. So the handle covers both ways: the rows of the chunk,
        and those that came late.
        """
        late = self._handle_type(self._send_now)
        chunk.late.append(late)
        self._off_io_thread(self._close_late, chunk, late)
        return self._handle_type.joined([chunk.handle, *chunk.late])

    def _close_late(self, chunk: Chunk, handle: WriteResultHandle) -> None:
        with self._order_lock:
            self._to_accumulator(chunk, chunk.take(), handle, 0)

    def _renew_chunk(self) -> None:
        self._check_usable()
        full = self._chunk
        if full.values and full.room <= 0:
            self._refuse_io_thread()
            # Wait for room without a lock. Another thread may close the same chunk meanwhile.
            self._reserve(CHUNK_BYTES_MAX)
            with self._order_lock:
                if not self._close_chunk(CHUNK_BYTES_MAX, expected=full):
                    self._memory.release(CHUNK_BYTES_MAX)
        with self._lock:
            if self._chunk is self._no_chunk and not self._closed:
                due = time.monotonic() + self._linger_s
                handle = self._handle_type(self._send_now)
                self._chunk = Chunk(handle, due, self._width, self._marked)
                if not self._timer_set:
                    self._timer_set = True
                    self._post(self._set_timer, self._linger_s)

    def _close_chunk(self, reserved: int = 0, expected: Chunk | None = None) -> bool:
        """Close the open chunk and hand its rows over; the caller holds `_order_lock`."""
        with self._lock:
            chunk = self._chunk
            if chunk is self._no_chunk or (expected is not None and chunk is not expected):
                return False
            self._chunk = self._no_chunk
            chunk.open = False
        self._to_accumulator(chunk, chunk.take(), chunk.handle, reserved)
        return True

    def _to_accumulator(
        self, chunk: Chunk, taken: list[Any], handle: WriteResultHandle, reserved: int
    ) -> None:
        try:
            rows, deletes = chunk.to_arrow(taken, self._table.schema)
            slices = self._router.split(rows, deletes, single=True)
            for part in slices:
                part.prepared = self._channel.prepare(part.rows, part.deletes)
        except BaseException as cause:
            # The rows were accepted by earlier calls: their handle and the flush must report them.
            self._memory.release(reserved)
            error = cause
            if not isinstance(cause, FlussError):
                count = len(taken) // chunk.width
                error = RowError(f"{count} rows were not written: {cause!r}")
                error.__cause__ = cause
            self._post(self._accumulator.reject, handle, error)
            if not isinstance(cause, Exception):
                raise  # an interrupt
        else:
            # The rows are accepted already, so their real size counts even above the limit.
            self._memory.force(sum(part.nbytes for part in slices) - reserved)
            self._post(self._accumulator.accept, handle, slices, chunk.due)

    # Batches

    def _write_batch(self, rows: pa.RecordBatch, deletes: Deletes = None) -> WriteResultHandle:
        """Accept a whole batch that has the wire schema, or raise an error and accept nothing."""
        self._check_usable()
        self._refuse_io_thread()
        # Wait for room before taking the lock, so that a full buffer does not block a flush.
        reserved = rows.nbytes
        self._reserve(reserved)
        try:
            with self._order_lock:
                self._check_usable()
                self._close_chunk()
                slices = self._router.split(rows, deletes)
                handle = self._handle_type(self._send_now)
                self._memory.force(sum(part.nbytes for part in slices) - reserved)
                reserved = 0
                due = time.monotonic() + self._linger_s
                self._post(self._accumulator.accept, handle, slices, due, True)
                return handle
        finally:
            if reserved:
                self._memory.release(reserved)

    def _write_batches(self, batches: Iterable[pa.RecordBatch]) -> None:
        """Accept batches one after the other; an error says how many rows were accepted before."""
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

        Giving up the waiting does not take rows back.

        Raises:
            FlussError: The first error that no handle and no earlier flush has reported.
        """
        await self.flush_future().wait()

    def flush_future(self) -> Outcome:
        """Start a flush and return a future for code without an event loop."""
        self._check_process()
        done = Outcome()
        self._off_io_thread(self._flush_to, done)
        return done

    async def close(self) -> None:
        """Flush and close the writer; writes after this raise `ClosedError`."""
        await self.close_future().wait()

    def close_future(self) -> Outcome:
        """Close the writer, start a flush, and return a future for code without an event loop."""
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
        """Flush. After an exception the rows are sent without waiting for the answer."""
        done = self.flush_future()
        if exc_type is None:
            await done.wait()

    def metrics(self) -> dict[str, float]:
        """Return counters: rows, batches and bytes acknowledged, failed rows, requests, retries."""
        totals = self._accumulator.counters + self._sender.counters
        figures = {name: float(totals[name]) for name in METRICS}
        figures["buffered_bytes"] = float(self._memory.used_bytes)
        return figures

    def rows_pending(self) -> int:
        """Return the number of rows without an answer; exact when no other thread writes."""
        return self._accumulator.rows_pending + self._chunk.row_count

    def _flush_to(self, done: Outcome) -> None:
        with self._order_lock:
            self._close_chunk()
            self._router.batch_closed()
            self._post(self._accumulator.flush, done)

    def _send_now(self) -> None:
        self._check_process()
        self._off_io_thread(self._send_open)

    def _send_open(self) -> None:
        with self._order_lock:
            self._close_chunk()
            self._router.batch_closed()
            self._post(self._accumulator.send_now)

    def _off_io_thread(self, work: Callable[..., None], *args: Any) -> None:
        """Run `work` at once; on a worker thread if the caller is the I/O thread."""
        if self._runtime.on_thread():
            workers().submit(work, *args)
        else:
            work(*args)

    def _post(self, call: Callable[..., None], *args: Any) -> None:
        # The only way to the accumulator: it belongs to the loop and has no lock.
        self._runtime.loop.call_soon_threadsafe(call, *args)

    # The timer of the open chunk, on the I/O thread. It never takes `_order_lock`.

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
                workers().submit(self._close_chunk_due)

    def _close_chunk_due(self) -> None:
        # If the lock is taken, another thread is handing rows over already. Waiting for it would
        # keep this worker from the encoding that the other thread may be waiting for.
        if self._order_lock.acquire(blocking=False):
            try:
                self._close_chunk()
                self._router.batch_closed()
            finally:
                self._order_lock.release()
        self._post(self._set_timer, max(self._linger_s, LOCK_RETRY_S))

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
        """Replace the locks in a forked child: threads that held them do not exist there."""
        self._lock = threading.Lock()
        self._order_lock = threading.Lock()
        self._chunk = self._no_chunk


def _nothing() -> None:
    pass


_writers: weakref.WeakSet[WriterCore] = weakref.WeakSet()


def writers_on(backend: Backend) -> list[WriterCore]:
    """Return the writers of a backend that are referenced or have rows without an answer."""
    return [writer for writer in list(_writers) if writer._backend is backend]


_lost: list[str] = []


def _flush_at_exit(writer: WriterCore) -> None:
    """Flush the writer at interpreter exit, if it still exists then."""
    reference = weakref.ref(writer)  # the hook must not keep the writer alive

    def hook(seconds: float) -> None:
        living = reference()
        if living is not None:
            _flush(living, seconds)

    forget = at_exit(writer, hook)
    weakref.finalize(writer, forget).atexit = False


def _flush(writer: WriterCore, seconds: float) -> None:
    pending = writer.rows_pending()
    try:
        writer.flush_future().result(seconds)
        return
    except concurrent.futures.TimeoutError:
        why = f"no acknowledgement came within {seconds:g} s"
        pending = writer.rows_pending()
    except FlussError as error:
        why = str(error)
    except Exception as error:  # noqa: BLE001 - any error loses the rows and must be shown
        why = repr(error)
    rows = f"up to {pending} rows" if pending else "rows"
    text = f"fluss_client: {rows} for {writer.name} are lost at exit: {why}"
    _lost.append(text)
    with contextlib.suppress(OSError, ValueError):
        print(text, file=sys.stderr, flush=True)


@atexit.register
def _force_status() -> None:
    if not _lost:
        return
    # `os._exit` runs no further exit functions, so everything is flushed here.
    logging.shutdown()
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError, AttributeError):
            stream.flush()
    os._exit(LOST_ROWS_STATUS)


def _after_fork() -> None:
    _lost.clear()  # the parent reports its own losses
    for writer in list(_writers):
        writer._after_fork()


os.register_at_fork(after_in_child=_after_fork)
