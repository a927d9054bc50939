"""The administrative operations of the embedded backend: databases, tables, partitions, offsets."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Callable, Mapping, Sequence
from functools import partial

from fluss_client.backend.contract import DatabaseChange, TableChange
from fluss_client.backend.embedded.lake.iceberg import require_pyiceberg
from fluss_client.backend.embedded.log.appends import offset_of
from fluss_client.backend.embedded.store import partitions, tables
from fluss_client.backend.embedded.store.catalog import (
    Stored,
    check_exists,
    count_buckets,
    find_bucket,
)
from fluss_client.backend.embedded.store.engine import Engine
from fluss_client.backend.embedded.store.partitions import keep_auto_partitions
from fluss_client.backend.embedded.store.validation import is_lake_enabled
from fluss_client.errors import PartitionNotExistError, UnknownTableOrBucketError
from fluss_client.model.cluster import OffsetSpec
from fluss_client.model.schema import Schema
from fluss_client.model.table import (
    DatabaseDescriptor,
    DatabaseInfo,
    PartitionInfo,
    TableBucket,
    TableDescriptor,
    TableInfo,
    TablePath,
)


class AdminOperations(Engine):
    """Creates, changes, lists and drops databases, tables and partitions; lists offsets."""

    async def create_database(
        self, name: str, descriptor: DatabaseDescriptor | None, ignore_if_exists: bool
    ) -> None:
        await self._write(lambda c: tables.create_database(c, name, descriptor, ignore_if_exists))

    async def drop_database(self, name: str, ignore_if_not_exists: bool, cascade: bool) -> None:
        await self._write(lambda c: tables.drop_database(c, name, ignore_if_not_exists, cascade))

    async def alter_database(
        self, name: str, change: DatabaseChange, ignore_if_not_exists: bool
    ) -> None:
        await self._write(lambda c: tables.alter_database(c, name, change, ignore_if_not_exists))

    async def list_databases(self) -> list[str]:
        return await self._read(tables.list_databases)

    async def database_exists(self, name: str) -> bool:
        return await self._read(lambda c: tables.database_exists(c, name))

    async def get_database_info(self, name: str) -> DatabaseInfo:
        return await self._read(lambda c: tables.get_database_info(c, name))

    async def create_table(
        self, path: TablePath, descriptor: TableDescriptor, ignore_if_exists: bool
    ) -> None:
        def create(connection: sqlite3.Connection) -> None:
            made = tables.create_table(
                connection, path, descriptor, ignore_if_exists, self.lake.create_table
            )
            if made is not None:
                keep_auto_partitions(connection, self.catalog.by_id(connection, made))

        if is_lake_enabled(descriptor.properties):
            # The import takes about a second, and the job below holds the write lock.
            await asyncio.to_thread(require_pyiceberg)
        await self._write(create)

    async def drop_table(self, path: TablePath, ignore_if_not_exists: bool) -> None:
        await self._write(lambda c: tables.drop_table(c, path, ignore_if_not_exists))

    async def alter_table(
        self, path: TablePath, change: TableChange, ignore_if_not_exists: bool
    ) -> None:
        if is_lake_enabled(change.set_options):
            await asyncio.to_thread(require_pyiceberg)

        def alter(connection: sqlite3.Connection) -> None:
            tables.alter_table(
                connection, self.catalog, path, change, ignore_if_not_exists, self.lake.create_table
            )

        await self._write(alter)

    async def list_tables(self, database: str) -> list[str]:
        return await self._read(lambda c: tables.list_tables(c, database))

    async def table_exists(self, path: TablePath) -> bool:
        return await self._read(lambda c: tables.table_exists(c, path))

    async def get_table_info(self, path: TablePath) -> TableInfo:
        return await self._read(lambda c: self.catalog.by_path(c, path).info)

    async def get_schema(self, path: TablePath, schema_id: int | None) -> tuple[int, Schema]:
        def ask(connection: sqlite3.Connection) -> tuple[int, Schema]:
            stored = self.catalog.by_path(connection, path)
            wanted = stored.info.schema_id if schema_id is None else schema_id
            return wanted, self.catalog.schema(connection, stored, wanted)

        return await self._read(ask)

    async def create_partition(
        self, path: TablePath, spec: Mapping[str, str], ignore_if_exists: bool
    ) -> None:
        await self._write(
            lambda c: partitions.create_partition(c, self.catalog, path, spec, ignore_if_exists)
        )

    async def drop_partition(
        self, path: TablePath, spec: Mapping[str, str], ignore_if_not_exists: bool
    ) -> None:
        await self._write(
            lambda c: partitions.drop_partition(c, self.catalog, path, spec, ignore_if_not_exists)
        )

    async def list_partitions(
        self, path: TablePath, spec: Mapping[str, str] | None
    ) -> list[PartitionInfo]:
        await self._keep_auto_partitions(lambda c: self.catalog.by_path(c, path))
        found = await self._read(lambda c: partitions.list_partitions(c, self.catalog, path, spec))
        for info in found:
            if info.bucket_count is not None:
                self._bucket_counts[info.partition_id] = info.bucket_count
        return found

    def known_bucket_count(self, table: TableInfo, partition_id: int | None) -> int | None:
        if partition_id is None:
            return table.num_buckets
        return self._bucket_counts.get(partition_id)

    async def bucket_count(self, table: TableInfo, partition_id: int | None) -> int:
        known = self.known_bucket_count(table, partition_id)
        if known is not None:
            return known

        def ask(connection: sqlite3.Connection) -> int:
            check_exists(connection, table, partition_id)
            count = count_buckets(connection, table.table_id, partition_id)
            if count is None:
                raise UnknownTableOrBucketError(
                    f"partition {partition_id} of table {table.table_path} has no buckets"
                )
            return count

        count = await self._read(ask)
        if partition_id is not None:
            self._bucket_counts[partition_id] = count
        return count

    def forget_bucket_count(self, table: TableInfo, partition_id: int | None) -> None:
        if partition_id is not None:
            self._bucket_counts.pop(partition_id, None)

    async def system_partitions(self, path: TablePath) -> list[PartitionInfo]:
        return []

    async def partition_id(self, table: TableInfo, name: str) -> int:
        try:
            return await self._find_partition(table, name)
        except PartitionNotExistError:
            if not await self._keep_auto_partitions(
                lambda c: self.catalog.by_id(c, table.table_id)
            ):
                raise
        return await self._find_partition(table, name)

    async def _find_partition(self, table: TableInfo, name: str) -> int:
        def find(connection: sqlite3.Connection) -> tuple[int, int | None]:
            found = partitions.partition_id(connection, table, name)
            return found, count_buckets(connection, table.table_id, found)

        partition_id, count = await self._read(find)
        if count is not None:
            self._bucket_counts[partition_id] = count
        return partition_id

    async def _keep_auto_partitions(self, find: Callable[[sqlite3.Connection], Stored]) -> bool:
        """Create and drop the auto-partitions that are due; return whether any were due."""
        due = await self._read(lambda c: bool(partitions.due_partitions(c, find(c))))
        if due and not self.database.read_only:
            await self._write(lambda c: keep_auto_partitions(c, find(c)))
        return due

    async def keep_all_auto_partitions(self) -> None:
        """Create and drop the auto-partitions that are due in every table."""

        def due_tables(connection: sqlite3.Connection) -> list[Stored]:
            found = partitions.auto_partitioned(connection, self.catalog)
            return [table for table in found if partitions.due_partitions(connection, table)]

        for table in await self._read(due_tables):
            await self._keep_auto_partitions(
                partial(self.catalog.by_id, table_id=table.info.table_id)
            )

    async def list_offsets(
        self, table: TableInfo, partition_id: int | None, buckets: Sequence[int], spec: OffsetSpec
    ) -> dict[int, int]:
        def ask(connection: sqlite3.Connection) -> dict[int, int]:
            check_exists(connection, table, partition_id)
            found = {}
            for bucket in buckets:
                place = TableBucket(table.table_id, bucket, partition_id=partition_id)
                found[bucket] = offset_of(connection, find_bucket(connection, place), spec)
            return found

        return await self._read(ask)
