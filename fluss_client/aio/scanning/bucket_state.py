"""The state of one subscribed bucket, and the decoding of what was fetched of it.

Worker threads decode ahead of the user, up to a bound of bytes. Rows may take ten times as many
bytes decoded as encoded, so fetching ahead and decoding ahead have separate bounds. The growth is
estimated from what was decoded last.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from itertools import groupby, islice, repeat

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from fluss_client.backend.contract import DecodedSlice, FetchedBucket, LogSlice
from fluss_client.errors import CorruptDataError
from fluss_client.model.records import RecordBatch
from fluss_client.model.table import TableBucket
from fluss_client.runtime import workers

SLICE_BYTES = 1024
"""The bytes that a decoded slice takes beside its rows, which is most of a small slice."""
NO_ROWS = pa.record_batch([], schema=pa.schema([]))
_NOTHING: DecodedSlice = (NO_ROWS, None)

Restore = Callable[[pa.RecordBatch], pa.RecordBatch]
Keep = Callable[[pa.RecordBatch], pa.BooleanArray]
"""Returns for each row whether a filter keeps it."""


class Chunk:
    """Consecutive slices of one bucket that one job decodes.

    `results` is None until they are decoded. `nbytes` are the bytes that the chunk holds now,
    encoded or decoded. A chunk is `dropped` when its bucket was unsubscribed.
    """

    __slots__ = ("dropped", "error", "nbytes", "results", "slices", "state")

    def __init__(self, state: BucketState, slices: Sequence[LogSlice]) -> None:
        self.state = state
        self.slices = slices
        self.nbytes = sum(part.nbytes for part in slices)
        self.results: deque[RecordBatch] | None = None
        self.error: Exception | None = None
        self.dropped = False


class BucketState:
    """One subscribed bucket.

    Rows below `position` were returned to the user, rows below `offset` were fetched, and the scan
    ends at `stop`. `offset` is negative (earliest, latest) until it is looked up.
    """

    __slots__ = (
        "at_end",
        "batch_bytes",
        "bucket",
        "buffered",
        "busy",
        "closed",
        "error",
        "failing_since",
        "failures",
        "fresh",
        "last_failure",
        "listed",
        "node",
        "offset",
        "offset_bytes",
        "position",
        "queue",
        "retry_at",
        "skipped",
        "stale",
        "start",
        "stop",
    )

    def __init__(self, bucket: TableBucket, start: int, stop: int | None = None) -> None:
        self.bucket = bucket
        self.start = start
        self.offset = start
        self.position = start
        self.stop = stop
        self.node: int | None = None
        self.stale = False
        """The server answered that it does not lead the bucket, so the cached leader is wrong."""
        self.queue: deque[Chunk] = deque()
        self.buffered = 0
        self.offset_bytes = 0.0
        """The encoded bytes of one offset in the last answer; 0 if that is not known.

        An answer without rows makes it unknown: a bound that is less than the next batch could
        have caused it."""
        self.batch_bytes = 0
        """The largest batch of that answer."""
        self.at_end = False
        """The last answer reached the end of the log, or brought no rows."""
        self.fresh = True
        """No row was read from the bucket yet."""
        self.busy = 0
        """Requests for this bucket that are in flight."""
        self.listed = False
        """The bucket is in the fetcher's list of buckets with decoded rows."""
        self.closed = False
        self.error: Exception | None = None
        """The error that ended the reading; it is raised after the rows before it were returned."""
        self.last_failure: Exception | None = None
        self.failures = 0
        self.failing_since: float | None = None
        self.retry_at = 0.0
        self.skipped = 0
        """Offsets without a row so far."""

    @property
    def has_rows_ready(self) -> bool:
        """Return whether the oldest chunk is decoded."""
        return bool(self.queue) and self.queue[0].results is not None

    @property
    def fetched_all(self) -> bool:
        """Return whether everything below `stop` was fetched."""
        return self.stop is not None and 0 <= self.stop <= self.offset

    @property
    def done(self) -> bool:
        """Return whether everything below `stop` was returned to the user."""
        return self.stop is not None and 0 <= self.stop <= self.position

    @property
    def bytes_left(self) -> int | None:
        """About the encoded bytes up to `stop`, rounded up to a whole batch; None if not known."""
        if self.stop is None or not self.offset_bytes:
            return None
        return int((self.stop - self.offset) * self.offset_bytes) + self.batch_bytes

    def succeeded(self) -> None:
        """Forget earlier failures, because the server has answered for this bucket."""
        self.failures = 0
        self.failing_since = None
        self.last_failure = None
        self.retry_at = 0.0

    def accept(self, fetched: FetchedBucket, chunk_bytes: int) -> list[Chunk]:
        """Queue the slices of an answer, in chunks of about `chunk_bytes`, and move `offset` on.

        Raises:
            CorruptDataError: The offsets of the slices are not in order.
        """
        wanted = []
        expected = self.offset
        for part in fetched.slices:
            rows_end = part.base_offset + part.row_count
            if part.next_offset < max(expected, rows_end) or (
                part.row_count and part.base_offset < expected
            ):
                raise CorruptDataError(
                    f"offsets of {self.bucket} run backwards: [{part.base_offset}, "
                    f"{part.next_offset}) with {part.row_count} rows came after {expected}"
                )
            if self.stop is not None and expected >= self.stop:
                break
            wanted.append(part)
            self.skipped += part.next_offset - expected - part.row_count
            expected = part.next_offset
        self.offset_bytes, self.batch_bytes = 0.0, 0
        if expected > self.offset:
            self.offset_bytes = sum(part.nbytes for part in wanted) / (expected - self.offset)
            self.batch_bytes = max(part.nbytes for part in wanted)
        reached = max(expected, fetched.next_offset)
        if fetched.high_watermark >= 0:
            self.at_end = reached >= fetched.high_watermark
        if self.stop is not None:
            reached = min(reached, max(expected, self.stop))
        if reached > expected:
            # The answer ends with offsets without rows: an empty slice moves `position` over them.
            self.skipped += reached - expected
            wanted.append(_gap(expected, reached))
        self.fresh = self.fresh and reached == self.offset
        self.offset = reached
        chunks = [Chunk(self, part) for part in _grouped(wanted, chunk_bytes)]
        self.queue.extend(chunks)
        self.buffered += sum(chunk.nbytes for chunk in chunks)
        return chunks

    def drop_queue(self) -> list[Chunk]:
        """Drop what was fetched and not returned to the user, and return the dropped chunks."""
        dropped = list(self.queue)
        for chunk in dropped:
            chunk.dropped = True
        self.queue.clear()
        self.buffered = 0
        return dropped

    def take(self) -> tuple[RecordBatch, Chunk | None]:
        """Return the next rows, and their chunk if they are the last ones of it."""
        chunk = self.queue[0]
        assert chunk.results is not None
        rows = chunk.results.popleft()
        self.position = rows.next_offset
        if chunk.results:
            return rows, None
        self.queue.popleft()
        return rows, chunk


def decode_slices(
    bucket: TableBucket,
    slices: Sequence[LogSlice],
    restore: Restore,
    stop: int | None,
    keep: Keep | None = None,
) -> tuple[list[RecordBatch], int]:
    """Decode slices, on a worker thread. `keep` says which rows a filter keeps.

    Returns:
        The rows below `stop`, and the bytes that they take. A slice without rows becomes a batch
        without rows: its `next_offset` still tells how far the log was read.
    """
    results = []
    nbytes = SLICE_BYTES * len(slices)
    for part, (batch, changes) in _decoded(slices):
        following = part.next_offset if stop is None else min(part.next_offset, stop)
        if not part.row_count:
            results.append(_record_batch(bucket, NO_ROWS, None, part, following))
            continue
        if batch.num_rows != part.row_count:
            raise CorruptDataError(
                f"{batch.num_rows} rows were decoded at offset {part.base_offset}, not the "
                f"{part.row_count} that were announced"
            )
        below = min(part.row_count, following - part.base_offset)
        if below < part.row_count:
            batch = batch.slice(0, below)
            changes = None if changes is None else changes[:below]
        kept = None if keep is None else keep(batch)
        if kept is None or kept.true_count == batch.num_rows:
            nbytes += batch.get_total_buffer_size()
            results.append(_record_batch(bucket, restore(batch), changes, part, following))
        else:
            found = _filtered_batch(bucket, restore(batch), changes, part, following, kept)
            nbytes += found.batch.get_total_buffer_size()
            results.append(found)
    return results, nbytes


def _record_batch(
    bucket: TableBucket,
    batch: pa.RecordBatch,
    changes: npt.NDArray[np.uint8] | None,
    part: LogSlice,
    next_offset: int,
) -> RecordBatch:
    return RecordBatch(
        batch,
        bucket,
        part.base_offset,
        part.base_offset + batch.num_rows - 1,
        part.timestamp,
        None if changes is None else pa.array(changes),
        next_offset,
    )


def _filtered_batch(
    bucket: TableBucket,
    batch: pa.RecordBatch,
    changes: npt.NDArray[np.uint8] | None,
    part: LogSlice,
    next_offset: int,
    kept: pa.BooleanArray,
) -> RecordBatch:
    """Return the kept rows with their offsets, which are not consecutive any more."""
    at = np.flatnonzero(kept.to_numpy(zero_copy_only=False))
    if not len(at):
        return _record_batch(bucket, NO_ROWS, None, part, next_offset)
    offsets = at.astype(np.int64) + part.base_offset
    return RecordBatch(
        batch.filter(kept),
        bucket,
        int(offsets[0]),
        int(offsets[-1]),
        part.timestamp,
        None if changes is None else pa.array(changes[at]),
        next_offset,
        offsets,
    )


def _decoded(slices: Sequence[LogSlice]) -> Iterator[tuple[LogSlice, DecodedSlice]]:
    """Return every slice with its rows. Neighbours with the same decoder are decoded together."""
    for decoder, group in groupby(slices, lambda part: part.decoder if part.row_count else None):
        parts = list(group)
        rows = repeat(_NOTHING, len(parts)) if decoder is None else decoder(parts)
        yield from zip(parts, rows, strict=True)


def _grouped(slices: Sequence[LogSlice], chunk_bytes: int) -> list[list[LogSlice]]:
    groups: list[list[LogSlice]] = []
    room = 0
    for part in slices:
        if room <= 0:
            groups.append([])
            room = chunk_bytes
        groups[-1].append(part)
        room -= part.nbytes
    return groups


def _gap(start: int, stop: int) -> LogSlice:
    return LogSlice(start, stop, 0, -1, 0, lambda slices: [_NOTHING for _ in slices], None)


DECODE_JOBS_MAX = 4
"""Jobs of one scan at a time, so that other scans get worker threads too."""
JOB_BYTES_MAX = 1 << 19
"""Encoded bytes that one job decodes, unless a single slice has more."""
JOBS_PER_BOUND = 16
"""A job decodes at most this fraction of the bound of bytes."""

_Job = asyncio.Future[tuple[list[RecordBatch], int]]


class Decoder:
    """Decodes the chunks of one scan on worker threads, up to a bound of decoded bytes.

    All methods run on the event loop; only `decode_slices` runs on a worker thread.
    """

    def __init__(
        self,
        restore: Restore,
        bytes_max: int,
        settled: Callable[[Chunk], None],
        keep: Keep | None = None,
    ) -> None:
        self._restore = restore
        self._keep = keep
        self.bytes_max = bytes_max
        """The bound. It may be changed at any time."""
        self._settled = settled
        self._waiting: deque[Chunk] = deque()
        self._jobs: dict[_Job, Chunk] = {}
        self._bytes_in_jobs = 0
        self._growth = 1.0
        self.chunk_bytes = max(1, min(JOB_BYTES_MAX, bytes_max // JOBS_PER_BOUND))
        """How many encoded bytes one chunk should hold."""
        self.bytes_held = 0
        self.urgent: BucketState | None = None
        """The bucket that an ordered read waits for. Its first chunks are decoded beyond the bound,
        else rows of later buckets could fill it and the read would wait forever."""

    def add(self, chunks: list[Chunk]) -> None:
        """Decode these chunks when the bound allows it."""
        self._waiting.extend(chunks)
        self.start()

    def release(self, *chunks: Chunk) -> None:
        """Free the bytes of chunks whose rows were returned to the user or dropped."""
        self.bytes_held -= sum(chunk.nbytes for chunk in chunks if chunk.results is not None)
        self.start()

    def start(self) -> None:
        """Start as many jobs as the bounds allow."""
        while self._waiting and len(self._jobs) < DECODE_JOBS_MAX:
            chunk = self._next()
            if chunk is None:
                return
            state = chunk.state
            job: _Job = asyncio.get_running_loop().run_in_executor(
                workers(),
                decode_slices,
                state.bucket,
                chunk.slices,
                self._restore,
                state.stop,
                self._keep,
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
        # While the first one takes long, the bound is passed by what one job per thread gives.
        for chunk in islice(urgent.queue, DECODE_JOBS_MAX):
            if chunk in self._waiting:
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
        """Drop all chunks. The results of jobs that a thread has begun are ignored."""
        self._waiting.clear()
        for job in list(self._jobs):
            job.cancel()
