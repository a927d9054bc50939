"""Reading exactly the offsets [start, stop) of some buckets.

A range ends when the log was read up to `stop`, never because no rows came for some time: a read
returns every row of its ranges, or raises. Offsets without rows, which empty changelog batches use
up, count as read when the log was read beyond them.
"""

from __future__ import annotations

from collections import deque
from collections.abc import AsyncIterator, Callable, Sequence

from fluss_client.aio.offsets import Ranges
from fluss_client.aio.projection import Projection
from fluss_client.aio.scanning.bucket_state import BucketState
from fluss_client.aio.scanning.errors import SubscriptionError, check_bucket_id
from fluss_client.aio.scanning.log_fetcher import LogFetcher
from fluss_client.backend.contract import Backend
from fluss_client.config import Config
from fluss_client.errors import TimedOutError
from fluss_client.model.records import RecordBatch
from fluss_client.model.table import TableBucket, TableInfo

WINDOW_BUCKETS_MAX = 32
"""Buckets that are read at the same time."""

Progress = Callable[[TableBucket, int], None]


def read_ranges(
    backend: Backend,
    table: TableInfo,
    ranges: Ranges,
    columns: Sequence[int] | None = None,
    *,
    config: Config,
    ordered: bool = True,
    progress: Progress | None = None,
    idle_timeout_ms: int | None = None,
) -> AsyncIterator[RecordBatch]:
    """Return the rows with start ≤ offset < stop of every bucket, as Arrow batches.

    Within a bucket the offsets always rise.

    Args:
        backend: The backend, on the loop of the caller.
        table: The table.
        ranges: The range of each bucket.
        columns: Indexes of the table's columns in any order. None for all.
        config: The settings of the scan.
        ordered: Return the buckets one after the other, by partition id and bucket id. If false,
            their batches are interleaved.
        progress: Called as `progress(bucket, offset)` when all rows below `offset` were returned
            and the caller has come back for more.
        idle_timeout_ms: How long a bucket may make no progress. The default is a little more than
            `retry-timeout`.

    Raises:
        SubscriptionError: A range does not fit the table. It is raised before anything is read.
        LogOffsetOutOfRangeError: The log does not have an offset, or not any more.
        TimedOutError: A bucket made no progress for `idle_timeout_ms`.
        TableNotExistError: The table was dropped.
        PartitionNotExistError: The partition was dropped.
    """
    projection = Projection.of(table.schema, columns)
    check_ranges(backend, table, ranges)

    async def batches() -> AsyncIterator[RecordBatch]:
        reader = RangeReader(backend, table, ranges, projection, config, ordered, idle_timeout_ms)
        try:
            while found := await reader.read(1):
                rows = found[0]
                if rows.batch.num_rows:
                    yield rows
                if progress is not None:
                    progress(rows.bucket, rows.next_offset)
        finally:
            await reader.close()

    return batches()


class RangeReader:
    """Reads ranges of offsets batch by batch. Construct it on the event loop of the backend.

    Args:
        backend: The backend to read from.
        table: The table to read.
        ranges: The first offset and the offset after the last one, for each bucket.
        projection: The columns to read.
        config: The configuration of the connection.
        ordered: True reads one bucket after the other, in the order of partition, bucket and
            offset. False interleaves the buckets, which is faster.
        idle_timeout_ms: How long no bucket may make progress before the reader fails. By default
            longer than the retries of one bucket take.
    """

    def __init__(
        self,
        backend: Backend,
        table: TableInfo,
        ranges: Ranges,
        projection: Projection,
        config: Config,
        ordered: bool,
        idle_timeout_ms: int | None = None,
    ) -> None:
        if idle_timeout_ms is None:
            # Longer than the retries of one bucket, whose own error tells more.
            wait_ms = config.scanner_log_fetch_wait_max_time_ms
            idle_timeout_ms = config.retry_timeout_ms + wait_ms + config.retry_backoff_max_ms
        self._idle_timeout_ms = idle_timeout_ms
        self._table = table
        self._ordered = ordered
        self._fetcher = LogFetcher(backend, table, projection, config)
        self._todo = deque(
            (bucket, *ranges[bucket])
            for bucket in sorted(ranges, key=place_of)
            if ranges[bucket][0] < ranges[bucket][1]
        )
        self._window: dict[TableBucket, BucketState] = {}

    async def read(self, limit: int) -> list[RecordBatch]:
        """Return the next batches. A cancelled call loses no row.

        Args:
            limit: The most batches to return.

        Returns:
            At least one batch, or an empty list when everything was read. A batch may have no
            rows: its `next_offset` still tells how far the log was read.

        Raises:
            TimedOutError: No bucket made progress for the idle timeout.
            FlussError: A bucket failed.
        """
        while True:
            self._fill_window()
            if not self._window:
                return []
            error = self._fetcher.take_error()
            if error is not None:
                raise error
            found = self._take(limit)
            if found:
                return found
            if not await self._fetcher.wait(self._idle_timeout_ms / 1000, self._has_next):
                raise self._no_progress()

    def _fill_window(self) -> None:
        while self._todo and len(self._window) < WINDOW_BUCKETS_MAX:
            bucket, start, stop = self._todo.popleft()
            self._window[bucket] = self._fetcher.add(bucket, start, stop)
        if self._ordered and self._window:
            self._fetcher.set_urgent(self._head())

    def _head(self) -> BucketState:
        return next(iter(self._window.values()))

    def _has_next(self) -> bool:
        if self._ordered:
            return self._head().has_rows_ready or self._fetcher.has_errors
        return self._fetcher.has_news

    def _take(self, limit: int) -> list[RecordBatch]:
        found: list[RecordBatch] = []
        while self._window and len(found) < limit:
            if not self._ordered:
                rows = self._fetcher.take()
            elif self._head().has_rows_ready:
                rows = self._fetcher.take_from(self._head())
            else:
                break
            if rows is None:
                break
            found.append(rows)
            if self._window[rows.bucket].done:
                del self._window[rows.bucket]
                self._fetcher.remove(rows.bucket)
        return found

    def _no_progress(self) -> TimedOutError:
        waiting = [self._head()] if self._ordered else list(self._window.values())
        state = waiting[0]
        also = f" (and {len(waiting) - 1} more)" if len(waiting) > 1 else ""
        error = TimedOutError(
            f"{self._table.table_path}: {state.bucket}{also} made no progress for "
            f"{self._idle_timeout_ms} ms: it was read up to offset {state.position}, not to "
            f"{state.stop}"
        )
        error.__cause__ = state.last_failure
        return error

    def metrics(self) -> dict[str, float]:
        """Return the counters of this read."""
        return self._fetcher.metrics()

    async def close(self) -> None:
        """Stop reading."""
        await self._fetcher.close()


def check_ranges(backend: Backend, table: TableInfo, ranges: Ranges) -> None:
    """Raise `SubscriptionError` for ranges of other tables, of no bucket, or with start > stop."""
    for bucket, (start, stop) in ranges.items():
        check_bucket(backend, table, bucket)
        if not 0 <= start <= stop:
            raise SubscriptionError(
                f"[{start}, {stop}) of {bucket} is not a range: it takes 0 ≤ start ≤ stop"
            )


def check_bucket(backend: Backend, table: TableInfo, bucket: TableBucket) -> None:
    """Raise `SubscriptionError` for a bucket that the table cannot have.

    The bucket count of a partition may not be known yet. Then the fetcher checks the bucket
    (`check_bucket_id`), because that needs a request.
    """
    path = table.table_path
    if bucket.table_id != table.table_id:
        raise SubscriptionError(f"{bucket} is not of table {path}, whose id is {table.table_id}")
    count = backend.known_bucket_count(table, bucket.partition_id)
    check_bucket_id(table, bucket, count)
    if (bucket.partition_id is not None) != table.is_partitioned():
        has = "has" if table.is_partitioned() else "does not have"
        raise SubscriptionError(f"{bucket} does not fit table {path}, which {has} partitions")


def place_of(bucket: TableBucket) -> tuple[int, int]:
    """Return the sort key of a bucket: its partition id, then its bucket id."""
    return (-1 if bucket.partition_id is None else bucket.partition_id, bucket.bucket_id)
