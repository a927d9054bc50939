"""Cursors and intervals that bring rows of one table into one sink know of each other."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fluss_client import FlussConnection, FlussTable
from fluss_client.errors import UnsupportedError
from fluss_orchestrate.core.checkpoints import CheckpointStore
from fluss_orchestrate.core.checkpoints.coverage import NAME_PREFIX, CoverageLedger, first_offsets
from fluss_orchestrate.core.checkpoints.transfer import export_checkpoints, import_checkpoints
from fluss_orchestrate.core.errors import (
    EarlierRowsPendingError,
    RowsOutOfOrderError,
    RowsTakenError,
)
from fluss_orchestrate.core.incremental import IncrementalScan, IntervalScan
from fluss_orchestrate.core.job import run_increment, run_interval
from fluss_orchestrate.core.lake.state import read_table
from fluss_orchestrate.core.plan import BucketRange, without
from fluss_orchestrate.core.sinks import FlussTableSink, FunctionSink, ParquetSink
from tests.orchestrate.checkpoints.memory_log import MemoryEventLog
from tests.orchestrate.checkpoints.plans import position
from tests.orchestrate.incremental.events import EventTables, rows
from tests.waiting import moment_between

MakeScan = Callable[..., IncrementalScan]
MakeIntervals = Callable[..., IntervalScan]


@pytest.fixture
def intervals(connection: FlussConnection, store: CheckpointStore) -> MakeIntervals:
    def make(table: FlussTable, name: str = "job", **options: Any) -> IntervalScan:
        path = table.get_table_path()
        return IntervalScan(connection, path, name, store, settle_ms=0, **options)

    return make


def filled(tables: EventTables, count: int) -> tuple[FlussTable, int, int]:
    """A table with rows, and times before and after them."""
    table, begin = tables.events(), moment_between()
    tables.append(table, rows(range(count)))
    return table, begin, moment_between()


def ids_in(folder: Path) -> list[int]:
    import pyarrow.dataset as ds

    found: list[int] = ds.dataset(folder, format="parquet").to_table()["id"].to_pylist()
    return sorted(found)


def test_a_backfill_of_what_the_cursor_took_is_refused_or_left_out(
    tables: EventTables, make_scan: MakeScan, intervals: MakeIntervals, tmp_path: Path
) -> None:
    table, begin, middle = filled(tables, 50)
    sink = ParquetSink(tmp_path)
    cursor = make_scan(table, name="job", start=middle)
    tables.append(table, rows(range(50, 100)))
    end = moment_between()
    assert run_increment(cursor, sink, "run-1").rows == 50
    with pytest.raises(RowsTakenError, match="on_covered='skip'") as caught:
        run_interval(intervals(table), sink, "backfill", begin, end)
    assert caught.value.owner == "job"
    assert sum(r.count for r in caught.value.ranges) == 50
    # What the cursor has not taken yet it will take, so that is refused as well.
    tables.append(table, rows(range(100, 110)))
    later = moment_between()
    with pytest.raises(RowsTakenError):
        run_interval(intervals(table), sink, "ahead", end, later)
    done = run_interval(intervals(table, on_covered="skip"), sink, "backfill", begin, end)
    assert done.rows == 50
    assert sum(r[4] - r[3] for r in done.receipt.details["covered_ranges"]) == 50
    assert run_increment(cursor, sink, "run-2").rows == 10
    assert ids_in(tmp_path) == list(range(110))


def test_a_cursor_does_not_take_what_intervals_took(
    tables: EventTables, make_scan: MakeScan, intervals: MakeIntervals, tmp_path: Path
) -> None:
    table, begin, middle = filled(tables, 50)
    sink = ParquetSink(tmp_path)
    assert run_interval(intervals(table), sink, "one", begin, middle).rows == 50
    for name in ("job", "another"):
        with pytest.raises(RowsTakenError, match="start="):
            run_increment(make_scan(table, name=name), sink, "two")
    tables.append(table, rows(range(50, 60)))
    assert run_increment(make_scan(table, name="job", start=middle), sink, "two").rows == 10
    with pytest.raises(RowsTakenError, match="'job'"):
        run_increment(make_scan(table, name="a second cursor", start="latest"), sink, "three")
    elsewhere = ParquetSink(tmp_path / "elsewhere")
    assert run_increment(make_scan(table, name="x"), elsewhere, "three").rows == 60


def test_intervals_that_overlap_are_refused_and_an_abandoned_one_is_forgotten(
    tables: EventTables, intervals: MakeIntervals, store: CheckpointStore, tmp_path: Path
) -> None:
    table, sink = tables.events(), ParquetSink(tmp_path)
    bounds = [moment_between()]
    for number in range(3):
        tables.append(table, rows(range(number * 10, number * 10 + 10)))
        bounds.append(moment_between())
    left = intervals(table).plan("one", bounds[0], bounds[2], sink=sink)
    with pytest.raises(RowsTakenError):
        run_interval(intervals(table), sink, "two", bounds[1], bounds[3])
    store.abandon(left.name)
    assert run_interval(intervals(table), sink, "two", bounds[1], bounds[3]).rows == 20
    with pytest.raises(RowsTakenError):
        run_interval(intervals(table), sink, "one", bounds[0], bounds[2])
    assert run_interval(intervals(table), sink, "three", bounds[0], bounds[1]).rows == 10
    assert ids_in(tmp_path) == list(range(30))


def test_a_committed_interval_is_retired_and_another_run_of_it_adds_nothing(
    tables: EventTables, intervals: MakeIntervals, store: CheckpointStore, tmp_path: Path
) -> None:
    table, begin, end = filled(tables, 50)
    sink = ParquetSink(tmp_path)
    first = run_interval(intervals(table), sink, "one", begin, end)
    assert store.require(intervals(table).interval_name(begin, end)).state.retired
    for run_key in ("one", "two"):
        again = run_interval(intervals(table), sink, run_key, begin, end)
        assert (again.rows, again.receipt.moved) == (0, 0)
        assert again.receipt.plan_id == first.receipt.plan_id
    given: list[int] = []
    taker = FunctionSink(lambda reader: given.append(reader.read_all().num_rows), identity="a")
    for run_key in ("one", "one", "two"):
        run_interval(intervals(table, name="by function"), taker, run_key, begin, end)
    assert given == [50, 50], "the same run key takes nothing again, another one takes it again"


@pytest.mark.parametrize("engine", ["", "versioned"])
def test_intervals_into_a_key_table_are_written_in_their_order(
    connection: FlussConnection,
    tables: EventTables,
    intervals: MakeIntervals,
    store: CheckpointStore,
    backend_kind: str,
    engine: str,
) -> None:
    """It keeps the last row of a key, and an older row would overwrite a newer one."""
    more = {"table.merge-engine": engine, f"table.merge-engine.{engine}.ver-column": "id"}
    if engine and backend_kind == "embedded":
        with pytest.raises(UnsupportedError):
            tables.keyed(properties=more)
        return
    table, target = tables.events(buckets=1), tables.keyed(properties=more if engine else {})
    bounds = [moment_between()]
    for word in ("old", "new", "newest"):
        batch = rows(range(3))
        tables.append(table, batch.set_column(1, "text", pa.array([word] * 3)))
        bounds.append(moment_between())

    def run(number: int) -> int:
        sink = FlussTableSink(connection, target.get_table_path())
        return run_interval(
            intervals(table), sink, f"run {number}", bounds[number], bounds[number + 1]
        ).rows

    def words() -> set[str]:
        return set(read_table(connection, target.get_table_path()).read_all()["text"].to_pylist())

    if engine:  # any order is right
        assert [run(number) for number in (2, 0, 1)] == [3, 3, 3]
        return
    sink = FlussTableSink(connection, target.get_table_path())
    left = intervals(table).plan("run 0", bounds[0], bounds[1], sink=sink)
    with pytest.raises(EarlierRowsPendingError, match="not committed") as pending:
        run(1)
    assert pending.value.is_retriable
    assert pending.value.owner == left.name
    store.abandon(left.name)
    assert run(1) == 3
    with pytest.raises(RowsOutOfOrderError, match="in their order") as late:
        run(0)
    assert not late.value.is_retriable
    assert sum(r.count for r in late.value.ranges) == 3
    assert words() == {"new"}
    assert run(2) == 3
    assert words() == {"newest"}


def test_an_interval_that_was_reset_is_taken_again(
    tables: EventTables, intervals: MakeIntervals, store: CheckpointStore, tmp_path: Path
) -> None:
    table, begin, end = filled(tables, 50)
    sink = ParquetSink(tmp_path)
    scan = intervals(table)
    run_interval(scan, sink, "one", begin, end)
    for path in tmp_path.iterdir():
        path.unlink()
    name = scan.interval_name(begin, end)
    known = store.require(name).state.position
    assert known is not None
    store.reset(name, known, "the files were lost")
    assert run_interval(intervals(table), sink, "one", begin, end).rows == 50
    assert ids_in(tmp_path) == list(range(50))


def test_a_reset_or_retired_cursor_frees_what_it_does_not_take(
    tables: EventTables, make_scan: MakeScan, intervals: MakeIntervals, tmp_path: Path
) -> None:
    table, begin, middle = filled(tables, 20)
    sink = ParquetSink(tmp_path)
    cursor = make_scan(table, name="job")
    assert run_increment(cursor, sink, "one").rows == 20
    tables.append(table, rows(range(20, 30)))
    end = moment_between()
    cursor.store.retire("job", "from now on by intervals")
    with pytest.raises(RowsTakenError):
        run_interval(intervals(table), sink, "x", begin, end)
    assert run_interval(intervals(table), sink, "x", middle, end).rows == 10
    for path in tmp_path.iterdir():
        path.unlink()
    cursor.reset("latest", "its files are gone, and intervals bring them again")
    assert run_interval(intervals(table, name="anew"), sink, "x", begin, middle).rows == 20


def test_what_an_earlier_version_took_is_found_in_its_history(
    tables: EventTables, make_scan: MakeScan, intervals: MakeIntervals, tmp_path: Path
) -> None:
    table, begin, end = filled(tables, 20)
    sink = ParquetSink(tmp_path)
    cursor = make_scan(table, name="job")
    assert run_increment(cursor, sink, "one").rows == 20
    log = cursor.store.log
    forget_claims(log)
    with pytest.raises(RowsTakenError, match="'job'"):
        run_interval(intervals(table), sink, "x", begin, end)
    forget_claims(log)
    assert run_increment(cursor, sink, "two").rows == 0
    assert first_offsets(cursor.store, "job") == dict.fromkeys(((None, b) for b in range(4)), 0)
    with pytest.raises(RowsTakenError, match="'job'"):
        run_interval(intervals(table), sink, "x", begin, end)


def test_what_was_imported_from_another_store_is_found_in_its_history(
    tables: EventTables, make_scan: MakeScan, connection: FlussConnection, tmp_path: Path
) -> None:
    table, begin, end = filled(tables, 20)
    sink = ParquetSink(tmp_path)
    cursor = make_scan(table, name="job")
    assert run_increment(cursor, sink, "one").rows == 20
    other = CheckpointStore(MemoryEventLog())
    import_checkpoints(other, export_checkpoints(cursor.store, ["job"]))
    scan = IntervalScan(connection, table.get_table_path(), "job", other, settle_ms=0)
    with pytest.raises(RowsTakenError, match="'job'"):
        run_interval(scan, sink, "x", begin, end)


def forget_claims(log: Any) -> None:
    """Make a store look as one of a version that claimed nothing."""
    from dataclasses import replace

    for name in [name for name in log.names() if name.startswith(NAME_PREFIX)]:
        del log.records[name]
    for name in log.names():
        log.rewrite(name, lambda event: replace(event, state=replace(event.state, binding=None)))


SPANS = st.lists(st.tuples(st.integers(0, 2), st.integers(0, 30), st.integers(1, 8)), max_size=8)


@given(SPANS, SPANS)
def test_what_is_left_of_ranges(
    wanted: list[tuple[int, int, int]], taken: list[tuple[int, int, int]]
) -> None:
    def ranges(spans: list[tuple[int, int, int]]) -> list[BucketRange]:
        return [BucketRange(None, None, b, start, start + n) for b, start, n in spans]

    def offsets(found: list[BucketRange]) -> list[tuple[int, int]]:
        return sorted((r.bucket, offset) for r in found for offset in range(r.start, r.stop))

    others = set(offsets(ranges(taken)))
    left = offsets(list(without(ranges(wanted), ranges(taken))))
    assert left == [one for one in offsets(ranges(wanted)) if one not in others]


@given(st.lists(st.tuples(st.integers(0, 20), st.integers(1, 6), st.booleans()), max_size=12))
def test_no_offset_is_claimed_twice(steps: list[tuple[int, int, bool]]) -> None:
    """Whatever is claimed, committed or refused: no offset belongs to two intervals."""
    store = CheckpointStore(MemoryEventLog())
    ledger = CoverageLedger(store, "parquet:x", position(0).table, "job")
    owned: dict[int, int] = {}
    for number, (start, count, settles) in enumerate(steps):
        wanted = [BucketRange(None, None, 0, start, start + count)]
        name = f"job/[{number},{number + 1})"
        left = ledger.claim_interval(name, None, wanted, skip_taken=True)
        for r in left:
            for offset in range(r.start, r.stop):
                assert owned.setdefault(offset, number) == number
        if settles:
            ledger.settle(name, left)
        assert set(range(start, start + count)) <= set(owned)
