"""Scans as the guides use them: creating one gives a handle, polling blocks."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from types import TracebackType
from typing import Any

import pyarrow as pa

from fluss_client.aio import scan as core
from fluss_client.facade.handle import Handle
from fluss_client.model.predicate import Predicate
from fluss_client.model.records import RecordBatch, ScanRecord, ScanRecords
from fluss_client.model.table import TableBucket
from fluss_client.runtime import runtime


class TableScan:
    """Builds scanners."""

    def __init__(self, builder: core.TableScan) -> None:
        self._core = builder

    def project(self, indices: Sequence[int]) -> TableScan:
        """Read only these columns, by position."""
        return TableScan(self._core.project(indices))

    def project_by_name(self, names: Sequence[str]) -> TableScan:
        """Read only these columns, by name."""
        return TableScan(self._core.project_by_name(names))

    def with_fixed_schema(self, fixed_schema: bool) -> TableScan:
        """Whether rows of older schemas are shown in the current one."""
        return TableScan(self._core.with_fixed_schema(fixed_schema))

    def limit(self, n: int) -> TableScan:
        """Read at most `n` rows of a bucket, with `create_bucket_batch_scanner`."""
        return TableScan(self._core.limit(n))

    def filter(self, predicate: Predicate) -> TableScan:
        """Say which rows are wanted; rows that do not match may come all the same.

        Servers before 1.0 and the embedded engine leave out nothing, and this client does not ask
        newer ones to: apply the condition to what comes.
        """
        return TableScan(self._core.filter(predicate))

    def create_bucket_batch_scanner(self, bucket: TableBucket) -> BatchScanner:
        """A bounded scan of one bucket; needs a `limit`."""
        return BatchScanner(self._core.create_bucket_batch_scanner(bucket))

    def create_log_scanner(self) -> Handle[LogScanner]:
        """A scanner of single records, for `poll()`."""

        async def create() -> LogScanner:
            return LogScanner(await self._core.create_log_scanner())

        return Handle.start(create(), "create_log_scanner")

    def create_record_batch_log_scanner(self) -> Handle[LogScanner]:
        """A scanner of Arrow batches, for `poll_arrow()`, `to_arrow()` and the like."""

        async def create() -> LogScanner:
            return LogScanner(await self._core.create_record_batch_log_scanner())

        return Handle.start(create(), "create_record_batch_log_scanner")

    create_batch_scanner = create_record_batch_log_scanner
    """The name of `create_record_batch_log_scanner` in the older guide."""


class LogScanner:
    """Follows the logs of the buckets that it subscribes to."""

    def __init__(self, scanner: core.LogScanner) -> None:
        self._core = scanner

    def subscribe(self, bucket_id: int, start_offset: int) -> None:
        """Read a bucket from an offset, `EARLIEST_OFFSET` or `LATEST_OFFSET` on."""
        self._core.subscribe(bucket_id, start_offset)

    def subscribe_buckets(self, bucket_offsets: Mapping[int, int]) -> None:
        """Read several buckets: `{bucket_id: offset}`."""
        self._core.subscribe_buckets(bucket_offsets)

    def subscribe_partition(self, partition_id: int, bucket_id: int, start_offset: int) -> None:
        """Read a bucket of a partition."""
        self._core.subscribe_partition(partition_id, bucket_id, start_offset)

    def subscribe_partition_buckets(
        self, partition_bucket_offsets: Mapping[tuple[int, int], int]
    ) -> None:
        """Read several buckets of partitions: `{(partition_id, bucket_id): offset}`."""
        self._core.subscribe_partition_buckets(partition_bucket_offsets)

    def unsubscribe(self, bucket_id: int) -> None:
        """Stop reading a bucket."""
        self._core.unsubscribe(bucket_id)

    def unsubscribe_partition(self, partition_id: int, bucket_id: int) -> None:
        """Stop reading a bucket of a partition."""
        self._core.unsubscribe_partition(partition_id, bucket_id)

    def poll(self, timeout_ms: int) -> ScanRecords:
        """Records as soon as there are some; empty after the timeout."""
        ready = self._core.poll_staged()
        return runtime().call(self._core.poll(timeout_ms)) if ready is None else ready

    def poll_arrow(self, timeout_ms: int) -> pa.Table:
        """The same as an Arrow table."""
        return runtime().call(self._core.poll_arrow(timeout_ms))

    def poll_record_batch(self, timeout_ms: int) -> list[RecordBatch]:
        """The same as batches with their bucket and offsets."""
        return runtime().call(self._core.poll_record_batch(timeout_ms))

    poll_batches = poll_record_batch
    """The name of `poll_record_batch` in the older guide."""

    def to_arrow(self) -> pa.Table:
        """Everything from the subscribed offsets up to what is there now."""
        return runtime().call(self._core.to_arrow())

    def to_pandas(self) -> Any:
        """The same as a DataFrame."""
        return runtime().call(self._core.to_pandas())

    def to_arrow_batch_reader(self) -> pa.RecordBatchReader:
        """The same batch by batch, in bounded memory."""
        return self._core.to_arrow_batch_reader()

    def metrics(self) -> dict[str, float]:
        """Rows, bytes and fetches so far."""
        return self._core.metrics()

    def close(self) -> None:
        """Stop reading."""
        runtime().call(self._core.close())

    async def __aiter__(self) -> AsyncIterator[ScanRecord | RecordBatch]:
        source = self._core.__aiter__()
        while True:
            try:
                yield await Handle.start(_next(source), "next record")
            except StopAsyncIteration:
                return

    def __enter__(self) -> LogScanner:
        return self

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()


async def _next(source: AsyncIterator[Any]) -> Any:
    return await source.__anext__()


class BatchScanner:
    """A bounded scan of one bucket."""

    def __init__(self, scanner: core.BatchScanner) -> None:
        self._core = scanner

    @property
    def bucket(self) -> TableBucket:
        """The bucket that is read."""
        return self._core.bucket

    def next_batch(self) -> Handle[pa.RecordBatch | None]:
        """The next batch; None when all are read."""
        return Handle.start(self._core.next_batch(), "next_batch")

    def collect_all_batches(self) -> Handle[list[pa.RecordBatch]]:
        """All batches that are left."""
        return Handle.start(self._core.collect_all_batches(), "collect_all_batches")

    def to_arrow(self) -> pa.Table:
        """All rows as an Arrow table."""
        return runtime().call(self._core.to_arrow())

    def to_pandas(self) -> Any:
        """All rows as a DataFrame."""
        return runtime().call(self._core.to_pandas())
