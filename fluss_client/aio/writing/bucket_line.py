"""The queue of one bucket of a writer: what is queued and in flight, and what an answer means.

There is no I/O here: the sender asks what to send next and passes the answers on. The rules keep
every row in order and in the log once, as long as the server remembers the writer:

- A batch keeps its writer id and sequence while it may be in the log. Sending it again is then
  harmless: the server knows the last five batches of a writer and bucket, and no batch is sent
  five or more behind one without an answer.
- After an error nothing new is sent until all that is in flight has been answered. Then the
  unacknowledged batches are sent again in sequence order, before any new one.
- When a batch has failed for good, its sequence is missing: the server refuses the later ones
  (`OutOfOrderSequenceError`), which proves that they are not in the log, so they are given new
  sequences under a new writer id. One that was not refused is sent under its old sequence until
  its answer is clear.
"""

from __future__ import annotations

import enum
from collections import deque
from dataclasses import dataclass

from fluss_client.aio.writing.accumulator import NO_SEQUENCE, Batch
from fluss_client.backend.contract import NO_WRITER, WriteRoute
from fluss_client.errors import (
    AuthorizationError,
    DeletionDisabledError,
    FlussError,
    HistoricalPartitionThrottledError,
    InvalidBucketRoutingError,
    InvalidTargetColumnError,
    NonPrimaryKeyTableError,
    NotEnoughReplicasError,
    OutOfOrderSequenceError,
    RecordTooLargeError,
    StorageBackpressureError,
    UnknownWriterIdError,
    UnsupportedByServerError,
)
from fluss_client.model.table import TableBucket

SEQUENCE_MAX = (1 << 31) - 1

# Answers that prove that nothing of the batch is in the log. A lost leadership is none of them: it
# also ends the wait for the followers of a leader that has taken the batch.
_SURELY_NOT_WRITTEN = (
    AuthorizationError,
    DeletionDisabledError,
    HistoricalPartitionThrottledError,
    InvalidBucketRoutingError,
    InvalidTargetColumnError,
    NonPrimaryKeyTableError,
    NotEnoughReplicasError,
    OutOfOrderSequenceError,
    RecordTooLargeError,
    StorageBackpressureError,
    UnknownWriterIdError,
    UnsupportedByServerError,
)


class State(enum.Enum):
    """What a line waits for.

    NEW: its first batch. PREPARING: a server and a writer id. READY: nothing. DRAINING: after an
    error, the answers to all that is in flight.
    """

    NEW = enum.auto()
    PREPARING = enum.auto()
    READY = enum.auto()
    DRAINING = enum.auto()


@dataclass(frozen=True, slots=True)
class LineRules:
    """The rules that hold for every bucket of a writer."""

    inflight_max: int
    retries_max: int
    retry_timeout_s: float
    idempotent: bool = True
    pinned: bool = False
    """Whether the writer id is given and never changes."""
    correctable: bool = False
    """Whether rows that were placed by a wrong bucket count are placed anew (`corrections`)."""


class BucketLine:
    """The batches of one bucket, queued and in flight."""

    def __init__(self, bucket: TableBucket, rules: LineRules) -> None:
        self.bucket = bucket
        self.rules = rules
        self.state = State.NEW
        self.route: WriteRoute | None = None
        """Where its batches are sent; set before the first one. Its connection never changes."""
        self.queue: deque[Batch] = deque()
        self.inflight: list[Batch] = []
        self._resend: deque[Batch] = deque()
        self.awaiting = 0
        """Requests without an answer that carry a batch of this bucket."""
        self.writer_id = NO_WRITER
        self.next_sequence = 0
        self.needs_writer = rules.idempotent
        self.failures = 0
        """Failed attempts since the last acknowledgement."""
        self.stale = False
        self.last_error: FlussError | None = None
        self._progress_at = 0.0
        self._gap = False
        self._renumber: list[Batch] = []
        self._count = 0
        self.resume_at = 0.0
        """Nothing is sent before this time, because the server is under pressure."""

    @property
    def backlog(self) -> int:
        """The number of batches without an answer."""
        return len(self.queue) + len(self.inflight) + len(self._renumber)

    @property
    def broken(self) -> bool:
        """Whether a pinned writer id is unusable: one of its sequences is missing for good."""
        return self.rules.pinned and self._gap

    def push(self, batch: Batch, now: float) -> None:
        """Queue a complete batch."""
        batch.number = self._count
        self._count += 1
        batch.sealed_at = now
        self.queue.append(batch)

    def sendable(self) -> Batch | None:
        """Return the batch that may be sent next, if there is one."""
        if self.state is not State.READY:
            return None
        if self._resend:
            return self._resend[0]
        if self._gap or not self.queue:
            return None
        if self._span() >= self.rules.inflight_max:
            return None
        head = self.queue[0]
        return None if head.payload is None else head

    def _span(self) -> int:
        """Count the batches sent since the oldest one without an answer, that one included.

        Later ones count even when they are acknowledged: they push the oldest one out of the
        five that the server remembers.
        """
        if not self.inflight or not self.rules.idempotent:
            return len(self.inflight)
        return (self.next_sequence - self.inflight[0].sequence) % (SEQUENCE_MAX + 1)

    def take(self) -> Batch:
        """Return the sendable batch, with its sequence, and count it as in flight."""
        self.awaiting += 1
        if self._resend:
            return self._resend.popleft()
        batch = self.queue.popleft()
        if self.rules.idempotent:
            batch.writer_id, batch.sequence = self.writer_id, self.next_sequence
            last = self.next_sequence == SEQUENCE_MAX
            self.next_sequence = 0 if last else self.next_sequence + 1
        batch.behind = bool(self.inflight)
        self.inflight.append(batch)
        return batch

    def ready(self) -> None:
        """Allow sending: first the unacknowledged batches again, in order."""
        for position, batch in enumerate(self.inflight):
            batch.behind = position > 0
        self._resend = deque(self.inflight)
        self.state = State.READY

    def acknowledged(self, batch: Batch, now: float) -> None:
        """Record that the batch is in the log."""
        self.awaiting -= 1
        self.inflight.remove(batch)
        self.failures = 0
        self._progress_at = now
        if self._gap and not self.inflight:
            self.state = State.DRAINING  # the last answer is clear: now new sequences can be given

    def refused(self, batch: Batch, error: FlussError, now: float) -> bool:
        """Record an error for the batch; return whether it has failed for good."""
        self.awaiting -= 1
        self.state = State.DRAINING
        self.last_error = batch.last_error = error
        self.stale = self.stale or error.stale_metadata
        batch.attempts += not isinstance(error, StorageBackpressureError)
        certain = isinstance(error, _SURELY_NOT_WRITTEN)
        again = self._again(batch, error) and not self.expired(batch, now)
        if not certain:
            batch.maybe_written = True
        if not again:
            self.inflight.remove(batch)
            self._gap = self.rules.idempotent
        return not again

    def _again(self, batch: Batch, error: FlussError) -> bool:
        """Return whether the batch stays in flight, to be sent again or renumbered."""
        if batch.attempts > self.rules.retries_max:
            return False
        if isinstance(error, InvalidBucketRoutingError):
            return self.rules.correctable
        if isinstance(error, OutOfOrderSequenceError):
            return batch.behind or self._gap
        if isinstance(error, UnknownWriterIdError):
            # The server has forgotten the writer, and with it whether the batch is there.
            if self.rules.pinned or not self.rules.idempotent or batch.maybe_written:
                return False
            self._gap = True
            return True
        return error.retriable

    def drained(self) -> None:
        """Take out the batches that need new sequences, after everything in flight was answered."""
        self.failures += 1
        if not self._gap or self.rules.pinned:
            return
        unnumbered = (OutOfOrderSequenceError, UnknownWriterIdError)
        refused = [b for b in self.inflight if isinstance(b.last_error, unnumbered)]
        self.inflight = [b for b in self.inflight if b not in refused]
        self._renumber += refused
        if not self.inflight:
            self._renumber_all()

    def _renumber_all(self) -> None:
        self._renumber.sort(key=lambda batch: batch.number)
        for batch in self._renumber:
            batch.writer_id, batch.sequence, batch.maybe_written = NO_WRITER, NO_SEQUENCE, False
        self.queue.extendleft(reversed(self._renumber))
        self._renumber = []
        self._gap = False
        self.needs_writer = True

    def batches(self) -> list[Batch]:
        """Return the batches without an answer, in the order in which they were queued."""
        return sorted([*self.inflight, *self._renumber, *self.queue], key=lambda b: b.number)

    def take_all(self) -> list[Batch]:
        """Take out all batches, to place their rows anew, while no request is under way.

        Batches that are queued later get a new writer id: sequences of this one are missing.
        """
        assert not self.awaiting
        taken = self.batches()
        if self.inflight or self._renumber or self._gap:
            self.needs_writer = self.rules.idempotent
        self.inflight, self._renumber, self.queue = [], [], deque()
        self._resend.clear()
        self._gap = False
        if self.state is State.READY:
            self.state = State.NEW
        for batch in taken:
            batch.writer_id, batch.sequence = NO_WRITER, NO_SEQUENCE
        return taken

    def adopt_writer(self, writer_id: int, first_sequence: int = 0) -> None:
        """Use this writer id for the batches that follow."""
        self.writer_id, self.next_sequence = writer_id, first_sequence
        self.needs_writer = False

    def expired(self, batch: Batch, now: float) -> bool:
        """Return whether the bucket made no progress for `retry-timeout` while the batch waited."""
        return now - max(batch.sealed_at, self._progress_at) >= self.rules.retry_timeout_s

    def drop(self, now: float | None = None) -> list[Batch]:
        """Take out the expired batches, or all without `now`, while no request is under way."""
        assert not self.awaiting
        waiting = [*self.inflight, *self._renumber, *self.queue]
        dropped = [b for b in waiting if now is None or self.expired(b, now)]
        gone = set(map(id, dropped))
        if any(id(b) in gone for b in self.inflight):
            self._gap = self.rules.idempotent
        self.inflight = [b for b in self.inflight if id(b) not in gone]
        self._renumber = [b for b in self._renumber if id(b) not in gone]
        self.queue = deque(b for b in self.queue if id(b) not in gone)
        if self._gap and not self.inflight and not self.rules.pinned:
            self._renumber_all()
        return dropped
