"""Partitions that are dropped between plans: let go when they were read, never lost in silence."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest

from fluss_client import FlussConnection, FlussTable
from fluss_client.model.table import PartitionInfo
from fluss_orchestrate.core.checkpoints import CheckpointStore, TablePosition
from fluss_orchestrate.core.checkpoints import transitions as transitions_module
from fluss_orchestrate.core.checkpoints.dropped import record_dropped
from fluss_orchestrate.core.errors import NotYetError, PartitionGoneError, PartitionUnseenError
from fluss_orchestrate.core.identity import TableIdentity
from fluss_orchestrate.core.incremental import IncrementalScan, IntervalScan
from fluss_orchestrate.core.incremental.planning.partitions import gaps
from fluss_orchestrate.core.provisioning import (
    PartitionWindow,
    WindowPlan,
    apply_partition_window,
    plan_partition_window,
)
from fluss_orchestrate.core.provisioning.dropping import PartitionNeededError, drop_partitions
from fluss_orchestrate.core.receipts import Receipt
from tests.orchestrate.incremental.events import EventTables, rows
from tests.waiting import moment_between

MakeScan = Callable[..., IncrementalScan]
NOW = datetime(2026, 3, 31, 12, tzinfo=UTC)
OLD, OLDER, TODAY = "20260102", "20260101", "20260331"


class Days:
    """A table of days with a window that retains none but today's."""

    def __init__(self, tables: EventTables, store: CheckpointStore) -> None:
        self.tables = tables
        self.connection = tables.connection
        self.store = store
        self.table: FlussTable = tables.days(OLDER, OLD, TODAY, buckets=1)
        self.path = self.table.get_table_path()
        self.window = PartitionWindow(str(self.path), "day", ahead=0, retain=0)

    def append(self, day: str, count: int) -> None:
        self.tables.append(self.table, rows(range(count), day))

    def create(self, day: str) -> int:
        self.tables.admin.create_partition(self.path, {"day": day}).result()
        return self.partition(day).partition_id

    def partition(self, day: str) -> PartitionInfo:
        found = self.tables.admin.list_partition_infos(self.path).result()
        return next(p for p in found if p.partition_name == day)

    def drop_elsewhere(self, day: str) -> None:
        """As somebody does who does not use this package."""
        self.tables.admin.drop_partition(self.path, {"day": day}).result()

    def planned(self, **options: Any) -> WindowPlan:
        return plan_partition_window(
            self.connection, self.window, now=NOW, store=self.store, **options
        )

    def move(self, **options: Any) -> WindowPlan:
        return apply_partition_window(self.connection, self.planned(**options))

    def names(self) -> set[str]:
        found = self.tables.admin.list_partition_infos(self.path).result()
        return {p.partition_name for p in found}


@pytest.fixture
def days(tables: EventTables, store: CheckpointStore) -> Days:
    return Days(tables, store)


def taken(scan: IncrementalScan, key: str) -> list[str]:
    """The days of the rows of a run."""
    with scan.run(key) as run:
        found: list[str] = run.to_arrow()["day"].to_pylist()
    return found


def ranges_of(error: PartitionGoneError) -> list[tuple[str | None, int, int]]:
    return [(r.partition, r.start, r.stop) for r in error.ranges]


def test_a_window_and_a_scan_get_on(days: Days, make_scan: MakeScan) -> None:
    days.append(OLDER, 3)
    days.append(OLD, 2)
    scan = make_scan(days.table)
    assert len(taken(scan, "one")) == 5
    done = days.move()
    assert {p.partition_name for p in done.drop} == {OLDER, OLD}
    assert days.names() == {TODAY}
    days.append(TODAY, 1)
    # No policy is needed: both were read to their end when they were dropped.
    assert taken(scan, "two") == [TODAY]
    events = list(days.store.history(scan.name))
    assert events[1].details["finished_partitions"] == [OLDER, OLD]
    assert taken(scan, "three") == []


def test_a_position_of_an_earlier_version_lets_go_too(days: Days, make_scan: MakeScan) -> None:
    days.append(OLDER, 3)
    scan = make_scan(days.table)
    taken(scan, "one")
    position = days.store.require(scan.name).state.position
    assert position is not None
    assert position.drops_seen is not None
    before = replace(position, drops_seen=None, partitions_seen=None)
    assert TablePosition.from_json(before.to_json()) == before
    assert "seen" not in before.to_json()
    assert TablePosition.from_json(position.to_json()) == position
    days.move()
    days.store.reset(scan.name, before)
    assert taken(scan, "two") == []


def test_guards_are_asked_again_at_the_drop(days: Days, make_scan: MakeScan) -> None:
    days.append(OLDER, 3)
    scan = make_scan(days.table)
    taken(scan, "one")
    planned = days.planned()
    assert {p.partition_name for p in planned.drop} == {OLDER, OLD}
    days.append(OLDER, 2)  # between the plan and its execution
    done = apply_partition_window(days.connection, planned)
    assert {p.partition_name for p in done.drop} == {OLD}
    [(kept, reason)] = done.kept
    assert kept.partition_name == OLDER
    assert reason == f"checkpoint '{scan.name}' has read bucket 0 up to 3 of 5"
    assert done.to_json()["kept"] == {OLDER: reason}
    assert days.names() == {OLDER, TODAY}
    assert taken(scan, "two") == [OLDER, OLDER]


def test_windows_at_once_are_one_drop(days: Days, make_scan: MakeScan) -> None:
    days.append(OLDER, 3)
    scan = make_scan(days.table)
    taken(scan, "one")
    plans = [days.planned() for _ in range(3)]
    with ThreadPoolExecutor(3) as pool:
        list(pool.map(lambda planned: apply_partition_window(days.connection, planned), plans))
    assert days.names() == {TODAY}
    assert taken(scan, "two") == []
    assert taken(scan, "three") == []


def test_a_partition_made_anew_since_the_plan_stays(days: Days) -> None:
    planned = days.planned()
    days.drop_elsewhere(OLDER)
    days.drop_elsewhere(OLD)
    days.create(OLDER)
    done = apply_partition_window(days.connection, planned)
    assert "created again" in {p.partition_name: r for p, r in done.kept}[OLDER]
    assert days.names() == {OLDER, TODAY}


def test_what_a_forced_drop_takes_is_named(days: Days, make_scan: MakeScan) -> None:
    days.append(OLDER, 3)
    scan = make_scan(days.table)
    taken(scan, "one")
    days.append(OLDER, 2)
    days.create("20260103")
    days.append("20260103", 4)
    with pytest.raises(PartitionNeededError, match="up to 3 of 5"):
        drop_partitions(days.connection, days.path, [{"day": OLDER}], store=days.store)
    days.move(guards=())
    assert days.names() == {TODAY}
    with pytest.raises(PartitionGoneError) as caught:
        scan.plan("two")
    # The third one was created, filled and dropped between two plans.
    assert ranges_of(caught.value) == [(OLDER, 3, 5), ("20260103", 0, 4)]
    days.append(TODAY, 1)
    with make_scan(days.table, on_partition_gone="forget").run("three") as run:
        assert run.to_arrow()["day"].to_pylist() == [TODAY]
    assert run.receipt is not None
    assert [r[1:] for r in run.receipt.details["gone_ranges"]] == [
        [OLDER, 0, 3, 5],
        ["20260103", 0, 0, 4],
    ]
    assert taken(scan, "four") == []
    # A checkpoint that begins now has missed nothing.
    assert taken(make_scan(days.table, name="new"), "one") == [TODAY]


def test_after_a_reset_drops_are_still_judged(days: Days, make_scan: MakeScan) -> None:
    days.move(guards=())
    scan = make_scan(days.table)
    scan.reset("earliest")
    days.create(OLDER)
    days.append(OLDER, 2)
    days.move(guards=())
    with pytest.raises(PartitionGoneError) as caught:
        scan.plan("one")
    assert ranges_of(caught.value) == [(OLDER, 0, 2)]


def test_a_drop_elsewhere_is_no_proof(days: Days, make_scan: MakeScan) -> None:
    days.append(OLDER, 3)
    scan = make_scan(days.table)
    taken(scan, "one")
    days.drop_elsewhere(OLDER)
    with pytest.raises(PartitionGoneError) as caught:
        scan.plan("two")
    assert ranges_of(caught.value) == [(OLDER, 3, -1)]


def test_a_record_that_comes_a_moment_late(days: Days, make_scan: MakeScan) -> None:
    days.append(OLDER, 3)
    scan = make_scan(days.table)
    taken(scan, "one")
    drop_partitions(days.connection, days.path, [{"day": OLD}], store=days.store)
    gone = days.partition(OLDER)
    days.drop_elsewhere(OLDER)
    identity = TableIdentity.of("default", days.table.get_table_info())
    late = threading.Timer(0.3, record_dropped, (days.store, identity, gone, {0: 3}))
    late.start()
    assert taken(scan, "two") == []
    late.join()


def test_ids_tell_of_a_partition_that_no_plan_has_seen(days: Days, make_scan: MakeScan) -> None:
    """Created, filled and dropped by others between two plans: only its id is left."""
    scan = make_scan(days.table)
    strict = make_scan(days.table, name="strict", on_partition_unseen="fail")
    taken(scan, "one"), taken(strict, "one")
    number = days.create("20260401")
    days.append("20260401", 7)
    days.drop_elsewhere("20260401")
    days.create("20260402")
    taken(scan, "two")
    noted = list(days.store.history(scan.name))[1].details["unseen_partition_ids"]
    assert any(first <= number <= last for first, last in noted["ranges"])
    with pytest.raises(PartitionUnseenError, match="on_partition_unseen='note'") as caught:
        strict.plan("two")
    assert any(first <= number <= last for first, last in caught.value.ids)
    taken(make_scan(days.table, name="strict"), "two")
    assert strict.plan("three").is_empty


def test_ids_of_other_tables_are_no_alarm(
    days: Days, make_scan: MakeScan, tables: EventTables
) -> None:
    scan = make_scan(days.table, on_partition_unseen="fail")
    taken(scan, "one")
    other = Days(tables, days.store)
    theirs = {other.partition(name).partition_id for name in other.names()}
    days.create("20260402")
    alarm: PartitionUnseenError | None = None
    try:
        taken(scan, "two")
    except PartitionUnseenError as error:
        # Other tests of a shared cluster create and drop partitions of their own.
        alarm = error
    ids = () if alarm is None else alarm.ids
    assert not any(first <= i <= last for i in theirs for first, last in ids)


def test_gaps() -> None:
    assert gaps(4, [1, 5, 7, 10]) == [(6, 6), (8, 9)]
    assert gaps(10, [3]) == []
    assert gaps(-1, []) == []


@pytest.fixture
def intervals(days: Days) -> Callable[..., IntervalScan]:
    def make(**options: Any) -> IntervalScan:
        return IntervalScan(
            days.connection, days.path, "backfill", days.store, settle_ms=0, **options
        )

    return make


def took(scan: IntervalScan, since: int, until: int) -> list[str]:
    with scan.run(f"{since}", since, until) as run:
        found: list[str] = run.to_arrow()["day"].to_pylist()
    return found


def test_a_finished_interval_keeps_no_partition(
    days: Days, intervals: Callable[..., IntervalScan]
) -> None:
    start = moment_between()
    days.append(OLDER, 3)
    middle = moment_between()
    days.append(OLD, 2)
    end = moment_between()
    assert took(intervals(), start, middle) == [OLDER] * 3
    left = intervals().plan("late", middle, end)
    done = days.move()
    # The finished interval keeps nothing, the pending one the partition that it is to read.
    assert {p.partition_name for p in done.drop} == {OLDER}
    [(kept, reason)] = done.kept
    assert (kept.partition_name, reason) == (
        OLD,
        f"interval '{left.name}' has not read bucket 0 [0, 2)",
    )
    days.store.abandon(left.name)
    assert days.planned().drop == ()
    # What was dropped is no hindrance, because it had ended before this interval began.
    assert took(intervals(), middle, end) == [OLD, OLD]
    assert {p.partition_name for p in days.move().drop} == {OLD}


def test_a_finished_interval_of_an_earlier_version_keeps_none_either(
    days: Days, intervals: Callable[..., IntervalScan]
) -> None:
    """Its commit did not retire it."""
    start = moment_between()
    days.append(OLDER, 3)
    plan = intervals().plan("one", start, moment_between())
    assert [p.partition_name for p, _ in days.planned().kept] == [OLDER]
    receipt = Receipt("increment", plan.table, plan.run_key, plan.ranges, 3, plan_id=plan.plan_id)
    told = {"name": plan.name, "sequence": plan.sequence}
    days.store.commit(plan, replace(receipt, details=told))
    assert not days.store.require(plan.name).state.retired
    assert {p.partition_name for p in days.move().drop} == {OLDER, OLD}


def test_an_interval_across_a_window(days: Days, intervals: Callable[..., IntervalScan]) -> None:
    start = moment_between()
    days.append(OLDER, 3)
    middle = moment_between()
    assert took(intervals(), start, middle) == [OLDER] * 3
    days.create("20260103")
    days.append("20260103", 4)
    days.move(guards=())
    end = moment_between()
    with pytest.raises(PartitionGoneError) as caught:
        intervals().plan("two", middle, end)
    # The older days had no rows after the boundary; the new one was never seen.
    assert ranges_of(caught.value) == [("20260103", 0, 4)]


def test_an_end_recorded_by_a_clock_that_is_behind(
    days: Days, intervals: Callable[..., IntervalScan], monkeypatch: pytest.MonkeyPatch
) -> None:
    before = moment_between()
    start = moment_between()
    took(intervals(), before, start)
    days.append(OLDER, 3)
    days.drop_elsewhere(OLDER)
    end = moment_between()
    now_ms = transitions_module.now_ms
    monkeypatch.setattr(transitions_module, "now_ms", lambda: now_ms() - 60_000)
    with pytest.raises(PartitionGoneError) as caught:
        intervals().plan("two", start, end)
    assert ranges_of(caught.value) == [(OLDER, 0, -1)]
    plan = intervals(on_partition_gone="forget").plan("two", start, end)
    assert plan.is_empty


def test_an_interval_may_forget_what_is_gone(
    days: Days, intervals: Callable[..., IntervalScan]
) -> None:
    start = moment_between()
    days.append(OLDER, 3)
    days.append(OLD, 2)
    end = moment_between()
    left = intervals().plan("one", start, end)
    days.store.abandon(left.name)
    days.drop_elsewhere(OLDER)
    with pytest.raises(PartitionGoneError) as caught:
        intervals().plan("two", start, end)
    assert ranges_of(caught.value) == [(OLDER, 0, 3)]
    with intervals(on_partition_gone="forget").run("three", start, end) as run:
        assert run.to_arrow()["day"].to_pylist() == [OLD, OLD]
    assert run.receipt is not None
    assert [r[1:] for r in run.receipt.details["gone_ranges"]] == [[OLDER, 0, 0, 3]]


def test_a_partition_created_after_the_end_was_fixed(
    days: Days, intervals: Callable[..., IntervalScan]
) -> None:
    start, middle = moment_between(), moment_between()
    end = moment_between()
    assert took(intervals(), middle, end) == []
    days.create("20260401")
    days.append("20260401", 2)
    # The start is looked at last and knows the new partition, which has no rows of the interval.
    assert took(intervals(), start, middle) == []
    assert took(intervals(), end, moment_between()) == ["20260401"] * 2


def test_a_time_to_come_of_a_table_without_partitions(
    tables: EventTables, connection: FlussConnection, store: CheckpointStore
) -> None:
    """No server is asked then, so none says that the time lies in its future."""
    table = tables.days()
    scan = IntervalScan(connection, table.get_table_path(), "backfill", store, settle_ms=0)
    start = moment_between()
    with pytest.raises(NotYetError):
        scan.plan("one", start, start + 3_600_000)
