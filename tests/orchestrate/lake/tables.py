"""Lake tables of the three layouts, rows for them, and ways to read them back."""

from __future__ import annotations

import decimal
from typing import Any

import pyarrow as pa

from fluss_client import FlussConnection, Schema, TableDescriptor, TablePath
from fluss_orchestrate.core.lake.catalog import load_lake_table

COLUMNS = pa.schema(
    [
        pa.field("id", pa.int64(), nullable=False),
        pa.field("name", pa.string()),
        pa.field("day", pa.string()),
        pa.field("at", pa.timestamp("us")),
        pa.field("seen", pa.timestamp("ms", tz="UTC")),
        pa.field("tiny", pa.int8()),
        pa.field("price", pa.decimal128(10, 2)),
        pa.field("data", pa.binary()),
        pa.field("tags", pa.list_(pa.field("element", pa.string()))),
        pa.field("point", pa.struct([pa.field("x", pa.int32()), pa.field("y", pa.float64())])),
    ]
)
LAYOUTS: dict[str, dict[str, Any]] = {
    "turns": {},
    "keyed": {"bucket_keys": ["id"]},
    "partitioned": {"partition_keys": ["day"]},
    "both": {"partition_keys": ["day"], "bucket_keys": ["id"]},
}
DAYS = ("20240101", "20240102")


def make_table(
    connection: FlussConnection,
    path: TablePath,
    *,
    layout: str = "turns",
    primary_keys: list[str] | None = None,
    buckets: int = 3,
    freshness: str = "1d",
    properties: dict[str, str] | None = None,
) -> None:
    """Create a lake table, and its partitions.

    Tests at the same time share a coordinator, which hands a table to whoever serves it once its
    freshness has passed: a short one is for tests of those who serve.
    """
    admin = connection.get_admin().result()
    options = dict(LAYOUTS[layout])
    descriptor = TableDescriptor(
        Schema(COLUMNS, primary_keys=primary_keys),
        bucket_count=buckets,
        properties={
            "table.datalake.enabled": "true",
            "table.datalake.freshness": freshness,
            **(properties or {}),
        },
        **options,
    )
    admin.create_table(path, descriptor).result()
    if "partition_keys" in options:
        for day in DAYS:
            admin.create_partition(path, {"day": day}, ignore_if_exists=True).result()


def make_clean(connection: FlussConnection, path: TablePath) -> None:
    """Create the Iceberg table of a table again, as Fluss 1.0 does: without system columns.

    It has no partition field for the bucket unless the table has a bucket key, and no sort order.
    """
    from pyiceberg.partitioning import PartitionSpec
    from pyiceberg.schema import Schema as IcebergSchema

    old = lake_table(connection, path)
    fields = [f for f in old.schema().fields if not f.name.startswith("__")]
    kept = {f.field_id for f in fields}
    spec = PartitionSpec(*(f for f in old.spec().fields if f.source_id in kept))
    keys = old.schema().identifier_field_ids
    schema = IcebergSchema(*fields, identifier_field_ids=keys)
    old.catalog.drop_table(old.name())
    # The server's catalog knows a namespace only as long as it has a table.
    old.catalog.create_namespace_if_not_exists(old.name()[0])
    old.catalog.create_table(
        old.name(), schema, partition_spec=spec, properties=old.metadata.properties
    )


def batch(start: int, stop: int) -> pa.RecordBatch:
    """The rows whose ids are [start, stop)."""
    values = range(start, stop)
    columns = [
        pa.array(values, pa.int64()),
        pa.array([f"name {i}" if i % 7 else None for i in values]),
        pa.array([DAYS[i % len(DAYS)] for i in values]),
        pa.array([i * 1_000_003 for i in values], pa.timestamp("us")),
        pa.array(values, pa.timestamp("ms", tz="UTC")),
        pa.array([i % 100 for i in values], pa.int8()),
        pa.array([decimal.Decimal(i) / 4 for i in values], pa.decimal128(10, 2)),
        pa.array([bytes([i % 256]) * (i % 5) for i in values]),
        pa.array([[f"t{i}", None][: i % 3] for i in values], COLUMNS.field("tags").type),
        pa.array([{"x": i % 9, "y": i / 2} for i in values], COLUMNS.field("point").type),
    ]
    return pa.RecordBatch.from_arrays(columns, schema=COLUMNS)


def append(connection: FlussConnection, path: TablePath, start: int, stop: int) -> None:
    """Append the rows whose ids are [start, stop), in a few batches."""
    writer = connection.get_table(path).result().new_append().create_writer()
    step = max(1, (stop - start) // 4)
    for at in range(start, stop, step):
        writer.write_arrow_batch(batch(at, min(stop, at + step)))
        writer.flush().result()


def upsert(connection: FlussConnection, path: TablePath, start: int, stop: int) -> None:
    """Upsert the rows whose ids are [start, stop)."""
    writer = connection.get_table(path).result().new_upsert().create_writer()
    for row in batch(start, stop).to_pylist():
        writer.upsert(row)
    writer.flush().result()


def full_scan(connection: FlussConnection, path: TablePath) -> pa.Table:
    """Everything that the log holds."""
    table = connection.get_table(path).result()
    scanner = table.new_scan().create_record_batch_log_scanner().result()
    info = table.get_table_info()
    if info.is_partitioned():
        admin = connection.get_admin().result()
        for partition in admin.list_partition_infos(path).result():
            for bucket in range(info.num_buckets):
                scanner.subscribe_partition(partition.partition_id, bucket, 0)
    else:
        scanner.subscribe_buckets(dict.fromkeys(range(info.num_buckets), 0))
    found: pa.Table = scanner.to_arrow()
    return found


def lake_table(connection: FlussConnection, path: TablePath) -> Any:
    """The Iceberg table behind a table."""
    info = connection.get_admin().result().get_table_info(path).result()
    return load_lake_table(info, "default")


def lake_rows(connection: FlussConnection, path: TablePath) -> pa.Table:
    """Everything that the lake holds, as the Fluss table has it, by pyiceberg."""
    return as_rows(lake_table(connection, path).scan().to_arrow())


def as_rows(found: pa.Table) -> pa.Table:
    """Rows by id, with the columns and types of the Fluss table."""
    return found.select(COLUMNS.names).cast(COLUMNS).sort_by("id").combine_chunks()
