"""The embedded backend: reads, writes and the description of the server, and its capabilities.

`admin` and `lake.snapshots` have the other operations. Operations that only a cluster has raise an
error that says so.
"""

from __future__ import annotations

import asyncio
import os
import sqlite3
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Executor
from functools import partial
from pathlib import Path
from typing import TypeVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from fluss_client.backend.contract import (
    BucketAck,
    BucketWrite,
    Capabilities,
    FetchedBucket,
    FetchRequest,
    LogSlice,
    LookupAnswer,
    StateCursor,
    WriteRoute,
)
from fluss_client.backend.embedded.admin import AdminOperations
from fluss_client.backend.embedded.keys import payload, state, upserts
from fluss_client.backend.embedded.lake.snapshots import LakeOperations
from fluss_client.backend.embedded.log import appends, reader
from fluss_client.backend.embedded.log.retention import EXPIRED_PER_WRITE_MAX, expire_batches
from fluss_client.backend.embedded.store import options
from fluss_client.backend.embedded.store.catalog import (
    check_exists,
    check_placed,
    end_statements,
    find_bucket,
    now_ms,
    take_number,
)
from fluss_client.backend.embedded.store.database import Database, Settings
from fluss_client.backend.embedded.store.engine import NODE_ID, Engine
from fluss_client.backend.rows import decode_key_rows, distinct_ids, last_rows, shown_schema
from fluss_client.codec.binary.blobs import Blobs
from fluss_client.codec.kv_batch import decode_values
from fluss_client.config import EMBEDDED_SCHEME, Config
from fluss_client.errors import (
    ConfigError,
    FlussError,
    InvalidBucketRoutingError,
    InvalidRequiredAcksError,
    InvalidTableError,
    SecurityDisabledError,
    UnsupportedError,
)
from fluss_client.model.cluster import (
    Acl,
    ClusterHealth,
    ConfigEntry,
    KvSnapshot,
    RemoteLogManifest,
    ServerNode,
)
from fluss_client.model.schema import Schema
from fluss_client.model.table import TableBucket, TableInfo, TablePath
from fluss_client.runtime import workers

T = TypeVar("T")
BRIEF_KEYS_MAX = 4
"""So many keys are looked up on the event loop itself, see `store.threads`."""
INLINE_VALUES_MAX = 64
"""So many values are decoded on the event loop: a worker thread would take longer."""
EXPIRY_INTERVAL_S = 1.0
_ACKS = (-1, 0, 1)
HOST, PORT = "localhost", 0
_NO_ACLS = "an embedded directory has no users and no ACLs: set the permissions of its files"


class ReadOperations(Engine):
    """Reads logs and the key state."""

    async def fetch(self, node: int, request: FetchRequest) -> list[FetchedBucket]:
        clock = asyncio.get_running_loop().time
        deadline = clock() + request.wait_ms / 1000
        while True:
            mark = self._watch.mark()
            answers, nbytes, failed = await self._read(
                lambda c: reader.read_buckets(c, self.catalog, request)
            )
            left_s = deadline - clock()
            if nbytes >= request.bytes_min or failed or left_s <= 0:
                return answers
            await self._watch.wait(mark, left_s)

    async def limit_scan(
        self,
        table: TableInfo,
        bucket: TableBucket,
        limit: int,
        columns: tuple[int, ...] | None,
    ) -> pa.RecordBatch:
        if table.has_primary_key():

            def first(connection: sqlite3.Connection) -> Blobs:
                check_exists(connection, table, bucket.partition_id)
                return state.first_values(connection, bucket, limit)

            return await self.decode_values(table, await self._read(first), columns)

        def last(connection: sqlite3.Connection) -> list[LogSlice]:
            check_exists(connection, table, bucket.partition_id)
            return reader.last_slices(connection, self.catalog, table, bucket, limit, columns)

        slices = await self._read(last)
        schema = shown_schema(table, columns)
        return await _on_worker(partial(last_rows, slices, limit, schema))

    async def open_state(self, table: TableInfo, bucket: TableBucket) -> StateCursor:
        self._check_process()
        return await asyncio.to_thread(state.LocalCursor, self.database, table, bucket)

    async def lookup(
        self,
        table: TableInfo,
        node: int,
        keys: Mapping[TableBucket, Blobs],
        bucket_count: int | None = None,
    ) -> dict[TableBucket, LookupAnswer]:
        return await self._read(lambda c: state.lookup(c, table, keys, bucket_count))

    async def prefix_lookup(
        self,
        table: TableInfo,
        node: int,
        keys: Mapping[TableBucket, Blobs],
        bucket_count: int | None = None,
    ) -> dict[TableBucket, LookupAnswer]:
        return await self._read(lambda c: state.prefix_lookup(c, table, keys, bucket_count))

    async def lookup_few(
        self,
        table: TableInfo,
        node: int,
        keys: Sequence[tuple[TableBucket, bytes]],
        prefix: bool,
        bucket_counts: Sequence[int] | None = None,
    ) -> list[list[bytes] | FlussError]:
        def look(connection: sqlite3.Connection) -> list[list[bytes] | FlussError]:
            answers = state.lookup_few(connection, table, keys, prefix, self.bucket_numbers)
            for at, count in enumerate(bucket_counts or ()):
                bucket = keys[at][0]
                # A count that is known is true; only others are checked.
                if self._bucket_counts.get(bucket.partition_id) != count:
                    try:
                        check_placed(connection, bucket, count)
                    except InvalidBucketRoutingError as error:
                        end_statements(error)
                        answers[at] = error
            return answers

        if len(keys) <= BRIEF_KEYS_MAX and not prefix:
            return await self._read_briefly(look)
        # Each key is answered separately, so the keys need no common snapshot.
        return await self._read(look, snapshot=False)

    async def decode_values(
        self,
        table: TableInfo,
        values: Blobs,
        columns: tuple[int, ...] | None,
        threads: Executor | None = None,
    ) -> pa.RecordBatch:
        schema_ids, rows = decode_values(values)
        needed = distinct_ids(schema_ids)
        schemas = dict.fromkeys(needed, table.schema)
        if any(i != table.schema_id for i in needed):
            schemas = await self._read(partial(self._schemas, table, needed))
        decode = partial(decode_key_rows, table, schemas, schema_ids, rows, columns)
        if threads is not None:
            return await asyncio.get_running_loop().run_in_executor(threads, decode)
        return decode() if len(values) <= INLINE_VALUES_MAX else await _on_worker(decode)

    def _schemas(
        self, table: TableInfo, needed: Sequence[int], connection: sqlite3.Connection
    ) -> dict[int, Schema]:
        stored = self.catalog.by_id(connection, table.table_id)
        return {i: self.catalog.schema(connection, stored, i) for i in needed}

    async def get_table_stats(
        self, table: TableInfo, buckets: Sequence[TableBucket]
    ) -> dict[TableBucket, int]:
        """Return the row count of each bucket; raise error 15 if the changelog image is WAL."""

        def ask(connection: sqlite3.Connection) -> dict[TableBucket, int]:
            counts = {}
            for place in buckets:
                check_exists(connection, table, place.partition_id)
                bucket = find_bucket(connection, place)
                log_rows = bucket.log_end - bucket.log_start
                counts[place] = bucket.row_count if table.has_primary_key() else log_rows
            return counts

        image = options.option(table.properties, options.CHANGELOG_IMAGE)
        if table.has_primary_key() and image == "WAL":
            raise InvalidTableError(
                f"{table.table_path} keeps no row count: its changelog image is WAL"
            )
        return await self._read(ask)


async def _on_worker(work: Callable[[], T]) -> T:
    return await asyncio.get_running_loop().run_in_executor(workers(), work)


class WriteOperations(Engine):
    """Encodes and stores appends and upserts."""

    async def init_writer(self, paths: Sequence[TablePath]) -> int:
        return await self._write(lambda c: take_number(c, "next_writer_id"))

    def encode_append(self, table: TableInfo, batch: pa.RecordBatch) -> appends.AppendPayload:
        return appends.encode_append(table, batch)

    def encode_upsert(
        self,
        table: TableInfo,
        keys: Blobs,
        rows: Blobs | None,
        deletes: npt.NDArray[np.bool_] | None,
        arrow: Sequence[pa.RecordBatch] = (),
    ) -> payload.UpsertPayload:
        return payload.encode_upsert(table, keys, rows, deletes, arrow)

    async def locate(self, table: TableInfo, bucket: TableBucket) -> int:
        """Return the one node; raise errors 7, 36 and 21 if the bucket does not exist any more."""
        if bucket not in self.known_buckets:

            def ask(connection: sqlite3.Connection) -> None:
                check_exists(connection, table, bucket.partition_id)
                find_bucket(connection, bucket)

            await self._read(ask)
            self.known_buckets.add(bucket)
        return NODE_ID

    async def forget_location(self, table: TableInfo, bucket: TableBucket) -> None:
        self.known_buckets.discard(bucket)

    def write_connection(self, node: int) -> int:
        return 0

    async def append(
        self,
        table: TableInfo,
        route: WriteRoute,
        writes: Sequence[BucketWrite],
        acks: int,
        timeout_ms: int,
    ) -> list[BucketAck]:
        _check_acks(acks)

        def run(connection: sqlite3.Connection) -> list[BucketAck]:
            answers = appends.append(connection, writes)
            self._expire(connection, answers)
            return answers

        return await self._write(run, _weight(writes))

    async def upsert(
        self,
        table: TableInfo,
        route: WriteRoute,
        writes: Sequence[BucketWrite],
        target_columns: Sequence[int] | None,
        acks: int,
        timeout_ms: int,
    ) -> list[BucketAck]:
        _check_acks(acks)
        # An empty list means all columns, as in the protocol.
        targets = target_columns or None

        def run(connection: sqlite3.Connection) -> list[BucketAck]:
            answers = upserts.upsert(connection, self.catalog, table.table_id, writes, targets)
            self._expire(connection, answers)
            return answers

        return await self._write(run, _weight(writes))

    def _expire(self, connection: sqlite3.Connection, answers: Sequence[BucketAck]) -> None:
        """Delete expired batches of the written buckets, once per `EXPIRY_INTERVAL_S` at most."""
        seen = time.monotonic()
        for answer in answers:
            if answer.error is not None:
                continue
            place = answer.bucket
            if seen - self.expiry_seen.get(place, -EXPIRY_INTERVAL_S) < EXPIRY_INTERVAL_S:
                continue
            self.expiry_seen[place] = seen
            stored = self.catalog.by_id(connection, place.table_id)
            bucket = find_bucket(connection, place)
            expire_batches(connection, stored, bucket, now_ms(), EXPIRED_PER_WRITE_MAX)


def _check_acks(acks: int) -> None:
    if acks not in _ACKS:
        raise InvalidRequiredAcksError(f"acks is -1, 0 or 1, not {acks}")


def _weight(writes: Sequence[BucketWrite]) -> int:
    return sum(write.payload.nbytes for write in writes)


class ClusterOperations(Engine):
    """Describes the one server; refuses what only a cluster has."""

    async def get_server_nodes(self) -> list[ServerNode]:
        self._check_process()
        return [
            ServerNode(NODE_ID, HOST, PORT, "CoordinatorServer"),
            ServerNode(NODE_ID, HOST, PORT, "TabletServer"),
        ]

    async def list_kv_snapshots(
        self, table: TableInfo, partition_name: str | None
    ) -> list[KvSnapshot]:
        raise UnsupportedError(
            "the embedded engine makes no snapshots of the key state: read the table itself"
        )

    async def list_all_kv_snapshots(
        self, table: TableInfo, partition_id: int | None
    ) -> list[KvSnapshot]:
        return await self.list_kv_snapshots(table, None)

    async def list_remote_log_manifests(
        self, table: TableInfo, partition_id: int | None
    ) -> list[RemoteLogManifest]:
        raise UnsupportedError(
            "the embedded engine has no remote log: all rows are in its directory"
        )

    async def get_cluster_health(self) -> ClusterHealth:
        """Count each bucket as one replica: one that can be read is in sync and its own leader."""

        def count(connection: sqlite3.Connection) -> int:
            (buckets,) = connection.execute("SELECT count(*) FROM bucket").fetchone()
            return int(buckets)

        buckets = await self._read(count)
        return ClusterHealth("green", buckets, buckets, buckets, buckets)

    async def describe_cluster_configs(self) -> list[ConfigEntry]:
        """Return the settings of the lake, under the names that a cluster has for them."""
        self._check_process()
        settings = {"format": "iceberg"}
        settings |= {f"iceberg.{key}": text for key, text in self.lake.settings().items()}
        return [
            ConfigEntry(f"datalake.{key}", text, "INITIAL_SERVER_CONFIG")
            for key, text in settings.items()
        ]

    async def alter_cluster_configs(
        self, set_configs: Mapping[str, str], reset_configs: Sequence[str]
    ) -> None:
        raise UnsupportedError(
            "the embedded engine has no cluster settings to change: set embedded.* in Config"
        )

    async def create_acls(self, acls: Sequence[Acl]) -> None:
        raise SecurityDisabledError(_NO_ACLS)

    async def list_acls(self, acl_filter: Mapping[str, str]) -> list[Acl]:
        raise SecurityDisabledError(_NO_ACLS)

    async def drop_acls(self, filters: Sequence[Mapping[str, str]]) -> list[Acl]:
        raise SecurityDisabledError(_NO_ACLS)


class EmbeddedBackend(
    AdminOperations, WriteOperations, ReadOperations, LakeOperations, ClusterOperations
):
    """The backend contract on one directory of a local disk."""

    def __init__(self, database: Database) -> None:
        super().__init__(database)
        self.capabilities = Capabilities(
            name="embedded",
            versioned_merge_engine=False,
            aggregation_merge_engine=False,
            auto_increment=False,
            remote_log=False,
            kv_snapshots=False,
            acls=False,
            cluster_configs=False,
            replication=False,
            scan_kv=False,
            rescaling=True,
            local_directory=str(database.directory),
        )

    @classmethod
    async def open(cls, config: Config) -> EmbeddedBackend:
        """Open the directory that `bootstrap.servers` names; create it if it is missing."""
        settings = Settings(config.embedded_synchronous, config.embedded_lock_timeout_ms)
        database = Database(directory_of(config.resolved_bootstrap()), settings)
        await asyncio.to_thread(database.prepare)
        backend = cls(database)
        try:
            await backend.keep_all_auto_partitions()
        except BaseException:
            await backend.close()
            raise
        return backend


def directory_of(address: str) -> Path:
    """Return the absolute directory of an address such as `embedded:~/data`."""
    name = address.removeprefix(EMBEDDED_SCHEME).strip()
    if not name:
        raise ConfigError(f"'{address}' names no directory: write {EMBEDDED_SCHEME}PATH")
    return Path(os.path.abspath(os.path.expanduser(name)))
