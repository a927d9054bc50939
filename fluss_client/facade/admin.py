"""Administration as the guides call it: every method gives a handle."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pyarrow as pa

from fluss_client.aio.admin import FlussAdmin as AsyncAdmin
from fluss_client.backend.contract import Capabilities
from fluss_client.errors import ConfigError
from fluss_client.facade.handle import Handle
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
)


class FlussAdmin:
    """What changes and describes the cluster. Await each result, or call `.result()` on it."""

    def __init__(self, core: AsyncAdmin) -> None:
        self._core = core

    @property
    def capabilities(self) -> Capabilities:
        """What this backend offers."""
        return self._core.capabilities

    def create_database(
        self,
        name: str,
        database_descriptor: DatabaseDescriptor | None = None,
        ignore_if_exists: bool = False,
    ) -> Handle[None]:
        """Create a database."""
        call = self._core.create_database(name, database_descriptor, ignore_if_exists)
        return Handle.start(call, "create_database")

    def drop_database(
        self, name: str, ignore_if_not_exists: bool = False, cascade: bool = True
    ) -> Handle[None]:
        """Drop a database, with its tables when `cascade` is true."""
        call = self._core.drop_database(name, ignore_if_not_exists, cascade)
        return Handle.start(call, "drop_database")

    def list_databases(self) -> Handle[list[str]]:
        """All databases."""
        return Handle.start(self._core.list_databases(), "list_databases")

    def database_exists(self, name: str) -> Handle[bool]:
        """Whether there is such a database."""
        return Handle.start(self._core.database_exists(name), "database_exists")

    def get_database_info(self, name: str) -> Handle[DatabaseInfo]:
        """A database's comment, properties and times."""
        return Handle.start(self._core.get_database_info(name), "get_database_info")

    def create_table(
        self,
        table_path: TablePath,
        table_descriptor: TableDescriptor,
        ignore_if_exists: bool = False,
    ) -> Handle[None]:
        """Create a table."""
        call = self._core.create_table(table_path, table_descriptor, ignore_if_exists)
        return Handle.start(call, "create_table")

    def drop_table(self, table_path: TablePath, ignore_if_not_exists: bool = False) -> Handle[None]:
        """Drop a table and all its data."""
        return Handle.start(self._core.drop_table(table_path, ignore_if_not_exists), "drop_table")

    def alter_table(
        self,
        table_path: TablePath,
        *,
        add_columns: pa.Schema | Sequence[pa.Field] | Sequence[Column] = (),
        set_options: Mapping[str, object] | None = None,
        reset_options: Sequence[str] = (),
        ignore_if_not_exists: bool = False,
    ) -> Handle[None]:
        """Add nullable columns at the end, set or reset options; several at once if wanted."""
        call = self._core.alter_table(
            table_path,
            add_columns=add_columns,
            set_options=set_options,
            reset_options=reset_options,
            ignore_if_not_exists=ignore_if_not_exists,
        )
        return Handle.start(call, "alter_table")

    def list_tables(self, database_name: str) -> Handle[list[str]]:
        """The tables of a database."""
        return Handle.start(self._core.list_tables(database_name), "list_tables")

    def table_exists(self, table_path: TablePath) -> Handle[bool]:
        """Whether there is such a table."""
        return Handle.start(self._core.table_exists(table_path), "table_exists")

    def get_table_info(self, table_path: TablePath) -> Handle[TableInfo]:
        """A table's schema, keys, buckets and properties."""
        return Handle.start(self._core.get_table_info(table_path), "get_table_info")

    get_table = get_table_info
    """The name of `get_table_info` in the older guide."""

    def get_table_schema(
        self, table_path: TablePath, schema_id: int | None = None
    ) -> Handle[tuple[int, Schema]]:
        """A schema with its id: the current one, or an older one by id."""
        return Handle.start(self._core.get_table_schema(table_path, schema_id), "get_table_schema")

    def list_table_schemas(self, table_path: TablePath) -> Handle[dict[int, Schema]]:
        """Every schema that the table has had, by id."""
        return Handle.start(self._core.list_table_schemas(table_path), "list_table_schemas")

    def create_partition(
        self,
        table_path: TablePath,
        partition_spec: Mapping[str, str],
        ignore_if_exists: bool = False,
    ) -> Handle[None]:
        """Create a partition: one value for each partition column."""
        call = self._core.create_partition(table_path, partition_spec, ignore_if_exists)
        return Handle.start(call, "create_partition")

    def drop_partition(
        self,
        table_path: TablePath,
        partition_spec: Mapping[str, str],
        ignore_if_not_exists: bool = False,
    ) -> Handle[None]:
        """Drop a partition and its data."""
        call = self._core.drop_partition(table_path, partition_spec, ignore_if_not_exists)
        return Handle.start(call, "drop_partition")

    def list_partition_infos(
        self, table_path: TablePath, partition_spec: Mapping[str, str] | None = None
    ) -> Handle[list[PartitionInfo]]:
        """The partitions of a table, only those that match a partial spec if one is given."""
        call = self._core.list_partition_infos(table_path, partition_spec)
        return Handle.start(call, "list_partition_infos")

    def list_offsets(
        self,
        table_path: TablePath,
        bucket_ids: Sequence[int],
        offset_spec: OffsetSpec | None = None,
        *,
        offset_type: str | None = None,
        timestamp: int | None = None,
    ) -> Handle[dict[int, int]]:
        """An offset of each bucket. The older guide writes `offset_type="latest"`."""
        spec = _spec(offset_spec, offset_type, timestamp)
        return Handle.start(self._core.list_offsets(table_path, bucket_ids, spec), "list_offsets")

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
        """An offset of each bucket of one partition."""
        spec = _spec(offset_spec, offset_type, timestamp)
        call = self._core.list_partition_offsets(table_path, partition_name, bucket_ids, spec)
        return Handle.start(call, "list_partition_offsets")

    def get_latest_lake_snapshot(self, table_path: TablePath) -> Handle[LakeSnapshot]:
        """The newest snapshot in the lake; `LakeSnapshotNotExistError` while there is none."""
        call = self._core.get_latest_lake_snapshot(table_path)
        return Handle.start(call, "get_latest_lake_snapshot")

    def get_lake_snapshot(
        self, table_path: TablePath, snapshot_id: int | None = None, readable: bool = False
    ) -> Handle[LakeSnapshot]:
        """A snapshot by id, or the newest one that readers of lake and log may use."""
        call = self._core.get_lake_snapshot(table_path, snapshot_id, readable)
        return Handle.start(call, "get_lake_snapshot")

    def prepare_lake_snapshot(
        self, table: TableInfo, offsets: Mapping[TableBucket, int], ignore_previous: bool = False
    ) -> Handle[str]:
        """Write down the offsets that a snapshot will hold; returns where they are kept."""
        call = self._core.prepare_lake_snapshot(table, offsets, ignore_previous)
        return Handle.start(call, "prepare_lake_snapshot")

    def commit_lake_snapshot(
        self,
        table: TableInfo,
        snapshot_id: int,
        offsets_path: str,
        buckets: Sequence[BucketCommit],
        earliest_snapshot_to_keep: int | None = None,
    ) -> Handle[None]:
        """Make a lake snapshot known. Too high an offset lets the cluster delete untiered log."""
        call = self._core.commit_lake_snapshot(
            table, snapshot_id, offsets_path, buckets, earliest_snapshot_to_keep
        )
        return Handle.start(call, "commit_lake_snapshot")

    def lake_tiering_heartbeat(
        self,
        *,
        tiering: Sequence[TieringTable] = (),
        finished: Sequence[TieringTable] = (),
        failed: Sequence[TieringTable] = (),
        request_table: bool = False,
        force_finished: Sequence[int] = (),
    ) -> Handle[HeartbeatResult]:
        """Report on tables being tiered and ask for another one."""
        call = self._core.lake_tiering_heartbeat(
            tiering=tiering,
            finished=finished,
            failed=failed,
            request_table=request_table,
            force_finished=force_finished,
        )
        return Handle.start(call, "lake_tiering_heartbeat")

    def register_producer_offsets(
        self, producer_id: str, offsets: Mapping[TableBucket, int], ttl_ms: int | None = None
    ) -> Handle[bool]:
        """Pin offsets under an id once; False when the id has some already."""
        call = self._core.register_producer_offsets(producer_id, offsets, ttl_ms)
        return Handle.start(call, "register_producer_offsets")

    def get_producer_offsets(self, producer_id: str) -> Handle[ProducerOffsets | None]:
        """The offsets pinned under an id, if any."""
        return Handle.start(self._core.get_producer_offsets(producer_id), "get_producer_offsets")

    def delete_producer_offsets(self, producer_id: str) -> Handle[None]:
        """Forget the offsets pinned under an id."""
        call = self._core.delete_producer_offsets(producer_id)
        return Handle.start(call, "delete_producer_offsets")

    def get_server_nodes(self) -> Handle[list[ServerNode]]:
        """All servers that are alive, the coordinator first."""
        return Handle.start(self._core.get_server_nodes(), "get_server_nodes")

    def get_table_stats(
        self, table_path: TablePath, buckets: Sequence[TableBucket] | None = None
    ) -> Handle[dict[TableBucket, int]]:
        """Row counts per bucket, of all buckets of all partitions unless some are named."""
        return Handle.start(self._core.get_table_stats(table_path, buckets), "get_table_stats")

    def list_kv_snapshots(
        self, table_path: TablePath, partition_name: str | None = None
    ) -> Handle[list[KvSnapshot]]:
        """The newest snapshot of each bucket's key state."""
        call = self._core.list_kv_snapshots(table_path, partition_name)
        return Handle.start(call, "list_kv_snapshots")

    def describe_cluster_configs(self) -> Handle[list[ConfigEntry]]:
        """The cluster's settings."""
        return Handle.start(self._core.describe_cluster_configs(), "describe_cluster_configs")

    def alter_cluster_configs(
        self,
        *,
        set_configs: Mapping[str, str] | None = None,
        reset_configs: Sequence[str] = (),
    ) -> Handle[None]:
        """Change the cluster's settings while it runs."""
        call = self._core.alter_cluster_configs(
            set_configs=set_configs, reset_configs=reset_configs
        )
        return Handle.start(call, "alter_cluster_configs")

    def create_acls(self, acls: Sequence[Acl]) -> Handle[None]:
        """Grant permissions."""
        return Handle.start(self._core.create_acls(acls), "create_acls")

    def list_acls(self, **acl_filter: str) -> Handle[list[Acl]]:
        """Permissions that match, such as `principal="alice"`."""
        return Handle.start(self._core.list_acls(**acl_filter), "list_acls")

    def drop_acls(self, filters: Sequence[Mapping[str, str]]) -> Handle[list[Acl]]:
        """Take permissions back; gives those that were dropped."""
        return Handle.start(self._core.drop_acls(filters), "drop_acls")


def _spec(
    offset_spec: OffsetSpec | None, offset_type: str | None, timestamp: int | None
) -> OffsetSpec:
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
