"""Fetches, scans and look-ups of the backend."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TypeVar

import pyarrow as pa

from fluss_client.backend.contract import FetchedBucket, FetchRequest, LogSlice, LookupAnswer
from fluss_client.backend.embedded import lookups, reading
from fluss_client.backend.embedded import options as opt
from fluss_client.backend.embedded.catalog import check_exists, find_bucket
from fluss_client.backend.embedded.engine import Engine
from fluss_client.backend.embedded.key_rows import decode_shown, distinct_ids
from fluss_client.codec.blobs import Blobs
from fluss_client.codec.value_batch import decode_values
from fluss_client.errors import FlussError, InvalidTableError
from fluss_client.model.schema import Schema
from fluss_client.model.table import TableBucket, TableInfo
from fluss_client.runtime import workers

T = TypeVar("T")
BRIEF_KEYS_MAX = 4
INLINE_VALUES_MAX = 64
"""So many values are decoded on the loop: handing them to a thread would take longer."""


class ReadPart(Engine):
    """What readers do."""

    async def fetch(self, node: int, request: FetchRequest) -> list[FetchedBucket]:
        clock = asyncio.get_running_loop().time
        deadline = clock() + request.wait_ms / 1000
        while True:
            mark = self._watch.mark()
            answers, nbytes, failed = await self._read(
                lambda c: reading.read_buckets(c, self.catalog, request)
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
            return reading.last_slices(connection, self.catalog, table, bucket, limit, columns)

        slices = await self._read(last)
        schema = reading.shown_schema(table, columns)
        return await _on_worker(partial(reading.last_rows, slices, limit, schema))

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
        # Each key is answered alone, so they need not see the same moment.
        return await self._read(look, snapshot=False)

    async def decode_values(
        self, table: TableInfo, values: Blobs, columns: tuple[int, ...] | None
    ) -> pa.RecordBatch:
        schema_ids, rows = decode_values(values)
        needed = distinct_ids(schema_ids)
        schemas = dict.fromkeys(needed, table.schema)
        if any(i != table.schema_id for i in needed):
            schemas = await self._read(partial(self._schemas, table, needed))
        decode = partial(decode_shown, table, schemas, schema_ids, rows, columns)
        return decode() if len(values) <= INLINE_VALUES_MAX else await _on_worker(decode)

    def _schemas(
        self, table: TableInfo, needed: Sequence[int], connection: sqlite3.Connection
    ) -> dict[int, Schema]:
        stored = self.catalog.by_id(connection, table.table_id)
        return {i: self.catalog.schema(connection, stored, i) for i in needed}

    async def get_table_stats(
        self, table: TableInfo, buckets: Sequence[TableBucket]
    ) -> dict[TableBucket, int]:
        """Rows per bucket; error 15 where the changelog image says that nobody counts them."""

        def ask(connection: sqlite3.Connection) -> dict[TableBucket, int]:
            counts = {}
            for place in buckets:
                check_exists(connection, table, place.partition_id)
                bucket = find_bucket(connection, place)
                log_rows = bucket.log_end - bucket.log_start
                counts[place] = bucket.row_count if table.has_primary_key() else log_rows
            return counts

        image = opt.option(table.properties, opt.CHANGELOG_IMAGE)
        if table.has_primary_key() and image == "WAL":
            raise InvalidTableError(f"{table.table_path} keeps no row count: its image is WAL")
        return await self._read(ask)


async def _on_worker(work: Callable[[], T]) -> T:
    return await asyncio.get_running_loop().run_in_executor(workers(), work)
