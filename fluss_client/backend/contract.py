"""The seam between the client's API and the place where tables live.

A backend moves Arrow batches and encoded keys; it knows nothing of handles, builders or polling.
Above the seam (`aio`): batching, sequencing and retrying writes, following a log, batching
look-ups. Below it: one request at a time, each with its own deadline, answering with values or
with a typed error per bucket.

Who owns what:
- Every method is a coroutine that runs on the loop the backend was opened on; a backend belongs
  to one loop and one process.
- `encode_append` and `encode_upsert` are plain functions without I/O, made to be run on worker
  threads; what they return is opaque to the caller but for its size, and may be sent repeatedly.
- Retrying is the caller's for writes (it owns the sequence numbers) and for fetches (it owns the
  positions); the backend itself retries what can be repeated safely: reads of metadata, offsets
  and look-ups.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np
import pyarrow as pa

from fluss_client.codec.blobs import Blobs
from fluss_client.errors import FlussError
from fluss_client.model.cluster import (
    Acl,
    ConfigEntry,
    KvSnapshot,
    LakeSnapshot,
    OffsetSpec,
    ServerNode,
)
from fluss_client.model.lake import (
    BucketCommit,
    HeartbeatResult,
    ProducerOffsets,
    TieringTable,
)
from fluss_client.model.schema import Column, Schema
from fluss_client.model.table import (
    DatabaseDescriptor,
    DatabaseInfo,
    PartitionInfo,
    TableBucket,
    TableDescriptor,
    TableInfo,
    TablePath,
)

NO_WRITER = -1

DecodedSlice = tuple[pa.RecordBatch, np.ndarray | None]
"""Rows and, for changelogs, their change types (uint8)."""


@dataclass(frozen=True, slots=True)
class Capabilities:
    """What differs between backends. `reason` of a missing one stands in the docs."""

    name: str
    versioned_merge_engine: bool
    aggregation_merge_engine: bool
    auto_increment: bool
    remote_log: bool
    kv_snapshots: bool
    acls: bool
    cluster_configs: bool
    replication: bool
    scan_kv: bool
    local_directory: str | None = None


@dataclass(frozen=True, slots=True)
class TableChange:
    """What `alter_table` changes: columns to add at the end, options to set and to reset."""

    add_columns: tuple[Column, ...] = ()
    set_options: Mapping[str, str] = field(default_factory=dict)
    reset_options: tuple[str, ...] = ()


class Payload(Protocol):
    """A batch of rows in the backend's own form, ready to be sent any number of times."""

    @property
    def nbytes(self) -> int:
        """Bytes that it takes in a request."""

    @property
    def row_count(self) -> int:
        """Rows in it."""


@dataclass(frozen=True, slots=True)
class BucketWrite:
    """One batch for one bucket. The same writer id and sequence may be sent again safely."""

    bucket: TableBucket
    payload: Payload
    writer_id: int = NO_WRITER
    sequence: int = -1


@dataclass(frozen=True, slots=True)
class BucketAck:
    """The answer for one batch: its place in the log, or what went wrong."""

    bucket: TableBucket
    offset: int = -1
    """Appends: offset of the first row. Upserts: next offset of the changelog."""
    error: FlussError | None = None


@dataclass(frozen=True, slots=True)
class FetchPosition:
    """Where to read a bucket from, and how much of it."""

    bucket: TableBucket
    offset: int
    bytes_max: int


@dataclass(frozen=True, slots=True)
class FetchRequest:
    """One read of some buckets that live on one node (see `Backend.locate`)."""

    table: TableInfo
    positions: Sequence[FetchPosition]
    columns: tuple[int, ...] | None = None
    """Columns of `table.schema` to read, strictly increasing; None reads all."""
    bytes_max: int = 16 << 20
    bytes_min: int = 1
    wait_ms: int = 500


class SliceDecoder(Protocol):
    """Decodes slices, which takes less time for several at once; CPU work for a worker thread.

    For each it gives a batch with exactly the requested columns of the table's schema, whatever
    schema the records were written with, rows below the requested offset already dropped, and
    change types for changelogs.
    """

    def __call__(self, slices: Sequence[LogSlice]) -> Sequence[DecodedSlice]: ...


@dataclass(frozen=True, slots=True)
class LogSlice:
    """Some consecutive records of one bucket, still encoded; slices may share a decoder."""

    base_offset: int
    """Offset of the first row that the decoder gives."""
    next_offset: int
    """Where the log goes on after this slice (holes and empty batches included)."""
    row_count: int
    timestamp: int
    """When the records were committed (ms)."""
    nbytes: int
    decoder: SliceDecoder
    encoded: Any
    """The records, as the decoder knows them."""

    def decode(self) -> DecodedSlice:
        """This slice alone."""
        return self.decoder([self])[0]


@dataclass(frozen=True, slots=True)
class FetchedBucket:
    """What one bucket answered."""

    bucket: TableBucket
    slices: Sequence[LogSlice] = ()
    high_watermark: int = -1
    next_offset: int = -1
    """Where to fetch next; equals the requested offset when nothing came."""
    error: FlussError | None = None


class Backend(Protocol):
    """About forty operations, in the order of a table's life."""

    @property
    def capabilities(self) -> Capabilities: ...

    async def close(self) -> None: ...

    def metrics(self) -> Mapping[str, float]: ...

    # Databases
    async def create_database(
        self, name: str, descriptor: DatabaseDescriptor | None, ignore_if_exists: bool
    ) -> None: ...
    async def drop_database(self, name: str, ignore_if_not_exists: bool, cascade: bool) -> None: ...
    async def list_databases(self) -> list[str]: ...
    async def database_exists(self, name: str) -> bool: ...
    async def get_database_info(self, name: str) -> DatabaseInfo: ...

    # Tables
    async def create_table(
        self, path: TablePath, descriptor: TableDescriptor, ignore_if_exists: bool
    ) -> None: ...
    async def drop_table(self, path: TablePath, ignore_if_not_exists: bool) -> None: ...
    async def alter_table(
        self, path: TablePath, change: TableChange, ignore_if_not_exists: bool
    ) -> None: ...
    async def list_tables(self, database: str) -> list[str]: ...
    async def table_exists(self, path: TablePath) -> bool: ...
    async def get_table_info(self, path: TablePath) -> TableInfo: ...
    async def get_schema(self, path: TablePath, schema_id: int | None) -> tuple[int, Schema]: ...

    # Partitions
    async def create_partition(
        self, path: TablePath, spec: Mapping[str, str], ignore_if_exists: bool
    ) -> None: ...
    async def drop_partition(
        self, path: TablePath, spec: Mapping[str, str], ignore_if_not_exists: bool
    ) -> None: ...
    async def list_partitions(
        self, path: TablePath, spec: Mapping[str, str] | None
    ) -> list[PartitionInfo]: ...
    async def partition_id(self, table: TableInfo, name: str) -> int:
        """The id of a partition by name, from the cache where it is there."""

    # Offsets
    async def list_offsets(
        self, table: TableInfo, partition_id: int | None, buckets: Sequence[int], spec: OffsetSpec
    ) -> dict[int, int]: ...

    # Writing
    async def init_writer(self, paths: Sequence[TablePath]) -> int: ...
    def encode_append(self, table: TableInfo, batch: pa.RecordBatch) -> Payload:
        """CPU work; the batch has the table's wire schema."""

    def encode_upsert(
        self,
        table: TableInfo,
        keys: Blobs,
        rows: Blobs | None,
        deletes: np.ndarray | None,
        arrow: Sequence[pa.RecordBatch] = (),
    ) -> Payload:
        """CPU work; `rows` is None when every record is a delete, `deletes` marks them if some.

        `arrow` are the same rows but for deletes, in the table's wire schema, where the caller has
        them: a backend that merges rows itself need not decode them.
        """

    async def locate(self, table: TableInfo, bucket: TableBucket) -> int:
        """The node that serves a bucket now; one request may carry the buckets of one node."""

    async def forget_location(self, table: TableInfo, bucket: TableBucket) -> None:
        """Ask again where the bucket is: a server said that it is not there."""

    async def append(
        self, table: TableInfo, node: int, writes: Sequence[BucketWrite], acks: int, timeout_ms: int
    ) -> list[BucketAck]: ...
    async def upsert(
        self,
        table: TableInfo,
        node: int,
        writes: Sequence[BucketWrite],
        target_columns: Sequence[int] | None,
        acks: int,
        timeout_ms: int,
    ) -> list[BucketAck]: ...

    # Reading
    async def fetch(self, node: int, request: FetchRequest) -> list[FetchedBucket]: ...
    async def limit_scan(
        self, table: TableInfo, bucket: TableBucket, limit: int, columns: tuple[int, ...] | None
    ) -> pa.RecordBatch:
        """Some rows of a bucket at once: of the key state, or the last ones of a log.

        Raises:
            ScanTooLargeError: The bucket may hold more rows than a server is asked for at once.
            ScanLostError: The server was lost after it had been asked; it is not asked again.
        """

    async def lookup(
        self, table: TableInfo, node: int, keys: Mapping[TableBucket, Blobs]
    ) -> dict[TableBucket, LookupAnswer]: ...
    async def prefix_lookup(
        self, table: TableInfo, node: int, keys: Mapping[TableBucket, Blobs]
    ) -> dict[TableBucket, LookupAnswer]: ...
    async def lookup_few(
        self, table: TableInfo, node: int, keys: Sequence[tuple[TableBucket, bytes]], prefix: bool
    ) -> list[list[bytes] | FlussError]:
        """The values of a handful of keys, each alone; the same answers as the calls above."""

    async def decode_values(
        self, table: TableInfo, values: Blobs, columns: tuple[int, ...] | None
    ) -> pa.RecordBatch:
        """Look-up values as rows of the table's current schema, whatever schema each has."""

    # The cluster
    async def get_server_nodes(self) -> list[ServerNode]: ...
    async def get_table_stats(
        self, table: TableInfo, buckets: Sequence[TableBucket]
    ) -> dict[TableBucket, int]: ...
    async def list_kv_snapshots(
        self, table: TableInfo, partition_name: str | None
    ) -> list[KvSnapshot]: ...
    async def describe_cluster_configs(self) -> list[ConfigEntry]: ...
    async def alter_cluster_configs(
        self, set_configs: Mapping[str, str], reset_configs: Sequence[str]
    ) -> None: ...
    async def create_acls(self, acls: Sequence[Acl]) -> None: ...
    async def list_acls(self, acl_filter: Mapping[str, str]) -> list[Acl]: ...
    async def drop_acls(self, filters: Sequence[Mapping[str, str]]) -> list[Acl]: ...

    # The lake
    async def get_lake_snapshot(
        self, path: TablePath, snapshot_id: int | None, readable: bool
    ) -> LakeSnapshot: ...
    async def prepare_lake_snapshot(
        self, table: TableInfo, offsets: Mapping[TableBucket, int], ignore_previous: bool
    ) -> str: ...
    async def commit_lake_snapshot(
        self,
        table: TableInfo,
        snapshot_id: int,
        offsets_path: str,
        buckets: Sequence[BucketCommit],
        earliest_snapshot_to_keep: int | None,
    ) -> None: ...
    async def lake_tiering_heartbeat(
        self,
        tiering: Sequence[TieringTable],
        finished: Sequence[TieringTable],
        failed: Sequence[TieringTable],
        request_table: bool,
        force_finished: Sequence[int],
    ) -> HeartbeatResult: ...

    # Producer offsets
    async def register_producer_offsets(
        self, producer_id: str, offsets: Mapping[TableBucket, int], ttl_ms: int | None
    ) -> bool:
        """True when this call created the entry, False when it was there already."""

    async def get_producer_offsets(self, producer_id: str) -> ProducerOffsets | None: ...
    async def delete_producer_offsets(self, producer_id: str) -> None: ...


@dataclass(frozen=True, slots=True)
class LookupAnswer:
    """The values of one bucket's keys, in key order.

    Point look-ups: `found[i]` tells whether key i has a value; `values` holds the found ones only,
    in order. Prefix look-ups: `counts[i]` values belong to key i.
    """

    values: Blobs
    counts: np.ndarray
    """int64; for a point look-up 0 or 1."""
    error: FlussError | None = None
