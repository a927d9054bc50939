"""What the resource's methods do: the core's work, told as a `MaterializeResult`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import dagster as dg

from fluss_client import FlussConnection, TableInfo, TablePath
from fluss_client.errors import ConfigError, InvalidTableError, UnsupportedError
from fluss_orchestrate.core.incremental import IncrementalScan, IntervalScan
from fluss_orchestrate.core.incremental.settings import Until
from fluss_orchestrate.core.job import run_increment, run_interval
from fluss_orchestrate.core.lake.tiering import tier
from fluss_orchestrate.core.loading import load_rows
from fluss_orchestrate.core.provisioning import (
    PartitionWindow,
    TableSpec,
    apply,
    apply_window,
    plan_window,
)
from fluss_orchestrate.core.provisioning.guards import PartitionGuard
from fluss_orchestrate.core.receipts import Receipt
from fluss_orchestrate.core.schema_policy import SchemaPolicy
from fluss_orchestrate.core.sinks.base import Sink
from fluss_orchestrate.dagster.metadata import (
    ROW_COUNT,
    data_version,
    increment_metadata,
    receipt_metadata,
    table_metadata,
)
from fluss_orchestrate.dagster.partitions import time_windows
from fluss_orchestrate.dagster.runs import (
    is_partitioned,
    mirror_tag,
    other_rows_are_final,
    run_key_of,
)


@dataclass(frozen=True, slots=True)
class LoadChoices:
    """How rows are loaded."""

    part: str = ""
    schema_policy: SchemaPolicy = SchemaPolicy.ERROR
    create_partitions: bool = False


def load(
    connection: FlussConnection,
    context: dg.AssetExecutionContext,
    table: TablePath | str,
    rows: Any,
    wanted: str,
    choices: LoadChoices,
    asset_key: dg.AssetKey | None,
) -> dg.MaterializeResult[Any]:
    """Append or upsert under the run's name."""
    info = table_info(connection, table)
    kind = "upsert" if info.has_primary_key() else "append"
    if kind != wanted:
        has = "has" if info.has_primary_key() else "has no"
        raise ConfigError(f"{info.table_path} {has} primary key: use {kind}")
    load_id = run_key_of(context, asset_key)
    with other_rows_are_final():
        receipt = load_rows(
            connection,
            info.table_path,
            rows,
            f"{load_id}#{choices.part}" if choices.part else load_id,
            schema_policy=choices.schema_policy,
            create_partitions=choices.create_partitions,
        )
    return told(connection, receipt, asset_key)


def increment(
    connection: FlussConnection,
    context: dg.AssetExecutionContext,
    table: TablePath | str,
    sink: Sink,
    *,
    name: str | None,
    until: Until,
    max_offsets: int | None,
    asset_key: dg.AssetKey | None,
    scan_options: Mapping[str, Any],
) -> dg.MaterializeResult[Any]:
    """Plan under the run's name, write, commit; then mirror it in tags and metadata."""
    key = asset_key or context.asset_key
    checkpoint = name or f"dagster/{key.to_user_string()}"
    run_key = run_key_of(context, key)
    if is_partitioned(context):
        interval = IntervalScan(connection, table, checkpoint, **scan_options)
        return _intervals(context, interval, sink, key, run_key)
    scan = IncrementalScan(connection, table, checkpoint, **scan_options)
    planned = scan.plan(run_key, until, max_offsets)
    if planned.run_key == run_key:
        mirror_tag(context, "plan", key, planned.plan_id)
    result = run_increment(scan, sink, run_key, until, max_offsets=max_offsets)
    mirror_tag(context, "plan", key, str(result.receipt.plan_id))
    metadata = increment_metadata(result.receipt)
    if result.adopted:
        metadata["fluss/rows"] = result.rows
        metadata["fluss/adopted_plans"] = [str(r.plan_id) for r in result.adopted]
    return dg.MaterializeResult(
        asset_key=asset_key, metadata=metadata, data_version=data_version(result.receipt)
    )


def _intervals(
    context: dg.AssetExecutionContext,
    interval: IntervalScan,
    sink: Sink,
    key: dg.AssetKey,
    run_key: str,
) -> dg.MaterializeResult[Any]:
    """Each partition by itself, so that a range and its parts never take a row twice."""
    rows = 0
    for partition, window in time_windows(context, key):
        receipt = run_interval(interval, sink, run_key, window.start, window.end).receipt
        rows += receipt.rows
        context.add_asset_metadata(
            increment_metadata(receipt), asset_key=key, partition_key=partition
        )
    return dg.MaterializeResult(asset_key=key, metadata={"fluss/rows_of_run": rows})


def provision(
    connection: FlussConnection,
    context: dg.AssetExecutionContext,
    specs: Sequence[TableSpec],
    asset_key: dg.AssetKey | None,
) -> dg.MaterializeResult[Any]:
    """Carry out the difference between specs and cluster."""
    done = apply(connection, specs, on_change=lambda change: context.log.info(str(change)))
    return dg.MaterializeResult(
        asset_key=asset_key,
        metadata={
            "fluss/tables": [spec.table for spec in specs],
            "fluss/changes": [str(change) for change in done] or ["nothing to change"],
        },
    )


def move_window(
    connection: FlussConnection,
    context: dg.AssetExecutionContext,
    window: PartitionWindow,
    guards: Sequence[PartitionGuard] | None,
    asset_key: dg.AssetKey | None,
) -> dg.MaterializeResult[Any]:
    """Create and drop time partitions; what had to stay is in the metadata with its reason."""
    done = apply_window(connection, plan_window(connection, window, guards=guards)).to_json()
    for partition, reason in done["kept"].items():
        context.log.warning(f"{window.table}: partition {partition} stays: {reason}")
    info = table_info(connection, window.table)
    return dg.MaterializeResult(
        asset_key=asset_key,
        metadata={
            **table_metadata(connection.config.resolved_alias(), info),
            "fluss/partitions_created": len(done["create"]),
            "fluss/partitions_dropped": len(done["drop"]),
            "fluss/window": dg.MetadataValue.json(done),
        },
    )


def tier_table(
    connection: FlussConnection,
    context: dg.AssetExecutionContext,
    table: TablePath | str,
    allow_tiering: bool,
    asset_key: dg.AssetKey | None,
) -> dg.MaterializeResult[Any]:
    """One round of tiering."""
    receipt = tier(connection, table, allow_tiering=allow_tiering)
    context.log.info(f"{receipt.rows} rows went into the lake of {receipt.table.path}")
    return told(connection, receipt, asset_key)


def told(
    connection: FlussConnection, receipt: Receipt, asset_key: dg.AssetKey | None = None
) -> dg.MaterializeResult[Any]:
    """A receipt of work on a table as that table's materialisation."""
    info = table_info(connection, receipt.table.path)
    metadata = {**table_metadata(receipt.table.cluster, info), **receipt_metadata(receipt)}
    count = row_count(connection, info)
    if count is not None:
        metadata[ROW_COUNT] = count
    return dg.MaterializeResult(
        asset_key=asset_key, metadata=metadata, data_version=data_version(receipt)
    )


def table_info(connection: FlussConnection, table: TablePath | str) -> TableInfo:
    """A table's description, asked for now."""
    path = TablePath.parse(table) if isinstance(table, str) else table
    return connection.get_admin().result().get_table_info(path).result()


def row_count(connection: FlussConnection, info: TableInfo) -> int | None:
    """The rows that the servers hold of a table; None where they keep no count."""
    try:
        counts = connection.get_admin().result().get_table_stats(info.table_path).result()
    except (InvalidTableError, UnsupportedError):
        return None
    return sum(counts.values())


def partition_counts(connection: FlussConnection, info: TableInfo) -> dict[str, int]:
    """The rows that the servers hold of each partition; empty where they keep no count."""
    admin = connection.get_admin().result()
    found = admin.list_partition_infos(info.table_path).result()
    names = {partition.partition_id: partition.partition_name for partition in found}
    try:
        counts = admin.get_table_stats(info.table_path).result()
    except (InvalidTableError, UnsupportedError):
        return {}
    totals = dict.fromkeys(names.values(), 0)
    for bucket, count in counts.items():
        if bucket.partition_id in names:
            totals[names[bucket.partition_id]] += count
    return totals
