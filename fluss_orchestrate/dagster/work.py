"""What the resource's methods do: the core's work, told as a `MaterializeResult`.

Data versions: the same as long as what an asset stands for is the same.

They are digests of where the table's logs end, or of how far a checkpoint is. So a run that found
nothing new leaves the version as it was, and what is downstream of it does not become stale.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import dagster as dg

from fluss_client import FlussConnection, OffsetSpec, TableInfo, TablePath
from fluss_client.engine import backend_of, run_blocking
from fluss_client.errors import ConfigError, InvalidTableError, UnsupportedError
from fluss_orchestrate.core.checkpoints.position import place_order
from fluss_orchestrate.core.identity import TableIdentity
from fluss_orchestrate.core.incremental import IncrementalScan, IntervalScan
from fluss_orchestrate.core.incremental.planning.observation import observe_offsets, offsets_of
from fluss_orchestrate.core.incremental.planning.settings import Until
from fluss_orchestrate.core.job import run_increment, run_interval
from fluss_orchestrate.core.lake.maintenance import (
    LakeMaintenance,
    MaintenanceSettings,
    maintain_lake,
)
from fluss_orchestrate.core.lake.tiering import tier_table as tier_once
from fluss_orchestrate.core.loading import load_rows
from fluss_orchestrate.core.plan import Place
from fluss_orchestrate.core.provisioning import (
    PartitionWindow,
    TableSpec,
    apply_partition_window,
    apply_tables,
    plan_partition_window,
)
from fluss_orchestrate.core.provisioning.guards import PartitionGuard
from fluss_orchestrate.core.receipts import Receipt
from fluss_orchestrate.core.sinks.base import SchemaPolicy, Sink
from fluss_orchestrate.dagster.metadata import (
    ROW_COUNT,
    increment_metadata,
    receipt_metadata,
    table_metadata,
)
from fluss_orchestrate.dagster.partitions import time_windows
from fluss_orchestrate.dagster.runs import (
    StepContext,
    is_partitioned,
    mirror_tag,
    other_rows_are_final,
    run_key_of,
    work_name,
)


def position_version(
    table: TableIdentity, offsets: Mapping[Place, int], generation: Any = None
) -> dg.DataVersion:
    """Return the version of everything before some offsets; places without rows do not count."""
    places = sorted((place for place, offset in offsets.items() if offset), key=place_order)
    ends = [[*place, offsets[place]] for place in places]
    return _digest([table.to_json(), ends, generation])


def table_version(
    connection: FlussConnection, info: TableInfo, partitions: Iterable[str] | None = None
) -> dg.DataVersion:
    """Return the version of a table, or of some of its partitions, as it is now."""
    backend = backend_of(connection)
    alias = connection.config.resolved_alias()
    if partitions is None:
        view = run_blocking(observe_offsets(backend, alias, info))
        return position_version(view.identity, view.latest)
    wanted = set(partitions)
    found = connection.get_admin().result().list_partition_infos(info.table_path).result()
    ids = [p.partition_id for p in found if p.partition_name in wanted]
    latest = run_blocking(offsets_of(backend, info, ids, OffsetSpec.latest()))
    return position_version(TableIdentity.of(alias, info), latest)


def plan_version(receipts: Iterable[Receipt]) -> dg.DataVersion:
    """Return the version of the rows of some intervals, each of which has one plan for ever."""
    return _digest([[r.table.to_json(), [part.to_json() for part in r.ranges]] for r in receipts])


def _digest(value: Any) -> dg.DataVersion:
    text = json.dumps(value, sort_keys=True, separators=(",", ":"))
    return dg.DataVersion(hashlib.sha256(text.encode()).hexdigest()[:32])


@dataclass(frozen=True, slots=True)
class LoadChoices:
    """How rows are loaded."""

    part: str = ""
    schema_policy: SchemaPolicy = SchemaPolicy.ERROR
    create_partitions: bool = False


def load(
    connection: FlussConnection,
    context: StepContext,
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
    context: StepContext,
    table: TablePath | str,
    sink: Sink,
    *,
    checkpoint: str | None,
    until: Until,
    max_offsets: int | None,
    asset_key: dg.AssetKey | None,
    scan_options: Mapping[str, Any],
) -> dg.MaterializeResult[Any]:
    """Plan under the run's name, write, commit; then mirror it in tags and metadata."""
    worker = work_name(context, asset_key)
    checkpoint = checkpoint or f"dagster/{worker}"
    run_key = run_key_of(context, asset_key)
    if is_partitioned(context):
        interval = IntervalScan(connection, table, checkpoint, **scan_options)
        return _intervals(context, interval, sink, asset_key, run_key)
    scan = IncrementalScan(connection, table, checkpoint, **scan_options)
    planned = scan.plan(run_key, until, max_offsets, sink=sink)
    if planned.run_key == run_key:
        mirror_tag(context, "plan", worker, planned.plan_id)
    result = run_increment(scan, sink, run_key, until, max_offsets=max_offsets)
    mirror_tag(context, "plan", worker, str(result.receipt.plan_id))
    version = _increment_version(scan, result.receipt)
    metadata = increment_metadata(result.receipt, version)
    if result.adopted:
        metadata["fluss/rows"] = result.rows
        metadata["fluss/adopted_plans"] = [str(r.plan_id) for r in result.adopted]
    return dg.MaterializeResult(asset_key=asset_key, metadata=metadata, data_version=version)


def _increment_version(scan: IncrementalScan, receipt: Receipt) -> dg.DataVersion:
    """How far the checkpoint is: an increment without rows leaves it where it was.

    After a reset, rows are written again on purpose, so that the same position means others.
    """
    state = scan.store.require(scan.name).state
    assert state.position is not None, "a committed plan has set it"
    again = None if state.generation is None else state.generation.to_json()
    return position_version(receipt.table, state.position.offsets, again)


def _intervals(
    context: StepContext,
    interval: IntervalScan,
    sink: Sink,
    asset_key: dg.AssetKey | None,
    run_key: str,
) -> dg.MaterializeResult[Any]:
    """Each partition by itself, so that a range and its parts never take a row twice."""
    key = asset_key or (context.asset_key if context.has_assets_def else None)
    receipts = {
        partition: run_interval(interval, sink, run_key, window.start, window.end).receipt
        for partition, window in time_windows(context, key)
    }
    told = {p: increment_metadata(r, plan_version([r])) for p, r in receipts.items()}
    rows: dict[str, Any] = {"fluss/rows_of_run": sum(r.moved for r in receipts.values())}
    if key is None:
        # An op of a job has no event for each partition, and one partition by Dagster's rule.
        return dg.MaterializeResult(metadata={**rows, **next(iter(told.values()), {})})
    # The op of a graph asset may have asked for the other kind of context, which cannot tell it.
    step = (
        context if isinstance(context, dg.AssetExecutionContext) else dg.AssetExecutionContext.get()
    )
    for partition, metadata in told.items():
        step.add_asset_metadata(metadata, asset_key=key, partition_key=partition)
    # One event of a range run goes to each of its partitions, so only one has a version.
    version = plan_version(receipts.values()) if len(receipts) == 1 else None
    return dg.MaterializeResult(asset_key=key, metadata=rows, data_version=version)


def provision(
    connection: FlussConnection,
    context: StepContext,
    specs: Sequence[TableSpec],
    asset_key: dg.AssetKey | None,
) -> dg.MaterializeResult[Any]:
    """Carry out the difference between specs and cluster."""
    done = apply_tables(connection, specs, on_change=lambda change: context.log.info(str(change)))
    return dg.MaterializeResult(
        asset_key=asset_key,
        metadata={
            "fluss/tables": [spec.table for spec in specs],
            "fluss/changes": [str(change) for change in done] or ["nothing to change"],
        },
    )


def move_window(
    connection: FlussConnection,
    context: StepContext,
    window: PartitionWindow,
    guards: Sequence[PartitionGuard] | None,
    asset_key: dg.AssetKey | None,
) -> dg.MaterializeResult[Any]:
    """Create and drop time partitions; what had to stay is in the metadata with its reason."""
    done = apply_partition_window(
        connection, plan_partition_window(connection, window, guards=guards)
    ).to_json()
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
    context: StepContext,
    table: TablePath | str,
    allow_tiering: bool,
    asset_key: dg.AssetKey | None,
) -> dg.MaterializeResult[Any]:
    """One round of tiering."""
    receipt = tier_once(connection, table, allow_tiering=allow_tiering)
    context.log.info(f"{receipt.rows} rows went into the lake of {receipt.table.path}")
    return told(connection, receipt, asset_key)


def maintain(
    connection: FlussConnection,
    context: StepContext,
    table: TablePath | str,
    settings: MaintenanceSettings | None,
    dry_run: bool,
    catalog: Mapping[str, str] | None,
) -> LakeMaintenance:
    """Maintain a lake, and say so in the log of the step."""
    done = maintain_lake(connection, table, settings=settings, dry_run=dry_run, catalog=catalog)
    context.log.info(str(done))
    return done


def told(
    connection: FlussConnection, receipt: Receipt, asset_key: dg.AssetKey | None = None
) -> dg.MaterializeResult[Any]:
    """A receipt of work on a table as that table's materialisation."""
    info = table_info(connection, receipt.table.path)
    version = load_version(connection, info, receipt)
    metadata = {**table_metadata(receipt.table.cluster, info), **receipt_metadata(receipt, version)}
    count = row_count(connection, info)
    if count is not None:
        metadata[ROW_COUNT] = count
    return dg.MaterializeResult(asset_key=asset_key, metadata=metadata, data_version=version)


def load_version(
    connection: FlussConnection,
    info: TableInfo,
    receipt: Receipt,
    partitions: Iterable[str] | None = None,
) -> dg.DataVersion:
    """The lake's snapshot, or where the table, or some of its partitions, ends."""
    if receipt.snapshot_id is not None:
        return dg.DataVersion(str(receipt.snapshot_id))
    return table_version(connection, info, partitions)


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
