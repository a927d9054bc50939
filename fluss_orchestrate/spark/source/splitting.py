"""Reads cut into Spark partitions: by count, by records, by bytes, or as is worth a task."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from fluss_client.facade.connection import FlussConnection
from fluss_client.model.table import TableInfo
from fluss_client.runtime import runtime
from fluss_orchestrate.core.incremental.probe import Prober
from fluss_orchestrate.core.incremental.widths import offsets_of_bytes
from fluss_orchestrate.core.lake.reader import planned_table
from fluss_orchestrate.core.plan import BucketRange, ScanPlan
from fluss_orchestrate.spark.source.options import SourceOptions
from fluss_orchestrate.spark.source.parts import PLAN, Part

RECORDS_PER_SPLIT = 500_000
SPLITS_BY_BUCKET_MAX = 64


def split_parts(
    connection: FlussConnection, parts: Sequence[Part], options: SourceOptions
) -> list[list[Part]]:
    """What each Spark partition reads: a log is cut anywhere, anything else between buckets.

    With a limit the first rows of a log are known by their offsets. Anything else is read by one
    task then, one part after the other, until there are enough.
    """
    limit = options.number("limit")
    if limit is not None and not _is_plain_log(parts, options):
        return [list(parts)] if parts else []
    pieces: list[Part] = []
    for part in parts:
        plan = part.plan
        if not _is_log(part):
            pieces += [replace(part, plan=replace(plan, ranges=(r,))) for r in plan.ranges]
            continue
        if limit is not None:
            plan = replace(plan, ranges=_first(plan.ranges, limit))
        pieces += [replace(part, plan=piece) for piece in split_plan(connection, plan, options)]
    return [[piece] for piece in pieces]


def _is_log(part: Part) -> bool:
    """Whether it is a log or a changelog."""
    return part.kind == PLAN and part.plan.kind != "state"


def _is_plain_log(parts: Sequence[Part], options: SourceOptions) -> bool:
    rows_are_offsets = all(_is_log(part) and part.plan.kind == "log" for part in parts)
    return len(parts) <= 1 and rows_are_offsets and options.row_filter is None


def split_plan(
    connection: FlussConnection, plan: ScanPlan, options: SourceOptions
) -> list[ScanPlan]:
    """A plan of the log cut as asked for, by default into pieces that are worth a task.

    A changelog is cut between buckets only, so it may come in fewer pieces.
    """
    count = options.number("split.count")
    records = options.number("split.records", "scan.maxrecordsperpartition")
    size = options.number("split.bytes")
    if size is not None and not plan.is_empty:
        records = _records_of(connection, plan, size)
    if count is None and records is not None:
        count = -(-plan.offsets // records)
    if count is None:
        buckets = min(len(plan.ranges), SPLITS_BY_BUCKET_MAX)
        count = max(buckets, -(-plan.offsets // RECORDS_PER_SPLIT))
    return plan.split(count)


def _records_of(connection: FlussConnection, plan: ScanPlan, size: int) -> int:
    core = connection.core
    info = planned_table(connection, plan)
    starts = {r.place: r.start for r in plan.ranges}
    stops = {r.place: r.stop for r in plan.ranges}

    async def ask() -> int:
        prober = Prober(core.backend, core.config, info, column_numbers(info, plan.columns))
        return await offsets_of_bytes(prober, starts, stops, size)

    return runtime().call(ask())


def column_numbers(info: TableInfo, names: Sequence[str]) -> tuple[int, ...]:
    """The numbers of the columns among these names, as a fetch wants them; at least one."""
    index = info.schema.index
    return tuple(sorted(index[name] for name in names if name in index)) or (0,)


def _first(ranges: Sequence[BucketRange], limit: int) -> tuple[BucketRange, ...]:
    """The first offsets of some ranges; a log has a row for each."""
    kept = []
    for one in ranges:
        take = min(limit, one.count)
        if take:
            kept.append(replace(one, stop=one.start + take))
            limit -= take
    return tuple(kept)
