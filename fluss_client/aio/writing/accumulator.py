"""Open batches of one writer: rows wait here until their batch is worth sending.

Rows of one call for one bucket (`RecordSlice`) are added to the open batch of the bucket. The
`Accumulator` hands the batch to the sender when it has `writer.batch-size` bytes (an eighth of that
for Arrow data while worker threads are idle), or when it is due (`writer.batch-timeout-ms`, a
flush, somebody waits for the rows) and the bucket can take another batch. The order of the rows of
a bucket never changes.

`BufferMemory` bounds the bytes that were accepted and are not acknowledged yet. A batch owns the
bytes of its rows and returns them when it is encoded (what encoding saved) and when it is done.
"""

from __future__ import annotations

import asyncio
import sys
import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from fluss_client.aio.existence import PartitionIds
from fluss_client.aio.writing.results import Fault, FlushTracker, Outcome, WriteResultHandle
from fluss_client.backend.contract import NO_WRITER, Payload
from fluss_client.codec.binary.blobs import Blobs
from fluss_client.config import Config
from fluss_client.errors import (
    BufferFullError,
    FlussError,
    PartitionNotExistError,
    TableNotExistError,
    WriteError,
)
from fluss_client.model.table import TableBucket, TableInfo
from fluss_client.options import UNBOUNDED_MS
from fluss_client.runtime import WORKER_THREADS_MAX

Deletes = npt.NDArray[np.bool_] | None
"""Marks the rows that are deletes by key; None when no row is one."""
ANY_ROWS = sys.maxsize
NO_SEQUENCE = -1
NEVER = float("inf")
KEY_ROWS_MAX = 60_000
"""Rows in a batch of a primary-key table. Fluss 0.9 keeps the change types of a batch's changelog,
of which an update makes two, in one page of 128 KiB, and fails for good on a batch with more."""
EARLY_SEND_DIVISOR = 8
"""Arrow data does not wait for more rows if this part of a batch is full and workers are idle."""


class BufferMemory:
    """Counts the bytes in use and makes callers wait while there is no room for more.

    Callers are served in the order in which they came, so that small requests cannot starve a
    large one. A request above the limit is admitted when nothing else is in use: a batch that is
    larger than the buffer is slow rather than impossible.

    Args:
        limit_bytes: `writer.buffer.memory-size`.
        wait_timeout_ms: `writer.buffer.wait-timeout-ms`.
    """

    def __init__(self, limit_bytes: int, wait_timeout_ms: int) -> None:
        self.limit_bytes = limit_bytes
        self.wait_timeout_ms = wait_timeout_ms
        self._used = 0
        self._room = threading.Condition(threading.Lock())
        self._waiting: deque[object] = deque()

    @property
    def used_bytes(self) -> int:
        """The bytes that were accepted and are not acknowledged."""
        return self._used

    def try_reserve(self, nbytes: int) -> bool:
        """Reserve `nbytes` if there is room now and nobody waits; return whether it was done."""
        with self._room:
            if self._waiting or not self._fits(nbytes):
                return False
            self._used += nbytes
            return True

    def reserve(self, nbytes: int) -> None:
        """Wait until there is room for `nbytes` and reserve them.

        Raises:
            BufferFullError: There was no room within `writer.buffer.wait-timeout-ms`.
        """
        unbounded = self.wait_timeout_ms >= UNBOUNDED_MS
        deadline = None if unbounded else time.monotonic() + self.wait_timeout_ms / 1000
        with self._room:
            ticket = object()
            self._waiting.append(ticket)
            try:
                while self._waiting[0] is not ticket or not self._fits(nbytes):
                    left = None if deadline is None else deadline - time.monotonic()
                    if left is not None and left <= 0:
                        raise BufferFullError(
                            f"writer.buffer.memory-size: {self._used} of {self.limit_bytes} bytes "
                            f"were unacknowledged for {self.wait_timeout_ms} ms and {nbytes} more "
                            "do not fit; nothing of this call was taken, so it may be made again"
                        )
                    self._room.wait(left)
                self._used += nbytes
            finally:
                self._waiting.remove(ticket)
                if self._waiting:
                    self._room.notify_all()

    def force(self, nbytes: int) -> None:
        """Count bytes that are in memory already, even above the limit; negative: release them."""
        with self._room:
            self._used += nbytes
            if nbytes < 0 and self._waiting:
                self._room.notify_all()

    def release(self, nbytes: int) -> None:
        """Return bytes that were reserved."""
        self.force(-nbytes)

    def _fits(self, nbytes: int) -> bool:
        return self._used + nbytes <= self.limit_bytes or self._used <= 0


@dataclass(frozen=True, slots=True)
class Prepared:
    """Keys and rows of some upserts as bytes; the rows of deletes are empty."""

    keys: Blobs
    values: Blobs
    deletes: Deletes
    arrow: tuple[pa.RecordBatch, ...]
    """The rows that are not deletes."""


@dataclass(slots=True)
class RecordSlice:
    """Rows of one call for one bucket, in the table's wire schema."""

    bucket: TableBucket
    rows: pa.RecordBatch
    deletes: Deletes
    nbytes: int
    prepared: Prepared | None = None
    bucket_count: int | None = None
    """The bucket count by which the rows were placed."""


def combined(slices: Sequence[RecordSlice]) -> tuple[pa.RecordBatch, Deletes]:
    """Return all rows as one record batch, and which of them are deletes."""
    if len(slices) == 1:
        return slices[0].rows, slices[0].deletes
    table = pa.Table.from_batches([part.rows for part in slices]).combine_chunks()
    rows = table.to_batches()[0]
    return rows, joined_deletes([(part.deletes, part.rows.num_rows) for part in slices])


def joined_deletes(parts: Sequence[tuple[Deletes, int]]) -> Deletes:
    """Concatenate the delete marks of parts, each given with its number of rows."""
    if all(deletes is None for deletes, _ in parts):
        return None
    return np.concatenate(
        [np.zeros(count, bool) if deletes is None else deletes for deletes, count in parts]
    )


def cut(
    rows: pa.RecordBatch, deletes: Deletes, bytes_max: int, rows_max: int = ANY_ROWS
) -> Iterator[tuple[pa.RecordBatch, Deletes, int]]:
    """Cut rows into slices within both bounds, without copying; a row above them is one slice."""
    nbytes, count = rows.nbytes, rows.num_rows
    if (nbytes <= bytes_max and count <= rows_max) or count <= 1:
        yield rows, deletes, nbytes
        return
    parts = min(count, max(-(-nbytes // bytes_max), -(-count // rows_max)))
    for part in range(parts):
        first, last = count * part // parts, count * (part + 1) // parts
        mask = None if deletes is None else deletes[first:last]
        # Rows of uneven size make a slice too large: it is cut again.
        yield from cut(rows.slice(first, last - first), mask, bytes_max, rows_max)


def rows_max_of(table: TableInfo) -> int:
    """Return how many rows a batch of the `table` may have."""
    return KEY_ROWS_MAX if table.has_primary_key() else ANY_ROWS


@dataclass(slots=True, eq=False)
class Batch:
    """Rows for one bucket that are encoded, sent, and acknowledged or lost together."""

    bucket: TableBucket
    due: float
    on_done: Callable[[Batch, BaseException | None], None] | None = None
    """Called once: with None when the batch is acknowledged, with the error when it is lost."""
    memory: BufferMemory | None = None
    """Where `nbytes` are reserved; None for rows that no buffer bounds."""
    bucket_count: int | None = None
    """The bucket count by which the rows were placed."""
    keep_rows: bool = False
    """Whether the rows are kept with their encoded form, so that they can be placed anew."""
    replaced: bool = False
    """Whether the rows were placed anew, in other batches."""
    replacements: int = 0
    """How often the rows were placed anew before they came into this batch."""
    slices: list[RecordSlice] = field(default_factory=list)
    handles: list[WriteResultHandle] = field(default_factory=list)
    """One per slice."""
    nbytes: int = 0
    row_count: int = 0
    number: int = -1
    """Position among the batches of the bucket."""
    sealed_at: float = 0.0
    payload: Payload | None = None
    writer_id: int = NO_WRITER
    sequence: int = NO_SEQUENCE
    attempts: int = 0
    behind: bool = False
    """Whether an earlier batch of the bucket was unacknowledged when this one was sent."""
    maybe_written: bool = False
    """Whether an attempt ended without an answer that says if the rows are in the log."""
    last_error: FlussError | None = None
    offset: int = -1
    done: bool = False

    def add(self, part: RecordSlice, handle: WriteResultHandle) -> None:
        """Add rows after those that are in the batch."""
        self.slices.append(part)
        self.handles.append(handle)
        self.nbytes += part.nbytes
        self.row_count += part.rows.num_rows

    def encoded(self, payload: Payload) -> None:
        """Replace the rows by their encoded form and release the bytes that this saves."""
        self.payload = payload
        if self.keep_rows:
            return
        self.slices = []
        saved = self.nbytes - payload.nbytes
        if self.memory is not None and saved > 0:
            self.nbytes -= saved
            self.memory.release(saved)

    def finish(self, error: BaseException | None) -> None:
        """Release everything that the batch holds and report its outcome."""
        self.done = True
        self.slices = []
        self.payload = None
        if self.memory is not None:
            self.memory.release(self.nbytes)
        if self.on_done is not None:
            self.on_done(self, error)


@dataclass(frozen=True, slots=True)
class CurrentPlacement:
    """The bucket counts of partitions as they are known now, and how rows are placed anew."""

    count_of: Callable[[int | None], int | None]
    reroute: Callable[[RecordSlice, int], Sequence[RecordSlice]]


class Accumulator:
    """Collects record slices in one open batch per bucket and hands full or due batches on.

    It runs on the event loop only, so it needs no lock. Rows go one way: `accept`, an open batch,
    `send`. The outcome comes back one way: `Batch.on_done`.

    Args:
        table: The table that is written.
        config: Sets the size of batches.
        memory: The buffer in which callers have reserved the bytes of the slices.
        partitions: Is cleared when the server says that a partition was dropped.
        unanswered_max: While a bucket has so many batches without an answer, its open batch waits
            beyond its due time: fewer, larger batches.
        send: Takes a batch that is complete. Its outcome must reach `Batch.finish`.
        placement: Places rows anew; None if bucket counts cannot change.
    """

    def __init__(
        self,
        table: TableInfo,
        config: Config,
        memory: BufferMemory,
        partitions: PartitionIds,
        unanswered_max: int,
        send: Callable[[Batch], None],
        placement: CurrentPlacement | None = None,
    ) -> None:
        self._table = table
        self._placement = placement
        self._memory = memory
        self._partitions = partitions
        self._unanswered_max = unanswered_max
        self._send = send
        self._batch_bytes_max = config.writer_batch_size
        self._batch_rows_max = rows_max_of(table)
        self._flushes = FlushTracker()
        self._open: dict[TableBucket, Batch] = {}
        self._unanswered: Counter[TableBucket] = Counter()
        self._sent = 0
        """Batches without an answer, of all buckets."""
        self._timer: asyncio.TimerHandle | None = None
        self._timer_at = NEVER
        self.counters: Counter[str] = Counter()
        self.rows_pending = 0
        """Rows that were accepted and have no answer."""

    def accept(
        self,
        handle: WriteResultHandle,
        slices: Sequence[RecordSlice],
        due: float,
        bulk: bool = False,
    ) -> None:
        """Take the rows of one call, whose bytes are reserved already.

        Args:
            handle: Is finished when all slices have an answer.
            slices: The rows by bucket.
            due: When the rows are to be sent at the latest, by `time.monotonic()`.
            bulk: Whether the rows came as Arrow data, so that more of them per call are likely.
        """
        slices = self._placed(slices)
        self._flushes.begin(handle, len(slices))
        for part in slices:
            self.rows_pending += part.rows.num_rows
            self._add(part, handle, due, bulk)

    def _placed(self, slices: Sequence[RecordSlice]) -> Sequence[RecordSlice]:
        """Return the slices; those that were placed by an outdated bucket count are placed anew."""
        if self._placement is None:
            return slices
        current: list[RecordSlice] = []
        for part in slices:
            count = self._placement.count_of(part.bucket.partition_id)
            if count is None or count == part.bucket_count:
                current.append(part)
            else:
                current += self._placement.reroute(part, count)
        return current

    def close_open(self, partition_id: int | None) -> None:
        """Hand over the open batches of a partition, in any state."""
        for batch in list(self._open.values()):
            if batch.bucket.partition_id == partition_id:
                self._close(batch)

    def reject(self, handle: WriteResultHandle, error: FlussError) -> None:
        """Report rows that were accepted one by one and could not be made into slices."""
        self._flushes.begin(handle, 1)
        self._flushes.settle(handle, Fault(error))

    def send_now(self) -> None:
        """Send every open batch as soon as its bucket can take it."""
        for batch in list(self._open.values()):
            batch.due = 0.0
            self._send_if_due(batch.bucket)

    def flush(self, done: Outcome) -> None:
        """Finish `done` when everything accepted so far has an answer."""
        self.send_now()
        self._flushes.wait(done)

    def _add(self, part: RecordSlice, handle: WriteResultHandle, due: float, bulk: bool) -> None:
        batch = self._open.get(part.bucket)
        if batch is not None and self._exceeds(batch, part):
            self._close(batch)
            batch = None
        if batch is None:
            batch = Batch(
                part.bucket,
                due,
                self._batch_done,
                self._memory,
                part.bucket_count,
                keep_rows=self._placement is not None,
            )
            self._open[part.bucket] = batch
            self._wake_at(due)
        batch.add(part, handle)
        enough = self._batch_bytes_max
        if bulk and self._sent < WORKER_THREADS_MAX:
            enough //= EARLY_SEND_DIVISOR
        if batch.nbytes >= enough:
            self._close(batch)

    def _exceeds(self, batch: Batch, part: RecordSlice) -> bool:
        return (
            batch.nbytes + part.nbytes > self._batch_bytes_max
            or batch.bucket_count != part.bucket_count
            or batch.row_count + part.rows.num_rows > self._batch_rows_max
        )

    def _close(self, batch: Batch) -> None:
        """End gathering for an open batch and send it."""
        del self._open[batch.bucket]
        self._sent += 1
        self._unanswered[batch.bucket] += 1
        self._send(batch)

    def _send_if_due(self, bucket: TableBucket) -> None:
        batch = self._open.get(bucket)
        if batch is None or self._unanswered[bucket] >= self._unanswered_max:
            return
        if batch.due <= time.monotonic():
            self._close(batch)

    def _wake_at(self, due: float) -> None:
        if due < self._timer_at:
            if self._timer is not None:
                self._timer.cancel()
            self._timer_at = due
            delay_s = max(0.0, due - time.monotonic())
            self._timer = asyncio.get_running_loop().call_later(delay_s, self._send_due)

    def _send_due(self) -> None:
        self._timer, self._timer_at = None, NEVER
        now = time.monotonic()
        for batch in list(self._open.values()):
            self._send_if_due(batch.bucket)
            # A batch that is due and waits for its bucket is sent when the bucket has an answer.
            if batch.due > now:
                self._wake_at(batch.due)

    def _batch_done(self, batch: Batch, cause: BaseException | None) -> None:
        bucket = batch.bucket
        self._sent -= 1
        self._unanswered[bucket] -= 1
        self.rows_pending -= batch.row_count
        if cause is None:
            fault = None
            self.counters["batches"] += 1
            self.counters["rows"] += batch.row_count
            self.counters["bytes"] += batch.nbytes
        else:
            # One fault for all calls of the batch: if one handle reports it, all have.
            fault = Fault(self._explained(batch, cause))
            self.counters["rows_failed"] += batch.row_count
        for handle in batch.handles:
            self._flushes.settle(handle, fault)
        if bucket in self._open:
            # Not at once: the sender is in the middle of handling the answer of this bucket.
            asyncio.get_running_loop().call_soon(self._send_if_due, bucket)

    def _explained(self, batch: Batch, cause: BaseException) -> FlussError:
        what = f"{batch.row_count} rows for {batch.bucket} of {self._table.table_path}"
        text = f"{what} were not written: {cause}"
        error: FlussError
        if isinstance(cause, TableNotExistError | PartitionNotExistError):
            if isinstance(cause, PartitionNotExistError):
                self._partitions.forget()
            error = type(cause)(text)
        else:
            if batch.maybe_written:
                text += " (an attempt ended without an answer, so they may be there nevertheless)"
            error = WriteError(text, batch.bucket, batch.row_count)
            if isinstance(cause, FlussError):
                error.error_code = cause.error_code
        error.__cause__ = cause
        return error
