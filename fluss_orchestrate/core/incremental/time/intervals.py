"""Scans of the rows that were committed in [since, until); the intervals may be read in any order.

Each boundary is resolved to offsets once and recorded under a name of its own; later plans use the
record. So the intervals [a, b) and [b, c) meet exactly, although different processes plan them at
different times. Each interval has a checkpoint of its own, and does not change the position of the
table's other scans.

Resolving a boundary also finds the places whose rows at the boundary were deleted by retention.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import pyarrow as pa

from fluss_client import Config, FlussConnection, OffsetSpec, TablePath
from fluss_client.engine import Backend, async_connection, backend_of, run_blocking
from fluss_client.errors import ConfigError
from fluss_orchestrate.core.checkpoints.coverage import ledger_of
from fluss_orchestrate.core.checkpoints.dropped import NOTHING_DROPPED, DropRecords, last_drop
from fluss_orchestrate.core.checkpoints.events import RESERVED, Event, IntervalName, now_ms
from fluss_orchestrate.core.checkpoints.position import TablePosition, place_order
from fluss_orchestrate.core.checkpoints.store import (
    CLAIM_ATTEMPTS_MAX,
    CLAIM_PAUSE,
    CheckpointStore,
    lost_too_often,
)
from fluss_orchestrate.core.errors import NotYetError, PartitionGoneError, RetentionPassedError
from fluss_orchestrate.core.incremental.planning.binding import BindingCheck
from fluss_orchestrate.core.incremental.planning.guards import (
    UNKNOWN_END,
    PartitionCheck,
    check_identity,
    check_retention,
    unknown_drops,
)
from fluss_orchestrate.core.incremental.planning.late_rows import (
    NOT_COVERED,
    covers_late_rows,
    late_details,
    late_partitions,
    observe_for_scan,
)
from fluss_orchestrate.core.incremental.planning.observation import TableView, offsets_of
from fluss_orchestrate.core.incremental.planning.partitions import (
    as_seen,
    is_unpartitioned,
    unseen_details,
    with_records,
)
from fluss_orchestrate.core.incremental.planning.planner import Draft, columns_of, retention_details
from fluss_orchestrate.core.incremental.planning.settings import ScanSettings
from fluss_orchestrate.core.incremental.reading.reader import PlanReading, ProgressHook
from fluss_orchestrate.core.incremental.run import ScanRun
from fluss_orchestrate.core.incremental.scan import IncrementalScan
from fluss_orchestrate.core.incremental.time.timestamps import NOT_YET_RETRY_MS, resolve_timestamp
from fluss_orchestrate.core.plan import BucketRange, Place, ScanPlan, without
from fluss_orchestrate.core.receipts import Receipt
from fluss_orchestrate.core.sinks.base import Sink
from fluss_orchestrate.core.times import Time, time_ms
from fluss_orchestrate.deprecated import accepts_old_parameters

LOOKS_MAX = 5


@dataclass(frozen=True, slots=True)
class Boundary:
    """The offset of each place of a table at which a time lies."""

    position: TablePosition
    lost: tuple[Place, ...]
    """Places where rows that were committed at or after the time may have been deleted."""


async def _observed(backend: Backend, alias: str, settings: ScanSettings) -> TableView:
    info = await backend.get_table_info(settings.path)
    return await observe_for_scan(backend, alias, info, settings)


async def find_boundary(
    backend: Backend, config: Config, settings: ScanSettings, timestamp_ms: int
) -> Boundary:
    """Return the exact offsets of a time.

    Partitions that are created during the search may have rows from before the time, so the search
    is repeated. Those that are created after the last listing cannot: the time had passed then.

    Raises:
        NotYetError: The offsets are not final yet.
    """
    alias = config.resolved_alias()
    view = await _observed(backend, alias, settings)
    for _ in range(LOOKS_MAX):
        cuts, earliest = await asyncio.gather(
            resolve_timestamp(backend, config, view, timestamp_ms, settings.settle_ms),
            offsets_of(backend, view.info, view.partition_ids(), OffsetSpec.earliest()),
        )
        if not view.info.is_partitioned():
            break
        listed = await backend.list_partitions(settings.path, None)
        listed += await late_partitions(backend, view.info, settings.on_late_rows)
        if all(partition.partition_id in view.partitions for partition in listed):
            break
        view = await _observed(backend, alias, settings)
    else:
        raise NotYetError(
            f"{settings.path}: partitions kept being created while {timestamp_ms} was looked for; "
            "ask again soon",
            NOT_YET_RETRY_MS,
        )
    # If the cut is the first offset that is left, retention may have deleted rows after the time.
    lost = tuple(p for p, cut in cuts.items() if 0 < earliest.get(p, 0) == cut)
    return Boundary(TablePosition(view.identity, cuts, {}, view.partitions), lost)


@dataclass(frozen=True, slots=True)
class _Recorded:
    """A boundary as the store recorded it."""

    position: TablePosition
    lost: frozenset[tuple[int | None, int]]
    """Places whose rows at the boundary had been deleted when it was resolved."""
    late_rows: bool
    """Whether rows of expired partitions are in it; they are not by the policy `note`."""
    event: Event
    """The event that recorded it."""


class IntervalScan:
    """Reads the rows of one table by intervals of commit time."""

    @accepts_old_parameters("IntervalScan")
    def __init__(
        self,
        connection: FlussConnection,
        table: TablePath | str,
        checkpoint: str,
        store: CheckpointStore | None = None,
        **scan_options: Any,
    ) -> None:
        """Prepare a scan; nothing is read yet.

        Args:
            connection: The connection to the cluster.
            table: The table, as a path or as `database.table`.
            checkpoint: The name of the checkpoints; each interval has one of its own below it.
            store: Where checkpoints are kept; by default a table in the cluster.
            **scan_options: Further arguments of `IncrementalScan`.
        """
        self._scan = IncrementalScan(connection, table, checkpoint, store, **scan_options)
        self.store = self._scan.store

    @property
    def settings(self) -> ScanSettings:
        """The settings of the scan."""
        return self._scan.settings

    def open_plan(self, plan: ScanPlan, progress: ProgressHook | None = None) -> PlanReading:
        """Return a reading of a plan that also says how far it is.

        Args:
            plan: The plan.
            progress: Called with a `ScanProgress` while the rows are read.
        """
        return self._scan.open_plan(plan, progress)

    @property
    def name(self) -> str:
        """The name of the scan; its intervals have the checkpoints `name/[since,until)`."""
        return self._scan.name

    def interval_name(self, since: Time, until: Time) -> str:
        """Return the name of the checkpoint of the interval from `since` to `until`."""
        return str(IntervalName(self.name, time_ms(since), time_ms(until)))

    def plan(self, run_key: str, since: Time, until: Time, *, sink: Sink | None = None) -> ScanPlan:
        """Record the rows that were committed at or after `since` and before `until`.

        An interval has one plan: every run key gets the same ranges, and a run that finds the plan
        pending finishes it.

        Args:
            run_key: The name of the run.
            since: The begin of the interval.
            until: The end of the interval; the rows at this time are not in it.
            sink: Where the rows go. Without a sink, the sink is the caller.

        Raises:
            CheckpointBindingError: if the interval belongs to another table, projection or sink.
            RowsTakenError: if another checkpoint brings some of these rows into the same sink;
                with `on_covered="skip"` they are left out.
            SinkChangesError: if the sink would take deletes of a key table for rows.
            NotYetError: Rows of the interval may still be committed.
        """
        plan = self._planned(run_key, since, until, sink)[0]
        self._scan.begin_attempt(plan)
        return plan

    def _planned(
        self, run_key: str, since: Time, until: Time, sink: Sink | None
    ) -> tuple[ScanPlan, Receipt | None]:
        """Return the plan of the interval, and its receipt if it was committed before."""
        first_ms, last_ms = time_ms(since), time_ms(until)
        if first_ms >= last_ms:
            raise ConfigError(f"[{first_ms}, {last_ms}) is no interval: since must be before until")
        name = self.interval_name(first_ms, last_ms)
        check = self._scan.binding_check(sink)
        check.check_interval()
        for attempt in range(CLAIM_ATTEMPTS_MAX):
            head = self.store.head(name)
            if head is not None:
                check.check_head(head)
                known = self._known(head)
                if known is not None:
                    receipt = head.receipt
                    if receipt is None:
                        check.check_pending(known)
                        return known, None
                    check.check_plan(known)
                    return known, receipt.repeated()
            start = self._boundary(first_ms)
            stop = self._boundary(last_ms, start.event)
            draft = self._drafted(name, run_key, start, stop)
            check.check_plan(draft.plan)
            draft = self._claimed(check, head, draft)
            times = {"since_ms": first_ms, "until_ms": last_ms}
            details = check.with_contract({**times, **draft.details})
            recorded = self.store.try_plan(
                head, draft.plan, draft.position, details, check.binding, upon=start.event
            )
            if recorded is not None:
                return recorded, None
            CLAIM_PAUSE.pause_blocking(attempt)
        raise lost_too_often(name)

    def _claimed(self, check: BindingCheck, head: Event | None, draft: Draft) -> Draft:
        """Return the draft without the rows that other checkpoints bring into the sink."""
        plan = draft.plan
        left = plan.ranges
        ledger = check.ledger(plan.table)
        if ledger is not None:
            skip = self._scan.settings.on_covered == "skip"
            in_order = check.needs_order(plan)
            left = ledger.claim_interval(
                plan.name, head, plan.ranges, skip_taken=skip, in_order=in_order
            )
        details = dict(draft.details)
        covered = without(plan.ranges, left)
        if covered:
            details["covered_ranges"] = [r.to_json() for r in covered]
        return replace(draft, plan=replace(plan, ranges=left), details=details)

    def _known(self, head: Event) -> ScanPlan | None:
        """Return the plan of the interval; None if it was abandoned or reset."""
        if head.state.pending is not None:
            return head.state.pending
        if head.receipt is None:
            return None
        event = self.store.log.event(head.name, int(head.receipt.details["sequence"]))
        return None if event is None else event.state.pending

    def read(self, plan: ScanPlan, progress: ProgressHook | None = None) -> pa.RecordBatchReader:
        """Return the rows of a plan in the order of partition, bucket and offset.

        The reader returns all rows of the plan, or raises an error.

        Args:
            plan: The plan.
            progress: Called with a `ScanProgress` while the rows are read.
        """
        return self._scan.read(plan, progress)

    def commit(self, plan: ScanPlan, **given: Any) -> Receipt:
        """Record that the interval is done, and retire its checkpoint.

        Args:
            plan: The plan.
            **given: The arguments of `IncrementalScan.commit`.
        """
        receipt = self._scan.commit(plan, **{**given, "retire": True})
        head = self.store.head(plan.name)
        bound = None if head is None else head.state.binding
        if bound is not None:
            ledger = ledger_of(self.store, bound.sink, plan.table, self.name)
            if ledger is not None:
                ledger.settle(plan.name, plan.ranges)
        return receipt

    def run(
        self,
        run_key: str,
        since: Time,
        until: Time,
        progress: ProgressHook | None = None,
        *,
        sink: Sink | None = None,
    ) -> ScanRun:
        """Plan now, read in the `with` block, and commit when the block ends without an error.

        The plan is the same for every run key. A run key that has committed it gets no rows again.
        Another run key gets them; a sink that is exactly-once does not write them twice.

        Args:
            run_key: The name of the run.
            since: The begin of the interval.
            until: The end of the interval; the rows at this time are not in it.
            progress: Called with a `ScanProgress` while the rows are read.
            sink: Where the rows go. Without a sink, the sink is the caller.
        """
        plan, receipt = self._planned(run_key, since, until, sink)
        self._scan.begin_attempt(plan)
        committed = receipt if receipt is not None and receipt.run_key == run_key else None
        return ScanRun(self, run_key, plan, progress, committed)

    def _boundary(self, timestamp_ms: int, earlier: Event | None = None) -> _Recorded:
        """Return the recorded boundary of a time, or resolve and record it.

        Its record has what differs from an earlier boundary.
        """
        name = f"{RESERVED}at{RESERVED}{self.name}{RESERVED}{timestamp_ms}"
        head = self.store.head(name)
        if head is None:
            core = async_connection(self._scan.connection)
            # Read before the table is observed: so no partition of a record is in the boundary.
            drops = last_drop(self.store, core.config.resolved_alias(), self._scan.settings.path)
            found: Boundary = run_blocking(
                find_boundary(backend_of(core), core.config, self._scan.settings, timestamp_ms)
            )
            reason = {"at_ms": timestamp_ms, "lost": [list(p) for p in found.lost]}
            if self._scan.settings.on_late_rows == "note":
                reason["late_rows"] = NOT_COVERED
            head = self.store.set_first(name, as_seen(found.position, drops), reason, earlier)
        position = head.state.position
        assert position is not None
        lost = frozenset((p, b) for p, b in head.details.get("lost", ()))
        return _Recorded(position, lost, covers_late_rows(head), head)

    def _drafted(self, name: str, run_key: str, start: _Recorded, stop: _Recorded) -> Draft:
        """Return the plan of the interval, using the records of dropped partitions."""
        make = partial(self._draft, name, run_key, start, stop)
        seen = [start.position.drops_seen, stop.position.drops_seen]
        if is_unpartitioned(stop.position.offsets):
            return run_blocking(make(NOTHING_DROPPED))
        alias = self._scan.connection.config.resolved_alias()
        known = [number for number in seen if number is not None]
        first = min(known) if len(known) == len(seen) else None
        settings = self._scan.settings
        draft, records = with_records(self.store, alias, settings.path, first, make)
        before, now = start.position, stop.position
        details = unseen_details(self._scan.connection, settings, before, now, records)
        return replace(draft, details={**draft.details, **details})

    async def _draft(
        self, name: str, run_key: str, start: _Recorded, stop: _Recorded, records: DropRecords
    ) -> Draft:
        settings = self._scan.settings
        core = async_connection(self._scan.connection)
        view = await _observed(backend_of(core), core.config.resolved_alias(), settings)
        for boundary in (start, stop):
            check_identity(boundary.position.table, view.identity)
        ranges, gone = self._ranges(start, stop, view, records)
        if gone and settings.on_partition_gone != "forget":
            raise PartitionGoneError(view.identity, gone)
        kept = await check_retention(
            backend_of(core),
            view,
            {r.place: r.start for r in ranges},
            [r.place for r in ranges],
            settings,
            self._scan.can_read_lake,
        )
        left = [replace(r, start=min(r.stop, kept.starts[r.place])) for r in ranges]
        plan = ScanPlan(
            name=name,
            run_key=run_key,
            table=view.identity,
            schema_id=view.info.schema_id,
            columns=columns_of(view.info, settings),
            metadata_columns=settings.metadata_columns,
            ranges=tuple(r for r in left if r.count),
            kind="changelog" if view.info.has_primary_key() else "log",
            created_ms=now_ms(),
        )
        details = retention_details(kept) | PartitionCheck(start.position, lost=gone).details()
        details |= late_details(view.info, settings)
        if view.info.takes_late_rows and not stop.late_rows:
            # Another policy resolved the end of the interval. The first one whose end is resolved
            # by `read` begins with the first late row.
            details["late_rows"] = NOT_COVERED
        return Draft(plan, start.position, details)

    def _ranges(
        self, start: _Recorded, stop: _Recorded, view: TableView, records: DropRecords
    ) -> tuple[list[BucketRange], tuple[BucketRange, ...]]:
        """Return the ranges between two boundaries, and those that were dropped unread."""
        ranges, lost, gone = [], [], []
        begins, ends = start.position, stop.position
        dropped = records.of(view.identity)
        for place in sorted({*begins.offsets, *ends.offsets}, key=place_order):
            begin = begins.offsets.get(place, 0)
            end, record = ends.offsets.get(place), dropped.get(place)
            if end is None:
                if place in view.latest or (record is not None and record.end <= begin):
                    continue
                # It was dropped before the end was resolved, or created after that and dropped.
                unread = begins.range_from(place, UNKNOWN_END)
                gone.append(unread if record is None else record.unread(place, begin))
                continue
            name = ends.partition_name(place)
            whole = BucketRange(place[0], name, place[1], begin, max(begin, end))
            if place in start.lost and whole.stop > 0:
                lost.append(replace(whole, start=0, stop=begin))
            if whole.count and place not in view.latest:
                gone.append(whole)
            elif whole.count:
                ranges.append(whole)
        first, last = begins.drops_seen, ends.drops_seen
        if first is not None and last is not None:
            gone += unknown_drops(dropped, begins, view, first, last)
        if lost and self._scan.settings.on_retention != "earliest":
            raise RetentionPassedError(ends.table, lost)
        return ranges, tuple(gone)
