"""A backend in memory for scans: logs with holes, errors on demand, fetches that can be held.

Buckets live on nodes as told. `fetch` behaves as a server does: it waits for something to arrive,
keeps to the limits but gives at least one batch, and serves nothing beyond the high watermark.
"""

from __future__ import annotations

import asyncio
import functools
from collections import defaultdict, deque
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pyarrow as pa

from fluss_client.backend.contract import (
    DecodedSlice,
    FetchedBucket,
    FetchPosition,
    FetchRequest,
    LogSlice,
)
from fluss_client.errors import (
    FlussError,
    LogOffsetOutOfRangeError,
    NotLeaderOrFollowerError,
    TableNotExistError,
)
from fluss_client.model.cluster import OffsetSpec
from fluss_client.model.schema import Schema
from fluss_client.model.table import PartitionInfo, TableBucket, TableInfo, TablePath
from tests.waiting import WAIT_S, scaled

PATH = TablePath("db", "events")
LOG_SCHEMA = Schema(pa.schema([("id", pa.int64()), ("name", pa.string()), ("score", pa.float64())]))
KEY_SCHEMA = Schema(pa.schema([("id", pa.int64()), ("name", pa.string())]), ["id"])


def make_table(
    *, schema: Schema = LOG_SCHEMA, buckets: int = 2, partitioned: bool = False, table_id: int = 7
) -> TableInfo:
    return TableInfo(
        table_id=table_id,
        table_path=PATH,
        schema_id=1,
        schema=schema,
        partition_keys=("name",) if partitioned else (),
        bucket_keys=(),
        num_buckets=buckets,
        properties={},
        custom_properties={},
    )


def on_loop(test: Callable[..., Awaitable[None]]) -> Callable[..., None]:
    """Run an async test on a loop of its own, whose end finds no task left behind."""

    @functools.wraps(test)
    def run(*args: Any, **kwargs: Any) -> None:
        async def main() -> None:
            async with asyncio.timeout(scaled(WAIT_S)):
                await test(*args, **kwargs)

        asyncio.run(main())

    return run


async def until(condition: Callable[[], bool]) -> None:
    """Let the loop turn until something holds; bounded by the time of a test."""
    for _ in range(10_000_000):
        if condition():
            return
        await asyncio.sleep(0)
    raise AssertionError("it never came to that")


@dataclass
class Batch:
    base: int
    rows: pa.RecordBatch | None
    changes: np.ndarray | None
    size: int
    offsets: int

    @property
    def next(self) -> int:
        return self.base + self.offsets


@dataclass
class Log:
    batches: list[Batch] = field(default_factory=list)
    earliest: int = 0
    high_watermark: int | None = None

    @property
    def end(self) -> int:
        return self.batches[-1].next if self.batches else self.earliest

    @property
    def readable(self) -> int:
        return self.end if self.high_watermark is None else self.high_watermark


class FakeBackend:
    def __init__(self, table: TableInfo, nodes: Callable[[TableBucket], int] = lambda b: 1) -> None:
        self.table = table
        self.nodes = nodes
        self.logs: dict[TableBucket, Log] = defaultdict(Log)
        self.errors: dict[TableBucket, deque[FlussError]] = defaultdict(deque)
        """Answered instead of records, one per fetch of the bucket."""
        self.fetch_errors: deque[Exception] = deque()
        self.locate_errors: deque[FlussError] = deque()
        self.offset_errors: deque[FlussError] = deque()
        self.requests: list[tuple[int, FetchRequest]] = []
        self.in_flight: dict[int, int] = defaultdict(int)
        self.in_flight_max = 0
        self.forgotten: list[TableBucket] = []
        self.located: list[TableBucket] = []
        self.dropped = False
        self.partitions: list[PartitionInfo] = []
        self.gate = asyncio.Event()
        """Fetches wait here; open unless a test closes it."""
        self.gate.set()
        self.arrived = asyncio.Condition()
        self.decodes = 0
        self.decode_error: Exception | None = None
        self.decode_hook: Callable[[], None] | None = None

    # Filling

    def bucket(self, bucket_id: int, partition_id: int | None = None) -> TableBucket:
        return TableBucket(self.table.table_id, bucket_id, partition_id=partition_id)

    def append(
        self,
        bucket: TableBucket | int,
        count: int,
        *,
        changes: Sequence[int] | None = None,
        size: int | None = None,
        extra_offsets: int = 0,
        pad: int = 0,
    ) -> None:
        """Write a batch of `count` rows whose id is their offset; no row makes an empty one."""
        place = self.bucket(bucket) if isinstance(bucket, int) else bucket
        log = self.logs[place]
        base = log.end
        rows = None
        if count:
            ids = np.arange(base, base + count)
            columns: dict[str, Any] = {
                "id": ids,
                "name": [f"{place.bucket_id}-{i}" + "x" * pad for i in ids],
                "score": ids / 2,
            }
            names = self.table.schema.get_column_names()
            rows = pa.record_batch([pa.array(columns[n]) for n in names], names=names)
            rows = rows.cast(self.table.schema.arrow)
        marks = None if changes is None else np.array(changes, np.uint8)
        offsets = max(1, count) + extra_offsets
        log.batches.append(Batch(base, rows, marks, size or max(1, count) * 10, offsets))

    async def announce(self) -> None:
        """Wake fetches that wait for something to arrive."""
        async with self.arrived:
            self.arrived.notify_all()

    # The seam

    async def locate(self, table: TableInfo, bucket: TableBucket) -> int:
        self.located.append(bucket)
        if self.locate_errors:
            raise self.locate_errors.popleft()
        return self.nodes(bucket)

    async def forget_location(self, table: TableInfo, bucket: TableBucket) -> None:
        self.forgotten.append(bucket)

    def known_bucket_count(self, table: TableInfo, partition_id: int | None) -> int | None:
        return table.num_buckets

    async def bucket_count(self, table: TableInfo, partition_id: int | None) -> int:
        return table.num_buckets

    async def get_table_info(self, path: TablePath) -> TableInfo:
        if self.dropped:
            raise TableNotExistError(f"{path} does not exist")
        return self.table

    async def list_partitions(self, path: TablePath, spec: Any) -> list[PartitionInfo]:
        return self.partitions

    async def list_offsets(
        self, table: TableInfo, partition_id: int | None, buckets: Sequence[int], spec: OffsetSpec
    ) -> dict[int, int]:
        if self.offset_errors:
            raise self.offset_errors.popleft()
        logs = {b: self.logs[self.bucket(b, partition_id)] for b in buckets}
        return {
            b: log.earliest if spec.kind == "earliest" else log.readable for b, log in logs.items()
        }

    async def limit_scan(
        self, table: TableInfo, bucket: TableBucket, limit: int, columns: Any
    ) -> pa.RecordBatch:
        rows = [b.rows for b in self.logs[bucket].batches if b.rows is not None]
        merged = pa.concat_batches(rows).slice(0, limit)
        return merged if columns is None else merged.select(list(columns))

    async def fetch(self, node: int, request: FetchRequest) -> list[FetchedBucket]:
        self.requests.append((node, request))
        self.in_flight[node] += 1
        self.in_flight_max = max(self.in_flight_max, self.in_flight[node])
        try:
            await self.gate.wait()
            if self.fetch_errors:
                raise self.fetch_errors.popleft()
            if not self._something(node, request) and request.wait_ms:
                try:
                    async with asyncio.timeout(request.wait_ms / 1000), self.arrived:
                        await self.arrived.wait_for(lambda: self._something(node, request))
                except TimeoutError:
                    pass
            else:
                await asyncio.sleep(0)
            return self._answer(node, request)
        finally:
            self.in_flight[node] -= 1

    def _something(self, node: int, request: FetchRequest) -> bool:
        return any(
            self.errors[p.bucket]
            or self.nodes(p.bucket) != node
            or p.offset != self.logs[p.bucket].readable
            for p in request.positions
        )

    def _answer(self, node: int, request: FetchRequest) -> list[FetchedBucket]:
        left = request.bytes_max
        answers = []
        for position in request.positions:
            answer = self._read(node, request, position, left)
            left -= sum(part.nbytes for part in answer.slices)
            answers.append(answer)
        return answers

    def _read(
        self, node: int, request: FetchRequest, position: FetchPosition, left: int
    ) -> FetchedBucket:
        bucket, offset = position.bucket, position.offset
        log = self.logs[bucket]
        if self.nodes(bucket) != node:
            return FetchedBucket(bucket, error=NotLeaderOrFollowerError("it moved"))
        if self.errors[bucket]:
            return FetchedBucket(bucket, error=self.errors[bucket].popleft())
        if not log.earliest <= offset <= log.end:
            error = LogOffsetOutOfRangeError(f"offset {offset} is out of range")
            return FetchedBucket(bucket, error=error)
        room = min(position.bytes_max, left)
        slices: list[LogSlice] = []
        for batch in log.batches:
            if batch.next <= offset or batch.next > log.readable:
                continue
            if room <= 0 or (slices and batch.size > room):
                break
            slices.append(self._slice(request, batch, offset))
            room -= batch.size
        following = slices[-1].next_offset if slices else offset
        return FetchedBucket(bucket, slices, log.readable, following)

    def _slice(self, request: FetchRequest, batch: Batch, offset: int) -> LogSlice:
        skip = max(0, offset - batch.base)
        rows = 0 if batch.rows is None else max(0, batch.rows.num_rows - skip)

        def decode(slices: Sequence[LogSlice]) -> list[DecodedSlice]:
            assert len(slices) == 1, "each slice has a decoder of its own"
            self.decodes += 1
            if self.decode_hook is not None:
                self.decode_hook()
            if self.decode_error is not None:
                raise self.decode_error
            assert batch.rows is not None
            data = batch.rows.slice(skip)
            if request.columns is not None:
                data = data.select(list(request.columns))
            return [(data, None if batch.changes is None else batch.changes[skip:])]

        timestamp = 1000 + batch.base
        return LogSlice(batch.base + skip, batch.next, rows, timestamp, batch.size, decode, None)


def recreated(table: TableInfo, table_id: int) -> TableInfo:
    return replace(table, table_id=table_id)
