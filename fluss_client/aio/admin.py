"""Administration of databases, tables, partitions, offsets, the lake and the cluster.

Signatures and docstrings of this class are written here only: `fluss_client.facade.generate`
copies them into the facade.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ParamSpec, TypeVar, cast

import pyarrow as pa

from fluss_client.aio.buckets import all_buckets
from fluss_client.backend.contract import Backend, Capabilities, DatabaseChange, TableChange
from fluss_client.errors import ConfigError, InvalidDatabaseError, SchemaError
from fluss_client.model.arrow import from_arrow
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

P = ParamSpec("P")
T = TypeVar("T")


def accepts_alias(**aliases: str) -> Callable[[Callable[P, T]], Callable[P, T]]:
    """Let a function take a keyword argument under a second name.

    The guides write `create_database(name=...)`, the official client's release
    `create_database(database_name=...)`. The signature shows the guides' name.

    Args:
        aliases: The second name of each parameter, as `second_name="parameter"`.
    """

    def rename(keywords: dict[str, Any]) -> dict[str, Any]:
        return {aliases.get(name, name): value for name, value in keywords.items()}

    def decorate(function: Callable[P, T]) -> Callable[P, T]:
        if inspect.iscoroutinefunction(function):

            @functools.wraps(function)
            async def renamed_async(*args: Any, **keywords: Any) -> Any:
                return await function(*args, **rename(keywords))

            return cast(Callable[P, T], renamed_async)

        @functools.wraps(function)
        def renamed(*args: Any, **keywords: Any) -> T:
            return function(*args, **rename(keywords))

        return cast(Callable[P, T], renamed)

    return decorate


class FlussAdmin:
    """Describes and changes a cluster.

    Obtain it with `FlussConnection.get_admin()`; do not call the constructor.
    """

    def __init__(self, backend: Backend) -> None:
        self._backend = backend

    @property
    def capabilities(self) -> Capabilities:
        """Return what this backend can do."""
        return self._backend.capabilities

    # Databases

    @accepts_alias(database_name="name")
    async def create_database(
        self,
        name: str,
        database_descriptor: DatabaseDescriptor | None = None,
        ignore_if_exists: bool = False,
    ) -> None:
        """Create a database.

        Args:
            name: The name of the database.
            database_descriptor: Its comment and properties.
            ignore_if_exists: Succeed if the database exists already.

        Raises:
            DatabaseAlreadyExistError: The database exists and `ignore_if_exists` is false.
        """
        await self._backend.create_database(
            _checked_name(name), database_descriptor, ignore_if_exists
        )

    @accepts_alias(database_name="name")
    async def drop_database(
        self, name: str, ignore_if_not_exists: bool = False, cascade: bool = True
    ) -> None:
        """Drop a database.

        Args:
            name: The name of the database.
            ignore_if_not_exists: Succeed if there is no such database.
            cascade: Drop its tables too. If false, a database with tables is not dropped.

        Raises:
            DatabaseNotExistError: There is no such database and `ignore_if_not_exists` is false.
            DatabaseNotEmptyError: The database has tables and `cascade` is false.
        """
        await self._backend.drop_database(_checked_name(name), ignore_if_not_exists, cascade)

    @accepts_alias(database_name="name")
    async def alter_database(
        self,
        name: str,
        *,
        set_properties: Mapping[str, object] | None = None,
        reset_properties: Sequence[str] = (),
        comment: str | None = None,
        ignore_if_not_exists: bool = False,
    ) -> None:
        """Change the custom properties or the comment of a database. Needs Fluss 1.0.

        Args:
            name: The name of the database.
            set_properties: Properties to set.
            reset_properties: Properties to remove.
            comment: The new comment. None leaves it as it is.
            ignore_if_not_exists: Succeed if there is no such database.

        Raises:
            SchemaError: There is nothing to change.
            DatabaseNotExistError: There is no such database and `ignore_if_not_exists` is false.
            UnsupportedByServerError: The server is older than 1.0.
        """
        change = DatabaseChange(
            {key: str(value) for key, value in (set_properties or {}).items()},
            tuple(reset_properties),
            comment,
        )
        if change == DatabaseChange():
            raise SchemaError(f"nothing to change in {name}: name properties or a comment")
        await self._backend.alter_database(_checked_name(name), change, ignore_if_not_exists)

    async def list_databases(self) -> list[str]:
        """Return the names of all databases."""
        return await self._backend.list_databases()

    @accepts_alias(database_name="name")
    async def database_exists(self, name: str) -> bool:
        """Return whether a database exists.

        Args:
            name: The name of the database.

        Raises:
            AuthorizationError: The user may not see it, if it exists (servers from 1.0 on).
        """
        return await self._backend.database_exists(_checked_name(name))

    @accepts_alias(database_name="name")
    async def get_database_info(self, name: str) -> DatabaseInfo:
        """Return the comment, properties and times of a database.

        Args:
            name: The name of the database.

        Raises:
            DatabaseNotExistError: There is no such database.
        """
        return await self._backend.get_database_info(_checked_name(name))

    # Tables

    async def create_table(
        self,
        table_path: TablePath,
        table_descriptor: TableDescriptor,
        ignore_if_exists: bool = False,
    ) -> None:
        """Create a table.

        Args:
            table_path: The database and the name of the table.
            table_descriptor: Its schema, keys, buckets and properties.
            ignore_if_exists: Succeed if the table exists already, whatever its schema is.

        Raises:
            TableAlreadyExistError: The table exists and `ignore_if_exists` is false.
            DatabaseNotExistError: There is no such database.
        """
        await self._backend.create_table(check_path(table_path), table_descriptor, ignore_if_exists)

    async def drop_table(self, table_path: TablePath, ignore_if_not_exists: bool = False) -> None:
        """Drop a table and all its data.

        Args:
            table_path: The table.
            ignore_if_not_exists: Succeed if there is no such table.

        Raises:
            TableNotExistError: There is no such table and `ignore_if_not_exists` is false.
        """
        await self._backend.drop_table(check_path(table_path), ignore_if_not_exists)

    async def alter_table(
        self,
        table_path: TablePath,
        *,
        add_columns: pa.Schema | Sequence[pa.Field] | Sequence[Column] = (),
        set_options: Mapping[str, object] | None = None,
        reset_options: Sequence[str] = (),
        bucket_count: int | None = None,
        ignore_if_not_exists: bool = False,
    ) -> None:
        """Add columns to a table, change its options or its bucket count, all in one call.

        A cluster makes these changes one after the other: an error may come after a part of them.

        Args:
            table_path: The table.
            add_columns: Columns to add at the end. They must be nullable, because rows that exist
                have no value for them.
            set_options: Options to set.
            reset_options: Options to set back to their default.
            bucket_count: How many buckets partitions get that are created from now on. Partitions
                that exist keep theirs. Needs Fluss 1.0 and a table with partitions.
            ignore_if_not_exists: Succeed if there is no such table.

        Raises:
            SchemaError: A column is not nullable, the bucket count is not positive, or there is
                nothing to change.
            TableNotExistError: There is no such table and `ignore_if_not_exists` is false.
            InvalidAlterTableError: The bucket count of this table cannot be changed: it has no
                partitions, or a lake, a merge engine or historical partitions that need one count.
            UnsupportedByServerError: The server is too old to change bucket counts.
        """
        change = TableChange(
            tuple(_column(field) for field in add_columns),
            {key: str(value) for key, value in (set_options or {}).items()},
            tuple(reset_options),
            bucket_count,
        )
        if change == TableChange():
            raise SchemaError(
                f"nothing to change in {table_path}: name columns, options or a bucket count"
            )
        if bucket_count is not None and bucket_count < 1:
            raise SchemaError(f"bucket_count must be at least 1, not {bucket_count}")
        for column in change.add_columns:
            if not column.type.nullable:
                raise SchemaError(
                    f"column '{column.name}' must be nullable: rows written before have no value"
                )
        await self._backend.alter_table(check_path(table_path), change, ignore_if_not_exists)

    async def list_tables(self, database_name: str) -> list[str]:
        """Return the names of the tables of a database.

        Args:
            database_name: The name of the database.

        Raises:
            DatabaseNotExistError: There is no such database.
        """
        return await self._backend.list_tables(_checked_name(database_name))

    async def table_exists(self, table_path: TablePath) -> bool:
        """Return whether a table exists.

        Args:
            table_path: The table.

        Raises:
            AuthorizationError: The user may not see it, if it exists (servers from 1.0 on).
        """
        return await self._backend.table_exists(check_path(table_path))

    async def get_table_info(self, table_path: TablePath) -> TableInfo:
        """Return the schema, keys, buckets and properties of a table.

        Args:
            table_path: The table.

        Raises:
            TableNotExistError: There is no such table.
        """
        return await self._backend.get_table_info(check_path(table_path))

    get_table = get_table_info
    """The name of `get_table_info` in the older guide."""

    async def get_table_schema(
        self, table_path: TablePath, schema_id: int | None = None
    ) -> tuple[int, Schema]:
        """Return a schema of a table and its id.

        Args:
            table_path: The table.
            schema_id: The id of an older schema. None for the current one.

        Raises:
            TableNotExistError: There is no such table.
            SchemaNotExistError: The table has no schema with that id.
        """
        return await self._backend.get_schema(check_path(table_path), schema_id)

    async def list_table_schemas(self, table_path: TablePath) -> dict[int, Schema]:
        """Return every schema that a table has had, by id.

        Args:
            table_path: The table.

        Raises:
            TableNotExistError: There is no such table.
        """
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
        """Create a partition of a table.

        Args:
            table_path: The table.
            partition_spec: A value for each partition column.
            ignore_if_exists: Succeed if the partition exists already.

        Raises:
            PartitionAlreadyExistError: The partition exists and `ignore_if_exists` is false.
            TableNotPartitionedError: The table has no partition columns.
        """
        await self._backend.create_partition(
            check_path(table_path), partition_spec, ignore_if_exists
        )

    async def drop_partition(
        self,
        table_path: TablePath,
        partition_spec: Mapping[str, str],
        ignore_if_not_exists: bool = False,
    ) -> None:
        """Drop a partition and its data.

        Args:
            table_path: The table.
            partition_spec: A value for each partition column.
            ignore_if_not_exists: Succeed if there is no such partition.

        Raises:
            PartitionNotExistError: There is no such partition and `ignore_if_not_exists` is false.
        """
        await self._backend.drop_partition(
            check_path(table_path), partition_spec, ignore_if_not_exists
        )

    async def list_partition_infos(
        self, table_path: TablePath, partition_spec: Mapping[str, str] | None = None
    ) -> list[PartitionInfo]:
        """Return the partitions of a table.

        Args:
            table_path: The table.
            partition_spec: Values for some partition columns; only partitions that have these
                values are returned. None for all partitions.

        Returns:
            The partitions that the server lists. The system partition with rows of expired
            partitions (Fluss 1.0) is not one of them.

        Raises:
            TableNotPartitionedError: The table has no partition columns.
        """
        return await self._backend.list_partitions(check_path(table_path), partition_spec)

    # Offsets

    async def list_offsets(
        self,
        table_path: TablePath,
        bucket_ids: Sequence[int],
        offset_spec: OffsetSpec | None = None,
        *,
        offset_type: str | None = None,
        timestamp: int | None = None,
    ) -> dict[int, int]:
        """Return an offset of each bucket of a table without partitions.

        Args:
            table_path: The table.
            bucket_ids: The buckets.
            offset_spec: Which offset: earliest, latest, or the first one at or after a time.
            offset_type: The older guide's form of `offset_spec`: "earliest", "latest" or
                "timestamp".
            timestamp: Milliseconds since 1970, for `offset_type="timestamp"`.

        Returns:
            The offset of each bucket, by bucket id.

        Raises:
            SchemaError: The table has partitions, or has no such bucket.
            ConfigError: Neither `offset_spec` nor a valid `offset_type` was given.
        """
        spec = resolve_offset_spec(offset_spec, offset_type, timestamp)
        table = await self._backend.get_table_info(check_path(table_path))
        if table.is_partitioned():
            raise SchemaError(f"{table_path} has partitions: use list_partition_offsets")
        _check_buckets(table, table.num_buckets, bucket_ids)
        return await self._backend.list_offsets(table, None, bucket_ids, spec)

    async def list_partition_offsets(
        self,
        table_path: TablePath,
        partition_name: str,
        bucket_ids: Sequence[int],
        offset_spec: OffsetSpec | None = None,
        *,
        offset_type: str | None = None,
        timestamp: int | None = None,
    ) -> dict[int, int]:
        """Return an offset of each bucket of one partition.

        Args:
            table_path: The table.
            partition_name: The name of the partition.
            bucket_ids: The buckets.
            offset_spec: Which offset: earliest, latest, or the first one at or after a time.
            offset_type: The older guide's form of `offset_spec`: "earliest", "latest" or
                "timestamp".
            timestamp: Milliseconds since 1970, for `offset_type="timestamp"`.

        Returns:
            The offset of each bucket, by bucket id.

        Raises:
            PartitionNotExistError: There is no such partition.
            SchemaError: The table has no such bucket.
            ConfigError: Neither `offset_spec` nor a valid `offset_type` was given.
        """
        spec = resolve_offset_spec(offset_spec, offset_type, timestamp)
        table = await self._backend.get_table_info(check_path(table_path))
        partition_id = await self._backend.partition_id(table, partition_name)
        count = await self._backend.bucket_count(table, partition_id)
        _check_buckets(table, count, bucket_ids)
        return await self._backend.list_offsets(table, partition_id, bucket_ids, spec)

    # The lake

    async def get_latest_lake_snapshot(self, table_path: TablePath) -> LakeSnapshot:
        """Return the newest lake snapshot of a table.

        Args:
            table_path: The table.

        Raises:
            LakeSnapshotNotExistError: The table has no lake snapshot yet.
        """
        return await self._backend.get_lake_snapshot(check_path(table_path), None, False)

    async def get_lake_snapshot(
        self, table_path: TablePath, snapshot_id: int | None = None, readable: bool = False
    ) -> LakeSnapshot:
        """Return a lake snapshot of a table.

        Args:
            table_path: The table.
            snapshot_id: The id of the snapshot. None for the newest one.
            readable: Return the newest snapshot that a reader of lake and log together may use.

        Raises:
            LakeSnapshotNotExistError: There is no such snapshot.
        """
        return await self._backend.get_lake_snapshot(check_path(table_path), snapshot_id, readable)

    async def prepare_lake_snapshot(
        self,
        table: TableInfo,
        offsets: Mapping[TableBucket, int],
        ignore_previous: bool = False,
    ) -> str:
        """Store the offsets of a lake snapshot before the snapshot is committed.

        Args:
            table: The table.
            offsets: The end offset of each bucket in the snapshot.
            ignore_previous: Store these offsets only. By default the cluster adds the buckets of
                the previous snapshot.

        Returns:
            The path of the stored offsets, for `commit_lake_snapshot`.
        """
        return await self._backend.prepare_lake_snapshot(table, offsets, ignore_previous)

    async def commit_lake_snapshot(
        self,
        table: TableInfo,
        snapshot_id: int,
        offsets_path: str,
        buckets: Sequence[BucketCommit],
        earliest_snapshot_to_keep: int | None = None,
    ) -> None:
        """Commit a lake snapshot to the cluster.

        The cluster may then delete the log below the committed offsets. An offset that is too
        high makes it delete rows that are not in the lake.

        Args:
            table: The table.
            snapshot_id: The id of the snapshot in the lake.
            offsets_path: The path that `prepare_lake_snapshot` returned.
            buckets: The offsets and timestamps of the buckets that this snapshot changed.
            earliest_snapshot_to_keep: The cluster forgets older snapshots. None keeps what the
                cluster keeps by default.
        """
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
        """Report the state of tables that are being tiered, and request another table.

        Args:
            tiering: Tables that this caller is tiering.
            finished: Tables that this caller has tiered.
            failed: Tables that this caller could not tier.
            request_table: Request a table to tier.
            force_finished: Ids of the finished tables whose tiering was ended early.

        Returns:
            The requested table, if there is one, and the answer for each reported table.
        """
        return await self._backend.lake_tiering_heartbeat(
            tiering, finished, failed, request_table, force_finished
        )

    # Producer offsets

    async def register_producer_offsets(
        self, producer_id: str, offsets: Mapping[TableBucket, int], ttl_ms: int | None = None
    ) -> bool:
        """Store offsets under a producer id, unless the id has offsets already.

        Args:
            producer_id: The id.
            offsets: The offset of each bucket.
            ttl_ms: How long the cluster keeps them. None for the cluster's default.

        Returns:
            True if the offsets were stored, False if the id had offsets already.
        """
        return await self._backend.register_producer_offsets(producer_id, offsets, ttl_ms)

    async def get_producer_offsets(self, producer_id: str) -> ProducerOffsets | None:
        """Return the offsets that are stored under a producer id.

        Args:
            producer_id: The id.

        Returns:
            The offsets, or None if the id has none.
        """
        return await self._backend.get_producer_offsets(producer_id)

    async def delete_producer_offsets(self, producer_id: str) -> None:
        """Delete the offsets that are stored under a producer id.

        Args:
            producer_id: The id.
        """
        await self._backend.delete_producer_offsets(producer_id)

    # The cluster

    async def get_server_nodes(self) -> list[ServerNode]:
        """Return the servers that are alive, the coordinator first."""
        return await self._backend.get_server_nodes()

    async def get_table_stats(
        self, table_path: TablePath, buckets: Sequence[TableBucket] | None = None
    ) -> dict[TableBucket, int]:
        """Return the number of rows of each bucket.

        Args:
            table_path: The table.
            buckets: The buckets. None for all buckets of all partitions; of a log table, also of
                the system partition with rows of expired partitions (Fluss 1.0).

        Returns:
            The number of rows, by bucket.
        """
        table = await self._backend.get_table_info(check_path(table_path))
        if buckets is None:
            buckets = await all_buckets(self._backend, table)
        return await self._backend.get_table_stats(table, buckets)

    async def list_kv_snapshots(
        self,
        table_path: TablePath,
        partition_name: str | None = None,
        *,
        all_snapshots: bool = False,
    ) -> list[KvSnapshot]:
        """Return the snapshots of the key state of each bucket.

        Args:
            table_path: A primary-key table.
            partition_name: The partition, if the table has partitions.
            all_snapshots: Return all that the cluster keeps (needs Fluss 1.0), instead of the
                newest one of each bucket.

        Raises:
            UnsupportedByServerError: `all_snapshots` is true and the server is older than 1.0.
        """
        table = await self._backend.get_table_info(check_path(table_path))
        if not all_snapshots:
            return await self._backend.list_kv_snapshots(table, partition_name)
        partition_id = await self._partition_id(table, partition_name)
        return await self._backend.list_all_kv_snapshots(table, partition_id)

    async def list_remote_log_manifests(
        self, table_path: TablePath, partition_name: str | None = None
    ) -> list[RemoteLogManifest]:
        """Return where the list of each bucket's remote log segments is. Needs Fluss 1.0.

        Args:
            table_path: The table.
            partition_name: The partition, if the table has partitions.

        Raises:
            UnsupportedByServerError: The server is older than 1.0.
        """
        table = await self._backend.get_table_info(check_path(table_path))
        partition_id = await self._partition_id(table, partition_name)
        return await self._backend.list_remote_log_manifests(table, partition_id)

    async def get_cluster_health(self) -> ClusterHealth:
        """Return how many replicas are in sync and have a leader. Needs Fluss 1.0.

        Raises:
            UnsupportedByServerError: The server is older than 1.0.
        """
        return await self._backend.get_cluster_health()

    async def _partition_id(self, table: TableInfo, name: str | None) -> int | None:
        return None if name is None else await self._backend.partition_id(table, name)

    async def describe_cluster_configs(self) -> list[ConfigEntry]:
        """Return the settings of the cluster."""
        return await self._backend.describe_cluster_configs()

    async def alter_cluster_configs(
        self,
        *,
        set_configs: Mapping[str, str] | None = None,
        reset_configs: Sequence[str] = (),
    ) -> None:
        """Change settings of the cluster while it runs.

        Args:
            set_configs: Settings to set.
            reset_configs: Settings to set back to their default.
        """
        await self._backend.alter_cluster_configs(set_configs or {}, reset_configs)

    async def create_acls(self, acls: Sequence[Acl]) -> None:
        """Grant permissions.

        Args:
            acls: The permissions.
        """
        await self._backend.create_acls(acls)

    async def list_acls(self, **acl_filter: str) -> list[Acl]:
        """Return the permissions that match a filter.

        Args:
            acl_filter: Fields of `Acl` with the wanted value, such as `principal="alice"`.
        """
        return await self._backend.list_acls(acl_filter)

    async def drop_acls(self, filters: Sequence[Mapping[str, str]]) -> list[Acl]:
        """Revoke permissions.

        Args:
            filters: Permissions that match one of these filters are revoked. A filter is a
                mapping of fields of `Acl` to the wanted value.

        Returns:
            The permissions that were revoked.
        """
        return await self._backend.drop_acls(filters)


def _checked_name(database: str) -> str:
    if not isinstance(database, str) or not database:
        raise InvalidDatabaseError(f"a database name is text and not empty, not {database!r}")
    return database


def resolve_offset_spec(
    offset_spec: OffsetSpec | None, offset_type: str | None, timestamp: int | None
) -> OffsetSpec:
    """Return `offset_spec`, or the one that the older guide's arguments stand for.

    Raises:
        ConfigError: No offset is given, or the given type is unknown.
    """
    if offset_spec is not None:
        return offset_spec
    if offset_type == "timestamp":
        if timestamp is None:
            raise ConfigError('offset_type="timestamp" needs timestamp=<milliseconds>')
        return OffsetSpec.timestamp(timestamp)
    if offset_type in ("earliest", "latest"):
        return OffsetSpec(offset_type)
    raise ConfigError(
        "say which offsets: offset_spec=OffsetSpec.latest(), .earliest() or .timestamp(ms)"
    )


def _check_buckets(table: TableInfo, count: int, bucket_ids: Sequence[int]) -> None:
    for bucket in bucket_ids:
        if not 0 <= bucket < count:
            raise SchemaError(f"{table.table_path} has buckets 0 to {count - 1}, not {bucket}")


def _column(field: pa.Field | Column) -> Column:
    if isinstance(field, Column):
        return field
    comment = (field.metadata or {}).get(b"comment")
    return Column(
        field.name,
        from_arrow(field.type, field.nullable, field.name),
        None if comment is None else comment.decode(),
    )
