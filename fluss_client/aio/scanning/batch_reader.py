"""A blocking Arrow reader over an asynchronous read.

Each `next` asks the event loop that reads for decoded rows, and waits for them. That loop must
belong to another thread: a thread that waits for its own loop waits forever. Meanwhile the loop
reads ahead, as far as the prefetch of a scan allows, and stops when the reader is dropped.

Arrow's own `close()` does not reach the iterator behind a reader. So a reader ends when it was read
to its end, has failed, or was dropped.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Coroutine
from concurrent.futures import Future
from typing import Any, TypeVar

import pyarrow as pa

from fluss_client.aio.offsets import Ranges
from fluss_client.aio.scanning.ranges import RangeReader
from fluss_client.errors import ClosedError, ReentrantCallError
from fluss_client.model.records import RecordBatch
from fluss_client.model.table import TableBucket
from fluss_client.runtime import wait_for

BATCHES_AT_ONCE_MAX = 64

T = TypeVar("T")


def runs_on(loop: asyncio.AbstractEventLoop) -> bool:
    """Return whether this thread runs the loop."""
    try:
        return asyncio.get_running_loop() is loop
    except RuntimeError:
        return False


def call_on(loop: asyncio.AbstractEventLoop, work: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine on the loop of another thread and wait for its result.

    Raises:
        ReentrantCallError: This thread runs the loop.
    """
    if runs_on(loop):
        work.close()
        raise ReentrantCallError(
            "a blocking read was made on the event loop that would have to serve it; await "
            "to_arrow(), or call this with asyncio.to_thread"
        )
    return wait_for(asyncio.run_coroutine_threadsafe(work, loop), None)


class ReaderProgress:
    """How far a reader was read. The reader writes it, and the scanner reads it.

    It has no reference to the reader, because the scanner must not keep a dropped reader alive.
    """

    __slots__ = ("_left", "active", "error")

    def __init__(self) -> None:
        self.active = True
        """Whether the reader was neither read to its end nor dropped."""
        self.error: Exception | None = None
        """The error that ended the reading."""
        self._left: dict[TableBucket, int] | None = None
        """The last offset of each bucket that was not read to its end; None until it is known."""

    @property
    def returned_everything(self) -> bool:
        """Return whether the reader has returned all of its rows."""
        return self._left is not None and not self._left

    def begin(self, ranges: Ranges) -> None:
        """Set the ranges of the reader."""
        self._left = {bucket: stop for bucket, (start, stop) in ranges.items() if start < stop}

    def returned(self, rows: RecordBatch) -> None:
        """Note that the reader has returned these rows."""
        if self._left is not None and rows.next_offset >= self._left.get(rows.bucket, 0):
            self._left.pop(rows.bucket, None)


def blocking_reader(
    loop: asyncio.AbstractEventLoop,
    ranges: Future[Ranges],
    open_reader: Callable[[Ranges], RangeReader],
    schema: pa.Schema,
    as_batch: Callable[[RecordBatch], pa.RecordBatch],
) -> tuple[pa.RecordBatchReader, ReaderProgress]:
    """Return an Arrow reader of ranges for blocking code, and its progress.

    Args:
        loop: The loop that reads.
        ranges: The ranges. The future may be pending if the caller's thread runs `loop`.
        open_reader: Called on `loop` with the ranges.
        schema: The schema of the batches.
        as_batch: Makes a batch of that schema.
    """
    progress = ReaderProgress()
    batches = _Batches(loop, ranges, open_reader, as_batch, progress)
    return pa.RecordBatchReader.from_batches(schema, batches), progress


class _Batches:
    """The iterator behind a reader. It is dropped together with the reader."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        ranges: Future[Ranges],
        open_reader: Callable[[Ranges], RangeReader],
        as_batch: Callable[[RecordBatch], pa.RecordBatch],
        progress: ReaderProgress,
    ) -> None:
        self._loop = loop
        self._open_reader = open_reader
        self._as_batch = as_batch
        self._progress = progress
        self._reader: RangeReader | None = None
        self._ready: deque[RecordBatch] = deque()
        self._ranges = ranges
        ranges.add_done_callback(lambda done: _begin(progress, done))

    def __iter__(self) -> _Batches:
        return self

    def __next__(self) -> pa.RecordBatch:
        if self._progress.error is not None:
            # An iterator that ended after an error would look as if everything had been read.
            raise self._progress.error
        try:
            while self._ready or self._read_on():
                rows = self._ready.popleft()
                batch = self._as_batch(rows) if rows.batch.num_rows else None
                self._progress.returned(rows)
                if batch is not None:
                    return batch
        except BaseException as error:
            # The rows that an interrupted call has fetched are lost: reading on would skip them.
            interrupted = ClosedError("reading was interrupted; make a new reader")
            self._progress.error = error if isinstance(error, Exception) else interrupted
            self._end()
            raise
        self._end()
        raise StopIteration

    def __del__(self) -> None:
        self._end()

    def _read_on(self) -> bool:
        """Fetch more rows; return whether there were any."""
        if not self._progress.active:
            return False
        if self._reader is None:
            self._reader = call_on(self._loop, self._opened())
        self._ready.extend(call_on(self._loop, self._reader.read(BATCHES_AT_ONCE_MAX)))
        return bool(self._ready)

    async def _opened(self) -> RangeReader:
        return self._open_reader(await asyncio.wrap_future(self._ranges))

    def _end(self) -> None:
        self._progress.active = False
        reader, self._reader = self._reader, None
        # A reader may be dropped on any thread, even on that of the loop: do not wait here.
        if reader is not None and not self._loop.is_closed():
            asyncio.run_coroutine_threadsafe(reader.close(), self._loop)


def _begin(progress: ReaderProgress, ranges: Future[Ranges]) -> None:
    if not ranges.cancelled() and ranges.exception() is None:
        progress.begin(ranges.result())
