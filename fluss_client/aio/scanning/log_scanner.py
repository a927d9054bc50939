"""The scanner that follows the logs of some buckets, as records or as Arrow batches."""

from __future__ import annotations

import asyncio
import operator
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from types import TracebackType
from typing import TYPE_CHECKING, Any, TypeVar

import pyarrow as pa

from fluss_client.aio.offsets import Ranges, ranges_to_latest
from fluss_client.aio.projection import Projection
from fluss_client.aio.scanning.batch_reader import ReaderProgress, blocking_reader, call_on, runs_on
from fluss_client.aio.scanning.errors import ReaderActiveError, SubscriptionError
from fluss_client.aio.scanning.log_fetcher import LogFetcher
from fluss_client.aio.scanning.ranges import RangeReader, check_bucket, place_of
from fluss_client.aio.scanning.records import (
    StagedRecords,
    shown_batch,
    shown_schema,
    to_frame,
)
from fluss_client.backend.contract import Backend
from fluss_client.config import Config
from fluss_client.errors import (
    ClosedError,
    TableNotPartitionedError,
    UnsupportedError,
)
from fluss_client.model.cluster import EARLIEST_OFFSET, LATEST_OFFSET
from fluss_client.model.records import RecordBatch, ScanRecord, ScanRecords
from fluss_client.model.table import TableBucket, TableInfo
from fluss_client.runtime import ProcessBound, runtime, wait_for

if TYPE_CHECKING:
    import pandas as pd

POLL_BATCHES_MAX = 256
READ_BATCHES_MAX = 64

T = TypeVar("T")


class LogScanner(ProcessBound):
    """Reads the logs of the subscribed buckets as they grow.

    Obtain it with `TableScan.create_log_scanner()` or `create_record_batch_log_scanner()`; do not
    call the constructor.

    Rows of a bucket come in the order of their offsets; rows of several buckets are interleaved. A
    poll returns as soon as there are rows, or with no rows after its timeout. A cancelled poll
    loses no row. `async for` gives records, or `RecordBatch` objects, until the scanner is closed.

    If a bucket fails, the rows before the failure are returned first, and the next poll raises the
    error. If the error is retriable (`is_retriable`), the scanner has retried for `retry-timeout`
    before; the bucket stays subscribed, and the next poll retries at the same offset. After any
    other error, such as an offset that the log does not have, the bucket is unsubscribed. Other
    buckets are read on in both cases.

    While a reader of `to_arrow_batch_reader` is active, all calls except `close` and `metrics`
    raise `ReaderActiveError`.
    """

    def __init__(
        self,
        backend: Backend,
        table: TableInfo,
        projection: Projection,
        config: Config,
        *,
        batches: bool,
        background: Callable[[], Backend] | None = None,
    ) -> None:
        self._bind_process()
        self._loop = asyncio.get_running_loop()
        self._backend = backend
        self._background = background
        self._table = table
        self._projection = projection
        self._config = config
        self._gives_batches = batches
        self._fetcher = LogFetcher(backend, table, projection, config)
        self._staged = StagedRecords()
        self._schema = shown_schema(projection, table)
        self._closed = False
        self._reader: ReaderProgress | None = None
        """The last batch reader, until the scanner has noticed its end."""
        self._reader_failed = False
        """The buckets were unsubscribed because a batch reader was not read to its end."""
        self._unsubscribed = False
        """The caller has unsubscribed: polls without a bucket return nothing, and do not raise."""
        self._read_from: dict[TableBucket, int] = {}
        """Where a second `to_arrow` begins again, until the next poll."""

    # Subscribing

    def subscribe(self, bucket_id: int, start_offset: int) -> None:
        """Subscribe to a bucket of a table without partitions.

        Args:
            bucket_id: The bucket.
            start_offset: The first offset to read, or `EARLIEST_OFFSET` or `LATEST_OFFSET`.

        Raises:
            SubscriptionError: The table has partitions, or has no such bucket or offset.
        """
        self.subscribe_buckets({bucket_id: start_offset})

    def subscribe_buckets(self, bucket_offsets: Mapping[int, int]) -> None:
        """Subscribe to several buckets of a table without partitions.

        Args:
            bucket_offsets: The first offset to read of each bucket: `{bucket_id: offset}`.

        Raises:
            SubscriptionError: The table has partitions, or has no such bucket or offset.
        """
        self._check_partitioned(False)
        self._subscribe({self._bucket(None, b): o for b, o in bucket_offsets.items()})

    def subscribe_partition(self, partition_id: int, bucket_id: int, start_offset: int) -> None:
        """Subscribe to a bucket of a partition.

        Args:
            partition_id: The partition.
            bucket_id: The bucket.
            start_offset: The first offset to read, or `EARLIEST_OFFSET` or `LATEST_OFFSET`.

        Raises:
            TableNotPartitionedError: The table has no partitions.
            SubscriptionError: The table has no such bucket or offset.
        """
        self.subscribe_partition_buckets({(partition_id, bucket_id): start_offset})

    def subscribe_partition_buckets(
        self, partition_bucket_offsets: Mapping[tuple[int, int], int]
    ) -> None:
        """Subscribe to several buckets of partitions.

        Args:
            partition_bucket_offsets: The first offset to read of each bucket:
                `{(partition_id, bucket_id): offset}`.

        Raises:
            TableNotPartitionedError: The table has no partitions.
            SubscriptionError: The table has no such bucket or offset.
        """
        self._check_partitioned(True)
        self._subscribe({self._bucket(p, b): o for (p, b), o in partition_bucket_offsets.items()})

    def unsubscribe(self, bucket_id: int) -> None:
        """Unsubscribe from a bucket. Rows that were fetched and not returned are dropped.

        Polls of a scanner that is unsubscribed from all buckets return nothing.

        Args:
            bucket_id: The bucket.

        Raises:
            SubscriptionError: The table has partitions, or has no such bucket.
        """
        self._check_partitioned(False)
        self._unsubscribe(self._bucket(None, bucket_id))

    def unsubscribe_partition(self, partition_id: int, bucket_id: int) -> None:
        """Unsubscribe from a bucket of a partition, as `unsubscribe` does.

        Args:
            partition_id: The partition.
            bucket_id: The bucket.

        Raises:
            TableNotPartitionedError: The table has no partitions.
            SubscriptionError: The table has no such bucket.
        """
        self._check_partitioned(True)
        self._unsubscribe(self._bucket(partition_id, bucket_id))

    # Polling

    async def poll(self, timeout_ms: int) -> ScanRecords:
        """Return the next records, at most `scanner.log.max-poll-records`.

        Args:
            timeout_ms: How long to wait for records.

        Returns:
            The records, as soon as there are some. It is empty if the timeout passes first.

        Raises:
            SubscriptionError: No bucket is subscribed.
            UnsupportedError: This is a scanner of batches.
        """
        self._check_poll("poll()", batches=False)
        limit = self._config.scanner_log_max_poll_records
        deadline = self._loop.time() + timeout_ms / 1000
        while True:
            await self._stage(limit)
            if self._staged.count:
                return self._staged.take(limit)
            if not await self._fetcher.wait(max(0.0, deadline - self._loop.time())):
                return ScanRecords({})

    def poll_staged(self) -> ScanRecords | None:
        """Return what `poll` would return without waiting, or None if it has to wait.

        Any thread may call it.
        """
        self._check_poll("poll()", batches=False)
        limit = self._config.scanner_log_max_poll_records
        found = self._staged.take(limit, at_least=limit)
        return found if found.count() else None

    async def poll_record_batch(self, timeout_ms: int) -> list[RecordBatch]:
        """Return the next Arrow batches, with their bucket and offsets.

        Args:
            timeout_ms: How long to wait for rows.

        Returns:
            The batches, as soon as there are some. It is empty if the timeout passes first.

        Raises:
            SubscriptionError: No bucket is subscribed.
            UnsupportedError: This is a scanner of records.
        """
        self._check_poll("poll_record_batch()", batches=True)
        return await self._poll_batches(timeout_ms)

    poll_batches = poll_record_batch
    """The name of `poll_record_batch` in the older guide."""

    async def poll_arrow(self, timeout_ms: int) -> pa.Table:
        """Return the next rows as one Arrow table.

        The table of a primary-key table has a last column `_change_type`.

        Args:
            timeout_ms: How long to wait for rows.

        Returns:
            The rows, as soon as there are some. It is empty if the timeout passes first.

        Raises:
            SubscriptionError: No bucket is subscribed.
            UnsupportedError: This is a scanner of records.
        """
        self._check_poll("poll_arrow()", batches=True)
        found = await self._poll_batches(timeout_ms)
        return pa.Table.from_batches(map(self._as_arrow, found), self._schema)

    def __aiter__(self) -> LogScanner:
        return self

    async def __anext__(self) -> ScanRecord | RecordBatch:
        if self._closed:
            raise StopAsyncIteration
        self._check_subscribed("async for")
        self._read_from.clear()
        try:
            return await (self._next_batch() if self._gives_batches else self._next_record())
        except ClosedError:
            if self._closed:
                raise StopAsyncIteration from None
            raise

    # Reading to the end

    async def to_arrow(self) -> pa.Table:
        """Return all rows from the subscribed offsets up to the latest offsets of now.

        After a poll it begins where the poll ended. A later poll begins where this ends. A second
        `to_arrow` without a poll in between returns the same rows again, and the new ones.

        Returns:
            The rows, sorted by partition, bucket and offset. The table of a primary-key table has
            a last column `_change_type`.

        Raises:
            SubscriptionError: No bucket is subscribed.
            UnsupportedError: This is a scanner of records.
        """
        self._check_kind("to_arrow()", batches=True)
        found_ranges = await ranges_to_latest(self._backend, self._table, self._starts())
        before = self._fetcher.positions()
        ranges = self._claim(found_ranges)
        reader = RangeReader(
            self._backend, self._table, ranges, self._projection, self._config, ordered=False
        )
        found: list[RecordBatch] = []
        try:
            while some := await reader.read(READ_BATCHES_MAX):
                found.extend(rows for rows in some if rows.batch.num_rows)
        except BaseException:
            for bucket, (start, _) in ranges.items():
                self._fetcher.add(bucket, start if before[bucket] < 0 else before[bucket])
            raise
        finally:
            await reader.close()
        found.sort(key=lambda rows: (place_of(rows.bucket), rows.base_offset))
        return pa.Table.from_batches(map(self._as_arrow, found), self._schema)

    async def to_pandas(self) -> pd.DataFrame:
        """Return the rows that `to_arrow` returns as a DataFrame.

        Raises:
            SubscriptionError: No bucket is subscribed.
            UnsupportedError: This is a scanner of records.
            MissingExtraError: pandas is not installed.
        """
        self._check_kind("to_pandas()", batches=True)
        return to_frame(await self.to_arrow())

    def to_arrow_batch_reader(self) -> pa.RecordBatchReader:
        """Return a blocking reader of the rows that `to_arrow` would return.

        It is meant for blocking code, such as DuckDB or Polars. Any thread may use it, and it
        holds no more rows than the prefetch of a scan. The other calls of the scanner raise
        `ReaderActiveError` until the reader is read to its end or dropped.

        After a reader that was read to its end, polls continue behind its rows. After a reader
        that was dropped early or failed, no bucket is subscribed: calls raise `SubscriptionError`
        until `subscribe` is called again, so that no row is skipped silently.

        Raises:
            SubscriptionError: No bucket is subscribed.
            UnsupportedError: This is a scanner of records.
        """
        self._check_kind("to_arrow_batch_reader()", batches=True)
        loop, backend = self._loop, self._backend
        if self._background is not None and loop is not runtime().loop:
            loop, backend = runtime().loop, self._background()
        starts = self._on_loop(self._starts)
        claimed: Future[Ranges] = Future()
        finding = asyncio.run_coroutine_threadsafe(
            ranges_to_latest(backend, self._table, starts), loop
        )
        if runs_on(loop):
            # This thread runs the loop and cannot wait for it; the first read of the reader waits.
            finding.add_done_callback(lambda done: self._claim_into(claimed, done))
        else:
            ranges = wait_for(finding, None)
            claimed.set_result(self._on_loop(lambda: self._claim(ranges)))

        def open_reader(ranges: Ranges) -> RangeReader:
            return RangeReader(
                backend, self._table, ranges, self._projection, self._config, ordered=True
            )

        reader, self._reader = blocking_reader(
            loop, claimed, open_reader, self._schema, self._as_arrow
        )
        return reader

    # The rest

    def metrics(self) -> dict[str, float]:
        """Return counters of fetches, bytes, batches, rows and retries, and the buffered bytes."""
        self._check_process()
        return self._fetcher.metrics()

    async def close(self) -> None:
        """Stop reading. A poll that is waiting raises `ClosedError`."""
        self._check_process()
        if not self._closed:
            self._closed = True
            await self._fetcher.close()

    async def __aenter__(self) -> LogScanner:
        return self

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self.close()

    def _check_open(self) -> None:
        self._check_process()
        if self._closed:
            raise ClosedError("this scanner was closed; make a new one")
        if self._reader is not None:
            self._check_reader(self._reader)

    def _check_reader(self, reader: ReaderProgress) -> None:
        """Raise if a batch reader is active; note how it has ended if it has."""
        if reader.active:
            raise ReaderActiveError(
                f"a RecordBatchLogReader is active on this scanner of {self._table.table_path}: "
                "read what to_arrow_batch_reader() gave to its end, or drop it, first"
            )
        self._reader = None
        if not reader.returned_everything:
            # Its buckets are positioned behind rows that were never returned.
            self._reader_failed = True
            self._on_loop(self._drop_all)

    def _drop_all(self) -> None:
        for bucket in self._fetcher.positions():
            self._fetcher.remove(bucket)
        self._read_from.clear()

    def _check_poll(self, call: str, *, batches: bool) -> None:
        self._check_scanner_kind(call, batches=batches)
        if not (self._unsubscribed or self._fetcher.has_buckets):
            self._check_subscribed(call)
        self._read_from.clear()

    def _check_kind(self, call: str, *, batches: bool) -> None:
        self._check_scanner_kind(call, batches=batches)
        self._check_subscribed(call)

    def _check_scanner_kind(self, call: str, *, batches: bool) -> None:
        self._check_open()
        if self._gives_batches != batches:
            kind, maker = (
                ("batch", "create_record_batch_log_scanner()")
                if batches
                else ("record", "create_log_scanner()")
            )
            raise UnsupportedError(f"{call} needs a {kind} scanner: make it with {maker}")

    def _check_subscribed(self, call: str) -> None:
        self._check_open()
        if not self._fetcher.has_buckets:
            why = (
                " any more: a batch reader was dropped or failed before its end, and going on "
                "behind it would skip rows"
                if self._reader_failed
                else ""
            )
            raise SubscriptionError(
                f"{call} of {self._table.table_path}: No buckets subscribed{why}. Call "
                "subscribe(), or subscribe_partition() for a partitioned table, first"
            )

    def _check_partitioned(self, wanted: bool) -> None:
        self._check_open()
        path = self._table.table_path
        if wanted and not self._table.is_partitioned():
            raise TableNotPartitionedError(
                f"table {path} has no partitions: use subscribe() and unsubscribe()"
            )
        if not wanted and self._table.is_partitioned():
            raise SubscriptionError(
                f"table {path} has partitions: use subscribe_partition() and "
                "unsubscribe_partition()"
            )

    def _bucket(self, partition_id: int | None, bucket_id: int) -> TableBucket:
        bucket = TableBucket(
            self._table.table_id, _whole("bucket", bucket_id), partition_id=partition_id
        )
        check_bucket(self._backend, self._table, bucket)
        return bucket

    def _subscribe(self, offsets: Mapping[TableBucket, int]) -> None:
        starts = {}
        for bucket, offset in offsets.items():
            start = _whole("offset", offset)
            if start < 0 and start not in (EARLIEST_OFFSET, LATEST_OFFSET):
                raise SubscriptionError(
                    f"{bucket} cannot be read from offset {start}: an offset is 0 or more, "
                    f"EARLIEST_OFFSET ({EARLIEST_OFFSET}) or LATEST_OFFSET ({LATEST_OFFSET})"
                )
            starts[bucket] = start

        def apply() -> None:
            for bucket, start in starts.items():
                self._staged.drop(bucket)
                self._read_from.pop(bucket, None)
                self._fetcher.add(bucket, start)
            self._fetcher.look_up_offsets()
            self._unsubscribed = self._reader_failed = False

        self._on_loop(apply)

    def _unsubscribe(self, bucket: TableBucket) -> None:
        def apply() -> None:
            self._staged.drop(bucket)
            self._read_from.pop(bucket, None)
            if self._fetcher.remove(bucket):
                self._unsubscribed = True

        self._on_loop(apply)

    def _on_loop(self, work: Callable[[], T]) -> T:
        """Run a function on the scanner's loop, because no lock guards the scanner's state."""
        if runs_on(self._loop) or not self._loop.is_running():
            return work()

        async def working() -> T:
            return work()

        return call_on(self._loop, working())

    def _starts(self) -> dict[TableBucket, int]:
        """Return the offsets at which a read to the end begins."""
        return {**self._fetcher.positions(), **self._read_from}

    def _claim(self, found: Ranges) -> dict[TableBucket, tuple[int, int]]:
        """Move the subscriptions behind the ranges, and return the ranges to read."""
        claimed = {}
        for bucket, position in self._fetcher.positions().items():
            if bucket in found:
                start, stop = found[bucket]
                # A poll may have moved on while the latest offsets were requested.
                start = self._read_from.setdefault(bucket, max(start, position))
                claimed[bucket] = (start, max(start, stop))
                self._fetcher.add(bucket, claimed[bucket][1])
        return claimed

    def _claim_into(
        self, claimed: Future[Ranges], found: Future[dict[TableBucket, tuple[int, int]]]
    ) -> None:
        error = found.exception()
        if error is None:
            claimed.set_result(self._claim(found.result()))
        else:
            claimed.set_exception(error)

    def _as_arrow(self, rows: RecordBatch) -> pa.RecordBatch:
        return shown_batch(rows, self._schema)

    async def _stage(self, limit: int) -> None:
        """Stage decoded rows, until there are `limit` rows."""
        # Let the loop finish decoding and fetching that is ready, also if polls never wait.
        await asyncio.sleep(0)
        if not self._staged.count:
            self._raise_error()
        while self._staged.count < limit and (rows := self._fetcher.take()) is not None:
            self._staged.add(rows)

    async def _next_batch(self) -> RecordBatch:
        while not (found := await self._ready_batches(1)):
            await self._fetcher.wait(None)
        return found[0]

    async def _next_record(self) -> ScanRecord:
        while not self._staged.count:
            await self._stage(self._config.scanner_log_max_poll_records)
            if not self._staged.count:
                await self._fetcher.wait(None)
        return self._staged.take_one()

    async def _poll_batches(self, timeout_ms: int) -> list[RecordBatch]:
        deadline = self._loop.time() + timeout_ms / 1000
        while True:
            found = await self._ready_batches(POLL_BATCHES_MAX)
            if found:
                return found
            if not await self._fetcher.wait(max(0.0, deadline - self._loop.time())):
                return []

    async def _ready_batches(self, limit: int) -> list[RecordBatch]:
        await asyncio.sleep(0)
        self._raise_error()
        found: list[RecordBatch] = []
        while len(found) < limit:
            rows = self._fetcher.take()
            if rows is None:
                break
            if rows.batch.num_rows:
                found.append(rows)
        return found

    def _raise_error(self) -> None:
        if self._closed:
            raise ClosedError("this scanner was closed")
        error = self._fetcher.take_error()
        if error is not None:
            # The error may have unsubscribed a bucket, which the caller did not ask for.
            self._unsubscribed = False
            raise error

    def __repr__(self) -> str:
        kind = "batches" if self._gives_batches else "records"
        return f"LogScanner({self._table.table_path}, {kind})"


def _whole(what: str, value: Any) -> int:
    try:
        return operator.index(value)
    except TypeError:
        raise SubscriptionError(f"a {what} is a whole number, not {value!r}") from None
