"""A blocking Arrow reader over an asynchronous read.

Each `next` asks the loop that does the reading for what is ready, and waits for it. That loop must
not be the one of the calling thread: it would wait for itself. Reading goes ahead meanwhile, as
far as the prefetch of a scan allows, and stops when the reader is dropped.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterator
from concurrent.futures import Future
from typing import Any, TypeVar

import pyarrow as pa

from fluss_client.aio.fetch_state import Piece
from fluss_client.aio.offsets import Ranges
from fluss_client.aio.ranges import RangeReader
from fluss_client.errors import ReentrantCallError
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


def blocking_reader(
    loop: asyncio.AbstractEventLoop,
    ranges: Future[Ranges],
    open_reader: Callable[[Ranges], RangeReader],
    schema: pa.Schema,
    as_batch: Callable[[Piece], pa.RecordBatch],
) -> pa.RecordBatchReader:
    """The rows of a range read, for blocking code; `open_reader` is called on `loop`.

    `ranges` may still be under way when the caller is the thread of that loop.
    """
    batches = _batches(loop, ranges, open_reader, as_batch)
    return pa.RecordBatchReader.from_batches(schema, batches)


def _batches(
    loop: asyncio.AbstractEventLoop,
    ranges: Future[Ranges],
    open_reader: Callable[[Ranges], RangeReader],
    as_batch: Callable[[Piece], pa.RecordBatch],
) -> Iterator[pa.RecordBatch]:
    async def opened() -> RangeReader:
        return open_reader(await asyncio.wrap_future(ranges))

    reader = call_on(loop, opened())
    try:
        while pieces := call_on(loop, reader.read(PIECES_AT_ONCE_MAX)):
            for piece in pieces:
                if piece.batch.num_rows:
                    yield as_batch(piece)
    finally:
        # A reader may be dropped anywhere, even on the loop itself: nobody waits for its end.
        if not loop.is_closed():
            asyncio.run_coroutine_threadsafe(reader.close(), loop)
