"""What the support matrix lists: every call and type of the Java client, and what we add.

A row's name is what `@pytest.mark.supports(...)` names. `java` are the Java client's members that
it stands for. A row with a `reason` is not offered, and no test may claim it.
"""

from __future__ import annotations

from dataclasses import dataclass

import pytest

MARKER = "supports"
OUTCOMES_KEY = "support/outcomes"


def rows_of(item: pytest.Item) -> list[str]:
    """The rows of the matrix that a test proves."""
    return sorted({str(row) for mark in item.iter_markers(MARKER) for row in mark.args})


@dataclass(frozen=True)
class Row:
    """One line of the matrix."""

    name: str
    here: str = ""
    java: tuple[str, ...] = ()
    reason: str = ""

    @property
    def java_members(self) -> tuple[str, ...]:
        """The members of the Java client that this row covers."""
        return self.java or ((self.name.partition(" (")[0],) if _is_member(self.name) else ())


def _is_member(name: str) -> bool:
    owner, dot, _ = name.partition(".")
    return bool(dot) and owner.isidentifier()


def _no(name: str, reason: str, *java: str) -> Row:
    return Row(name, java=java, reason=reason)


NEEDS_1_0 = "servers have it from 1.0 on"
OPERATORS = "an operator's tool: use Fluss's own"
POJO = "rows are dicts, lists, tuples or Arrow"

SECTIONS: dict[str, tuple[Row, ...]] = {
    "Connecting": (
        Row(
            "Connection.getTable",
            "FlussConnection.get_table",
            (
                "Connection.getTable",
                "Connection.getAdmin",
                "Connection.close",
                "Table.getTableInfo",
            ),
        ),
        Row("Connection.getConfiguration", "FlussConnection.config"),
        _no("Connection.getMultiTable", NEEDS_1_0),
        Row("SASL/PLAIN", "security.protocol=sasl"),
        Row("Several bootstrap addresses", "bootstrap.servers"),
    ),
    "Databases and tables": (
        Row("Admin.createDatabase", "FlussAdmin.create_database"),
        Row("Admin.databaseExists", "FlussAdmin.database_exists"),
        Row("Admin.listDatabases", "FlussAdmin.list_databases"),
        _no("Admin.listDatabaseSummaries", "list_databases, list_tables and get_database_info"),
        Row("Admin.getDatabaseInfo", "FlussAdmin.get_database_info"),
        Row("Admin.dropDatabase", "FlussAdmin.drop_database"),
        _no("Admin.alterDatabase", NEEDS_1_0),
        Row("Admin.createTable", "FlussAdmin.create_table"),
        Row("Admin.getTableInfo", "FlussAdmin.get_table_info"),
        Row("Admin.listTables", "FlussAdmin.list_tables"),
        Row("Admin.tableExists", "FlussAdmin.table_exists"),
        Row("Admin.dropTable", "FlussAdmin.drop_table"),
        Row("Admin.getTableSchema", "FlussAdmin.get_table_schema, list_table_schemas"),
        Row("Admin.alterTable (add column)", "FlussAdmin.alter_table"),
        Row("Admin.alterTable (set and reset options)", "FlussAdmin.alter_table"),
        _no("Admin.alterTable (drop, rename, modify column)", "0.9 servers refuse it"),
    ),
    "Partitions and offsets": (
        Row("Admin.createPartition", "FlussAdmin.create_partition"),
        Row("Admin.dropPartition", "FlussAdmin.drop_partition"),
        Row("Admin.listPartitionInfos", "FlussAdmin.list_partition_infos"),
        Row("Admin.listPartitionInfos (spec)", "FlussAdmin.list_partition_infos"),
        Row("Admin.listOffsets", "FlussAdmin.list_offsets"),
        Row("Admin.listOffsets (timestamp)", "FlussAdmin.list_offsets"),
        Row("Admin.listOffsets (partition)", "FlussAdmin.list_partition_offsets"),
    ),
    "Cluster": (
        Row("Admin.getServerNodes", "FlussAdmin.get_server_nodes"),
        Row("Admin.getTableStats", "FlussAdmin.get_table_stats"),
        Row("Admin.describeClusterConfigs", "FlussAdmin.describe_cluster_configs"),
        Row("Admin.alterClusterConfigs", "FlussAdmin.alter_cluster_configs"),
        Row("Admin.createAcls", "FlussAdmin.create_acls"),
        Row("Admin.listAcls", "FlussAdmin.list_acls"),
        Row("Admin.dropAcls", "FlussAdmin.drop_acls"),
        Row("Replication factor above 1", "table.replication.factor"),
        _no(
            "Server tags and rebalancing",
            OPERATORS,
            "Admin.addServerTag",
            "Admin.removeServerTag",
            "Admin.addServerTagByRack",
            "Admin.removeServerTagByRack",
            "Admin.rebalance",
            "Admin.listRebalanceProgress",
            "Admin.cancelRebalance",
        ),
        _no("Admin.getClusterHealth", NEEDS_1_0),
    ),
    "Snapshots and the lake": (
        Row("Admin.getLatestKvSnapshots", "FlussAdmin.list_kv_snapshots"),
        _no(
            "Files of key snapshots",
            'no public call; `read_table` and `start="state"` lease and read them',
            "Admin.getKvSnapshotMetadata",
            "Admin.createKvSnapshotLease",
        ),
        _no(
            "Listings of remote files",
            NEEDS_1_0,
            "Admin.listRemoteLogManifests",
            "Admin.listKvSnapshots",
        ),
        Row("Admin.getLatestLakeSnapshot", "FlussAdmin.get_latest_lake_snapshot"),
        Row("Admin.getLakeSnapshot", "FlussAdmin.get_lake_snapshot(snapshot_id=…)"),
        Row("Admin.getReadableLakeSnapshot", "FlussAdmin.get_lake_snapshot(readable=True)"),
        Row(
            "Tiering (prepare and commit a snapshot)",
            "FlussAdmin.prepare_lake_snapshot, commit_lake_snapshot",
        ),
        Row("Tiering (heartbeat)", "FlussAdmin.lake_tiering_heartbeat"),
        Row("Admin.registerProducerOffsets", "FlussAdmin.register_producer_offsets"),
        Row("Admin.getProducerOffsets", "FlussAdmin.get_producer_offsets"),
        Row("Admin.deleteProducerOffsets", "FlussAdmin.delete_producer_offsets"),
    ),
    "Writing": (
        Row(
            "Append of rows",
            "AppendWriter.append",
            ("Table.newAppend", "Append.createWriter", "AppendWriter.append", "TableWriter.flush"),
        ),
        Row("Append of Arrow batches", "AppendWriter.write_arrow, write_arrow_batch"),
        Row("Append to a partitioned table", "AppendWriter.append"),
        Row(
            "Upsert",
            "UpsertWriter.upsert",
            ("Table.newUpsert", "Upsert.createWriter", "UpsertWriter.upsert"),
        ),
        Row("Upsert of Arrow batches", "UpsertWriter.write_arrow, write_arrow_batch"),
        Row("Upsert to a partitioned table", "UpsertWriter.upsert"),
        Row("Delete", "UpsertWriter.delete", ("UpsertWriter.delete",)),
        Row("Delete of Arrow keys", "UpsertWriter.delete_arrow"),
        Row(
            "Partial update",
            "TableUpsert.partial_update_by_name, partial_update_by_index",
            ("Upsert.partialUpdate",),
        ),
        Row("Key placement as the Java client's", "all three bucket functions"),
        Row("Key types", "UpsertWriter, Lookuper"),
        _no("Upsert.mergeMode", "aggregates always merge"),
        _no("Typed writers", POJO, "Append.createTypedWriter", "Upsert.createTypedWriter"),
    ),
    "Key tables": (
        Row("Merge engine FIRST_ROW", "table.merge-engine=first_row"),
        Row("Merge engine VERSIONED", "table.merge-engine=versioned"),
        Row("Merge engine AGGREGATION", "table.merge-engine=aggregation"),
        Row("Auto-increment column", "Schema(auto_increment_column=…)"),
        Row("Delete behavior", "table.delete.behavior"),
        Row("Changelog image WAL", "table.changelog.image=WAL"),
    ),
    "Look-ups": (
        Row(
            "Lookup by primary key",
            "Lookuper.lookup",
            ("Table.newLookup", "Lookup.createLookuper", "Lookuper.lookup"),
        ),
        Row("Lookup by primary key (composite)", "Lookuper.lookup"),
        Row("Lookup by primary key (partitioned)", "Lookuper.lookup"),
        Row("Lookup of many keys at once", "Lookuper.lookup_many"),
        Row("Lookup by prefix", "PrefixLookuper.lookup", ("Lookup.lookupBy",)),
        _no("Lookup.enableInsertIfNotExists", "upsert the row, then look it up"),
        _no("Typed look-ups", POJO, "Lookup.createTypedLookuper"),
    ),
    "Scanning": (
        Row(
            "Scan of a log",
            "LogScanner.poll, poll_arrow, poll_record_batch",
            (
                "Table.newScan",
                "Scan.createLogScanner",
                "LogScanner.poll",
                "LogScanner.subscribe",
                "LogScanner.subscribeFromBeginning",
                "LogScanner.unsubscribe",
            ),
        ),
        Row("Scan of a changelog", "LogScanner.poll, poll_arrow"),
        Row("Scan of a partitioned table", "LogScanner.subscribe_partition"),
        Row("Scan with a projection", "TableScan.project, project_by_name", ("Scan.project",)),
        Row(
            "Scan with a limit",
            "TableScan.limit",
            (
                "Scan.limit",
                "Scan.createBatchScanner",
                "BatchScanner.pollBatch",
                "BatchScanner.close",
            ),
        ),
        Row("Scan to the end", "LogScanner.to_arrow, to_pandas, to_arrow_batch_reader"),
        Row("Scan of the remote log", "LogScanner"),
        _no("Scan.filter", "taken and checked, but nothing is left out: servers do from 1.0 on"),
        _no("Scan.createTypedLogScanner", POJO),
        _no("LogScanner.wakeup", "cancel the task, or close the scanner"),
    ),
    "Formats": (
        Row("Log format ARROW", "log_format"),
        Row("Log format INDEXED", "log_format"),
        Row("Log format COMPACTED", "log_format"),
        Row("KV format COMPACTED", "kv_format"),
        Row("KV format INDEXED", "kv_format"),
        Row("Compression NONE", "table.log.arrow.compression.type"),
        Row("Compression LZ4_FRAME", "table.log.arrow.compression.type"),
        Row("Compression ZSTD", "table.log.arrow.compression.type"),
    ),
    "Types": (
        Row("Type BOOLEAN", "bool_"),
        Row("Type TINYINT", "int8"),
        Row("Type SMALLINT", "int16"),
        Row("Type INTEGER", "int32"),
        Row("Type BIGINT", "int64"),
        Row("Type FLOAT", "float32"),
        Row("Type DOUBLE", "float64"),
        Row("Type CHAR", "string"),
        Row("Type STRING", "string"),
        Row("Type BINARY", "binary(n)"),
        Row("Type BYTES", "binary"),
        Row("Type DECIMAL", "decimal128"),
        Row("Type DATE", "date32"),
        Row("Type TIME", "time32, time64"),
        Row("Type TIMESTAMP", "timestamp"),
        Row("Type TIMESTAMP_LTZ", "timestamp in UTC"),
        Row("Type ARRAY", "list_"),
        Row("Type MAP", "map_"),
        Row("Type ROW", "struct"),
    ),
}
ROWS = {row.name: row for rows in SECTIONS.values() for row in rows}
