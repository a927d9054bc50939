"""A blocking Arrow reader over an asynchronous read.

Each `next` asks the loop that does the reading for what is ready, and waits for it. That loop must
not be the one of the calling thread: it would wait for itself. Reading goes ahead meanwhile, as
far as the prefetch of a scan allows, and stops when the reader is dropped.

Arrow's own `close()` does not reach the iterator behind a reader: a reader is over when it was read
to its end, has failed, or was dropped.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Coroutine
from concurrent.futures import Future
from typing import Any, TypeVar

import pyarrow as pa

from fluss_client.aio.fetch_state import Piece
from fluss_client.aio.offsets import Ranges
from fluss_client.aio.ranges import RangeReader
from fluss_client.errors import ClosedError, ReentrantCallError
from fluss_client.model.table import TableBucket
from fluss_client.runtime import wait_for

PIECES_AT_ONCE_MAX = 64

T = TypeVar("T")


def runs_on(loop: asyncio.AbstractEventLoop) -> bool:
    """Whether the calling thread is the one of this loop."""
    try:
        return asyncio.get_running_loop() is loop
    except RuntimeError:
        return False


def call_on(loop: asyncio.AbstractEventLoop, work: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine on the loop of another thread and wait for it."""
    if runs_on(loop):
        work.close()
        raise ReentrantCallError(
            "a blocking read was made on the event loop that would have to serve it; await "
            "to_arrow(), or call this with asyncio.to_thread"
        )
    return wait_for(asyncio.run_coroutine_threadsafe(work, loop), None)


class ReaderProgress:
    """How far a reader has given its rows. The scanner looks at it, the reader writes it.

    It does not refer to the reader: that one must be free to be dropped.
    """

    __slots__ = ("_left", "active", "error")

    def __init__(self) -> None:
        self.active = True
        """Whether somebody may still read."""
        self.error: Exception | None = None
        """What ended the reading."""
        self._left: dict[TableBucket, int] | None = None
        """Where the buckets end that were not given whole; None before that is known."""

    @property
    def gave_everything(self) -> bool:
        """Whether no row is left that the reader covers and did not give."""
        return self._left is not None and not self._left

    def begin(self, ranges: Ranges) -> None:
        """The rows that the reader covers are known."""
        self._left = {bucket: stop for bucket, (start, stop) in ranges.items() if start < stop}

    def given(self, piece: Piece) -> None:
        """The rows of a piece were given."""
        if self._left is not None and piece.next_offset >= self._left.get(piece.bucket, 0):
            self._left.pop(piece.bucket, None)


def blocking_reader(
    loop: asyncio.AbstractEventLoop,
    ranges: Future[Ranges],
    open_reader: Callable[[Ranges], RangeReader],
    schema: pa.Schema,
    as_batch: Callable[[Piece], pa.RecordBatch],
) -> tuple[pa.RecordBatchReader, ReaderProgress]:
    """The rows of a range read, for blocking code; `open_reader` is called on `loop`.

    `ranges` may still be under way when the caller is the thread of that loop.
    """
    progress = ReaderProgress()
    batches = _Batches(loop, ranges, open_reader, as_batch, progress)
    return pa.RecordBatchReader.from_batches(schema, batches), progress


class _Batches:
    """The iterator behind a reader. Whoever drops the reader drops it."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        ranges: Future[Ranges],
        open_reader: Callable[[Ranges], RangeReader],
        as_batch: Callable[[Piece], pa.RecordBatch],
        progress: ReaderProgress,
    ) -> None:
        self._loop = loop
        self._open_reader = open_reader
        self._as_batch = as_batch
        self._progress = progress
        self._reader: RangeReader | None = None
        self._ready: deque[Piece] = deque()
        self._ranges = ranges
        ranges.add_done_callback(lambda done: _begin(progress, done))

    def __iter__(self) -> _Batches:
        return self

    def __next__(self) -> pa.RecordBatch:
        if self._progress.error is not None:
            # An iterator that ends after an error would look as if everything had been read.
            raise self._progress.error
        try:
            while self._ready or self._read_on():
                piece = self._ready.popleft()
                batch = self._as_batch(piece) if piece.batch.num_rows else None
                self._progress.given(piece)
                if batch is not None:
                    return batch
        except BaseException as error:
            # What an interrupted call fetched is lost: reading on would skip it.
            interrupted = ClosedError("reading was interrupted; make a new reader")
            self._progress.error = error if isinstance(error, Exception) else interrupted
            self._end()
            raise
        self._end()
        raise StopIteration

    def __del__(self) -> None:
        self._end()

    def _read_on(self) -> bool:
        """Fetch more pieces; whether there were any."""
        if not self._progress.active:
            return False
        if self._reader is None:
            self._reader = call_on(self._loop, self._opened())
        self._ready.extend(call_on(self._loop, self._reader.read(PIECES_AT_ONCE_MAX)))
        return bool(self._ready)

    async def _opened(self) -> RangeReader:
        return self._open_reader(await asyncio.wrap_future(self._ranges))

    def _end(self) -> None:
        self._progress.active = False
        reader, self._reader = self._reader, None
        # A reader may be dropped anywhere, even on the loop itself: nobody waits for its end.
        if reader is not None and not self._loop.is_closed():
            asyncio.run_coroutine_threadsafe(reader.close(), self._loop)


def _begin(progress: ReaderProgress, ranges: Future[Ranges]) -> None:
    if not ranges.cancelled() and ranges.exception() is None:
        progress.begin(ranges.result())
