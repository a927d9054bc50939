"""One pass over a cluster: every table, checkpoint and lake is looked at once.

What does not change is kept between passes: the heads of checkpoints to which nothing was added,
the commit times of batches, the size of a row. What cannot be found out about one table or
checkpoint is a problem of that one, and hides no other.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from fluss_client import FlussConnection, LakeSnapshot, OffsetSpec, TableInfo, TablePath
from fluss_client.engine import async_connection, backend_of, run_blocking
from fluss_client.errors import DatabaseNotExistError, FlussError
from fluss_orchestrate.core.checkpoints.events import Event, IntervalName, now_ms
from fluss_orchestrate.core.checkpoints.report import Lag, lag_in, retention_ms
from fluss_orchestrate.core.checkpoints.store import CheckpointStore
from fluss_orchestrate.core.incremental.planning.observation import (
    TableView,
    observe_all,
    offsets_of,
)
from fluss_orchestrate.core.lake.catalog import has_lake
from fluss_orchestrate.core.lake.covers import latest_snapshot
from fluss_orchestrate.core.lake.status import LakeStatus, status_in
from fluss_orchestrate.core.overview.commit_times import KnownTimes
from fluss_orchestrate.core.overview.figures import (
    CheckpointFigures,
    Expiry,
    LakeFigures,
    Overview,
    PendingFigures,
    TableFigures,
)
from fluss_orchestrate.core.overview.intervals import (
    IntervalFigures,
    interval_figures,
    interval_scan_figures,
    without_offsets,
)
from fluss_orchestrate.core.plan import Place
from fluss_orchestrate.core.provisioning.guards import store_or_default
from fluss_orchestrate.core.table_report import bytes_per_row, row_counts

TABLES_AT_ONCE_MAX = 16
ROW_SIZE_KEPT_S = 600.0
"""How long the size of a row is kept: its sample decodes rows, which costs more than the rest."""
PROBLEM_LENGTH_MAX = 300
DONE_PER_PASS_MAX = 500
"""Finished intervals that one pass looks at again."""
AUTO_PARTITION = "table.auto-partition.enabled"
PARTITIONS_KEPT = "table.auto-partition.num-retention"
PARTITIONS_KEPT_DEFAULT = "7"
"""Negative numbers keep all partitions."""


@dataclass(frozen=True, slots=True)
class TableLook:
    """What was seen of one table in a pass, with every bucket."""

    view: TableView
    earliest: Mapping[Place, int]
    snapshot: LakeSnapshot | None
    lake: LakeStatus | None
    lags: Mapping[str, Lag] = field(default_factory=dict)
    """The lags of its checkpoints, by name."""


@dataclass(frozen=True, slots=True)
class Gathered:
    """The result of a pass: the figures, and what they were made of."""

    overview: Overview
    tables: Mapping[str, TableLook] = field(default_factory=dict)
    """By `database.table`. Empty in an overview that an earlier process has kept."""
    heads: Mapping[str, Event] = field(default_factory=dict)
    """Of checkpoints, and of intervals with a pending plan."""
    intervals: Mapping[str, Sequence[IntervalFigures]] = field(default_factory=dict)
    """All intervals, by the name of their scan, the latest time first."""


class Gatherer:
    """Makes passes over one cluster. One thread at a time uses it.

    Args:
        connection: The cluster.
        store: Its checkpoints; None for the default store, if there is one.
        database: Look at the tables of this database only.
    """

    def __init__(
        self,
        connection: FlussConnection,
        store: CheckpointStore | None = None,
        database: str | None = None,
    ) -> None:
        self.connection = connection
        self._given_store = store
        self._database = database
        self._times = KnownTimes()
        self._heads: dict[str, Event] = {}
        self._intervals: dict[str, IntervalFigures] = {}
        self._turn = 0
        self._row_sizes: dict[int, tuple[float, float | None]] = {}
        self._looks: dict[str, TableLook] = {}
        self._compared: dict[str, Event] = {}
        """The tables and the heads of the pass before."""
        self._before: dict[str, tuple[int, int, int]] = {}
        """The table id, the offsets and the time of the pass before, by table."""

    def store(self) -> CheckpointStore | None:
        """Return the checkpoint store, if it was ever used; nothing is created."""
        return store_or_default(self.connection, self._given_store)

    def gather(self) -> Gathered:
        """Look at everything once. Blocks.

        Raises:
            FlussError: The cluster does not answer.
        """
        started, began_ms = time.perf_counter(), now_ms()
        admin = self.connection.get_admin().result()
        servers = len(admin.get_server_nodes().result())
        names = [self._database] if self._database else sorted(admin.list_databases().result())
        paths = [TablePath(name, t) for name in names for t in self._tables_of(name)]
        heads = self._read_heads()
        intervals = self._by_scan()
        looks, figures = run_blocking(self._look_at(paths, heads))
        checkpoints = [checkpoint_figures(head, looks) for head in heads.values()]
        scans = [interval_scan_figures(name, each) for name, each in sorted(intervals.items())]
        if self._database is not None:
            checkpoints = [c for c in checkpoints if c.table.partition(".")[0] == self._database]
            scans = [each for each in scans if each.table.partition(".")[0] == self._database]
        checkpoints.sort(key=lambda c: (c.retired, c.name))
        config = self.connection.config
        overview = Overview(
            observed_ms=began_ms,
            took_ms=round((time.perf_counter() - started) * 1000),
            alias=config.resolved_alias(),
            address=config.resolved_bootstrap(),
            servers=servers,
            tables=tuple(figures),
            checkpoints=tuple(checkpoints),
            intervals=tuple(scans),
        )
        return Gathered(overview, looks, heads, intervals)

    def _tables_of(self, database: str) -> list[str]:
        admin = self.connection.get_admin().result()
        try:
            return sorted(admin.list_tables(database).result())
        except DatabaseNotExistError:
            return []  # dropped meanwhile

    def _read_heads(self) -> dict[str, Event]:
        """Return the heads of checkpoints; intervals only while one of their plans is pending."""
        store = self.store()
        if store is None:
            self._heads, self._intervals = {}, {}
            return {}
        fresh = self._fresh_heads(store)
        known, self._intervals = self._intervals, {}
        for name, head in fresh.items():
            if head is self._heads.get(name) and name in known:
                self._intervals[name] = known[name]
            elif (figures := interval_figures(head)) is not None:
                self._intervals[name] = figures
                if head.state.retired:
                    fresh[name] = without_offsets(head)
        self._heads = fresh
        return {n: h for n, h in fresh.items() if n not in self._intervals or _is_open(h)}

    def _fresh_heads(self, store: CheckpointStore) -> dict[str, Event]:
        """Return the last events of all names.

        A scan by intervals leaves a finished checkpoint for every interval, for ever, and hardly
        one of them is reset. So each pass looks at a part of the finished ones only.
        """
        names = store.names()
        done = [n for n in names if n in self._intervals and self._heads[n].state.retired]
        parts = max(1, len(done) // DONE_PER_PASS_MAX)
        self._turn += 1
        left = {n: self._heads[n] for at, n in enumerate(done) if (at + self._turn) % parts}
        return left | store.heads([n for n in names if n not in left], self._heads)

    def _by_scan(self) -> dict[str, list[IntervalFigures]]:
        found: dict[str, list[IntervalFigures]] = {}
        for name, figures in self._intervals.items():
            parts = IntervalName.of(name)
            assert parts is not None
            found.setdefault(parts.scan, []).append(figures)
        for each in found.values():
            each.sort(key=lambda one: (one.since_ms, one.until_ms), reverse=True)
        return found

    async def _look_at(
        self, paths: list[TablePath], heads: Mapping[str, Event]
    ) -> tuple[dict[str, TableLook], list[TableFigures]]:
        self._times.begin_pass()
        gate = asyncio.Semaphore(TABLES_AT_ONCE_MAX)
        by_table: dict[str, list[Event]] = {}
        for head in heads.values():
            if head.state.position is not None and not head.state.retired:
                by_table.setdefault(str(head.state.position.table.path), []).append(head)
        looks: dict[str, TableLook] = {}

        async def one(path: TablePath) -> TableFigures:
            async with gate:
                try:
                    look = await self._look(path, by_table.get(str(path), []))
                    looks[str(path)] = look
                    return await self._figures(look)
                except FlussError as error:
                    return TableFigures(str(path), problem=_problem(error))

        figures = await asyncio.gather(*(one(path) for path in paths))
        self._looks, self._compared = looks, dict(heads)
        known = {look.view.info.table_id for look in looks.values()}
        self._row_sizes = {i: size for i, size in self._row_sizes.items() if i in known}
        self._before = {name: seen for name, seen in self._before.items() if name in looks}
        return looks, figures

    async def _look(self, path: TablePath, heads: list[Event]) -> TableLook:
        core = async_connection(self.connection)
        backend = backend_of(core)
        info = await backend.get_table_info(path)
        # The lake is read before the log, so that it never seems to be ahead.
        snapshot = await latest_snapshot(core, path) if has_lake(info) else None
        view = await observe_all(backend, core.config.resolved_alias(), info)
        earliest = await offsets_of(backend, info, view.partition_ids(), OffsetSpec.earliest())
        commit_times = self._times.of(core, view)
        lags = self._unchanged_lags(view, earliest, heads)
        for head in heads:
            position = head.state.position
            if position is None or position.table != view.identity or head.name in lags:
                continue
            lag = await lag_in(core, view, head, earliest=earliest, commit_times=commit_times)
            lags[head.name] = _within(lag, head) if IntervalName.of(head.name) else lag
        lake = await status_in(view, snapshot, earliest, commit_times) if has_lake(info) else None
        return TableLook(view, earliest, snapshot, lake, lags)

    def _unchanged_lags(
        self, view: TableView, earliest: Mapping[Place, int], heads: list[Event]
    ) -> dict[str, Lag]:
        """Return the lags of the pass before that still hold: neither side has moved since.

        Their commit times still hold, too, and their ages do not: nothing here uses the ages.
        """
        before = self._looks.get(str(view.info.table_path))
        if (
            before is None
            or before.view.identity != view.identity
            or before.view.partitions != view.partitions
            or before.view.latest != view.latest
            or before.earliest != earliest
        ):
            return {}
        same = [h for h in heads if h is self._compared.get(h.name) and h.name in before.lags]
        return {h.name: before.lags[h.name] for h in same if not _unknown(before.lags[h.name])}

    async def _figures(self, look: TableLook) -> TableFigures:
        view, info = look.view, look.view.info
        offsets = sum(view.latest.values())
        if info.has_primary_key():
            counts = await row_counts(async_connection(self.connection), view)
            rows = None if counts is None else sum(counts.values())
        else:
            rows = sum(end - look.earliest.get(place, 0) for place, end in view.latest.items())
        size = await self._row_size(view)
        return TableFigures(
            table=str(info.table_path),
            kind="primary key" if info.has_primary_key() else "log",
            partitions=len(view.partitions) if info.is_partitioned() else None,
            buckets=len(view.latest),
            offsets=offsets,
            rows=rows,
            bytes=None if rows is None or size is None else round(rows * size),
            offsets_per_s=self._rate(info, offsets),
            retention_ms=retention_ms(info),
            partitions_expire=_partitions_expire(info),
            lake=None if look.lake is None else _lake(look.lake),
        )

    async def _row_size(self, view: TableView) -> float | None:
        now, table_id = time.monotonic(), view.info.table_id
        known = self._row_sizes.get(table_id)
        if known is not None and now - known[0] < ROW_SIZE_KEPT_S:
            return known[1]
        try:
            size = await bytes_per_row(async_connection(self.connection), view)
        except FlussError:
            size = None
        if size is not None:
            self._row_sizes[table_id] = (now, size)
        return size

    def _rate(self, info: TableInfo, offsets: int) -> float | None:
        name, now = str(info.table_path), now_ms()
        before = self._before.get(name)
        self._before[name] = (info.table_id, offsets, now)
        if before is None or before[0] != info.table_id or now <= before[2]:
            return None
        return max(0.0, (offsets - before[1]) * 1000 / (now - before[2]))


def _is_open(head: Event) -> bool:
    return head.state.pending is not None and not head.state.retired


def _within(lag: Lag, head: Event) -> Lag:
    """Return the lag of an interval: it reads the ranges of its plan, and nothing after them."""
    ranges = () if head.state.pending is None else head.state.pending.ranges
    counts = {(r.partition, r.bucket): r.count for r in ranges}
    places = [
        replace(p, offsets=count, lost=min(p.lost, count))
        for p in lag.places
        if (count := counts.get((p.partition, p.bucket)))
    ]
    return replace(lag, places=tuple(places))


def _partitions_expire(info: TableInfo) -> bool:
    if info.properties.get(AUTO_PARTITION, "false").lower() != "true":
        return False
    kept = info.properties.get(PARTITIONS_KEPT, PARTITIONS_KEPT_DEFAULT)
    return not kept.strip().startswith("-")


def _lake(status: LakeStatus) -> LakeFigures:
    behind = [b for b in status.buckets if b.lag_offsets > 0]
    ages = [b.lag_ms for b in behind if b.lag_ms is not None]
    return LakeFigures(
        snapshot_id=status.snapshot_id,
        behind=status.lag_offsets,
        oldest_ms=status.observed_ms - max(ages) if ages else None,
        oldest_known=len(ages) == len(behind),
    )


def checkpoint_figures(head: Event, looks: Mapping[str, TableLook]) -> CheckpointFigures:
    """Return the figures of a checkpoint: its state by its head, its lag by what was looked at."""
    state = head.state
    position, pending = state.position, state.pending
    table = "" if position is None else str(position.table.path)
    if position is None and pending is not None:
        table = str(pending.table.path)
    common: dict[str, Any] = {
        "name": head.name,
        "table": table,
        "events": head.sequence + 1,
        "last_event": str(head.kind),
        "updated_ms": head.created_ms,
        "retired": state.retired,
        "last_run": state.adopted_by or head.run_key,
        "pending": None
        if pending is None
        else PendingFigures(
            plan_id=pending.plan_id,
            run_key=pending.run_key,
            adopted_by=state.adopted_by,
            created_ms=pending.created_ms,
            offsets=pending.offsets,
            ranges=len(pending.ranges),
        ),
    }
    if state.retired or position is None:
        return CheckpointFigures(**common)
    look = looks.get(table)
    if look is None:
        return CheckpointFigures(**common, problem=f"there is no table {table} to compare it with")
    lag = look.lags.get(head.name)
    if lag is None:
        return CheckpointFigures(
            **common, problem=f"{table} was created again: the checkpoint belongs to the old table"
        )
    return CheckpointFigures(**common, **lag_figures(lag, look.view.info))


def lag_figures(lag: Lag, info: TableInfo) -> dict[str, Any]:
    """Return the figures of a lag: what is unread, since when, and when retention reaches it.

    Retention never deletes a batch before its age is `table.log.ttl`; a server deletes whole
    segments, so it is usually later. A bucket whose oldest unread row has no known time makes the
    whole answer partly known, because it may be the first.
    """
    kept_ms = retention_ms(info)
    commits = [p.committed_ms for p in lag.places if p.committed_ms is not None]
    unknown = _unknown(lag)
    if lag.lost:
        expiry = Expiry.PASSED
    elif not lag.places:
        expiry = Expiry.READ
    elif kept_ms is None:
        expiry = Expiry.NEVER
    elif not unknown:
        expiry = Expiry.KNOWN
    else:
        expiry = Expiry.PARTLY if commits else Expiry.UNKNOWN
    return {
        "unread": lag.offsets,
        "lost": lag.lost,
        "oldest_ms": min(commits, default=None),
        "expiry": expiry,
        "expires_ms": min(commits) + kept_ms if commits and kept_ms is not None else None,
        "buckets_behind": len(lag.places),
        "buckets_unknown": unknown,
    }


def _unknown(lag: Lag) -> int:
    """Return how many places have unread rows of unknown age.

    Where everything unread was deleted already, nothing is left that could be deleted.
    """
    return sum(p.committed_ms is None and p.lost < p.offsets for p in lag.places)


def _problem(error: FlussError) -> str:
    return " ".join(str(error).split())[:PROBLEM_LENGTH_MAX]
