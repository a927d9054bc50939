"""A backend in memory that treats writes as a server does, and fails where a test says so.

It keeps a log per bucket, the last five sequences per writer and bucket, and one leader per bucket.
`script` is asked about every entry of every request and may answer with a `Fault`.
"""

from __future__ import annotations

import asyncio
from collections import Counter, deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa

from fluss_client.backend.contract import BucketAck, BucketWrite, Capabilities, WriteRoute
from fluss_client.codec.binary.blobs import Blobs
from fluss_client.codec.rows import RowFormat, decode_rows
from fluss_client.errors import (
    FlussError,
    NotLeaderOrFollowerError,
    OutOfOrderSequenceError,
    PartitionNotExistError,
    TableNotExistError,
)
from fluss_client.model.schema import Schema
from fluss_client.model.table import PartitionInfo, TableBucket, TableInfo, TablePath
from tests.waiting import let_pass_async

REMEMBERED = 5


@dataclass(frozen=True)
class Fault:
    """What happens to one entry: an error, before or after the rows were taken; or a wait."""

    error: FlussError | None = None
    taken: bool = False
    until: asyncio.Event | None = None
    delay_s: float = 0.0
    """For random orders only; a test never relies on its length."""


@dataclass(frozen=True)
class FakePayload:
    rows: list[Any]
    nbytes: int

    @property
    def row_count(self) -> int:
        return len(self.rows)


@dataclass
class FakeBackend:
    """The part of a backend that writers use. `table` is the only table it has."""

    table: TableInfo
    partitions: dict[str, int] = field(default_factory=dict)
    capabilities = Capabilities(
        name="fake",
        versioned_merge_engine=False,
        aggregation_merge_engine=False,
        auto_increment=False,
        remote_log=False,
        kv_snapshots=False,
        acls=False,
        cluster_configs=False,
        replication=False,
        scan_kv=False,
    )
    script: Callable[[BucketWrite], Fault | None] = lambda write: None
    nodes: int = 2
    connections: int = 2

    def __post_init__(self) -> None:
        self.logs: dict[TableBucket, list[Any]] = {}
        self.sent: list[tuple[WriteRoute, list[BucketWrite]]] = []
        self.leaders: dict[TableBucket, int] = {}
        self.buckets_per_node: Counter[int] = Counter()
        self.forgotten: list[TableBucket] = []
        self.writer_ids = 0
        self.targets: set[tuple[int, ...] | None] = set()
        self.partition_questions: list[str] = []
        self.partition_lists = 0
        self.encode_error: FlussError | None = None
        self.dropped = False
        self._states: dict[tuple[TableBucket, int], deque[tuple[int, int]]] = {}

    # What a writer calls

    async def init_writer(self, paths: Sequence[TablePath]) -> int:
        self.writer_ids += 1
        return self.writer_ids

    def encode_append(self, table: TableInfo, batch: pa.RecordBatch) -> FakePayload:
        if self.encode_error is not None:
            raise self.encode_error
        assert batch.schema.equals(table.schema.wire)
        return FakePayload([tuple(row.values()) for row in batch.to_pylist()], batch.nbytes)

    def encode_upsert(
        self,
        table: TableInfo,
        keys: Blobs,
        rows: Blobs | None,
        deletes: np.ndarray | None,
        arrow: Sequence[pa.RecordBatch] = (),
    ) -> FakePayload:
        if rows is None:
            values: list[Any] = [None] * len(keys)
        else:
            types = [column.type.with_nullable(True) for column in table.schema.columns]
            names = table.schema.get_column_names()
            values = [None] * len(keys)
            kept = np.flatnonzero(rows.lengths)
            shown = decode_rows(rows.take(kept), types, names, RowFormat.COMPACTED)
            for at, row in zip(kept.tolist(), shown.to_pylist(), strict=True):
                values[at] = tuple(row.values())
        if deletes is not None:
            assert [value is None for value in values] == deletes.tolist()
        size = int(keys.data.size + (0 if rows is None else rows.data.size))
        return FakePayload(list(zip(keys.to_list(), values, strict=True)), size)

    async def locate(self, table: TableInfo, bucket: TableBucket) -> int:
        return self.leaders.setdefault(bucket, bucket.bucket_id % self.nodes)

    async def forget_location(self, table: TableInfo, bucket: TableBucket) -> None:
        self.forgotten.append(bucket)

    def known_bucket_count(self, table: TableInfo, partition_id: int | None) -> int | None:
        return table.num_buckets

    async def bucket_count(self, table: TableInfo, partition_id: int | None) -> int:
        return table.num_buckets

    def write_connection(self, node: int) -> int:
        self.buckets_per_node[node] += 1
        return self.buckets_per_node[node] % self.connections

    async def append(
        self,
        table: TableInfo,
        route: WriteRoute,
        writes: Sequence[BucketWrite],
        acks: int,
        timeout_ms: int,
    ) -> list[BucketAck]:
        return await self._write(route, writes)

    async def upsert(
        self,
        table: TableInfo,
        route: WriteRoute,
        writes: Sequence[BucketWrite],
        target_columns: Sequence[int] | None,
        acks: int,
        timeout_ms: int,
    ) -> list[BucketAck]:
        self.targets.add(None if target_columns is None else tuple(target_columns))
        return await self._write(route, writes)

    async def get_table_info(self, path: TablePath) -> TableInfo:
        if self.dropped:
            raise TableNotExistError(f"no table {path}")
        return self.table

    async def list_partitions(
        self, path: TablePath, spec: Mapping[str, str] | None
    ) -> list[PartitionInfo]:
        self.partition_lists += 1
        await asyncio.sleep(0)
        return [PartitionInfo(at, name) for name, at in self.partitions.items()]

    async def partition_id(self, table: TableInfo, name: str) -> int:
        self.partition_questions.append(name)
        if name not in self.partitions:
            raise PartitionNotExistError(f"no partition '{name}'")
        return self.partitions[name]

    # The server's part

    async def _write(self, route: WriteRoute, writes: Sequence[BucketWrite]) -> list[BucketAck]:
        self.sent.append((route, list(writes)))
        buckets = [write.bucket for write in writes]
        assert len(set(buckets)) == len(buckets), "a bucket occurs twice in one request"
        acks = []
        for write in writes:
            fault = self.script(write)
            if fault is not None and fault.until is not None:
                await fault.until.wait()
            if fault is not None and fault.delay_s:
                await let_pass_async(fault.delay_s, "the fault is a delay")
            if fault is not None and fault.error is not None and not fault.taken:
                acks.append(BucketAck(write.bucket, error=fault.error))
                continue
            ack = self._take(route.node, write)
            if fault is not None and fault.error is not None:
                ack = BucketAck(write.bucket, error=fault.error)
            acks.append(ack)
        return acks

    def _take(self, node: int, write: BucketWrite) -> BucketAck:
        bucket = write.bucket
        if self.leaders.get(bucket) != node:
            return BucketAck(bucket, error=NotLeaderOrFollowerError(f"{bucket} is not on {node}"))
        log = self.logs.setdefault(bucket, [])
        offset = len(log)
        if write.writer_id >= 0:
            known = self._states.setdefault((bucket, write.writer_id), deque(maxlen=REMEMBERED))
            for sequence, place in known:
                if sequence == write.sequence:
                    return BucketAck(bucket, place)
            expected = known[-1][0] + 1 if known else 0
            if write.sequence != expected:
                text = f"sequence {write.sequence} after {expected - 1}"
                return BucketAck(bucket, error=OutOfOrderSequenceError(text))
            known.append((write.sequence, offset))
        assert isinstance(write.payload, FakePayload)
        log.extend(write.payload.rows)
        return BucketAck(bucket, offset)

    def rows(self) -> list[Any]:
        """Everything written, bucket by bucket."""
        return [row for bucket in sorted(self.logs) for row in self.logs[bucket]]


def table_of(
    schema: pa.Schema,
    *,
    primary_keys: Sequence[str] = (),
    partition_keys: Sequence[str] = (),
    bucket_keys: Sequence[str] = (),
    buckets: int = 1,
    auto_increment: Sequence[str] = (),
    properties: Mapping[str, str] | None = None,
) -> TableInfo:
    """A table as a server would describe it."""
    plain = Schema(schema, list(primary_keys))
    return TableInfo(
        table_id=7,
        table_path=TablePath("db", "t"),
        schema_id=1,
        schema=Schema.of(plain.columns, primary_keys, auto_increment),
        partition_keys=tuple(partition_keys),
        bucket_keys=tuple(bucket_keys),
        num_buckets=buckets,
        properties=dict(properties or {}),
        custom_properties={},
    )
