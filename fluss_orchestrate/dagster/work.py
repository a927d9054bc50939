"""What the resource's methods do: the core's work as a `MaterializeResult`.

Data versions: the same as long as what an asset stands for is the same.

They are digests of where the table's logs end, or of how far a checkpoint is. So a run that found
nothing new leaves the version as it was, and what is downstream of it does not become stale.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import dagster as dg

from fluss_client import FlussConnection, OffsetSpec, TableInfo, TablePath
from fluss_client.engine import async_connection, backend_of, run_blocking
from fluss_client.errors import ConfigError, InvalidTableError, UnsupportedError
from fluss_orchestrate.core.checkpoints.events import Event
from fluss_orchestrate.core.checkpoints.position import place_order
from fluss_orchestrate.core.checkpoints.report import lag_in
from fluss_orchestrate.core.identity import TableIdentity
from fluss_orchestrate.core.incremental import IncrementalScan, IntervalScan
from fluss_orchestrate.core.incremental.planning.observation import (
    observe_all,
    observe_table,
    offsets_of,
)
from fluss_orchestrate.core.incremental.planning.settings import Until
from fluss_orchestrate.core.incremental.run import ScanRun
from fluss_orchestrate.core.job import run_increment, run_interval
from fluss_orchestrate.core.lake.maintenance import (
    LakeMaintenance,
    MaintenanceSettings,
    maintain_lake,
)
from fluss_orchestrate.core.lake.tiering import tier_table as tier_once
from fluss_orchestrate.core.loading import load_rows
from fluss_orchestrate.core.plan import Place, ScanPlan
from fluss_orchestrate.core.provisioning import (
    PartitionWindow,
    TableSpec,
    apply_partition_window,
    apply_tables,
    plan_partition_window,
)
from fluss_orchestrate.core.provisioning.guards import PartitionGuard
from fluss_orchestrate.core.receipts import Receipt
from fluss_orchestrate.core.sinks import FunctionSink
from fluss_orchestrate.core.sinks.base import SchemaPolicy, Sink, identity_of
from fluss_orchestrate.dagster.metadata import (
    COLUMN_LINEAGE,
    COLUMN_SCHEMA,
    LAG_OFFSETS,
    ROW_COUNT,
    column_lineage,
    column_schema,
    columns_of,
    increment_metadata,
    receipt_metadata,
    table_metadata,
)
from fluss_orchestrate.dagster.partitions import time_windows
from fluss_orchestrate.dagster.runs import (
    RunLog,
    StepContext,
    is_direct,
    is_partitioned,
    mirror_tag,
    other_rows_are_final,
    run_key_of,
    unfinished_asks_for_a_retry,
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
        view = run_blocking(observe_all(backend, alias, info))
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
    return load_result(connection, receipt, asset_key)


@dataclass(frozen=True, slots=True)
class IncrementChoices:
    """What is scanned, and how."""

    checkpoint: str | None = None
    until: Until = "latest"
    max_offsets: int | None = None
    scan_options: Mapping[str, Any] = field(default_factory=dict)
    source: dg.AssetKey | None = None
    """The asset of the table, for the lineage of columns."""


def increment(
    connection: FlussConnection,
    context: StepContext,
    table: TablePath | str,
    sink: Sink,
    choices: IncrementChoices,
    asset_key: dg.AssetKey | None,
) -> dg.MaterializeResult[Any]:
    """Plan under the run's name, write, commit; then mirror it in tags and metadata."""
    worker = work_name(context, asset_key)
    checkpoint = choices.checkpoint or f"dagster/{worker}"
    run_key = run_key_of(context, asset_key)
    if is_partitioned(context):
        interval = IntervalScan(connection, table, checkpoint, **choices.scan_options)
        return _intervals(connection, context, interval, sink, asset_key, run_key, choices.source)
    scan = IncrementalScan(connection, table, checkpoint, **choices.scan_options)
    run_log = RunLog(context, identity_of(sink))
    plans: list[ScanPlan] = []

    def planned(run: ScanRun) -> None:
        run_log.planned(run)
        plans.append(run.plan)
        mirror_tag(context, "plan", worker, run.plan.plan_id)

    result = run_increment(
        scan,
        sink,
        run_key,
        choices.until,
        max_offsets=choices.max_offsets,
        progress=run_log.progress,
        planned=planned,
    )
    run_log.done(result.receipt)
    head = scan.store.require(scan.name)
    state = head.state
    assert state.position is not None, "a committed plan has set it"
    metadata = increment_metadata(result.receipt, identity_of(sink))
    metadata |= columns_metadata(connection, sink, plans[-1], choices.source)
    metadata[LAG_OFFSETS] = lag_offsets(connection, scan.settings.path, head)
    if result.adopted:
        metadata["fluss/rows"] = result.rows
        metadata["fluss/adopted_plans"] = [str(r.plan_id) for r in result.adopted]
    # After a reset, rows are written again on purpose, so that the same position means others.
    again = None if state.generation is None else state.generation.to_json()
    version = position_version(result.receipt.table, state.position.offsets, again)
    return dg.MaterializeResult(asset_key=asset_key, metadata=metadata, data_version=version)


def lag_offsets(connection: FlussConnection, table: TablePath, head: Event) -> int:
    """What came in while the run was under way."""
    core = async_connection(connection)

    async def look() -> int:
        view = await observe_table(core, table)
        return (await lag_in(core, view, head, times=False)).offsets

    return run_blocking(look())


def columns_metadata(
    connection: FlussConnection, sink: Sink, plan: ScanPlan, source: dg.AssetKey | None
) -> dict[str, Any]:
    """The columns that a sink gets, and where they come from; unknown for what a function makes."""
    if getattr(sink, "changes_rows", False) or isinstance(sink, FunctionSink):
        return {}
    info = table_info(connection, plan.table.path)
    columns = [c for c in columns_of(info.schema) if c["name"] in plan.columns]
    metadata: dict[str, Any] = {COLUMN_SCHEMA: column_schema(columns)}
    if source is not None:
        metadata[COLUMN_LINEAGE] = column_lineage(source, [c["name"] for c in columns])
    return metadata


def _intervals(
    connection: FlussConnection,
    context: StepContext,
    interval: IntervalScan,
    sink: Sink,
    asset_key: dg.AssetKey | None,
    run_key: str,
    source: dg.AssetKey | None,
) -> dg.MaterializeResult[Any]:
    """Each partition by itself, so that a range and its parts never take a row twice."""
    key = asset_key or (context.asset_key if context.has_assets_def else None)
    log = RunLog(context, identity_of(sink))
    receipts: dict[str, Receipt] = {}
    columns: dict[str, Any] = {}

    def planned(run: ScanRun) -> None:
        log.planned(run)
        columns.update(columns_metadata(connection, sink, run.plan, source))

    for partition, window in time_windows(context, key):
        with unfinished_asks_for_a_retry(partition, window):
            receipts[partition] = run_interval(
                interval,
                sink,
                run_key,
                window.start,
                window.end,
                progress=log.progress,
                planned=planned,
            ).receipt
        log.done(receipts[partition], partition)
    by_partition = {
        p: {**increment_metadata(r, identity_of(sink)), **columns} for p, r in receipts.items()
    }
    rows: dict[str, Any] = {"fluss/rows_of_run": sum(r.moved for r in receipts.values())}
    if key is None:
        # An op of a job has no event for each partition, and one partition by Dagster's rule.
        return dg.MaterializeResult(metadata={**rows, **next(iter(by_partition.values()), {})})
    # One event of a range run goes to each of its partitions, so only one has a version.
    version = plan_version(receipts.values()) if len(receipts) == 1 else None
    if is_direct(context):
        return dg.MaterializeResult(
            asset_key=key,
            metadata={**rows, **next(iter(by_partition.values()), {})},
            data_version=version,
        )
    # The op of a graph asset may have asked for the other kind of context, which cannot tell it.
    step = (
        context if isinstance(context, dg.AssetExecutionContext) else dg.AssetExecutionContext.get()
    )
    for partition, metadata in by_partition.items():
        step.add_asset_metadata(metadata, asset_key=key, partition_key=partition)
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
    return load_result(connection, receipt, asset_key)


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


def load_result(
    connection: FlussConnection, receipt: Receipt, asset_key: dg.AssetKey | None = None
) -> dg.MaterializeResult[Any]:
    """A receipt of work on a table as that table's materialisation."""
    info = table_info(connection, receipt.table.path)
    version = load_version(connection, info, receipt)
    metadata = {**table_metadata(receipt.table.cluster, info), **receipt_metadata(receipt)}
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
