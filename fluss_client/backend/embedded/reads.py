"""The read operations of the embedded backend: fetches, limit scans, look-ups, row counts."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TypeVar

import pyarrow as pa

from fluss_client.backend.contract import (
    FetchedBucket,
    FetchRequest,
    LogSlice,
    LookupAnswer,
    StateCursor,
)
from fluss_client.backend.embedded.keys import lookups
from fluss_client.backend.embedded.keys.state import LocalCursor
from fluss_client.backend.embedded.log import reader
from fluss_client.backend.embedded.store import options
from fluss_client.backend.embedded.store.catalog import check_exists, find_bucket
from fluss_client.backend.embedded.store.engine import Engine
from fluss_client.backend.rows import decode_key_rows, distinct_ids, last_rows, shown_schema
from fluss_client.codec.batches.value_batch import decode_values
from fluss_client.codec.binary.blobs import Blobs
from fluss_client.errors import FlussError, InvalidTableError
from fluss_client.model.schema import Schema
from fluss_client.model.table import TableBucket, TableInfo
from fluss_client.runtime import workers

T = TypeVar("T")
BRIEF_KEYS_MAX = 4
"""So many keys are looked up on the event loop itself, see `store.threads`."""
INLINE_VALUES_MAX = 64
"""So many values are decoded on the event loop: a worker thread would take longer."""


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
                return lookups.first_values(connection, bucket, limit)

            return await self.decode_values(table, await self._read(first), columns)

        def last(connection: sqlite3.Connection) -> list[LogSlice]:
            check_exists(connection, table, bucket.partition_id)
            return reader.last_slices(connection, self.catalog, table, bucket, limit, columns)

        slices = await self._read(last)
        schema = shown_schema(table, columns)
        return await _on_worker(partial(last_rows, slices, limit, schema))

    async def open_state(self, table: TableInfo, bucket: TableBucket) -> StateCursor:
        self._check_process()
        return await asyncio.to_thread(LocalCursor, self.database, table, bucket)

    async def lookup(
        self, table: TableInfo, node: int, keys: Mapping[TableBucket, Blobs]
    ) -> dict[TableBucket, LookupAnswer]:
        return await self._read(lambda c: lookups.lookup(c, table, keys))

    async def prefix_lookup(
        self, table: TableInfo, node: int, keys: Mapping[TableBucket, Blobs]
    ) -> dict[TableBucket, LookupAnswer]:
        return await self._read(lambda c: lookups.prefix_lookup(c, table, keys))

    async def lookup_few(
        self, table: TableInfo, node: int, keys: Sequence[tuple[TableBucket, bytes]], prefix: bool
    ) -> list[list[bytes] | FlussError]:
        def look(connection: sqlite3.Connection) -> list[list[bytes] | FlussError]:
            return lookups.lookup_few(connection, table, keys, prefix, self.bucket_numbers)

        if len(keys) <= BRIEF_KEYS_MAX and not prefix:
            return await self._read_briefly(look)
        # Each key is answered separately, so the keys need no common snapshot.
        return await self._read(look, snapshot=False)

    async def decode_values(
        self, table: TableInfo, values: Blobs, columns: tuple[int, ...] | None
    ) -> pa.RecordBatch:
        schema_ids, rows = decode_values(values)
        needed = distinct_ids(schema_ids)
        schemas = dict.fromkeys(needed, table.schema)
        if any(i != table.schema_id for i in needed):
            schemas = await self._read(partial(self._schemas, table, needed))
        decode = partial(decode_key_rows, table, schemas, schema_ids, rows, columns)
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
