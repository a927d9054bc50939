"""What a writer does when a server says that rows were placed by a wrong bucket count (error 74).

The rows are not in the log. They are placed anew by the right count, under three conditions that
keep the rows of each key in order:

- While a partition is being corrected, nothing of it is sent. What is in flight is answered first.
- All its unsent rows are placed anew in one step of the event loop, in the order in which they were
  accepted: first those that were placed by the old count, then those by the new one.
- Rows that a thread placed by the old count, and that reach the loop after that step, are placed
  anew before they are queued (`Accumulator.accept`).

A batch that may be in the log, because an earlier attempt ended without an answer, is not placed
anew: its rows could then be there twice. It fails.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Sequence

from fluss_client.aio.writing.accumulator import Batch, RecordSlice
from fluss_client.aio.writing.bucket_line import BucketLine
from fluss_client.backend.contract import Backend
from fluss_client.errors import InvalidBucketRoutingError
from fluss_client.model.table import TableInfo

REPLACED_MAX = 3
"""How often the rows of one batch are placed anew."""

Reroute = Callable[[RecordSlice, int], Sequence[RecordSlice]]
"""Places rows of one partition anew, by another bucket count."""


class Corrections:
    """Places the rows of a writer anew when the bucket count of a partition was wrong.

    Belongs to the event loop of the sender.

    Args:
        backend: Where the table is.
        table: The table that is written.
        reroute: Places rows anew.
        close_open: Hands the open batches of a partition to the sender.
        lines: Returns the queues of all buckets.
        push: Queues a batch.
    """

    def __init__(
        self,
        backend: Backend,
        table: TableInfo,
        reroute: Reroute,
        close_open: Callable[[int | None], None],
        lines: Callable[[], Iterable[BucketLine]],
        push: Callable[[Batch], None],
    ) -> None:
        self._backend = backend
        self._table = table
        self._reroute = reroute
        self._close_open = close_open
        self._lines = lines
        self._push = push
        self._running: dict[int | None, asyncio.Task[None]] = {}
        self._answered = asyncio.Event()

    def blocks(self, partition_id: int | None) -> bool:
        """Return whether nothing of a partition may be sent now."""
        return partition_id in self._running

    def answered(self) -> None:
        """Note that a request was answered."""
        self._answered.set()

    async def correct(self, partition_id: int | None) -> None:
        """Ask for the bucket count of a partition, and place its rows anew if it is another one.

        Several buckets of the partition may call this at the same time.

        Raises:
            FlussError: The count is not known at this moment.
        """
        task = self._running.get(partition_id)
        if task is None:
            task = asyncio.ensure_future(self._correct(partition_id))
            self._running[partition_id] = task
            task.add_done_callback(lambda done: self._ended(partition_id, done))
        await asyncio.shield(task)

    def _ended(self, partition_id: int | None, task: asyncio.Task[None]) -> None:
        if self._running.get(partition_id) is task:
            del self._running[partition_id]
        if not task.cancelled():
            task.exception()

    async def _correct(self, partition_id: int | None) -> None:
        self._backend.forget_bucket_count(self._table, partition_id)
        count = await self._backend.bucket_count(self._table, partition_id)
        while any(line.awaiting for line in self._of(partition_id)):
            self._answered.clear()
            await self._answered.wait()
        # From here on to the end there is no await: rows must not arrive in between.
        self._running.pop(partition_id, None)
        self._close_open(partition_id)
        lines = self._of(partition_id)
        if all(batch.bucket_count == count for line in lines for batch in line.batches()):
            return
        taken = [batch for line in lines for batch in line.take_all()]
        for batch in taken:
            if batch.bucket_count != count:
                self._place(batch, count)
        for batch in taken:
            if batch.bucket_count == count:
                self._push(batch)

    def _of(self, partition_id: int | None) -> list[BucketLine]:
        return [line for line in self._lines() if line.bucket.partition_id == partition_id]

    def _place(self, batch: Batch, count: int) -> None:
        """Send the rows of a batch as batches that are placed by `count`."""
        batch.replaced = True
        error = batch.last_error
        if batch.maybe_written or not batch.slices or batch.replacements >= REPLACED_MAX:
            batch.finish(error or InvalidBucketRoutingError(_wrong(batch, count)))
            return
        parts = [part for old in batch.slices for part in self._reroute(old, count)]
        left = len(parts)
        failure: BaseException | None = None

        def on_done(child: Batch, error: BaseException | None) -> None:
            nonlocal left, failure
            left -= 1
            batch.maybe_written = batch.maybe_written or child.maybe_written
            failure = failure or error
            if not left:
                batch.finish(failure)

        for part in parts:
            child = Batch(part.bucket, 0.0, on_done, bucket_count=count, keep_rows=True)
            child.replacements = batch.replacements + 1
            child.slices.append(part)
            child.row_count, child.nbytes = part.rows.num_rows, part.nbytes
            self._push(child)


def _wrong(batch: Batch, count: int) -> str:
    return (
        f"{batch.row_count} rows were placed by {batch.bucket_count} buckets, but the partition "
        f"has {count}"
    )
