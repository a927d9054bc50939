"""Reading a part of a log once, without a checkpoint: for people, exports and backfills."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from fluss_client.errors import PartitionNotExistError
from fluss_client.facade.connection import FlussConnection
from fluss_client.model.table import TablePath
from fluss_client.runtime import runtime
from fluss_orchestrate.core.incremental.planning import Planner
from fluss_orchestrate.core.incremental.reading import PlanReading, ProgressHook, ReadOptions
from fluss_orchestrate.core.incremental.settings import ScanSettings, Start, Until, names_of
from fluss_orchestrate.core.plan import ScanPlan

NAME = "once"


def plan_once(
    connection: FlussConnection,
    table: TablePath | str,
    start: Start = "earliest",
    until: Until = "latest",
    columns: Sequence[str] | None = None,
    metadata_columns: Sequence[str] = (),
    partition: str | None = None,
) -> ScanPlan:
    """The frozen ranges from `start` to `until`; no store knows of them, and nothing is recorded.

    A log table gives its log, a key table its changelog. `partition` is a partition's name.
    """
    path = TablePath.parse(table) if isinstance(table, str) else table
    settings = ScanSettings(
        name=NAME,
        path=path,
        columns=names_of(columns),
        metadata_columns=names_of(metadata_columns) or (),
        start=start,
    )
    core = connection.core
    planner = Planner(core.backend, core.config, settings, can_read_lake=False)
    plan = runtime().call(planner.draft(None, NAME, until, None)).plan
    if partition is None:
        return plan
    infos = runtime().call(core.backend.list_partitions(path, None))
    if partition not in {info.partition_name for info in infos}:
        raise PartitionNotExistError(f"{path} has no partition '{partition}'")
    return replace(plan, ranges=tuple(r for r in plan.ranges if r.partition == partition))


def read_once(
    connection: FlussConnection, plan: ScanPlan, progress: ProgressHook | None = None
) -> PlanReading:
    """A read of such a plan."""
    return PlanReading(connection, plan, ReadOptions(progress=progress))
