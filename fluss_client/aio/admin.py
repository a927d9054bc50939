"""Administration: databases, tables, partitions, offsets, the lake and the cluster itself."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pyarrow as pa

from fluss_client.backend.contract import Backend, Capabilities, TableChange
from fluss_client.errors import InvalidDatabaseError, SchemaError
from fluss_client.model.arrow import from_arrow
from fluss_client.model.cluster import (
    Acl,
    ConfigEntry,
    KvSnapshot,
    LakeSnapshot,
    OffsetSpec,
    ServerNode,
)
from fluss_client.model.lake import BucketCommit, HeartbeatResult, ProducerOffsets, TieringTable
from fluss_client.model.schema import Column, Schema
from fluss_client.model.table import (
    DatabaseDescriptor,
    DatabaseInfo,
    PartitionInfo,
    TableBucket,
    TableDescriptor,
    TableInfo,
    TablePath,
    check_path,
)


class FlussAdmin:
    """What changes and describes the cluster. Obtain it with `FlussConnection.get_admin()`."""

    def __init__(self, backend: Backend) -> None:
        self._backend = backend

    @property
    def capabilities(self) -> Capabilities:
        """What this backend offers."""
        return self._backend.capabilities

    # Databases

    async def create_database(
        self,
        database_name: str,
        database_descriptor: DatabaseDescriptor | None = None,
        ignore_if_exists: bool = False,
    ) -> None:
        """Create a database."""
        name = _named(database_name)
        await self._backend.create_database(name, database_descriptor, ignore_if_exists)

    async def drop_database(
        self, database_name: str, ignore_if_not_exists: bool = False, cascade: bool = True
    ) -> None:
        """Drop a database, with its tables when `cascade` is true."""
        name = _named(database_name)
        await self._backend.drop_database(name, ignore_if_not_exists, cascade)

    async def list_databases(self) -> list[str]:
        """All databases."""
        return await self._backend.list_databases()

    async def database_exists(self, database_name: str) -> bool:
        """Whether there is such a database."""
        return await self._backend.database_exists(_named(database_name))

    async def get_database_info(self, database_name: str) -> DatabaseInfo:
        """A database's comment, properties and times."""
        return await self._backend.get_database_info(_named(database_name))

    # Tables

    async def create_table(
        self,
        table_path: TablePath,
        table_descriptor: TableDescriptor,
        ignore_if_exists: bool = False,
    ) -> None:
        """Create a table."""
        await self._backend.create_table(check_path(table_path), table_descriptor, ignore_if_exists)

    async def drop_table(self, table_path: TablePath, ignore_if_not_exists: bool = False) -> None:
        """Drop a table and all its data."""
        await self._backend.drop_table(check_path(table_path), ignore_if_not_exists)

    async def alter_table(
        self,
        table_path: TablePath,
        *,
        add_columns: pa.Schema | Sequence[pa.Field] | Sequence[Column] = (),
        set_options: Mapping[str, object] | None = None,
        reset_options: Sequence[str] = (),
        ignore_if_not_exists: bool = False,
    ) -> None:
        """Add nullable columns at the end, set or reset options; several at once if wanted."""
        change = TableChange(
            tuple(_column(field) for field in add_columns),
            {key: str(value) for key, value in (set_options or {}).items()},
            tuple(reset_options),
        )
        if not (change.add_columns or change.set_options or change.reset_options):
            raise SchemaError(f"nothing to change in {table_path}: name columns or options")
        for column in change.add_columns:
            if not column.type.nullable:
                raise SchemaError(
                    f"column '{column.name}' must be nullable: rows written before have no value"
                )
        await self._backend.alter_table(check_path(table_path), change, ignore_if_not_exists)

    async def list_tables(self, database_name: str) -> list[str]:
        """The tables of a database."""
        return await self._backend.list_tables(_named(database_name))

    async def table_exists(self, table_path: TablePath) -> bool:
        """Whether there is such a table."""
        return await self._backend.table_exists(check_path(table_path))

    async def get_table_info(self, table_path: TablePath) -> TableInfo:
        """A table's schema, keys, buckets and properties."""
        return await self._backend.get_table_info(check_path(table_path))

    async def get_table_schema(
        self, table_path: TablePath, schema_id: int | None = None
    ) -> tuple[int, Schema]:
        """A schema with its id: the current one, or an older one by id."""
        return await self._backend.get_schema(check_path(table_path), schema_id)

    async def list_table_schemas(self, table_path: TablePath) -> dict[int, Schema]:
        """Every schema that the table has had, by id."""
        current, schema = await self._backend.get_schema(check_path(table_path), None)
        history = {}
        for schema_id in range(1, current):
            history[schema_id] = (
                await self._backend.get_schema(check_path(table_path), schema_id)
            )[1]
        return history | {current: schema}

    # Partitions

    async def create_partition(
        self,
        table_path: TablePath,
        partition_spec: Mapping[str, str],
        ignore_if_exists: bool = False,
    ) -> None:
        """Create a partition: one value for each partition column."""
        await self._backend.create_partition(
            check_path(table_path), partition_spec, ignore_if_exists
        )

    async def drop_partition(
        self,
        table_path: TablePath,
        partition_spec: Mapping[str, str],
        ignore_if_not_exists: bool = False,
    ) -> None:
        """Drop a partition and its data."""
        await self._backend.drop_partition(
            check_path(table_path), partition_spec, ignore_if_not_exists
        )

    async def list_partition_infos(
        self, table_path: TablePath, partition_spec: Mapping[str, str] | None = None
    ) -> list[PartitionInfo]:
        """The partitions of a table, only those that match a partial spec if one is given."""
        return await self._backend.list_partitions(check_path(table_path), partition_spec)

    # Offsets

    async def list_offsets(
        self, table_path: TablePath, bucket_ids: Sequence[int], offset_spec: OffsetSpec
    ) -> dict[int, int]:
        """An offset of each bucket: earliest, latest, or by time."""
        table = await self._backend.get_table_info(check_path(table_path))
        if table.is_partitioned():
            raise SchemaError(f"{table_path} has partitions: use list_partition_offsets")
        _check_buckets(table, bucket_ids)
        return await self._backend.list_offsets(table, None, bucket_ids, offset_spec)

    async def list_partition_offsets(
        self,
        table_path: TablePath,
        partition_name: str,
        bucket_ids: Sequence[int],
        offset_spec: OffsetSpec,
    ) -> dict[int, int]:
        """An offset of each bucket of one partition."""
        table = await self._backend.get_table_info(check_path(table_path))
        _check_buckets(table, bucket_ids)
        partition_id = await self._backend.partition_id(table, partition_name)
        return await self._backend.list_offsets(table, partition_id, bucket_ids, offset_spec)

    # The lake

    async def get_latest_lake_snapshot(self, table_path: TablePath) -> LakeSnapshot:
        """The newest snapshot in the lake; `LakeSnapshotNotExistError` while there is none."""
        return await self._backend.get_lake_snapshot(check_path(table_path), None, False)

    async def get_lake_snapshot(
        self, table_path: TablePath, snapshot_id: int | None = None, readable: bool = False
    ) -> LakeSnapshot:
        """A snapshot by id, or the newest one that readers of lake and log may use."""
        return await self._backend.get_lake_snapshot(check_path(table_path), snapshot_id, readable)

    async def prepare_lake_snapshot(
        self,
        table: TableInfo,
        offsets: Mapping[TableBucket, int],
        ignore_previous: bool = False,
    ) -> str:
        """Write down the offsets that a snapshot will hold; returns where they are kept."""
        return await self._backend.prepare_lake_snapshot(table, offsets, ignore_previous)

    async def commit_lake_snapshot(
        self,
        table: TableInfo,
        snapshot_id: int,
        offsets_path: str,
        buckets: Sequence[BucketCommit],
        earliest_snapshot_to_keep: int | None = None,
    ) -> None:
        """Make a lake snapshot known. Too high an offset lets the cluster delete untiered log."""
        await self._backend.commit_lake_snapshot(
            table, snapshot_id, offsets_path, buckets, earliest_snapshot_to_keep
        )

    async def lake_tiering_heartbeat(
        self,
        *,
        tiering: Sequence[TieringTable] = (),
        finished: Sequence[TieringTable] = (),
        failed: Sequence[TieringTable] = (),
        request_table: bool = False,
        force_finished: Sequence[int] = (),
    ) -> HeartbeatResult:
        """Report on tables being tiered and ask for another one."""
        return await self._backend.lake_tiering_heartbeat(
            tiering, finished, failed, request_table, force_finished
        )

    # Producer offsets

    async def register_producer_offsets(
        self, producer_id: str, offsets: Mapping[TableBucket, int], ttl_ms: int | None = None
    ) -> bool:
        """Pin offsets under an id once; False when the id has some already."""
        return await self._backend.register_producer_offsets(producer_id, offsets, ttl_ms)

    async def get_producer_offsets(self, producer_id: str) -> ProducerOffsets | None:
        """The offsets pinned under an id, if any."""
        return await self._backend.get_producer_offsets(producer_id)

    async def delete_producer_offsets(self, producer_id: str) -> None:
        """Forget the offsets pinned under an id."""
        await self._backend.delete_producer_offsets(producer_id)

    # The cluster

    async def get_server_nodes(self) -> list[ServerNode]:
        """All servers that are alive, the coordinator first."""
        return await self._backend.get_server_nodes()

    async def get_table_stats(
        self, table_path: TablePath, buckets: Sequence[TableBucket] | None = None
    ) -> dict[TableBucket, int]:
        """Row counts per bucket, of all buckets of all partitions unless some are named."""
        table = await self._backend.get_table_info(check_path(table_path))
        if buckets is None:
            buckets = await all_buckets(self._backend, table)
        return await self._backend.get_table_stats(table, buckets)

    async def list_kv_snapshots(
        self, table_path: TablePath, partition_name: str | None = None
    ) -> list[KvSnapshot]:
        """The newest snapshot of each bucket's key state."""
        table = await self._backend.get_table_info(check_path(table_path))
        return await self._backend.list_kv_snapshots(table, partition_name)

    async def describe_cluster_configs(self) -> list[ConfigEntry]:
        """The cluster's settings."""
        return await self._backend.describe_cluster_configs()

    async def alter_cluster_configs(
        self,
        *,
        set_configs: Mapping[str, str] | None = None,
        reset_configs: Sequence[str] = (),
    ) -> None:
        """Change the cluster's settings while it runs."""
        await self._backend.alter_cluster_configs(set_configs or {}, reset_configs)

    async def create_acls(self, acls: Sequence[Acl]) -> None:
        """Grant permissions."""
        await self._backend.create_acls(acls)

    async def list_acls(self, **acl_filter: str) -> list[Acl]:
        """Permissions that match, such as `principal="alice"`."""
        return await self._backend.list_acls(acl_filter)

    async def drop_acls(self, filters: Sequence[Mapping[str, str]]) -> list[Acl]:
        """Take permissions back; returns those that were dropped."""
        return await self._backend.drop_acls(filters)


async def all_buckets(backend: Backend, table: TableInfo) -> list[TableBucket]:
    """Every bucket of a table, partition by partition."""
    if not table.is_partitioned():
        return [TableBucket(table.table_id, i) for i in range(table.num_buckets)]
    return [
        TableBucket(table.table_id, i, partition_id=info.partition_id)
        for info in await backend.list_partitions(table.table_path, None)
        for i in range(table.num_buckets)
    ]


def _named(database: str) -> str:
    if not isinstance(database, str) or not database:
        raise InvalidDatabaseError(f"a database name is text and not empty, not {database!r}")
    return database


def _check_buckets(table: TableInfo, bucket_ids: Sequence[int]) -> None:
    for bucket in bucket_ids:
        if not 0 <= bucket < table.num_buckets:
            raise SchemaError(
                f"{table.table_path} has buckets 0 to {table.num_buckets - 1}, not {bucket}"
            )


def _column(field: pa.Field | Column) -> Column:
    if isinstance(field, Column):
        return field
    comment = (field.metadata or {}).get(b"comment")
    return Column(
        field.name,
        from_arrow(field.type, field.nullable, field.name),
        None if comment is None else comment.decode(),
    )
