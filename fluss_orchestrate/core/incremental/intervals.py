"""Backfills: the rows committed in [since, until), in any order, many at once.

Each boundary is resolved to offsets once and recorded under a name of its own; whoever needs it
later uses what was recorded. So the intervals [a, b) and [b, c) meet exactly, although they were
planned by different processes at different times. Each interval is a checkpoint of its own, and
the shared position of the table's scan is never touched.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import pyarrow as pa

from fluss_client.errors import ConfigError
from fluss_client.facade.connection import FlussConnection
from fluss_client.model.table import TablePath
from fluss_client.runtime import runtime
from fluss_orchestrate.core.checkpoints.coverage import CoverageLedger, ledger_of
from fluss_orchestrate.core.checkpoints.dropped import NOTHING_DROPPED, DropRecords, last_drop
from fluss_orchestrate.core.checkpoints.events import RESERVED, Event, now_ms
from fluss_orchestrate.core.checkpoints.position import TablePosition, place_order
from fluss_orchestrate.core.checkpoints.store import (
    CLAIM_ATTEMPTS_MAX,
    CheckpointStore,
    lost_too_often,
    pause,
)
from fluss_orchestrate.core.errors import PartitionGoneError, RetentionPassedError
from fluss_orchestrate.core.incremental.boundaries import Boundary, find_boundary
from fluss_orchestrate.core.incremental.gone import (
    as_seen,
    is_unpartitioned,
    unseen_details,
    with_records,
)
from fluss_orchestrate.core.incremental.guards import (
    UNKNOWN_END,
    PartitionCheck,
    check_identity,
    check_retention,
    unknown_drops,
)
from fluss_orchestrate.core.incremental.observe import TableView, observe
from fluss_orchestrate.core.incremental.planning import Draft, columns_of, retention_details
from fluss_orchestrate.core.incremental.reading import PlanReading, ProgressHook
from fluss_orchestrate.core.incremental.run import ScanRun
from fluss_orchestrate.core.incremental.scan import IncrementalScan
from fluss_orchestrate.core.incremental.settings import ScanSettings
from fluss_orchestrate.core.plan import BucketRange, ScanPlan, without
from fluss_orchestrate.core.receipts import Receipt
from fluss_orchestrate.core.sinks.base import Sink
from fluss_orchestrate.core.times import Time, time_ms


@dataclass(frozen=True, slots=True)
class _Recorded:
    """A boundary as the store has it."""

    position: TablePosition
    lost: frozenset[tuple[int | None, int]]
    """Places whose rows at the boundary had been deleted when it was resolved."""


class IntervalScan:
    """The rows of one table by commit time, interval by interval."""

    def __init__(
        self,
        connection: FlussConnection,
        table: TablePath | str,
        name: str,
        store: CheckpointStore | None = None,
        **options: Any,
    ) -> None:
        """`options` are those of `IncrementalScan`; `name` is the backfill's own."""
        self._scan = IncrementalScan(connection, table, name, store, **options)
        self.store = self._scan.store

    @property
    def settings(self) -> ScanSettings:
        """What was asked for."""
        return self._scan.settings

    def open_plan(self, plan: ScanPlan, progress: ProgressHook | None = None) -> PlanReading:
        """A read of the plan that also tells how far it is."""
        return self._scan.open_plan(plan, progress)

    @property
    def name(self) -> str:
        """The backfill's name; its intervals are checkpoints `name/[since,until)`."""
        return self._scan.name

    def interval_name(self, since: Time, until: Time) -> str:
        """The checkpoint of one interval."""
        return f"{self.name}/[{time_ms(since)},{time_ms(until)})"

    def plan(self, run_key: str, since: Time, until: Time, *, sink: Sink | None = None) -> ScanPlan:
        """The rows committed at or after `since` and before `until`, frozen.

        The interval has one plan for ever: every run key gets the same ranges, and a run that
        finds it pending finishes it. `NotYetError` until the end is final.

        Raises:
            CheckpointBindingError: if the interval belongs to another table, projection or sink.
            RowsTakenError: if another checkpoint brings some of these rows into the same sink;
                with `on_covered="skip"` they are left out.
            SinkChangesError: if the sink would take deletes of a key table for rows.
        """
        plan = self._planned(run_key, since, until, sink)[0]
        self._scan.begin_attempt(plan)
        return plan

    def _planned(
        self, run_key: str, since: Time, until: Time, sink: Sink | None
    ) -> tuple[ScanPlan, Receipt | None]:
        """The interval's plan, and the receipt of its commit if it was committed before."""
        first_ms, last_ms = time_ms(since), time_ms(until)
        if first_ms >= last_ms:
            raise ConfigError(f"[{first_ms}, {last_ms}) is no interval: since must be before until")
        name = self.interval_name(first_ms, last_ms)
        gate = self._scan.gate(sink)
        for attempt in range(CLAIM_ATTEMPTS_MAX):
            head = self.store.head(name)
            if head is not None:
                gate.check_head(head)
                known = self._known(head)
                if known is not None:
                    gate.check_plan(known)
                    receipt = head.receipt
                    return known, None if receipt is None else receipt.repeated()
            start, stop = self._boundary(first_ms), self._boundary(last_ms)
            draft = self._drafted(name, run_key, start, stop)
            gate.check_plan(draft.plan)
            draft = self._claimed(gate.ledger(draft.plan.table), head, draft)
            details = {"since_ms": first_ms, "until_ms": last_ms, **draft.details}
            recorded = self.store.try_plan(head, draft.plan, draft.position, details, gate.binding)
            if recorded is not None:
                return recorded, None
            pause(attempt)
        raise lost_too_often(name)

    def _claimed(self, ledger: CoverageLedger | None, head: Event | None, draft: Draft) -> Draft:
        """The draft without rows that others bring into the sink."""
        plan = draft.plan
        left = plan.ranges
        if ledger is not None:
            skip = self._scan.settings.on_covered == "skip"
            left = ledger.claim_interval(plan.name, head, plan.ranges, skip_taken=skip)
        details = dict(draft.details)
        covered = without(plan.ranges, left)
        if covered:
            details["covered_ranges"] = [r.to_json() for r in covered]
        return replace(draft, plan=replace(plan, ranges=left), details=details)

    def _known(self, head: Event) -> ScanPlan | None:
        """The interval's plan, pending or finished; None when it was abandoned or reset."""
        if head.state.pending is not None:
            return head.state.pending
        if head.receipt is None:
            return None
        event = self.store.log.event(head.name, int(head.receipt.details["sequence"]))
        return None if event is None else event.state.pending

    def read(self, plan: ScanPlan, progress: ProgressHook | None = None) -> pa.RecordBatchReader:
        """The plan's rows in (partition, bucket, offset) order: all of them, or an error."""
        return self._scan.read(plan, progress)

    def commit(self, plan: ScanPlan, **given: Any) -> Receipt:
        """Record that the interval is done; arguments as for `IncrementalScan.commit`.

        Its checkpoint has nothing left to do then: it is retired, and holds no partition.
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
        """Plan now; read in the `with` block; commit when it ends without an error.

        The interval is the same for every run key. A run key that has committed it is given no
        rows again; another one is, and a sink that is exact leaves them out.
        """
        plan, receipt = self._planned(run_key, since, until, sink)
        self._scan.begin_attempt(plan)
        committed = receipt if receipt is not None and receipt.run_key == run_key else None
        return ScanRun(self, run_key, plan, progress, committed)

    def _boundary(self, timestamp_ms: int) -> _Recorded:
        """Where a time cuts the table: as recorded, or resolved now and recorded."""
        name = f"{RESERVED}at{RESERVED}{self.name}{RESERVED}{timestamp_ms}"
        head = self.store.head(name)
        if head is None:
            core = self._scan.connection.core
            # Before the table is looked at: no partition of a record is then in the boundary.
            drops = last_drop(self.store, core.config.resolved_alias(), self._scan.settings.path)
            found: Boundary = runtime().call(
                find_boundary(core.backend, core.config, self._scan.settings, timestamp_ms)
            )
            reason = {"at_ms": timestamp_ms, "lost": [list(p) for p in found.lost]}
            head = self.store.set_first(name, as_seen(found.position, drops), reason)
        position = head.state.position
        assert position is not None
        lost = frozenset((p, b) for p, b in head.details.get("lost", ()))
        return _Recorded(position, lost)

    def _drafted(self, name: str, run_key: str, start: _Recorded, stop: _Recorded) -> Draft:
        """The interval's plan, with what the store knows of dropped partitions."""
        make = partial(self._draft, name, run_key, start, stop)
        seen = [start.position.drops_seen, stop.position.drops_seen]
        if is_unpartitioned(stop.position.offsets):
            return runtime().call(make(NOTHING_DROPPED))
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
        core = self._scan.connection.core
        view = await observe(core.backend, core.config.resolved_alias(), settings.path)
        for boundary in (start, stop):
            check_identity(boundary.position.table, view.identity)
        ranges, gone = self._ranges(start, stop, view, records)
        if gone and settings.on_partition_gone != "forget":
            raise PartitionGoneError(view.identity, gone)
        kept = await check_retention(
            core.backend,
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
        return Draft(plan, start.position, details)

    def _ranges(
        self, start: _Recorded, stop: _Recorded, view: TableView, records: DropRecords
    ) -> tuple[list[BucketRange], tuple[BucketRange, ...]]:
        """What lies between two boundaries and can be read, and what was dropped unread.

        Which boundary was recorded first is not known, and clocks are not asked. Partition ids
        never come back: a partition that exists now and is not in the end's boundary was created
        after that was resolved, and has no rows of the interval.
        """
        ranges, lost, gone = [], [], []
        begins, ends = start.position, stop.position
        dropped = records.of(view.identity)
        for place in sorted({*begins.offsets, *ends.offsets}, key=place_order):
            begin = begins.offsets.get(place, 0)
            end, record = ends.offsets.get(place), dropped.get(place)
            if end is None:
                if place in view.latest or (record is not None and record.end <= begin):
                    continue
                # Dropped before the end was resolved, or created after that and dropped since.
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
