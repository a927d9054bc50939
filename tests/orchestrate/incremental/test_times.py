"""Times as ends: exactly the rows committed before them, whenever it is asked."""

from __future__ import annotations

import datetime as dt
import time
from collections.abc import Callable

import pyarrow as pa
import pytest

from fluss_client import FlussConnection, FlussTable
from fluss_client.errors import ConfigError
from fluss_client.runtime import runtime
from fluss_orchestrate.core.checkpoints import CheckpointStore
from fluss_orchestrate.core.errors import NotYetError
from fluss_orchestrate.core.incremental import IncrementalScan, IntervalScan
from fluss_orchestrate.core.incremental.planning.observation import observe
from fluss_orchestrate.core.incremental.time.timestamps import resolve_timestamp
from fluss_orchestrate.core.plan import METADATA_COLUMNS, Place
from tests.orchestrate.checkpoints.memory_log import MemoryEventLog
from tests.orchestrate.incremental.events import EventTables, rows
from tests.waiting import moment_between

MakeScan = Callable[..., IncrementalScan]


def cuts_of(connection: FlussConnection, table: FlussTable, timestamp_ms: int) -> dict[Place, int]:
    """Where a time cuts each bucket, by `resolve_timestamp`."""
    core = connection.core

    async def ask() -> dict[Place, int]:
        view = await observe(core.backend, "default", table.get_table_path())
        return await resolve_timestamp(core.backend, core.config, view, timestamp_ms, 0)

    return runtime().call(ask())


def true_cuts(everything: pa.Table, buckets: int, timestamp_ms: int) -> dict[Place, int]:
    """The same by looking at every row."""
    cuts: dict[Place, int] = {(None, b): 0 for b in range(buckets)}
    at = everything["_timestamp"].cast(pa.int64()).to_pylist()
    places = zip(
        at, everything["_bucket"].to_pylist(), everything["_offset"].to_pylist(), strict=True
    )
    for when, bucket, offset in places:
        if when < timestamp_ms:
            cuts[None, bucket] = max(cuts[None, bucket], offset + 1)
    return cuts


def written_over_time(tables: EventTables, batches: int) -> tuple[FlussTable, pa.Table]:
    table = tables.events(buckets=3)
    for number in range(batches):
        tables.append(table, rows(range(number * 4, number * 4 + 4)))
        moment_between()
    scan = IncrementalScan(
        tables.connection,
        table.get_table_path(),
        "all",
        CheckpointStore(MemoryEventLog()),
        metadata_columns=METADATA_COLUMNS,
    )
    return table, scan.read(scan.plan("x")).read_all()


def test_every_time_cuts_exactly(connection: FlussConnection, tables: EventTables) -> None:
    table, everything = written_over_time(tables, 25)
    times = sorted(set(everything["_timestamp"].cast(pa.int64()).to_pylist()))
    for when in {times[0] - 1000, *times, *(t + 1 for t in times)}:
        assert cuts_of(connection, table, when) == true_cuts(everything, 3, when), when


def test_until_a_time(tables: EventTables, make_scan: MakeScan) -> None:
    table = tables.events(buckets=2)
    tables.append(table, rows(range(10)))
    middle = moment_between()
    tables.append(table, rows(range(10, 20)))
    scan = make_scan(table)
    with scan.run("one", until=middle) as run:
        assert sorted(run.to_arrow()["id"].to_pylist()) == list(range(10))
    with scan.run("again", until=middle) as run:
        assert run.plan.is_empty
    end = dt.datetime.fromtimestamp(moment_between() / 1000, dt.UTC)
    with scan.run("two", until=end) as run:
        assert sorted(run.to_arrow()["id"].to_pylist()) == list(range(10, 20))
    late = make_scan(table, name="late", start=middle)
    with late.run("one") as run:
        assert sorted(run.to_arrow()["id"].to_pylist()) == list(range(10, 20))
    with pytest.raises(ConfigError, match="time zone"):
        scan.plan("three", until=dt.datetime(2026, 1, 1))


def test_a_time_that_has_not_come(tables: EventTables, make_scan: MakeScan) -> None:
    table = tables.events(buckets=2)
    tables.append(table, rows(range(10)))
    scan = make_scan(table, settle_ms=60_000)
    with pytest.raises(NotYetError) as future:
        scan.plan("one", until=time.time_ns() // 1_000_000 + 3_600_000)
    assert 3_500_000 < future.value.retry_after_ms <= 3_600_000
    now = moment_between()
    with pytest.raises(NotYetError) as unsettled:
        scan.plan("one", until=now)
    assert 0 < unsettled.value.retry_after_ms <= 60_000
    # What comes later settles it, in every bucket that it reaches.
    tables.append(table, rows(range(10, 30)))
    with scan.run("one", until=now) as run:
        assert sorted(run.to_arrow()["id"].to_pylist()) == list(range(10))


@pytest.fixture
def intervals(
    connection: FlussConnection, store: CheckpointStore
) -> Callable[[FlussTable], IntervalScan]:
    def make(table: FlussTable) -> IntervalScan:
        return IntervalScan(connection, table.get_table_path(), "backfill", store, settle_ms=0)

    return make


def test_intervals_meet_exactly_in_any_order(
    tables: EventTables, intervals: Callable[[FlussTable], IntervalScan], make_scan: MakeScan
) -> None:
    table = tables.events(buckets=3)
    shared = make_scan(table)
    with shared.run("before") as run:
        run.to_arrow()
    bounds = [moment_between()]
    for number in range(5):
        tables.append(table, rows(range(number * 10, number * 10 + 10)))
        bounds.append(moment_between())
    scan = intervals(table)
    found: dict[int, list[int]] = {}
    for at in (3, 0, 4, 1, 2):
        with scan.run(f"run-{at}", bounds[at], bounds[at + 1]) as run:
            found[at] = sorted(run.to_arrow()["id"].to_pylist())
    assert found == {at: list(range(at * 10, at * 10 + 10)) for at in range(5)}
    with scan.run("whole", bounds[0], bounds[-1]) as run:
        assert run.to_arrow().num_rows == 50
    again = intervals(table).plan("another run", bounds[1], bounds[2])
    assert intervals(table).read(again).read_all().num_rows == 10
    assert intervals(table).commit(again).run_key == "run-1"
    with shared.run("after") as run:
        assert run.to_arrow().num_rows == 50
    with pytest.raises(ConfigError, match="no interval"):
        scan.plan("x", bounds[1], bounds[1])


def test_a_boundary_is_resolved_once(
    tables: EventTables, intervals: Callable[[FlussTable], IntervalScan], store: CheckpointStore
) -> None:
    """Partitions that come after a boundary was fixed hold nothing from before it."""
    table = tables.days("d1")
    start = moment_between()
    tables.append(table, rows(range(5), "d1"))
    middle = moment_between()
    with intervals(table).run("one", start, middle) as run:
        assert run.to_arrow().num_rows == 5
    tables.admin.create_partition(table.get_table_path(), {"day": "d2"}).result()
    tables.append(table, rows(range(5, 9), "d2"))
    end = moment_between()
    with intervals(table).run("two", middle, end) as run:
        assert sorted(run.to_arrow()["id"].to_pylist()) == [5, 6, 7, 8]
    with intervals(table).run("all", start, end) as run:
        assert run.to_arrow().num_rows == 9
    assert len(store.names()) == 3
    assert len(store.names(internal=True)) == 6


def test_an_interval_that_is_not_over(
    tables: EventTables, intervals: Callable[[FlussTable], IntervalScan], store: CheckpointStore
) -> None:
    table = tables.events()
    start = moment_between()
    with pytest.raises(NotYetError):
        intervals(table).plan("one", start, start + 3_600_000)
    assert store.names() == []
    left = intervals(table).plan("one", start, moment_between())
    assert intervals(table).plan("two", *bounds_of(left.name)) == left
    store.abandon(left.name)
    again = intervals(table).plan("two", *bounds_of(left.name))
    assert (again.run_key, again.ranges) == ("two", left.ranges)


def bounds_of(name: str) -> tuple[int, int]:
    first, last = name.rpartition("[")[2].rstrip(")").split(",")
    return int(first), int(last)
