"""Reading exactly the offsets [start, stop) of some buckets.

A range ends when the log has been read up to `stop`, never because nothing came for a while: a
read gives every row of its ranges, or an error. What has no rows (offsets that empty changelog
batches use up) counts as read when the log has passed it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import AsyncIterator, Callable, Sequence

from fluss_client.aio.fetch_state import BucketState, Piece
from fluss_client.aio.log_fetcher import LogFetcher
from fluss_client.aio.offsets import Ranges
from fluss_client.aio.projection import Projection
from fluss_client.aio.scan_errors import SubscriptionError
from fluss_client.backend.contract import Backend
from fluss_client.config import Config
from fluss_client.errors import TimedOutError
from fluss_client.model.records import RecordBatch
from fluss_client.model.table import TableBucket, TableInfo
from fluss_client.net.retry import BACKOFF_MAX_MS

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
    """The rows with start ≤ offset < stop of every bucket, as Arrow batches.

    `columns` are indexes of the table's columns in any order. `ordered` gives the buckets one
    after the other, by partition id and bucket id; otherwise they come interleaved. Within a
    bucket offsets always rise. `progress(bucket, offset)` is called when all rows below `offset`
    were given and the caller came back for more, so that it never runs ahead of the caller.

    Errors: `LogOffsetOutOfRangeError` when an offset is not there (any more); `TimedOutError` when
    a bucket makes no progress for `idle_timeout_ms` (a little more than `retry-timeout` by
    default); `TableNotExistError` and `PartitionNotExistError` when it was dropped. Bad ranges
    are refused here, before anything is read.
    """
    projection = Projection.of(table.schema, columns)
    check_ranges(table, ranges)

    async def batches() -> AsyncIterator[RecordBatch]:
        reader = RangeReader(backend, table, ranges, projection, config, ordered, idle_timeout_ms)
        try:
            while pieces := await reader.read(1):
                piece = pieces[0]
                if piece.batch.num_rows:
                    yield piece.as_record_batch()
                if progress is not None:
                    progress(piece.bucket, piece.next_offset)
        finally:
            await reader.close()

    return batches()


class RangeReader:
    """Reads ranges piece by piece. Made on the loop that the backend belongs to."""

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
            # Longer than the patience with one bucket, whose error tells more.
            wait_ms = config.scanner_log_fetch_wait_max_time_ms
            idle_timeout_ms = config.retry_timeout_ms + wait_ms + BACKOFF_MAX_MS
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

    async def read(self, limit: int) -> list[Piece]:
        """The next pieces, at least one and at most `limit`; none when everything was read.

        Pieces without rows say how far the log was read. Cancelling loses nothing.
        """
        while True:
            self._fill_window()
            if not self._window:
                return []
            error = self._fetcher.take_error()
            if error is not None:
                raise error
            pieces = self._take(limit)
            if pieces:
                return pieces
            if not await self._fetcher.wait(self._idle_timeout_ms / 1000, self._can_go_on):
                raise self._no_progress()

    def _fill_window(self) -> None:
        while self._todo and len(self._window) < WINDOW_BUCKETS_MAX:
            bucket, start, stop = self._todo.popleft()
            self._window[bucket] = self._fetcher.add(bucket, start, stop)
        if self._ordered and self._window:
            self._fetcher.set_urgent(self._head())

    def _head(self) -> BucketState:
        return next(iter(self._window.values()))

    def _can_go_on(self) -> bool:
        if self._ordered:
            return self._head().has_rows_ready or self._fetcher.has_errors
        return self._fetcher.has_news

    def _take(self, limit: int) -> list[Piece]:
        pieces: list[Piece] = []
        while self._window and len(pieces) < limit:
            if not self._ordered:
                piece = self._fetcher.take()
            elif self._head().has_rows_ready:
                piece = self._fetcher.take_from(self._head())
            else:
                break
            if piece is None:
                break
            pieces.append(piece)
            if self._window[piece.bucket].done:
                del self._window[piece.bucket]
                self._fetcher.remove(piece.bucket)
        return pieces

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
        """Counters of this read."""
        return self._fetcher.metrics()

    async def close(self) -> None:
        """Stop reading."""
        await self._fetcher.close()


def check_ranges(table: TableInfo, ranges: Ranges) -> None:
    """Refuse ranges of other tables, of no bucket, or that run backwards."""
    for bucket, (start, stop) in ranges.items():
        check_bucket(table, bucket)
        if not 0 <= start <= stop:
            raise SubscriptionError(
                f"[{start}, {stop}) of {bucket} is not a range: it takes 0 ≤ start ≤ stop"
            )


def check_bucket(table: TableInfo, bucket: TableBucket) -> None:
    """Refuse a bucket that the table cannot have."""
    path = table.table_path
    if bucket.table_id != table.table_id:
        raise SubscriptionError(f"{bucket} is not of table {path}, whose id is {table.table_id}")
    if not 0 <= bucket.bucket_id < table.num_buckets:
        raise SubscriptionError(
            f"table {path} has no bucket {bucket.bucket_id}: its buckets are 0 to "
            f"{table.num_buckets - 1}"
        )
    if (bucket.partition_id is not None) != table.is_partitioned():
        has = "has" if table.is_partitioned() else "does not have"
        raise SubscriptionError(f"{bucket} does not fit table {path}, which {has} partitions")


def place_of(bucket: TableBucket) -> tuple[int, int]:
    """The order in which buckets are read: by partition id, then by bucket id."""
    return (-1 if bucket.partition_id is None else bucket.partition_id, bucket.bucket_id)
