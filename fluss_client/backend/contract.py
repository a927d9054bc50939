"""The contract between the client's API (`aio`) and the place where tables live.

A backend moves Arrow batches and encoded keys. `aio`, above it, batches, numbers and retries
writes, follows logs and batches look-ups. A backend handles one request at a time, with a deadline
each, and answers with values or with a typed error per bucket.

Who owns what:
- Every method is a coroutine that runs on the event loop on which the backend was opened. A backend
  belongs to one loop and one process.
- `encode_append` and `encode_upsert` are plain functions without I/O, made for worker threads. The
  caller knows only the size of their result, and may send it repeatedly.
- The caller retries writes, because it owns the sequence numbers, and fetches, because it owns the
  positions. The backend retries what can be repeated safely: reads of metadata, offsets and
  look-ups.
- Differences between backends are fields of `Capabilities`. Nobody checks the class of a backend.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np
import pyarrow as pa

from fluss_client.codec.binary.blobs import Blobs
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
from fluss_client.net.metrics import TraceHook

NO_WRITER = -1
"""The writer id of a batch without idempotence."""

DecodedSlice = tuple[pa.RecordBatch, np.ndarray | None]
"""Rows and, for changelogs, their change types (uint8)."""


@dataclass(frozen=True, slots=True)
class Capabilities:
    """What a backend supports. A call that it does not support raises `UnsupportedError`.

    Attributes:
        name: The name of the backend: `cluster` or `embedded`.
        versioned_merge_engine: Tables may use the merge engine `versioned`.
        aggregation_merge_engine: Tables may use the merge engine `aggregation`.
        auto_increment: Tables may have auto-increment columns.
        remote_log: Old log segments may lie in remote storage.
        kv_snapshots: The backend makes snapshots of the key state.
        acls: Access control lists can be created, listed and dropped.
        cluster_configs: Settings of the cluster can be changed.
        replication: Tables may have more than one replica.
        scan_kv: The key state can be read with the server's own scan.
        local_directory: The directory of an embedded backend, else None.
    """

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
    """A batch of rows in the backend's own encoding. It may be sent any number of times."""

    @property
    def nbytes(self) -> int:
        """The number of bytes that the batch takes in a request."""

    @property
    def row_count(self) -> int:
        """The number of rows."""


@dataclass(frozen=True, slots=True)
class BucketWrite:
    """One batch for one bucket.

    A batch with a writer id and a sequence number may be sent again: it is stored once.
    """

    bucket: TableBucket
    payload: Payload
    writer_id: int = NO_WRITER
    sequence: int = -1


@dataclass(frozen=True, slots=True)
class BucketAck:
    """The answer for one batch: its offset, or the error."""

    bucket: TableBucket
    offset: int = -1
    """Append: the offset of the first row. Upsert: the next offset of the changelog."""
    error: FlussError | None = None


@dataclass(frozen=True, slots=True)
class FetchPosition:
    """The offset to read a bucket from, and the most bytes to read."""

    bucket: TableBucket
    offset: int
    bytes_max: int


@dataclass(frozen=True, slots=True)
class FetchRequest:
    """One read of buckets that are on one node (see `Backend.locate`)."""

    table: TableInfo
    positions: Sequence[FetchPosition]
    columns: tuple[int, ...] | None = None
    """Indexes of the columns of `table.schema` to read, strictly increasing; None reads all."""
    bytes_max: int = 16 << 20
    bytes_min: int = 1
    wait_ms: int = 500


class SliceDecoder(Protocol):
    """Decodes slices. CPU work for a worker thread; several slices at once take less time.

    For each slice it returns a batch with exactly the requested columns of the table's current
    schema, also for records that were written with an older schema, without the rows before the
    requested offset; and the change types if the log is a changelog.
    """

    def __call__(self, slices: Sequence[LogSlice]) -> Sequence[DecodedSlice]: ...


@dataclass(frozen=True, slots=True)
class LogSlice:
    """Consecutive records of one bucket, still encoded. Slices may share a decoder."""

    base_offset: int
    """The offset of the first row that the decoder returns."""
    next_offset: int
    """The offset after this slice, including gaps and empty batches."""
    row_count: int
    timestamp: int
    """The commit time of the records (ms)."""
    nbytes: int
    decoder: SliceDecoder
    encoded: Any
    """The records in the form that the decoder reads."""

    def decode(self) -> DecodedSlice:
        """Decode this slice only."""
        return self.decoder([self])[0]


@dataclass(frozen=True, slots=True)
class FetchedBucket:
    """The answer of one bucket to a fetch."""

    bucket: TableBucket
    slices: Sequence[LogSlice] = ()
    high_watermark: int = -1
    next_offset: int = -1
    """The offset to fetch next; the requested offset if there were no records."""
    error: FlussError | None = None


@dataclass(frozen=True, slots=True)
class LookupAnswer:
    """The values of one bucket's keys, in the order of the keys.

    `counts[i]` of the values belong to key i: 0 or 1 for a point look-up, any number for a prefix
    look-up.
    """

    values: Blobs
    counts: np.ndarray
    """int64, one per key."""
    error: FlussError | None = None


class StateCursor(Protocol):
    """The key state of one bucket at one offset, streamed in ascending order of encoded keys."""

    @property
    def kind(self) -> str:
        """Where the state comes from: `snapshot` or `local`."""

    @property
    def offset(self) -> int:
        """The offset of the changelog at which the state is exact."""

    @property
    def snapshot_id(self) -> int | None:
        """The id of the KV snapshot, if it is one."""

    @property
    def bytes_fetched(self) -> int:
        """How many bytes were fetched."""

    @property
    def made_ms(self) -> int | None:
        """When the KV snapshot was made, if it is one."""

    async def read(self, rows_max: int) -> Blobs | None:
        """Return the values of the next keys, or None after the last one.

        Raises:
            CorruptDataError: The stored state is damaged.
        """

    async def close(self) -> None:
        """Release files, leases and connections."""


class Backend(Protocol):
    """The operations of a backend.

    A new server call is one method here, one in `backend/cluster/`, one in `backend/embedded/` and
    one in `aio/admin.py` (see CONTRIBUTING.md).
    """

    @property
    def capabilities(self) -> Capabilities: ...

    async def close(self) -> None:
        """Close connections and files; calls under way fail."""

    def close_sockets(self) -> None:
        """Close sockets at once, for a loop that may stop before `close` has run."""

    def metrics(self) -> Mapping[str, float]:
        """Return counters of what the backend has done, by name."""

    def set_trace_hook(self, hook: TraceHook | None) -> None:
        """Call `hook` after every request to a server; None removes it."""

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
        """Return the id of a partition.

        Raises:
            PartitionNotExistError: The table has no partition of that name.
        """

    # Offsets
    async def list_offsets(
        self, table: TableInfo, partition_id: int | None, buckets: Sequence[int], spec: OffsetSpec
    ) -> dict[int, int]: ...

    # Writing
    async def init_writer(self, paths: Sequence[TablePath]) -> int: ...
    def encode_append(self, table: TableInfo, batch: pa.RecordBatch) -> Payload:
        """Encode a batch in the table's wire schema. CPU work, for a worker thread."""

    def encode_upsert(
        self,
        table: TableInfo,
        keys: Blobs,
        rows: Blobs | None,
        deletes: np.ndarray | None,
        arrow: Sequence[pa.RecordBatch] = (),
    ) -> Payload:
        """Encode upserts and deletes. CPU work, for a worker thread.

        Args:
            table: The table.
            keys: The encoded key of each record.
            rows: The encoded row of each record; None if every record is a delete.
            deletes: Marks the deletes; None if there are none.
            arrow: The same rows without deletes, in the table's wire schema, if the caller has
                them. A backend that merges rows itself then need not decode `rows`.
        """

    async def locate(self, table: TableInfo, bucket: TableBucket) -> int:
        """Return the node that serves a bucket. One request may carry buckets of one node only."""

    async def forget_location(self, table: TableInfo, bucket: TableBucket) -> None:
        """Make the next `locate` ask the cluster: a server said that the bucket is not there."""

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
        """Read up to `limit` rows of a bucket at once: of the key state, or the last ones of a log.

        Raises:
            ScanTooLargeError: The bucket may hold more rows than a server may return at once.
            ScanLostError: The connection broke after the request; it is not sent again.
        """

    async def open_state(self, table: TableInfo, bucket: TableBucket) -> StateCursor | None:
        """Open the key state of a bucket for streaming.

        Returns:
            A cursor, or None if there is nothing to stream, for example no KV snapshot yet.
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
        """Look up a few keys with less work per call; return one answer per key, in order."""

    async def decode_values(
        self, table: TableInfo, values: Blobs, columns: tuple[int, ...] | None
    ) -> pa.RecordBatch:
        """Decode values of look-ups, of any schema, into the table's current schema."""

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
        """Return True if this call created the entry, False if it existed."""

    async def get_producer_offsets(self, producer_id: str) -> ProducerOffsets | None: ...
    async def delete_producer_offsets(self, producer_id: str) -> None: ...
