"""Decoding on worker threads, so far ahead of the user as a bound of bytes allows.

Encoded bytes may grow tenfold, so that what may be fetched ahead and what may be decoded ahead
have bounds of their own. How much they grow is learned from what was decoded last.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable

from fluss_client.aio.fetch_state import BucketState, Chunk, Piece, Restore, decode_slices
from fluss_client.runtime import workers

DECODE_JOBS_MAX = 4
JOB_BYTES_MAX = 1 << 19
"""Encoded bytes that one job decodes, unless a single slice has more."""
JOBS_PER_BOUND = 16
"""Jobs are small enough that about so many fit into the bound, if bytes do not grow."""

_Job = asyncio.Future[tuple[list[Piece], int]]


class Decoder:
    """The chunks of one scan that wait for decoding or for the user."""

    def __init__(self, restore: Restore, bytes_max: int, settled: Callable[[Chunk], None]) -> None:
        self._restore = restore
        self.bytes_max = bytes_max
        """May be changed at any time."""
        self._settled = settled
        self._waiting: deque[Chunk] = deque()
        self._jobs: dict[_Job, Chunk] = {}
        self._bytes_in_jobs = 0
        self._growth = 1.0
        self.chunk_bytes = max(1, min(JOB_BYTES_MAX, bytes_max // JOBS_PER_BOUND))
        """How much one chunk should hold."""
        self.bytes_held = 0
        self.urgent: BucketState | None = None
        """The only bucket that the user can go on with; its chunks pass the bound."""

    def add(self, chunks: list[Chunk]) -> None:
        """Decode these when their turn comes."""
        self._waiting.extend(chunks)
        self.start()

    def release(self, *chunks: Chunk) -> None:
        """The rows of these chunks were handed out or thrown away."""
        self.bytes_held -= sum(chunk.nbytes for chunk in chunks if chunk.results is not None)
        self.start()

    def start(self) -> None:
        """Begin what the bounds allow."""
        while self._waiting and len(self._jobs) < DECODE_JOBS_MAX:
            chunk = self._next()
            if chunk is None:
                return
            state = chunk.state
            job: _Job = asyncio.get_running_loop().run_in_executor(
                workers(), decode_slices, state.bucket, chunk.slices, self._restore, state.stop
            )
            self._jobs[job] = chunk
            self._bytes_in_jobs += chunk.nbytes
            job.add_done_callback(self._done)

    def _next(self) -> Chunk | None:
        while self._waiting and self._waiting[0].dropped:
            self._waiting.popleft()
        if self.bytes_held + self._bytes_in_jobs * self._growth < self.bytes_max:
            return self._waiting.popleft() if self._waiting else None
        urgent = self.urgent
        if urgent is None or urgent.has_rows_ready:
            return None
        for chunk in self._waiting:
            if chunk.state is urgent:
                self._waiting.remove(chunk)
                return chunk
        return None

    def _done(self, job: _Job) -> None:
        chunk = self._jobs.pop(job)
        self._bytes_in_jobs -= chunk.nbytes
        if job.cancelled():
            return
        error = job.exception()
        state = chunk.state
        if not chunk.dropped:
            before = chunk.nbytes
            if isinstance(error, Exception):
                chunk.error = error
            else:
                results, nbytes = job.result()
                chunk.results = deque(results)
                chunk.nbytes = max(1, nbytes)
                self._growth = max(1.0, nbytes / max(1, before))
                self.bytes_held += chunk.nbytes
                state.buffered += chunk.nbytes - before
            chunk.slices = ()
            self._settled(chunk)
        self.start()

    def close(self) -> None:
        """Forget everything; jobs that a thread has begun end unseen."""
        self._waiting.clear()
        for job in list(self._jobs):
            job.cancel()
