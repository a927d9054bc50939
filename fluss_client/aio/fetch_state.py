"""What a scan knows of one bucket: where it is, what it holds, what went wrong."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby, repeat

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from fluss_client.backend.contract import DecodedSlice, FetchedBucket, LogSlice
from fluss_client.errors import CorruptDataError
from fluss_client.model.records import RecordBatch
from fluss_client.model.table import TableBucket

SLICE_BYTES = 1024
"""What a decoded slice takes beside its rows: small ones are mostly that."""
NO_ROWS = pa.record_batch([], schema=pa.schema([]))
_NOTHING: DecodedSlice = (NO_ROWS, None)

Restore = Callable[[pa.RecordBatch], pa.RecordBatch]


@dataclass(frozen=True, slots=True)
class Piece:
    """Rows of one bucket on their way to the user; without rows, only offsets went by."""

    bucket: TableBucket
    batch: pa.RecordBatch
    change_types: npt.NDArray[np.uint8] | None
    base_offset: int
    next_offset: int
    timestamp: int

    def as_record_batch(self) -> RecordBatch:
        """The piece as users see it."""
        changes = None if self.change_types is None else pa.array(self.change_types)
        last = self.base_offset + self.batch.num_rows - 1
        return RecordBatch(self.batch, self.bucket, self.base_offset, last, self.timestamp, changes)


class Chunk:
    """Consecutive slices of one bucket that one job decodes.

    `results` is None until then; `nbytes` are those held now, encoded or decoded. A chunk that is
    not wanted any more is `dropped`.
    """

    __slots__ = ("dropped", "error", "nbytes", "results", "slices", "state")

    def __init__(self, state: BucketState, slices: Sequence[LogSlice]) -> None:
        self.state = state
        self.slices = slices
        self.nbytes = sum(part.nbytes for part in slices)
        self.results: deque[Piece] | None = None
        self.error: Exception | None = None
        self.dropped = False


class BucketState:
    """One subscribed bucket.

    Offsets: rows below `position` were handed out, rows below `offset` were fetched, and nothing
    from `stop` on is wanted. `offset` is negative (earliest, latest) until it is looked up.
    """

    __slots__ = (
        "at_end",
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
        """What the backend remembers as its node was contradicted."""
        self.queue: deque[Chunk] = deque()
        self.buffered = 0
        self.at_end = False
        """The last answer reached the end of the log, or there was nothing to be had."""
        self.fresh = True
        """Nothing was read from it yet."""
        self.busy = 0
        """Calls about this bucket that are under way."""
        self.listed = False
        """It stands in the fetcher's list of buckets with rows to hand out."""
        self.closed = False
        self.error: Exception | None = None
        """What ended the reading; handed out after the rows before it."""
        self.last_failure: Exception | None = None
        self.failures = 0
        self.failing_since: float | None = None
        self.retry_at = 0.0
        self.skipped = 0
        """Offsets that went by without a row."""

    @property
    def has_rows_ready(self) -> bool:
        """Whether the oldest chunk was decoded."""
        return bool(self.queue) and self.queue[0].results is not None

    @property
    def fetched_all(self) -> bool:
        """Whether nothing more is to be fetched."""
        return self.stop is not None and 0 <= self.stop <= self.offset

    @property
    def done(self) -> bool:
        """Whether everything below `stop` was handed out."""
        return self.stop is not None and 0 <= self.stop <= self.position

    def succeeded(self) -> None:
        """The server answered for this bucket: earlier failures are over."""
        self.failures = 0
        self.failing_since = None
        self.last_failure = None
        self.retry_at = 0.0

    def accept(self, fetched: FetchedBucket, chunk_bytes: int) -> list[Chunk]:
        """Take an answer in: move on, and queue its slices in chunks of about that size."""
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
        reached = max(expected, fetched.next_offset)
        if fetched.high_watermark >= 0:
            self.at_end = reached >= fetched.high_watermark
        if self.stop is not None:
            reached = min(reached, max(expected, self.stop))
        if reached > expected:
            # Offsets without rows at the end: an empty slice carries the position on.
            self.skipped += reached - expected
            wanted.append(_gap(expected, reached))
        self.fresh = self.fresh and reached == self.offset
        self.offset = reached
        chunks = [Chunk(self, part) for part in _grouped(wanted, chunk_bytes)]
        self.queue.extend(chunks)
        self.buffered += sum(chunk.nbytes for chunk in chunks)
        return chunks

    def drop_queue(self) -> list[Chunk]:
        """Throw away what was fetched and not handed out; gives the chunks."""
        dropped = list(self.queue)
        for chunk in dropped:
            chunk.dropped = True
        self.queue.clear()
        self.buffered = 0
        return dropped

    def take(self) -> tuple[Piece, Chunk | None]:
        """The next rows and the chunk that is used up with them, if one is."""
        chunk = self.queue[0]
        assert chunk.results is not None
        piece = chunk.results.popleft()
        self.position = piece.next_offset
        if chunk.results:
            return piece, None
        self.queue.popleft()
        return piece, chunk


def decode_slices(
    bucket: TableBucket, slices: Sequence[LogSlice], restore: Restore, stop: int | None
) -> tuple[list[Piece], int]:
    """Decode on a worker thread; rows from `stop` on are cut off. Gives the bytes held, too."""
    results = []
    nbytes = SLICE_BYTES * len(slices)
    for part, (batch, changes) in _decoded(slices):
        following = part.next_offset if stop is None else min(part.next_offset, stop)
        if not part.row_count:
            results.append(
                Piece(bucket, NO_ROWS, None, part.base_offset, following, part.timestamp)
            )
            continue
        if batch.num_rows != part.row_count:
            raise CorruptDataError(
                f"{batch.num_rows} rows were decoded at offset {part.base_offset}, not the "
                f"{part.row_count} that were announced"
            )
        keep = min(part.row_count, following - part.base_offset)
        if keep < part.row_count:
            batch = batch.slice(0, keep)
            changes = None if changes is None else changes[:keep]
        nbytes += batch.get_total_buffer_size()
        results.append(
            Piece(bucket, restore(batch), changes, part.base_offset, following, part.timestamp)
        )
    return results, nbytes


def _decoded(slices: Sequence[LogSlice]) -> Iterator[tuple[LogSlice, DecodedSlice]]:
    """Every slice with its rows; neighbours that share a decoder are decoded together."""
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
