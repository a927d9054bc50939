"""From pieces to acknowledgements: the part of a writer that lives on the event loop."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Callable, Sequence

from fluss_client.aio.batching import Batch, rows_max_of
from fluss_client.aio.bucket_line import BucketLine
from fluss_client.aio.buffer_memory import BufferMemory
from fluss_client.aio.channels import Channel
from fluss_client.aio.flushing import Flushes
from fluss_client.aio.outcome import Fault, Outcome
from fluss_client.aio.pieces import Piece
from fluss_client.aio.preparing import Preparer
from fluss_client.aio.sender import Sender, line_rules
from fluss_client.aio.write_handle import WriteResultHandle
from fluss_client.backend.contract import Backend
from fluss_client.config import Config
from fluss_client.errors import (
    FlussError,
    PartitionNotExistError,
    TableNotExistError,
    WriteError,
)
from fluss_client.model.table import TableBucket, TableInfo
from fluss_client.runtime import WORKER_THREADS_MAX

NEVER = float("inf")
WORTH_SENDING = 8
"""Rows that come as Arrow do not wait for others where workers would stand idle meanwhile and they
fill this part of a batch."""


class Pipeline:
    """Gathers pieces into batches, has them sent, and tells handles and flushes the outcome."""

    def __init__(
        self,
        backend: Backend,
        table: TableInfo,
        config: Config,
        channel: Channel,
        memory: BufferMemory,
        on_partition_gone: Callable[[], None],
    ) -> None:
        self._table = table
        self._memory = memory
        self._on_partition_gone = on_partition_gone
        self._rules = line_rules(config, channel)
        self._batch_bytes_max = config.writer_batch_size
        self._batch_rows_max = rows_max_of(table)
        self._sender = Sender(
            channel,
            Preparer(backend, table, config),
            config.writer_request_max_size,
            self._batch_done,
            self._seal_if_due,
            self._encoded,
        )
        self._flushes = Flushes()
        self._lines: dict[TableBucket, BucketLine] = {}
        self._opened: dict[TableBucket, BucketLine] = {}
        self._timer: asyncio.TimerHandle | None = None
        self._timer_at = NEVER
        self._counters: Counter[str] = Counter()
        self._sealed = 0
        """Batches on their way."""
        self.rows_pending = 0
        """Rows accepted and without an answer."""

    def accept(
        self, handle: WriteResultHandle, pieces: Sequence[Piece], due: float, bulk: bool = False
    ) -> None:
        """Take the rows of one call; their bytes count against the buffer already."""
        self._flushes.begin(handle, len(pieces))
        for piece in pieces:
            self.rows_pending += piece.rows.num_rows
            self._add(piece, handle, due, bulk)

    def reject(self, handle: WriteResultHandle, error: FlussError) -> None:
        """Rows that were taken one by one turned out not to be writable together."""
        self._flushes.begin(handle, 1)
        self._flushes.settle(handle, Fault(error))

    def send_now(self) -> None:
        """Let every open batch go as soon as its bucket can take it."""
        for line in list(self._opened.values()):
            assert line.open is not None
            line.open.due = 0.0
            self._seal_if_due(line)

    def flush(self, done: Outcome) -> None:
        """Finish `done` when everything accepted so far has its answer."""
        self.send_now()
        self._flushes.wait(done)

    def metrics(self) -> dict[str, float]:
        """Counters since the writer was made."""
        totals = self._counters + self._sender.counters
        return {name: float(totals[name]) for name in _METRICS}

    # Gathering

    def _add(self, piece: Piece, handle: WriteResultHandle, due: float, bulk: bool) -> None:
        line = self._lines.get(piece.bucket)
        if line is None:
            line = self._lines[piece.bucket] = BucketLine(piece.bucket, self._rules)
        if line.open is not None and self._too_much(line.open, piece):
            self._seal(line)
        if line.open is None:
            line.open = Batch(piece.bucket, due)
            self._opened[piece.bucket] = line
            self._wake_at(due)
        line.open.add(piece, handle)
        enough = self._batch_bytes_max
        if bulk and self._sealed < WORKER_THREADS_MAX:
            enough //= WORTH_SENDING
        if line.open.nbytes >= enough:
            self._seal(line)

    def _too_much(self, batch: Batch, piece: Piece) -> bool:
        return (
            batch.nbytes + piece.nbytes > self._batch_bytes_max
            or batch.row_count + piece.rows.num_rows > self._batch_rows_max
        )

    def _seal(self, line: BucketLine) -> None:
        batch, line.open = line.open, None
        assert batch is not None
        del self._opened[line.bucket]
        self._sealed += 1
        self._sender.push(line, batch)

    def _seal_if_due(self, line: BucketLine) -> None:
        # A bucket with enough on its way goes on gathering: fewer, larger batches.
        if line.open is None or line.backlog >= self._rules.inflight_max:
            return
        if line.open.due <= time.monotonic():
            self._seal(line)

    def _wake_at(self, due: float) -> None:
        if due < self._timer_at:
            if self._timer is not None:
                self._timer.cancel()
            self._timer_at = due
            delay_s = max(0.0, due - time.monotonic())
            self._timer = asyncio.get_running_loop().call_later(delay_s, self._some_due)

    def _some_due(self) -> None:
        self._timer, self._timer_at = None, NEVER
        now = time.monotonic()
        for line in list(self._opened.values()):
            self._seal_if_due(line)
            if line.open is not None and line.open.due > now:
                self._wake_at(line.open.due)

    # Outcomes

    def _encoded(self, batch: Batch) -> None:
        assert batch.payload is not None
        saved = batch.nbytes - batch.payload.nbytes
        if saved > 0:
            batch.nbytes -= saved
            self._memory.release(saved)

    def _batch_done(self, batch: Batch, cause: BaseException | None) -> None:
        self._memory.release(batch.nbytes)
        self._sealed -= 1
        self.rows_pending -= batch.row_count
        # One fault for all calls of the batch: who asks one of their handles was told of it.
        fault = None if cause is None else Fault(self._explained(batch, cause))
        if fault is None:
            self._counters["batches"] += 1
            self._counters["rows"] += batch.row_count
            self._counters["bytes"] += batch.nbytes
        else:
            self._counters["rows_failed"] += batch.row_count
        for handle in batch.handles:
            self._flushes.settle(handle, fault)

    def _explained(self, batch: Batch, cause: BaseException) -> FlussError:
        what = f"{batch.row_count} rows for {batch.bucket} of {self._table.table_path}"
        text = f"{what} were not written: {cause}"
        error: FlussError
        if isinstance(cause, TableNotExistError | PartitionNotExistError):
            if isinstance(cause, PartitionNotExistError):
                self._on_partition_gone()
            error = type(cause)(text)
        else:
            if batch.maybe_written:
                text += " (an attempt ended without an answer, so they may be there nevertheless)"
            error = WriteError(text, batch.bucket, batch.row_count)
            if isinstance(cause, FlussError):
                error.error_code = cause.error_code
        error.__cause__ = cause
        return error


_METRICS = ("rows", "rows_failed", "batches", "bytes", "requests", "retries")
