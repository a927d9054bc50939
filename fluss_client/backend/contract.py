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
from concurrent.futures import Executor
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol

import numpy as np
import pyarrow as pa

from fluss_client.codec.binary.blobs import Blobs
from fluss_client.errors import FlussError
from fluss_client.model.cluster import (
    Acl,
    BucketCommit,
    ClusterHealth,
    ConfigEntry,
    HeartbeatResult,
    KvSnapshot,
    LakeSnapshot,
    OffsetSpec,
    ProducerOffsets,
    RemoteLogManifest,
    ServerNode,
    TieringTable,
)
from fluss_client.model.predicate import Predicate
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
        rescaling: The bucket count of a partitioned table can be changed, so that its partitions
            have different counts.
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
    rescaling: bool = False
    local_directory: str | None = None


@dataclass(frozen=True, slots=True)
class TableChange:
    """What `alter_table` changes: columns to add at the end, options to set and to reset.

    `bucket_count` is the number of buckets of partitions that are created later.
    """

    add_columns: tuple[Column, ...] = ()
    set_options: Mapping[str, str] = field(default_factory=dict)
    reset_options: tuple[str, ...] = ()
    bucket_count: int | None = None


@dataclass(frozen=True, slots=True)
class DatabaseChange:
    """What `alter_database` changes; a comment of None stays as it is."""

    set_properties: Mapping[str, str] = field(default_factory=dict)
    reset_properties: tuple[str, ...] = ()
    comment: str | None = None


class Payload(Protocol):
    """A batch of rows in the backend's own encoding. It may be sent any number of times."""

    @property
    def nbytes(self) -> int:
        """The number of bytes that the batch takes in a request."""

    @property
    def row_count(self) -> int:
        """The number of rows."""


class WriteRoute(NamedTuple):
    """The way that the batches of a bucket take: one connection to the node that serves it.

    Attributes:
        node: The id of the node.
        connection: The number of the connection among those for writes to this node.
    """

    node: int
    connection: int = 0


@dataclass(frozen=True, slots=True)
class BucketWrite:
    """One batch for one bucket.

    A batch with a writer id and a sequence number may be sent again: it is stored once.

    Attributes:
        bucket: The bucket that receives the batch.
        payload: The encoded batch.
        writer_id: The writer id; without one, the server stores a repeated batch twice.
        sequence: The number of the batch among those of this writer and bucket.
        bucket_count: The bucket count by which the rows were placed. If the partition has another
            one, nothing is written and the answer is `InvalidBucketRoutingError`. None if the
            rows were not placed by the client.
    """

    bucket: TableBucket
    payload: Payload
    writer_id: int = NO_WRITER
    sequence: int = -1
    bucket_count: int | None = None


@dataclass(frozen=True, slots=True)
class BucketAck:
    """The answer for one batch: its offset, or the error."""

    bucket: TableBucket
    offset: int = -1
    """Append: the offset of the first row. Upsert: the next offset of the changelog."""
    error: FlussError | None = None
    pressure: float = 0.0
    """How urgently the server asks for slower upserts of this bucket: 0 not at all, up to 1."""


@dataclass(frozen=True, slots=True)
class FetchPosition:
    """Where to read a bucket, and how much.

    Attributes:
        bucket: The bucket.
        offset: The first offset to read.
        bytes_max: The most bytes to read; a larger batch is returned whole.
    """

    bucket: TableBucket
    offset: int
    bytes_max: int


@dataclass(frozen=True, slots=True)
class FetchRequest:
    """One read of buckets that are on one node (see `Backend.locate`).

    Attributes:
        table: The table.
        positions: Where to read each bucket.
        columns: Indexes of the columns of `table.schema` to read, strictly increasing; None reads
            all.
        bytes_max: The most bytes of the whole response.
        bytes_min: The server waits until there are so many bytes.
        wait_ms: How long the server may wait for `bytes_min`.
        predicate: A condition on the rows. The backend may leave out rows that do not meet it, but
            does not have to.
        remote_first: Read segments from remote storage that are on the server's disk too.
    """

    table: TableInfo
    positions: Sequence[FetchPosition]
    columns: tuple[int, ...] | None = None
    bytes_max: int = 16 << 20
    bytes_min: int = 1
    wait_ms: int = 500
    predicate: Predicate | None = None
    remote_first: bool = False


class SliceDecoder(Protocol):
    """Decodes slices. CPU work for a worker thread; several slices at once take less time.

    For each slice it returns a batch with exactly the requested columns of the table's current
    schema, also for records that were written with an older schema, without the rows before the
    requested offset; and the change types if the log is a changelog.
    """

    def __call__(self, slices: Sequence[LogSlice]) -> Sequence[DecodedSlice]: ...


@dataclass(frozen=True, slots=True)
class LogSlice:
    """Consecutive records of one bucket, still encoded. Slices may share a decoder.

    Attributes:
        base_offset: The offset of the first row that the decoder returns.
        next_offset: The offset after this slice, including gaps and empty batches.
        row_count: The number of rows.
        timestamp: The commit time of the records (ms).
        nbytes: The size of the encoded records.
        decoder: The decoder that turns the records into Arrow.
        encoded: The records in the form that the decoder reads.
    """

    base_offset: int
    next_offset: int
    row_count: int
    timestamp: int
    nbytes: int
    decoder: SliceDecoder
    encoded: Any

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


STATE_READ_BYTES_MAX = 8 << 20
"""How many bytes of the key state are in memory at once, however large the rows are."""


class StateCursor(Protocol):
    """The key state of one bucket at one offset, streamed in ascending order of encoded keys."""

    @property
    def kind(self) -> str:
        """Where the state comes from: `snapshot`, `scan` or `local`."""

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

        Args:
            rows_max: The largest number of values. There are fewer if they have more than about
                `STATE_READ_BYTES_MAX` bytes.

        Raises:
            CorruptDataError: The stored state is damaged.
            StateScanLostError: The server ended its scan. Another one can be opened.
        """

    async def close(self) -> None:
        """Release files, leases and connections."""


class Backend(Protocol):
    """The operations of a backend.

    A new server call is one method here, one in `backend/cluster/`, one in `backend/embedded/` and
    one in `aio/admin.py` (see CONTRIBUTING.md).
    """

    @property
    def capabilities(self) -> Capabilities:
        """Say what this backend supports."""

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
    ) -> None:
        """Create a database.

        Args:
            name: The name of the database.
            descriptor: Its comment and properties; None for none.
            ignore_if_exists: Do nothing if the database exists, instead of raising.

        Raises:
            DatabaseAlreadyExistError: The database exists and `ignore_if_exists` is False.
        """

    async def drop_database(self, name: str, ignore_if_not_exists: bool, cascade: bool) -> None:
        """Drop a database.

        Args:
            name: The name of the database.
            ignore_if_not_exists: Do nothing if the database does not exist, instead of raising.
            cascade: Drop its tables too. Otherwise a database that has tables is not dropped.

        Raises:
            DatabaseNotExistError: There is no such database and `ignore_if_not_exists` is False.
            DatabaseNotEmptyError: The database has tables and `cascade` is False.
        """

    async def alter_database(
        self, name: str, change: DatabaseChange, ignore_if_not_exists: bool
    ) -> None:
        """Change the properties or the comment of a database.

        Args:
            name: The name of the database.
            change: The properties to set and to reset, and the comment.
            ignore_if_not_exists: Do nothing if the database does not exist, instead of raising.

        Raises:
            DatabaseNotExistError: There is no such database and `ignore_if_not_exists` is False.
        """

    async def list_databases(self) -> list[str]:
        """Return the names of all databases."""

    async def database_exists(self, name: str) -> bool:
        """Return whether there is a database called `name`.

        Raises:
            AuthorizationError: The user may not know it (servers from 1.0 on).
        """

    async def get_database_info(self, name: str) -> DatabaseInfo:
        """Return the description of the database called `name`.

        Raises:
            DatabaseNotExistError: There is no such database.
        """

    # Tables
    async def create_table(
        self, path: TablePath, descriptor: TableDescriptor, ignore_if_exists: bool
    ) -> None:
        """Create a table.

        Args:
            path: Its database and name.
            descriptor: Its schema, keys, buckets and properties.
            ignore_if_exists: Do nothing if the table exists, instead of raising.

        Raises:
            TableAlreadyExistError: The table exists and `ignore_if_exists` is False.
        """

    async def drop_table(self, path: TablePath, ignore_if_not_exists: bool) -> None:
        """Drop a table.

        Args:
            path: Its database and name.
            ignore_if_not_exists: Do nothing if the table does not exist, instead of raising.

        Raises:
            TableNotExistError: There is no such table and `ignore_if_not_exists` is False.
        """

    async def alter_table(
        self, path: TablePath, change: TableChange, ignore_if_not_exists: bool
    ) -> None:
        """Change a table.

        Args:
            path: Its database and name.
            change: The columns to add, the properties to set and to reset, and the bucket count
                of new partitions.
            ignore_if_not_exists: Do nothing if the table does not exist, instead of raising.

        Raises:
            TableNotExistError: There is no such table and `ignore_if_not_exists` is False.
            InvalidAlterTableError: The bucket count of this table cannot be changed.
            UnsupportedError: The server is too old to change bucket counts.
        """

    async def list_tables(self, database: str) -> list[str]:
        """Return the names of the tables in a `database`."""

    async def table_exists(self, path: TablePath) -> bool:
        """Return whether there is a table at `path`.

        Raises:
            AuthorizationError: The user may not know it (servers from 1.0 on).
        """

    async def get_table_info(self, path: TablePath) -> TableInfo:
        """Return the description of the table at `path`.

        Raises:
            TableNotExistError: There is no such table.
        """

    async def get_schema(self, path: TablePath, schema_id: int | None) -> tuple[int, Schema]:
        """Return a schema of a table and its id.

        Args:
            path: The table.
            schema_id: The id of the schema; None for the current one.
        """

    # Partitions
    async def create_partition(
        self, path: TablePath, spec: Mapping[str, str], ignore_if_exists: bool
    ) -> None:
        """Create a partition.

        Args:
            path: The table.
            spec: The text of the value of each partition column.
            ignore_if_exists: Do nothing if the partition exists, instead of raising.

        Raises:
            PartitionAlreadyExistError: The partition exists and `ignore_if_exists` is False.
        """

    async def drop_partition(
        self, path: TablePath, spec: Mapping[str, str], ignore_if_not_exists: bool
    ) -> None:
        """Drop a partition.

        Args:
            path: The table.
            spec: The text of the value of each partition column.
            ignore_if_not_exists: Do nothing if the partition does not exist, instead of raising.

        Raises:
            PartitionNotExistError: There is no such partition and `ignore_if_not_exists` is False.
        """

    async def list_partitions(
        self, path: TablePath, spec: Mapping[str, str] | None
    ) -> list[PartitionInfo]:
        """Return the partitions of a table.

        Args:
            path: The table.
            spec: Values that the partitions must have in some of the partition columns; None for
                all.
        """

    async def system_partitions(self, path: TablePath) -> list[PartitionInfo]:
        """Return the partitions of a table that the server made for itself (Fluss 1.0).

        Rows of partitions that have expired are in one of them, if the table takes such rows.

        Args:
            path: The table.

        Raises:
            UnsupportedByServerError: The server does not list them.
        """

    async def partition_id(self, table: TableInfo, name: str) -> int:
        """Return the id of the partition of a `table` that is called `name`.

        Raises:
            PartitionNotExistError: The table has no partition of that name.
        """

    # Bucket counts
    def known_bucket_count(self, table: TableInfo, partition_id: int | None) -> int | None:
        """Return how many buckets a partition has if it is known without I/O, else None.

        This and `bucket_count` are the only source of bucket counts. A partition keeps the count
        that it was created with, so an answer stays true. Any thread may call it.

        Args:
            table: The table.
            partition_id: The partition; None for a table without partitions.
        """

    async def bucket_count(self, table: TableInfo, partition_id: int | None) -> int:
        """Return how many buckets a partition has.

        Args:
            table: The table.
            partition_id: The partition; None for a table without partitions.

        Raises:
            PartitionNotExistError: There is no such partition.
            InvalidBucketRoutingError: The servers did not say it within the request timeout.
        """

    def forget_bucket_count(self, table: TableInfo, partition_id: int | None) -> None:
        """Make the next `bucket_count` ask again, after error 74.

        Args:
            table: The table.
            partition_id: The partition; None for a table without partitions.
        """

    # Offsets
    async def list_offsets(
        self, table: TableInfo, partition_id: int | None, buckets: Sequence[int], spec: OffsetSpec
    ) -> dict[int, int]:
        """Return an offset of each bucket.

        Args:
            table: The table.
            partition_id: The partition; None for a table without partitions.
            buckets: The numbers of the buckets.
            spec: Which offset is wanted: the earliest, the latest, or that of a time.
        """

    # Writing
    async def init_writer(self, paths: Sequence[TablePath]) -> int:
        """Return a new writer id that may write to the tables at `paths`."""

    def encode_append(self, table: TableInfo, batch: pa.RecordBatch) -> Payload:
        """Encode a batch. This is CPU work, so it belongs on a worker thread.

        Args:
            table: The table that the batch is for.
            batch: The rows, in the table's wire schema.
        """

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
        """Return the node that serves a bucket. One request may carry buckets of one node only.

        Args:
            table: The table.
            bucket: One of its buckets.
        """

    async def forget_location(self, table: TableInfo, bucket: TableBucket) -> None:
        """Make the next `locate` ask the cluster, after a server said that the bucket is not there.

        Args:
            table: The table.
            bucket: One of its buckets.
        """

    def write_connection(self, node: int) -> int:
        """Return which connection to a node takes the batches of one more bucket.

        A writer keeps it for the bucket: batches on different connections could change places.

        Args:
            node: The node that serves the bucket, from `locate`.
        """

    async def append(
        self,
        table: TableInfo,
        route: WriteRoute,
        writes: Sequence[BucketWrite],
        acks: int,
        timeout_ms: int,
    ) -> list[BucketAck]:
        """Write batches to a log table.

        Args:
            table: The table.
            route: The way to the node that serves the buckets.
            writes: One batch for each bucket.
            acks: How many replicas must have the batch: -1 all of them, 1 the leader, 0 none.
            timeout_ms: How long the server may wait for the replicas.

        Returns:
            The outcome of each batch, in the order of `writes`.
        """

    async def upsert(
        self,
        table: TableInfo,
        route: WriteRoute,
        writes: Sequence[BucketWrite],
        target_columns: Sequence[int] | None,
        acks: int,
        timeout_ms: int,
    ) -> list[BucketAck]:
        """Write batches to a key table.

        Args:
            table: The table.
            route: The way to the node that serves the buckets.
            writes: One batch for each bucket.
            target_columns: The indexes of the columns of a partial update; None writes whole rows.
            acks: How many replicas must have the batch: -1 all of them, 1 the leader, 0 none.
            timeout_ms: How long the server may wait for the replicas.

        Returns:
            The outcome of each batch, in the order of `writes`.
        """

    # Reading
    async def fetch(self, node: int, request: FetchRequest) -> list[FetchedBucket]:
        """Read the logs of the buckets in a `request`, which are all on the same `node`."""

    async def limit_scan(
        self, table: TableInfo, bucket: TableBucket, limit: int, columns: tuple[int, ...] | None
    ) -> pa.RecordBatch:
        """Read up to `limit` rows of a bucket at once: of the key state, or the last ones of a log.

        Args:
            table: The table.
            bucket: One of its buckets.
            limit: The largest number of rows.
            columns: The indexes of the columns to read, strictly increasing; None reads all.

        Raises:
            ScanTooLargeError: The bucket may hold more rows than a server may return at once.
            ScanLostError: The connection broke after the request; it is not sent again.
        """

    async def open_state(self, table: TableInfo, bucket: TableBucket) -> StateCursor | None:
        """Open the key state of a bucket for streaming.

        Args:
            table: The key table.
            bucket: One of its buckets.

        Returns:
            A cursor, or None if there is nothing to stream, for example no KV snapshot yet.
        """

    async def lookup(
        self,
        table: TableInfo,
        node: int,
        keys: Mapping[TableBucket, Blobs],
        bucket_count: int | None = None,
    ) -> dict[TableBucket, LookupAnswer]:
        """Look up rows by their keys.

        Args:
            table: The key table.
            node: The node that serves the buckets, from `locate`.
            keys: The encoded keys, by bucket.
            bucket_count: The bucket count by which the keys were placed. If a partition has another
                one, the answer of its buckets is `InvalidBucketRoutingError`.

        Returns:
            The answer for each bucket: a value or nothing for each key, or an error.
        """

    async def prefix_lookup(
        self,
        table: TableInfo,
        node: int,
        keys: Mapping[TableBucket, Blobs],
        bucket_count: int | None = None,
    ) -> dict[TableBucket, LookupAnswer]:
        """Look up all rows whose keys begin with a prefix.

        Args:
            table: The key table.
            node: The node that serves the buckets, from `locate`.
            keys: The encoded prefixes, by bucket.
            bucket_count: As in `lookup`.

        Returns:
            The answer for each bucket: the values for each prefix, or an error.
        """

    async def lookup_few(
        self,
        table: TableInfo,
        node: int,
        keys: Sequence[tuple[TableBucket, bytes]],
        prefix: bool,
        bucket_counts: Sequence[int] | None = None,
    ) -> list[list[bytes] | FlussError]:
        """Look up a few keys with less work per call than `lookup`.

        Args:
            table: The key table.
            node: The node that serves the buckets, from `locate`.
            keys: The bucket and the encoded key, or prefix, of each row.
            prefix: Whether `keys` are prefixes.
            bucket_counts: The bucket count by which each key was placed. If its partition has
                another one, the answer of the key is `InvalidBucketRoutingError`.

        Returns:
            One answer per key, in the order of `keys`.
        """

    async def decode_values(
        self,
        table: TableInfo,
        values: Blobs,
        columns: tuple[int, ...] | None,
        threads: Executor | None = None,
    ) -> pa.RecordBatch:
        """Decode values of look-ups, of any schema, into the table's current schema.

        Args:
            table: The key table.
            values: The encoded values.
            columns: The indexes of the columns to decode, strictly increasing; None decodes all.
            threads: Where the work is done; None uses threads that all calls share, or for a few
                values the event loop.
        """

    # The cluster
    async def get_server_nodes(self) -> list[ServerNode]:
        """Return the servers of the cluster."""

    async def get_table_stats(
        self, table: TableInfo, buckets: Sequence[TableBucket]
    ) -> dict[TableBucket, int]:
        """Return the number of rows of each of the `buckets` of a `table`."""

    async def list_kv_snapshots(
        self, table: TableInfo, partition_name: str | None
    ) -> list[KvSnapshot]:
        """Return the newest KV snapshot of each bucket.

        Args:
            table: The key table.
            partition_name: The partition; None for a table without partitions.
        """

    async def list_all_kv_snapshots(
        self, table: TableInfo, partition_id: int | None
    ) -> list[KvSnapshot]:
        """Return every KV snapshot that the cluster keeps, of each bucket.

        Args:
            table: The key table.
            partition_id: The partition; None for a table without partitions.
        """

    async def list_remote_log_manifests(
        self, table: TableInfo, partition_id: int | None
    ) -> list[RemoteLogManifest]:
        """Return where the manifest of each bucket's remote log is.

        Args:
            table: The table.
            partition_id: The partition; None for a table without partitions.
        """

    async def get_cluster_health(self) -> ClusterHealth:
        """Return how many replicas of the cluster are in sync and have a leader."""

    async def describe_cluster_configs(self) -> list[ConfigEntry]:
        """Return the settings of the cluster."""

    async def alter_cluster_configs(
        self, set_configs: Mapping[str, str], reset_configs: Sequence[str]
    ) -> None:
        """Change settings of the cluster.

        Args:
            set_configs: The settings to set.
            reset_configs: The keys of the settings that get their default value back.
        """

    async def create_acls(self, acls: Sequence[Acl]) -> None:
        """Add the permissions in `acls`."""

    async def list_acls(self, acl_filter: Mapping[str, str]) -> list[Acl]:
        """Return the permissions whose fields have the values in `acl_filter`."""

    async def drop_acls(self, filters: Sequence[Mapping[str, str]]) -> list[Acl]:
        """Remove the permissions that match one of the `filters`, and return them."""

    # The lake
    async def get_lake_snapshot(
        self, path: TablePath, snapshot_id: int | None, readable: bool
    ) -> LakeSnapshot:
        """Return a lake snapshot of a table.

        Args:
            path: The table.
            snapshot_id: The id of the snapshot; None for the newest one.
            readable: Return the newest one that readers may use, instead of the newest one.

        Raises:
            LakeSnapshotNotExistError: There is no such snapshot.
        """

    async def prepare_lake_snapshot(
        self, table: TableInfo, offsets: Mapping[TableBucket, int], ignore_previous: bool
    ) -> str:
        """Store the offsets of a lake snapshot that is committed next.

        Args:
            table: The table.
            offsets: The first offset of each bucket that is not in the snapshot.
            ignore_previous: Do not complete the offsets from those of the previous snapshot.

        Returns:
            The path of the stored offsets, for `commit_lake_snapshot`.
        """

    async def commit_lake_snapshot(
        self,
        table: TableInfo,
        snapshot_id: int,
        offsets_path: str,
        buckets: Sequence[BucketCommit],
        earliest_snapshot_to_keep: int | None,
    ) -> None:
        """Tell Fluss that the lake has a new snapshot.

        Args:
            table: The table.
            snapshot_id: The id of the snapshot in the lake.
            offsets_path: The result of `prepare_lake_snapshot`.
            buckets: How far each bucket is in the lake.
            earliest_snapshot_to_keep: Fluss forgets the snapshots before this one; None keeps all.
        """

    async def lake_tiering_heartbeat(
        self,
        tiering: Sequence[TieringTable],
        finished: Sequence[TieringTable],
        failed: Sequence[TieringTable],
        request_table: bool,
        force_finished: Sequence[int],
    ) -> HeartbeatResult:
        """Report the work of a tiering worker to the coordinator, and ask for more.

        Args:
            tiering: The tables that this worker is tiering.
            finished: The tables that it has finished.
            failed: The tables that it could not tier.
            request_table: Whether it can take another table.
            force_finished: The ids of the finished tables whose tiering was ended early.
        """

    # Producer offsets
    async def register_producer_offsets(
        self, producer_id: str, offsets: Mapping[TableBucket, int], ttl_ms: int | None
    ) -> bool:
        """Store offsets under a producer id, unless there are some already.

        Args:
            producer_id: The id.
            offsets: The offset of each bucket.
            ttl_ms: How long the server keeps them; None for the server's default.

        Returns:
            True if this call stored the offsets, False if there were some.
        """

    async def get_producer_offsets(self, producer_id: str) -> ProducerOffsets | None:
        """Return the offsets that are stored under a `producer_id`, or None."""

    async def delete_producer_offsets(self, producer_id: str) -> None:
        """Delete the offsets that are stored under a `producer_id`, if there are some."""
