"""Planning a read of Spark: which offsets a frame has, and how they are split into partitions."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial

import pyarrow as pa

from fluss_client import FlussConnection, TableInfo
from fluss_client.engine import (
    async_connection,
    backend_of,
    check_old_rows,
    has_old_rows,
    parse_partition_name,
    run_blocking,
)
from fluss_client.errors import ConfigError
from fluss_orchestrate.core.incremental.planning.bounds import ends, first_starts
from fluss_orchestrate.core.incremental.planning.late_rows import (
    check_not_expired,
    observe_for_read,
)
from fluss_orchestrate.core.incremental.planning.limits import row_bytes
from fluss_orchestrate.core.incremental.planning.observation import TableView
from fluss_orchestrate.core.incremental.planning.settings import ScanSettings
from fluss_orchestrate.core.incremental.reading.columns import METADATA_FIELDS
from fluss_orchestrate.core.incremental.time.timestamps import Prober
from fluss_orchestrate.core.lake.catalog import has_lake
from fluss_orchestrate.core.lake.key_reader import KeyPart, lake_parts, union_parts
from fluss_orchestrate.core.lake.reader import planned_table
from fluss_orchestrate.core.lake.state import ends_as_of, lake_and_tail
from fluss_orchestrate.core.plan import METADATA_COLUMNS, BucketRange, ScanPlan
from fluss_orchestrate.spark.source.options import SourceOptions
from fluss_orchestrate.spark.source.parts import KEYS, LAKE, PLAN, UNION, Part, part_of

SPLIT_BYTES_MAX = 128 << 20
"""The rows of one task, in Arrow's form. A task costs Python and the JVM about 50 ms of CPU by
itself, as much as 10 MB of rows."""
SPLIT_BYTES_MIN = 4 << 20
"""Less is not split for the sake of parallelism."""


def split_parts(
    connection: FlussConnection,
    parts: Sequence[Part],
    options: SourceOptions,
    parallelism: int | None = None,
) -> list[list[Part]]:
    """Return the parts that each Spark partition reads.

    A log is split anywhere, anything else between buckets. With a limit, the first rows of a log
    are known by their offsets. Anything else is then read by one task, one part after the other,
    until there are enough rows.
    """
    limit = options.number("limit")
    if limit is not None and not _is_plain_log(parts, options):
        return [list(parts)] if parts else []
    split: list[Part] = []
    for part in parts:
        plan = part.plan
        if not _is_log(part):
            split += [replace(part, plan=replace(plan, ranges=(r,))) for r in plan.ranges]
            continue
        if limit is not None:
            plan = replace(plan, ranges=_first(plan.ranges, limit))
        plans = split_plan(plan, options, partial(row_bytes_of, connection, plan), parallelism)
        split += [replace(part, plan=some) for some in plans]
    return [[part] for part in split]


def _is_log(part: Part) -> bool:
    """Return whether the part is a log or a changelog."""
    return part.kind == PLAN and part.plan.kind != "state"


def _is_plain_log(parts: Sequence[Part], options: SourceOptions) -> bool:
    rows_are_offsets = all(_is_log(part) and part.plan.kind == "log" for part in parts)
    return len(parts) <= 1 and rows_are_offsets and options.row_filter is None


def split_plan(
    plan: ScanPlan,
    options: SourceOptions,
    row_bytes: Callable[[], float],
    parallelism: int | None = None,
) -> list[ScanPlan]:
    """Split a plan of the log as the options say, by default into parts that are worth a task.

    By default, each part has `SPLIT_BYTES_MAX` bytes of rows, or less if there would be fewer parts
    than tasks that can run at once. A changelog is split between buckets only, so there may be
    fewer parts.

    Args:
        plan: The plan.
        options: The options of the read.
        row_bytes: Returns about how many bytes a row takes; called if the options do not say how
            many rows or parts are wanted.
        parallelism: How many tasks can run at once; the processors of this machine by default,
            because Spark does not tell it to the process that plans.
    """
    if plan.is_empty:
        return []
    count = options.number("split.count")
    records = options.number("split.records", "scan.maxrecordsperpartition")
    size = options.number("split.bytes")
    if records is not None:
        count = -(-plan.offsets // records)
    if count is None:
        whole = plan.offsets * row_bytes()
        tasks = parallelism or os.cpu_count() or 1
        if size is None:
            fewest = -(-whole // SPLIT_BYTES_MAX)
            count = int(max(fewest, min(tasks, whole // SPLIT_BYTES_MIN)))
        else:
            count = math.ceil(whole / size)
    return plan.split(count)


def row_bytes_of(connection: FlussConnection, plan: ScanPlan) -> float:
    """Return about how many bytes a row of the plan takes in Arrow's form, from a few batches."""
    core = async_connection(connection)
    info = planned_table(connection, plan)
    starts = {r.place: r.start for r in plan.ranges}
    stops = {r.place: r.stop for r in plan.ranges}

    async def ask() -> float:
        prober = Prober(backend_of(core), core.config, info, column_numbers(info, plan.columns))
        return await row_bytes(prober, starts, stops)

    return run_blocking(ask())


def column_numbers(info: TableInfo, names: Sequence[str]) -> tuple[int, ...]:
    """Return the indexes of the columns with these names for a fetch; at least one."""
    index = info.schema.index
    return tuple(sorted(index[name] for name in names if name in index)) or (0,)


def _first(ranges: Sequence[BucketRange], limit: int) -> tuple[BucketRange, ...]:
    """Return the first offsets of some ranges; a log has a row for each."""
    kept = []
    for one in ranges:
        take = min(limit, one.count)
        if take:
            kept.append(replace(one, stop=one.start + take))
            limit -= take
    return tuple(kept)


NAME = "spark"


def view_of(
    connection: FlussConnection, options: SourceOptions, *, stream: bool = False
) -> TableView:
    """Return the current view of the table; a `stream` reads the changes of a key table.

    Raises:
        LateRowsError: The table takes rows of expired partitions, which would be left out.
    """
    core = async_connection(connection)
    info = run_blocking(backend_of(core).get_table_info(options.table))
    changes = stream or mode_of(options, info.has_primary_key()) == "changelog"
    # A partition that exists has all of its rows; `in_partitions` looks for others.
    policy = "note" if options.partitions else options.on_late_rows
    return run_blocking(observe_for_read(core, info, policy, changes=changes))


def mode_of(options: SourceOptions, has_key: bool) -> str:
    """Return what is read: as the option says, or as the other options imply."""
    mode = options.mode
    changes = "changelog" if has_key else "log"
    if mode in ("log", "changelog") and mode != changes:
        raise ConfigError(
            f"{options.table} {'has a' if has_key else 'has no'} primary key: read it with "
            f"option('read', '{changes}') or 'current'"
        )
    ranged = options.start is not None or options.until is not None
    if mode in ("current", "lake", "union") and (ranged or options.metadata):
        raise ConfigError(
            f"start, until and metadata belong to the log: use option('read', '{changes}')"
        )
    if mode is None:
        mode = changes if ranged or options.metadata else "current"
    if options.as_of is not None and mode not in ("current", "union"):
        raise ConfigError(
            "as.of returns the rows as they were, with option('read', 'current') or 'union': a "
            "lake snapshot is read as it is, and a log has start and until"
        )
    return mode


def plan_parts(
    options: SourceOptions, names: Sequence[str], parallelism: int | None = None
) -> list[list[Part]]:
    """Return the parts of each Spark partition, for the columns of these names.

    `parallelism` is the number of tasks that run at once, if it is known.
    """
    connection = options.cluster.connection()
    names = read_names(options, names)
    if options.plan is not None:
        given = options.plan
        table = planned_table(connection, given)
        check_filter(options, table, given.columns, given.metadata_columns)
        plan = projected(given, given.columns, names)
        parts = [Part(PLAN, plan)] if not plan.is_empty else []
    else:
        parts = _table_parts(connection, options, names)
    return split_parts(connection, parts, options, parallelism)


def _table_parts(
    connection: FlussConnection, options: SourceOptions, names: Sequence[str]
) -> list[Part]:
    view = view_of(connection, options)
    mode = mode_of(options, view.info.has_primary_key())
    metadata = METADATA_COLUMNS if mode in ("log", "changelog") else ()
    check_filter(options, view.info, view.info.get_column_names(), metadata)
    empty = projected(empty_plan(view), view.info.get_column_names(), names)
    if mode in ("log", "changelog"):
        ranges = list(wanted_ranges(connection, options, view))
        fallback = mode == "log" and has_lake(view.info)
        return [part_of(empty, ranges, PLAN, lake_fallback=fallback)] if ranges else []
    as_of = options.as_of
    stops = view.latest if as_of is None else ends_as_of(connection, view, as_of)
    places = [place for place in view.latest if stops.get(place, 0) > 0]
    whole = [view.range_of(place, 0, stops[place]) for place in places]
    whole = list(in_partitions(options, view, whole))
    if view.info.has_primary_key():
        if mode in ("lake", "union"):
            choose = lake_parts if mode == "lake" else union_parts
            return _key_parts(empty, choose(connection, view, whole))
        return [_keys_part(empty, view.info, whole, options)] if whole else []
    found = lake_and_tail(connection, view, whole)
    parts = []
    if found.in_lake:
        parts.append(part_of(empty, found.in_lake, LAKE, snapshot_id=found.snapshot_id))
    if found.tail and mode != "lake":
        parts.append(part_of(empty, found.tail, PLAN))
    return parts


def _key_parts(empty: ScanPlan, chosen: Sequence[KeyPart]) -> list[Part]:
    """Parts by the snapshot of the lake that their buckets are read from."""
    by_snapshot: dict[int | None, list[BucketRange]] = {}
    for one in chosen:
        by_snapshot.setdefault(one.snapshot_id, []).append(one.part)
    return [
        part_of(empty, ranges, UNION, snapshot_id=snapshot_id)
        for snapshot_id, ranges in by_snapshot.items()
    ]


def _keys_part(
    empty: ScanPlan, info: TableInfo, whole: Sequence[BucketRange], options: SourceOptions
) -> Part:
    """Return the part with the rows of a key table at the ends of these ranges."""
    if options.as_of is not None:
        check_old_rows(info)
        return part_of(replace(empty, kind="state"), whole, PLAN)
    if options.number("limit") is not None and options.row_filter is None:
        # Any rows do, so servers are asked for that many only.
        return part_of(empty, whole, KEYS)
    if has_old_rows(info):
        return part_of(replace(empty, kind="state"), whole, PLAN)
    # Without old rows in the changelog, only a bucket that nobody has changed can be read again.
    return part_of(empty, whole, KEYS)


def read_names(options: SourceOptions, names: Sequence[str]) -> list[str]:
    """Return the columns to read: the wanted ones, and those of the filter."""
    row_filter = options.row_filter
    return list(dict.fromkeys([*names, *(row_filter.columns if row_filter else ())]))


def check_filter(
    options: SourceOptions, info: TableInfo, columns: Sequence[str], metadata: Sequence[str]
) -> None:
    """Check that the filter fits the columns that can be read.

    Raises:
        ConfigError: It does not.
    """
    row_filter = options.row_filter
    if row_filter is not None:
        arrow = info.schema.arrow
        fields = [arrow.field(name) for name in columns]
        row_filter.check(pa.schema(fields + [METADATA_FIELDS[name] for name in metadata]))


def empty_plan(view: TableView) -> ScanPlan:
    """Return a plan without ranges for all columns of a table."""
    return ScanPlan(
        name=NAME,
        run_key=NAME,
        table=view.identity,
        schema_id=view.info.schema_id,
        columns=tuple(view.info.get_column_names()),
        metadata_columns=(),
        ranges=(),
        kind="changelog" if view.info.has_primary_key() else "log",
    )


def projected(plan: ScanPlan, known: Sequence[str], names: Sequence[str]) -> ScanPlan:
    """Return the plan with only the columns of these names; it always reads at least one."""
    columns = tuple(name for name in names if name in known)
    extra = tuple(name for name in names if name not in known)
    for name in extra:
        if name not in METADATA_COLUMNS:
            raise ConfigError(f"{plan.table.path} has no column '{name}'; it has {list(known)}")
    return replace(plan, columns=columns or tuple(known[:1]), metadata_columns=extra)


def wanted_ranges(
    connection: FlussConnection, options: SourceOptions, view: TableView
) -> Iterable[BucketRange]:
    """Return the ranges between the start and the end of the options."""
    start, until = options.start, options.until
    if isinstance(start, int) and isinstance(until, int) and until < start:
        raise ConfigError(f"the read ends at {until}, before it starts at {start}")
    core = async_connection(connection)
    settings = ScanSettings(name=NAME, path=view.info.table_path)
    begin = "earliest" if start is None else start
    starts = run_blocking(first_starts(backend_of(core), core.config, view, begin, settings))
    stops = run_blocking(
        ends(backend_of(core), core.config, view, "latest" if until is None else until, settings)
    )
    ranges = [
        view.range_of(place, starts.get(place, 0), stop)
        for place, stop in stops.items()
        if stop > starts.get(place, 0)
    ]
    return in_partitions(options, view, ranges)


def in_partitions(
    options: SourceOptions, view: TableView, ranges: Iterable[BucketRange]
) -> Iterable[BucketRange]:
    """Return the ranges of the partitions of the options."""
    wanted = options.partitions
    if not wanted:
        return ranges
    keys = view.info.partition_keys
    unknown = {name for one in wanted for name in one} - set(keys)
    if unknown:
        raise ConfigError(f"{options.table} is partitioned by {list(keys)}, not {sorted(unknown)}")
    for one in wanted:
        if not any(_fits(one, name, keys) for name in view.partitions.values()):
            text = ",".join(f"{key}={value}" for key, value in one.items())
            check_not_expired(view.info, text, options.on_late_rows)
    chosen = {
        number
        for number, name in view.partitions.items()
        if any(_fits(one, name, keys) for one in wanted)
    }
    return [r for r in ranges if r.partition_id in chosen]


def _fits(wanted: Mapping[str, str], name: str, keys: Sequence[str]) -> bool:
    return wanted.items() <= parse_partition_name(name, keys).items()
