"""Tables for sinks and loads to write to, and what is in them."""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from fluss_client import FlussConnection, Schema, TableDescriptor, TablePath
from tests.orchestrate.sinks.plans import SCHEMA

KEYED = pa.schema([pa.field("id", pa.int64(), nullable=False), pa.field("value", pa.string())])
LAYOUTS: dict[str, dict[str, Any]] = {
    "turns": {},
    "keyed": {"bucket_keys": ["id"]},
    "partitioned": {"partition_keys": ["region"]},
    "both": {"partition_keys": ["region"], "bucket_keys": ["id"]},
}


def make_target(
    connection: FlussConnection,
    database: str,
    layout: str = "turns",
    schema: pa.Schema = SCHEMA,
    primary_keys: list[str] | None = None,
) -> TablePath:
    path = TablePath(database, "target")
    admin = connection.get_admin().result()
    descriptor = TableDescriptor(
        Schema(schema, primary_keys=primary_keys), bucket_count=3, **LAYOUTS[layout]
    )
    admin.create_table(path, descriptor).result()
    if "partition_keys" in LAYOUTS[layout]:
        for region in ("r0", "r1", "r2"):
            admin.create_partition(path, {"region": region}, ignore_if_exists=True).result()
    return path


def log_rows(connection: FlussConnection, path: TablePath) -> pa.Table:
    table = connection.get_table(path).result()
    scanner = table.new_scan().create_record_batch_log_scanner().result()
    info = table.get_table_info()
    if info.is_partitioned():
        for partition in connection.get_admin().result().list_partition_infos(path).result():
            for bucket in range(info.num_buckets):
                scanner.subscribe_partition(partition.partition_id, bucket, 0)
    else:
        scanner.subscribe_buckets(dict.fromkeys(range(info.num_buckets), 0))
    found: pa.Table = scanner.to_arrow()
    return found


def values(connection: FlussConnection, path: TablePath, keys: list[int]) -> list[Any]:
    lookuper = connection.get_table(path).result().new_lookup().create_lookuper()
    rows = [lookuper.lookup({"id": key}).result() for key in keys]
    return [None if row is None else row["value"] for row in rows]
