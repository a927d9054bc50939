"""Administration, for code with or without an event loop.

Generated from `fluss_client.aio` by `fluss_client.facade.generate`; do not edit.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pyarrow as pa

from fluss_client import aio
from fluss_client.aio.admin import accepts_alias, resolve_offset_spec
from fluss_client.backend.contract import Capabilities
from fluss_client.facade.base import Facade
from fluss_client.facade.handle import Handle
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
)


class FlussAdmin(Facade[aio.FlussAdmin]):
    """Describes and changes a cluster.

    Obtain it with `FlussConnection.get_admin()`; do not call the constructor.
    """

    @property
    def capabilities(self) -> Capabilities:
        """Return what this backend can do."""
        return self._core.capabilities

    @accepts_alias(database_name="name")
    def create_database(
        self,
        name: str,
        database_descriptor: DatabaseDescriptor | None = None,
        ignore_if_exists: bool = False,
    ) -> Handle[None]:
        """Create a database.

        Args:
            name: The name of the database.
            database_descriptor: Its comment and properties.
            ignore_if_exists: Succeed if the database exists already.

        Raises:
            DatabaseAlreadyExistError: The database exists and `ignore_if_exists` is false.
        """
        return Handle.start(
            self._core.create_database(name, database_descriptor, ignore_if_exists),
            "FlussAdmin.create_database",
        )

    @accepts_alias(database_name="name")
    def drop_database(
        self, name: str, ignore_if_not_exists: bool = False, cascade: bool = True
    ) -> Handle[None]:
        """Drop a database.

        Args:
            name: The name of the database.
            ignore_if_not_exists: Succeed if there is no such database.
            cascade: Drop its tables too. If false, a database with tables is not dropped.

        Raises:
            DatabaseNotExistError: There is no such database and `ignore_if_not_exists` is false.
            DatabaseNotEmptyError: The database has tables and `cascade` is false.
        """
        return Handle.start(
            self._core.drop_database(name, ignore_if_not_exists, cascade),
            "FlussAdmin.drop_database",
        )

    @accepts_alias(database_name="name")
    def alter_database(
        self,
        name: str,
        *,
        set_properties: Mapping[str, object] | None = None,
        reset_properties: Sequence[str] = (),
        comment: str | None = None,
        ignore_if_not_exists: bool = False,
    ) -> Handle[None]:
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
        return Handle.start(
            self._core.alter_database(
                name,
                set_properties=set_properties,
                reset_properties=reset_properties,
                comment=comment,
                ignore_if_not_exists=ignore_if_not_exists,
            ),
            "FlussAdmin.alter_database",
        )

    def list_databases(self) -> Handle[list[str]]:
        """Return the names of all databases."""
        return Handle.start(self._core.list_databases(), "FlussAdmin.list_databases")

    @accepts_alias(database_name="name")
    def database_exists(self, name: str) -> Handle[bool]:
        """Return whether a database exists.

        Args:
            name: The name of the database.

        Raises:
            AuthorizationError: The user may not see it, if it exists (servers from 1.0 on).
        """
        return Handle.start(self._core.database_exists(name), "FlussAdmin.database_exists")

    @accepts_alias(database_name="name")
    def get_database_info(self, name: str) -> Handle[DatabaseInfo]:
        """Return the comment, properties and times of a database.

        Args:
            name: The name of the database.

        Raises:
            DatabaseNotExistError: There is no such database.
        """
        return Handle.start(self._core.get_database_info(name), "FlussAdmin.get_database_info")

    def create_table(
        self,
        table_path: TablePath,
        table_descriptor: TableDescriptor,
        ignore_if_exists: bool = False,
    ) -> Handle[None]:
        """Create a table.

        Args:
            table_path: The database and the name of the table.
            table_descriptor: Its schema, keys, buckets and properties.
            ignore_if_exists: Succeed if the table exists already, whatever its schema is.

        Raises:
            TableAlreadyExistError: The table exists and `ignore_if_exists` is false.
            DatabaseNotExistError: There is no such database.
        """
        return Handle.start(
            self._core.create_table(table_path, table_descriptor, ignore_if_exists),
            "FlussAdmin.create_table",
        )

    def drop_table(self, table_path: TablePath, ignore_if_not_exists: bool = False) -> Handle[None]:
        """Drop a table and all its data.

        Args:
            table_path: The table.
            ignore_if_not_exists: Succeed if there is no such table.

        Raises:
            TableNotExistError: There is no such table and `ignore_if_not_exists` is false.
        """
        return Handle.start(
            self._core.drop_table(table_path, ignore_if_not_exists), "FlussAdmin.drop_table"
        )

    def alter_table(
        self,
        table_path: TablePath,
        *,
        add_columns: pa.Schema | Sequence[pa.Field] | Sequence[Column] = (),
        set_options: Mapping[str, object] | None = None,
        reset_options: Sequence[str] = (),
        bucket_count: int | None = None,
        ignore_if_not_exists: bool = False,
    ) -> Handle[None]:
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
        return Handle.start(
            self._core.alter_table(
                table_path,
                add_columns=add_columns,
                set_options=set_options,
                reset_options=reset_options,
                bucket_count=bucket_count,
                ignore_if_not_exists=ignore_if_not_exists,
            ),
            "FlussAdmin.alter_table",
        )

    def list_tables(self, database_name: str) -> Handle[list[str]]:
        """Return the names of the tables of a database.

        Args:
            database_name: The name of the database.

        Raises:
            DatabaseNotExistError: There is no such database.
        """
        return Handle.start(self._core.list_tables(database_name), "FlussAdmin.list_tables")

    def table_exists(self, table_path: TablePath) -> Handle[bool]:
        """Return whether a table exists.

        Args:
            table_path: The table.

        Raises:
            AuthorizationError: The user may not see it, if it exists (servers from 1.0 on).
        """
        return Handle.start(self._core.table_exists(table_path), "FlussAdmin.table_exists")

    def get_table_info(self, table_path: TablePath) -> Handle[TableInfo]:
        """Return the schema, keys, buckets and properties of a table.

        Args:
            table_path: The table.

        Raises:
            TableNotExistError: There is no such table.
        """
        return Handle.start(self._core.get_table_info(table_path), "FlussAdmin.get_table_info")

    get_table = get_table_info
    """The name of `get_table_info` in the older guide."""

    def get_table_schema(
        self, table_path: TablePath, schema_id: int | None = None
    ) -> Handle[tuple[int, Schema]]:
        """Return a schema of a table and its id.

        Args:
            table_path: The table.
            schema_id: The id of an older schema. None for the current one.

        Raises:
            TableNotExistError: There is no such table.
            SchemaNotExistError: The table has no schema with that id.
        """
        return Handle.start(
            self._core.get_table_schema(table_path, schema_id), "FlussAdmin.get_table_schema"
        )

    def list_table_schemas(self, table_path: TablePath) -> Handle[dict[int, Schema]]:
        """Return every schema that a table has had, by id.

        Args:
            table_path: The table.

        Raises:
            TableNotExistError: There is no such table.
        """
        return Handle.start(
            self._core.list_table_schemas(table_path), "FlussAdmin.list_table_schemas"
        )

    def create_partition(
        self,
        table_path: TablePath,
        partition_spec: Mapping[str, str],
        ignore_if_exists: bool = False,
    ) -> Handle[None]:
        """Create a partition of a table.

        Args:
            table_path: The table.
            partition_spec: A value for each partition column.
            ignore_if_exists: Succeed if the partition exists already.

        Raises:
            PartitionAlreadyExistError: The partition exists and `ignore_if_exists` is false.
            TableNotPartitionedError: The table has no partition columns.
        """
        return Handle.start(
            self._core.create_partition(table_path, partition_spec, ignore_if_exists),
            "FlussAdmin.create_partition",
        )

    def drop_partition(
        self,
        table_path: TablePath,
        partition_spec: Mapping[str, str],
        ignore_if_not_exists: bool = False,
    ) -> Handle[None]:
        """Drop a partition and its data.

        Args:
            table_path: The table.
            partition_spec: A value for each partition column.
            ignore_if_not_exists: Succeed if there is no such partition.

        Raises:
            PartitionNotExistError: There is no such partition and `ignore_if_not_exists` is false.
        """
        return Handle.start(
            self._core.drop_partition(table_path, partition_spec, ignore_if_not_exists),
            "FlussAdmin.drop_partition",
        )

    def list_partition_infos(
        self, table_path: TablePath, partition_spec: Mapping[str, str] | None = None
    ) -> Handle[list[PartitionInfo]]:
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
        return Handle.start(
            self._core.list_partition_infos(table_path, partition_spec),
            "FlussAdmin.list_partition_infos",
        )

    def list_offsets(
        self,
        table_path: TablePath,
        bucket_ids: Sequence[int],
        offset_spec: OffsetSpec | None = None,
        *,
        offset_type: str | None = None,
        timestamp: int | None = None,
    ) -> Handle[dict[int, int]]:
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
        offset_spec = resolve_offset_spec(offset_spec, offset_type, timestamp)
        return Handle.start(
            self._core.list_offsets(
                table_path, bucket_ids, offset_spec, offset_type=offset_type, timestamp=timestamp
            ),
            "FlussAdmin.list_offsets",
        )

    def list_partition_offsets(
        self,
        table_path: TablePath,
        partition_name: str,
        bucket_ids: Sequence[int],
        offset_spec: OffsetSpec | None = None,
        *,
        offset_type: str | None = None,
        timestamp: int | None = None,
    ) -> Handle[dict[int, int]]:
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
        offset_spec = resolve_offset_spec(offset_spec, offset_type, timestamp)
        return Handle.start(
            self._core.list_partition_offsets(
                table_path,
                partition_name,
                bucket_ids,
                offset_spec,
                offset_type=offset_type,
                timestamp=timestamp,
            ),
            "FlussAdmin.list_partition_offsets",
        )

    def get_latest_lake_snapshot(self, table_path: TablePath) -> Handle[LakeSnapshot]:
        """Return the newest lake snapshot of a table.

        Args:
            table_path: The table.

        Raises:
            LakeSnapshotNotExistError: The table has no lake snapshot yet.
        """
        return Handle.start(
            self._core.get_latest_lake_snapshot(table_path), "FlussAdmin.get_latest_lake_snapshot"
        )

    def get_lake_snapshot(
        self, table_path: TablePath, snapshot_id: int | None = None, readable: bool = False
    ) -> Handle[LakeSnapshot]:
        """Return a lake snapshot of a table.

        Args:
            table_path: The table.
            snapshot_id: The id of the snapshot. None for the newest one.
            readable: Return the newest snapshot that a reader of lake and log together may use.

        Raises:
            LakeSnapshotNotExistError: There is no such snapshot.
        """
        return Handle.start(
            self._core.get_lake_snapshot(table_path, snapshot_id, readable),
            "FlussAdmin.get_lake_snapshot",
        )

    def prepare_lake_snapshot(
        self, table: TableInfo, offsets: Mapping[TableBucket, int], ignore_previous: bool = False
    ) -> Handle[str]:
        """Store the offsets of a lake snapshot before the snapshot is committed.

        Args:
            table: The table.
            offsets: The end offset of each bucket in the snapshot.
            ignore_previous: Store these offsets only. By default the cluster adds the buckets of
                the previous snapshot.

        Returns:
            The path of the stored offsets, for `commit_lake_snapshot`.
        """
        return Handle.start(
            self._core.prepare_lake_snapshot(table, offsets, ignore_previous),
            "FlussAdmin.prepare_lake_snapshot",
        )

    def commit_lake_snapshot(
        self,
        table: TableInfo,
        snapshot_id: int,
        offsets_path: str,
        buckets: Sequence[BucketCommit],
        earliest_snapshot_to_keep: int | None = None,
    ) -> Handle[None]:
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
        return Handle.start(
            self._core.commit_lake_snapshot(
                table, snapshot_id, offsets_path, buckets, earliest_snapshot_to_keep
            ),
            "FlussAdmin.commit_lake_snapshot",
        )

    def lake_tiering_heartbeat(
        self,
        *,
        tiering: Sequence[TieringTable] = (),
        finished: Sequence[TieringTable] = (),
        failed: Sequence[TieringTable] = (),
        request_table: bool = False,
        force_finished: Sequence[int] = (),
    ) -> Handle[HeartbeatResult]:
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
        return Handle.start(
            self._core.lake_tiering_heartbeat(
                tiering=tiering,
                finished=finished,
                failed=failed,
                request_table=request_table,
                force_finished=force_finished,
            ),
            "FlussAdmin.lake_tiering_heartbeat",
        )

    def register_producer_offsets(
        self, producer_id: str, offsets: Mapping[TableBucket, int], ttl_ms: int | None = None
    ) -> Handle[bool]:
        """Store offsets under a producer id, unless the id has offsets already.

        Args:
            producer_id: The id.
            offsets: The offset of each bucket.
            ttl_ms: How long the cluster keeps them. None for the cluster's default.

        Returns:
            True if the offsets were stored, False if the id had offsets already.
        """
        return Handle.start(
            self._core.register_producer_offsets(producer_id, offsets, ttl_ms),
            "FlussAdmin.register_producer_offsets",
        )

    def get_producer_offsets(self, producer_id: str) -> Handle[ProducerOffsets | None]:
        """Return the offsets that are stored under a producer id.

        Args:
            producer_id: The id.

        Returns:
            The offsets, or None if the id has none.
        """
        return Handle.start(
            self._core.get_producer_offsets(producer_id), "FlussAdmin.get_producer_offsets"
        )

    def delete_producer_offsets(self, producer_id: str) -> Handle[None]:
        """Delete the offsets that are stored under a producer id.

        Args:
            producer_id: The id.
        """
        return Handle.start(
            self._core.delete_producer_offsets(producer_id), "FlussAdmin.delete_producer_offsets"
        )

    def get_server_nodes(self) -> Handle[list[ServerNode]]:
        """Return the servers that are alive, the coordinator first."""
        return Handle.start(self._core.get_server_nodes(), "FlussAdmin.get_server_nodes")

    def get_table_stats(
        self, table_path: TablePath, buckets: Sequence[TableBucket] | None = None
    ) -> Handle[dict[TableBucket, int]]:
        """Return the number of rows of each bucket.

        Args:
            table_path: The table.
            buckets: The buckets. None for all buckets of all partitions; of a log table, also of
                the system partition with rows of expired partitions (Fluss 1.0).

        Returns:
            The number of rows, by bucket.
        """
        return Handle.start(
            self._core.get_table_stats(table_path, buckets), "FlussAdmin.get_table_stats"
        )

    def list_kv_snapshots(
        self,
        table_path: TablePath,
        partition_name: str | None = None,
        *,
        all_snapshots: bool = False,
    ) -> Handle[list[KvSnapshot]]:
        """Return the snapshots of the key state of each bucket.

        Args:
            table_path: A primary-key table.
            partition_name: The partition, if the table has partitions.
            all_snapshots: Return all that the cluster keeps (needs Fluss 1.0), instead of the
                newest one of each bucket.

        Raises:
            UnsupportedByServerError: `all_snapshots` is true and the server is older than 1.0.
        """
        return Handle.start(
            self._core.list_kv_snapshots(table_path, partition_name, all_snapshots=all_snapshots),
            "FlussAdmin.list_kv_snapshots",
        )

    def list_remote_log_manifests(
        self, table_path: TablePath, partition_name: str | None = None
    ) -> Handle[list[RemoteLogManifest]]:
        """Return where the list of each bucket's remote log segments is. Needs Fluss 1.0.

        Args:
            table_path: The table.
            partition_name: The partition, if the table has partitions.

        Raises:
            UnsupportedByServerError: The server is older than 1.0.
        """
        return Handle.start(
            self._core.list_remote_log_manifests(table_path, partition_name),
            "FlussAdmin.list_remote_log_manifests",
        )

    def get_cluster_health(self) -> Handle[ClusterHealth]:
        """Return how many replicas are in sync and have a leader. Needs Fluss 1.0.

        Raises:
            UnsupportedByServerError: The server is older than 1.0.
        """
        return Handle.start(self._core.get_cluster_health(), "FlussAdmin.get_cluster_health")

    def describe_cluster_configs(self) -> Handle[list[ConfigEntry]]:
        """Return the settings of the cluster."""
        return Handle.start(
            self._core.describe_cluster_configs(), "FlussAdmin.describe_cluster_configs"
        )

    def alter_cluster_configs(
        self, *, set_configs: Mapping[str, str] | None = None, reset_configs: Sequence[str] = ()
    ) -> Handle[None]:
        """Change settings of the cluster while it runs.

        Args:
            set_configs: Settings to set.
            reset_configs: Settings to set back to their default.
        """
        return Handle.start(
            self._core.alter_cluster_configs(set_configs=set_configs, reset_configs=reset_configs),
            "FlussAdmin.alter_cluster_configs",
        )

    def create_acls(self, acls: Sequence[Acl]) -> Handle[None]:
        """Grant permissions.

        Args:
            acls: The permissions.
        """
        return Handle.start(self._core.create_acls(acls), "FlussAdmin.create_acls")

    def list_acls(self, **acl_filter: str) -> Handle[list[Acl]]:
        """Return the permissions that match a filter.

        Args:
            acl_filter: Fields of `Acl` with the wanted value, such as `principal="alice"`.
        """
        return Handle.start(self._core.list_acls(**acl_filter), "FlussAdmin.list_acls")

    def drop_acls(self, filters: Sequence[Mapping[str, str]]) -> Handle[list[Acl]]:
        """Revoke permissions.

        Args:
            filters: Permissions that match one of these filters are revoked. A filter is a
                mapping of fields of `Acl` to the wanted value.

        Returns:
            The permissions that were revoked.
        """
        return Handle.start(self._core.drop_acls(filters), "FlussAdmin.drop_acls")
