"""Tables for the tests, and what is in them, read by the client itself."""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from fluss_client import FlussConnection, Schema, TableDescriptor, TablePath

ORDERS = pa.schema([pa.field("id", pa.int64(), nullable=False), pa.field("item", pa.string())])


def orders(count: int, first: int = 0) -> pa.Table:
    ids = range(first, first + count)
    return pa.table({"id": list(ids), "item": [f"item-{i}" for i in ids]}, ORDERS)


def make_table(
    connection: FlussConnection,
    path: TablePath,
    schema: pa.Schema = ORDERS,
    primary_keys: list[str] | None = None,
    **options: Any,
) -> TablePath:
    descriptor = TableDescriptor(
        Schema(schema, primary_keys=primary_keys), bucket_count=2, **options
    )
    admin = connection.get_admin().result()
    admin.create_database(path.database_name, ignore_if_exists=True).result()
    admin.create_table(path, descriptor).result()
    return path


def append(connection: FlussConnection, path: TablePath, rows: pa.Table) -> None:
    with connection.get_table(path).result().new_append().create_writer() as writer:
        writer.write_arrow(rows)


def log_ids(connection: FlussConnection, path: TablePath, column: str = "id") -> list[Any]:
    """Every row of the log, by the client's own scanner: rows that are there twice count twice."""
    table = connection.get_table(path).result()
    info = table.get_table_info()
    scanner = table.new_scan().create_record_batch_log_scanner().result()
    if info.is_partitioned():
        for partition in connection.get_admin().result().list_partition_infos(path).result():
            for bucket in range(info.num_buckets):
                scanner.subscribe_partition(partition.partition_id, bucket, 0)
    else:
        scanner.subscribe_buckets(dict.fromkeys(range(info.num_buckets), 0))
    found: list[Any] = scanner.to_arrow().column(column).to_pylist()
    return sorted(found)
