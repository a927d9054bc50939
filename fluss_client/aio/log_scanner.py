"""Reading a log as it grows: records, or Arrow batches."""

from __future__ import annotations

import asyncio
import operator
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from types import TracebackType
from typing import TYPE_CHECKING, Any, TypeVar

import pyarrow as pa

from fluss_client.aio.batch_reader import ReaderProgress, blocking_reader, call_on, runs_on
from fluss_client.aio.fetch_state import Piece
from fluss_client.aio.log_fetcher import LogFetcher
from fluss_client.aio.offsets import Ranges, ranges_to_latest
from fluss_client.aio.projection import Projection
from fluss_client.aio.ranges import RangeReader, check_bucket, place_of
from fluss_client.aio.scan_errors import ReaderActiveError, SubscriptionError
from fluss_client.aio.scan_frames import shown_batch, shown_schema, to_frame
from fluss_client.aio.staging import StagedRecords
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
READ_PIECES_MAX = 64

T = TypeVar("T")


class LogScanner(ProcessBound):
    """Follows the log of the subscribed buckets. Made by `TableScan`.

    Rows of a bucket come in the order of their offsets; buckets take turns. A poll gives what is
    there as soon as there is something, and nothing when its time is over; cancelling one loses
    nothing. `async for` gives records (or `RecordBatch`es) for ever, until the scanner is closed.

    The error of a bucket is raised by the next poll, once the rows before it were given. After an
    error that time may heal (`is_retriable`; it was tried for `retry-timeout` before) the bucket
    stays subscribed and is tried again where it was. After any other, such as an offset that is
    not there, the bucket is unsubscribed. Other buckets go on in both cases.

    While a reader of `to_arrow_batch_reader` is active, every other call but `close` and `metrics`
    raises `ReaderActiveError`.
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
        """The reader made last, until it was seen to be over."""
        self._reader_failed = False
        """The buckets were unsubscribed because a reader was not read to its end."""
        self._unsubscribed = False
        """The caller unsubscribed: polls without a bucket are what was asked for."""
        self._read_from: dict[TableBucket, int] = {}
        """Where `to_arrow` and the like begin again, until the next poll."""

    # Subscribing

    def subscribe(self, bucket_id: int, start_offset: int) -> None:
        """Read a bucket from an offset, `EARLIEST_OFFSET` or `LATEST_OFFSET` on."""
        self.subscribe_buckets({bucket_id: start_offset})

    def subscribe_buckets(self, bucket_offsets: Mapping[int, int]) -> None:
        """Read several buckets of a table without partitions: `{bucket: offset}`."""
        self._check_partitioned(False)
        self._subscribe({self._bucket(None, b): o for b, o in bucket_offsets.items()})

    def subscribe_partition(self, partition_id: int, bucket_id: int, start_offset: int) -> None:
        """Read a bucket of one partition from an offset on."""
        self.subscribe_partition_buckets({(partition_id, bucket_id): start_offset})

    def subscribe_partition_buckets(
        self, partition_bucket_offsets: Mapping[tuple[int, int], int]
    ) -> None:
        """Read several buckets of a partitioned table: `{(partition id, bucket): offset}`."""
        self._check_partitioned(True)
        self._subscribe({self._bucket(p, b): o for (p, b), o in partition_bucket_offsets.items()})

    def unsubscribe(self, bucket_id: int) -> None:
        """Stop reading a bucket; what was fetched of it is dropped.

        Polls of a scanner without any bucket left give nothing.
        """
        self._check_partitioned(False)
        self._unsubscribe(self._bucket(None, bucket_id))

    def unsubscribe_partition(self, partition_id: int, bucket_id: int) -> None:
        """Stop reading a bucket of a partition; what was fetched of it is dropped."""
        self._check_partitioned(True)
        self._unsubscribe(self._bucket(partition_id, bucket_id))

    # Polling

    async def poll(self, timeout_ms: int) -> ScanRecords:
        """The next records, at most `scanner.log.max-poll-records`; none after the timeout."""
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
        """What `poll` would give at once, on any thread; None if it has to look for more."""
        self._check_poll("poll()", batches=False)
        limit = self._config.scanner_log_max_poll_records
        found = self._staged.take(limit, at_least=limit)
        return found if found.count() else None

    async def poll_record_batch(self, timeout_ms: int) -> list[RecordBatch]:
        """The next Arrow batches with bucket and offsets; none after the timeout."""
        self._check_poll("poll_record_batch()", batches=True)
        pieces = await self._poll_pieces(timeout_ms)
        return [piece.as_record_batch() for piece in pieces]

    async def poll_arrow(self, timeout_ms: int) -> pa.Table:
        """The next rows as one table; an empty one after the timeout.

        For a primary-key table a last column `_change_type` says what happened to each row.
        """
        self._check_poll("poll_arrow()", batches=True)
        pieces = await self._poll_pieces(timeout_ms)
        return pa.Table.from_batches(map(self._as_arrow, pieces), self._schema)

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
        """Everything from the subscribed offsets to those that are the latest now.

        After polls it begins where they have got to. Rows are sorted by partition, bucket and
        offset. Polls go on where this ends; another `to_arrow` before them gives the same rows
        again, and those that are new.
        """
        self._check_kind("to_arrow()", batches=True)
        found_ranges = await ranges_to_latest(self._backend, self._table, self._starts())
        before = self._fetcher.positions()
        ranges = self._claim(found_ranges)
        reader = RangeReader(
            self._backend, self._table, ranges, self._projection, self._config, ordered=False
        )
        found: list[Piece] = []
        try:
            while pieces := await reader.read(READ_PIECES_MAX):
                found.extend(piece for piece in pieces if piece.batch.num_rows)
        except BaseException:
            for bucket, (start, _) in ranges.items():
                self._fetcher.add(bucket, start if before[bucket] < 0 else before[bucket])
            raise
        finally:
            await reader.close()
        found.sort(key=lambda piece: (place_of(piece.bucket), piece.base_offset))
        return pa.Table.from_batches(map(self._as_arrow, found), self._schema)

    async def to_pandas(self) -> pd.DataFrame:
        """Like `to_arrow`, as a DataFrame; needs pandas."""
        self._check_kind("to_pandas()", batches=True)
        return to_frame(await self.to_arrow())

    def to_arrow_batch_reader(self) -> pa.RecordBatchReader:
        """A blocking reader of the rows that `to_arrow` would give now.

        For blocking code, such as DuckDB or Polars; it may be used on any thread, this one too,
        and holds no more than the prefetch of a scan. Until it is read to its end or dropped, the
        scanner's other calls raise `ReaderActiveError`. Then polls go on behind its rows; but
        after a reader that was dropped early or has failed no bucket is subscribed any more, and
        calls raise `SubscriptionError` until `subscribe` says where to go on: nothing is skipped
        silently.
        """
        self._check_kind("to_arrow_batch_reader()", batches=True)
        loop, backend = self._loop, self._backend
        if self._background is not None and loop is not runtime().loop:
            loop, backend = runtime().loop, self._background()
        starts = self._at_home(self._starts)
        claimed: Future[Ranges] = Future()
        finding = asyncio.run_coroutine_threadsafe(
            ranges_to_latest(backend, self._table, starts), loop
        )
        if runs_on(loop):
            # It cannot be waited for here; whoever reads waits for it.
            finding.add_done_callback(lambda done: self._claim_into(claimed, done))
        else:
            ranges = wait_for(finding, None)
            claimed.set_result(self._at_home(lambda: self._claim(ranges)))

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
        """Fetches, bytes, batches, rows and retries so far, and the bytes held now."""
        self._check_process()
        return self._fetcher.metrics()

    async def close(self) -> None:
        """Stop reading; whoever waits in a poll gets `ClosedError`."""
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
        """Refuse to go on beside a reader; take in how it has ended."""
        if reader.active:
            raise ReaderActiveError(
                f"a RecordBatchLogReader is active on this scanner of {self._table.table_path}: "
                "read what to_arrow_batch_reader() gave to its end, or drop it, first"
            )
        self._reader = None
        if not reader.gave_everything:
            # Its buckets stand behind rows that nobody got.
            self._reader_failed = True
            self._at_home(self._drop_all)

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
        check_bucket(self._table, bucket)
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

        self._at_home(apply)

    def _unsubscribe(self, bucket: TableBucket) -> None:
        def apply() -> None:
            self._staged.drop(bucket)
            self._read_from.pop(bucket, None)
            if self._fetcher.remove(bucket):
                self._unsubscribed = True

        self._at_home(apply)

    def _at_home(self, work: Callable[[], T]) -> T:
        """Run on the scanner's loop, wherever the caller is: its state belongs to that thread."""
        if runs_on(self._loop) or not self._loop.is_running():
            return work()

        async def working() -> T:
            return work()

        return call_on(self._loop, working())

    def _starts(self) -> dict[TableBucket, int]:
        """Where a read to the end begins."""
        return {**self._fetcher.positions(), **self._read_from}

    def _claim(self, found: Ranges) -> dict[TableBucket, tuple[int, int]]:
        """Take ranges out of what is polled: polls go on behind them."""
        claimed = {}
        for bucket, position in self._fetcher.positions().items():
            if bucket in found:
                start, stop = found[bucket]
                # Polls may have gone on while the latest offsets were asked for.
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

    def _as_arrow(self, piece: Piece) -> pa.RecordBatch:
        return shown_batch(piece, self._schema)

    async def _stage(self, limit: int) -> None:
        """Take in what is ready, until there are `limit` rows."""
        await asyncio.sleep(0)
        if not self._staged.count:
            self._raise_error()
        while self._staged.count < limit and (piece := self._fetcher.take()) is not None:
            self._staged.add(piece)

    async def _next_batch(self) -> RecordBatch:
        while not (pieces := await self._ready_pieces(1)):
            await self._fetcher.wait(None)
        return pieces[0].as_record_batch()

    async def _next_record(self) -> ScanRecord:
        while not self._staged.count:
            await self._stage(self._config.scanner_log_max_poll_records)
            if not self._staged.count:
                await self._fetcher.wait(None)
        return self._staged.take_one()

    async def _poll_pieces(self, timeout_ms: int) -> list[Piece]:
        deadline = self._loop.time() + timeout_ms / 1000
        while True:
            pieces = await self._ready_pieces(POLL_BATCHES_MAX)
            if pieces:
                return pieces
            if not await self._fetcher.wait(max(0.0, deadline - self._loop.time())):
                return []

    async def _ready_pieces(self, limit: int) -> list[Piece]:
        await asyncio.sleep(0)
        self._raise_error()
        pieces: list[Piece] = []
        while len(pieces) < limit:
            piece = self._fetcher.take()
            if piece is None:
                break
            if piece.batch.num_rows:
                pieces.append(piece)
        return pieces

    def _raise_error(self) -> None:
        if self._closed:
            raise ClosedError("this scanner was closed")
        error = self._fetcher.take_error()
        if error is not None:
            # A bucket may have gone with it: that is not what the caller asked for.
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
