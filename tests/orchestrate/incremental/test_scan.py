"""Increments of log tables: complete, once, in order, the same again."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from fluss_client import FlussConnection
from fluss_client.errors import ConfigError, SchemaError
from fluss_orchestrate.core.checkpoints import CheckpointStore, FlussCheckpointStore
from fluss_orchestrate.core.errors import (
    CheckpointRetiredError,
    IncompleteReadError,
    NotYetError,
    PendingPlanError,
)
from fluss_orchestrate.core.incremental import IncrementalScan, ScanProgress
from fluss_orchestrate.core.incremental.planning import memory
from fluss_orchestrate.core.incremental.reading import reader as reading
from fluss_orchestrate.core.incremental.time import timestamps as finishing
from fluss_orchestrate.core.job import run_increment
from fluss_orchestrate.core.plan import METADATA_COLUMNS, ScanPlan
from fluss_orchestrate.core.sinks import ParquetSink
from fluss_orchestrate.core.sinks.base import range_plan
from tests.orchestrate.incremental.events import EventTables, rows

MakeScan = Callable[..., IncrementalScan]


def divide(one: int, other: int) -> float:
    return one / other


def ids(table: pa.Table) -> list[int]:
    found: list[int] = table["id"].to_pylist()
    return found


def test_each_run_gets_what_is_new(tables: EventTables, make_scan: MakeScan) -> None:
    table = tables.events()
    scan = make_scan(table)
    expected = 0
    for number, size in enumerate((10, 1, 0, 25)):
        if size:
            tables.append(table, rows(range(expected, expected + size)))
        with scan.run(f"run-{number}") as run:
            found = run.to_arrow()
        assert sorted(ids(found)) == list(range(expected, expected + size))
        assert run.receipt is not None
        assert run.receipt.rows == size
        assert run.plan.is_empty == (size == 0)
        expected += size
    assert found.schema == table.arrow_schema


def test_the_default_store_is_a_table_of_the_cluster(
    connection: FlussConnection, tables: EventTables, scan_database: str
) -> None:
    table = tables.events()
    tables.append(table, rows(range(5)))
    store = FlussCheckpointStore(connection, scan_database, "checkpoints", replicas=1)
    scan = IncrementalScan(connection, str(table.get_table_path()), "loads", store)
    with scan.run("one") as run:
        assert sorted(ids(run.to_arrow())) == [0, 1, 2, 3, 4]
    again = FlussCheckpointStore(connection, scan_database, "checkpoints", replicas=1)
    scan = IncrementalScan(connection, table.get_table_path(), "loads", again)
    with scan.run("two") as run:
        assert run.to_arrow().num_rows == 0
    assert again.names() == ["loads"]
    assert isinstance(IncrementalScan(connection, "a.b", "x").store, FlussCheckpointStore)


def test_rows_come_by_partition_bucket_and_offset(tables: EventTables, make_scan: MakeScan) -> None:
    table = tables.days("d1", "d2", "d3", buckets=3)
    for turn in range(4):
        for day in ("d3", "d1", "d2"):
            tables.append(table, rows(range(turn * 50, turn * 50 + 50), day))
    scan = make_scan(table, metadata_columns=METADATA_COLUMNS)
    with scan.run("one") as run:
        found = run.to_arrow()
    assert found.num_rows == 600
    names = {r.partition: r.partition_id for r in run.plan.ranges}
    order = [
        (names[row["_partition"]], row["_bucket"], row["_offset"]) for row in found.to_pylist()
    ]
    assert order == sorted(order)
    assert len(set(order)) == 600
    assert all(row["_partition"] == row["day"] for row in found.to_pylist())
    assert set(found["_change_type"].to_pylist()) == {"+A"}
    assert found.schema.names == [*table.arrow_schema.names, *METADATA_COLUMNS]


def test_the_same_run_key_reads_the_same_rows(tables: EventTables, make_scan: MakeScan) -> None:
    table = tables.events()
    tables.append(table, rows(range(30)))
    scan = make_scan(table, metadata_columns=["_offset", "_timestamp"])
    plan = scan.plan("one")
    first = scan.read(plan).read_all()
    tables.append(table, rows(range(30, 50)))
    assert scan.plan("one") == plan
    assert scan.read(plan).read_all().equals(first)
    done = scan.commit(plan)
    again = make_scan(table, metadata_columns=["_offset", "_timestamp"]).plan("one")
    assert again == plan
    assert scan.read(ScanPlan.from_json(json.loads(json.dumps(plan.to_json())))).read_all() == first
    assert scan.commit(again) == done.repeated()
    with scan.run("two") as run:
        assert sorted(ids(run.to_arrow())) == list(range(30, 50))
    assert scan.read(plan).read_all().equals(first)


def test_a_failed_block_commits_nothing(tables: EventTables, make_scan: MakeScan) -> None:
    table = tables.events()
    tables.append(table, rows(range(10)))
    scan = make_scan(table)
    run = scan.run("one")
    with pytest.raises(ZeroDivisionError), run:
        divide(run.to_arrow().num_rows, 0)
    assert run.receipt is None
    tables.append(table, rows(range(10, 20)))
    with scan.run("one") as run:
        assert sorted(ids(run.to_arrow())) == list(range(10))


def test_a_run_that_stops_early_is_not_committed(tables: EventTables, make_scan: MakeScan) -> None:
    table = tables.events()
    for start in range(0, 40, 10):
        tables.append(table, rows(range(start, start + 10)))
    scan = make_scan(table)
    with pytest.raises(IncompleteReadError), scan.run("one") as run:
        next(iter(run))
    with scan.run("one") as run:
        assert sum(batch.num_rows for batch in run) == 40
    with scan.run("two") as run:
        """A plan that somebody else reads is committed without being read here."""
    assert run.receipt is not None


def test_a_pending_plan_is_adopted(tables: EventTables, make_scan: MakeScan) -> None:
    table = tables.events()
    tables.append(table, rows(range(10)))
    scan, other = make_scan(table), make_scan(table)
    left = scan.plan("dead")
    tables.append(table, rows(range(10, 25)))
    found, adopted = [], []
    for run in other.runs("alive"):
        with run:
            found += ids(run.to_arrow())
            adopted.append((run.adopted, run.plan.plan_id))
    assert sorted(found) == list(range(25))
    assert [flag for flag, _ in adopted] == [True, False]
    assert adopted[0][1] == left.plan_id
    slow = scan.commit(left)
    assert slow.plan_id == left.plan_id
    with other.run("next") as run:
        assert run.plan.is_empty


def test_other_ways_with_a_pending_plan(tables: EventTables, make_scan: MakeScan) -> None:
    table = tables.events()
    tables.append(table, rows(range(10)))
    left = make_scan(table).plan("dead")
    with pytest.raises(PendingPlanError) as caught:
        make_scan(table, on_pending="fail").plan("alive")
    assert caught.value.plan_id == left.plan_id
    with pytest.raises(PendingPlanError):
        make_scan(table, on_pending="wait", pending_timeout_ms=300).plan("alive")
    scan = make_scan(table, on_pending="skip")
    with scan.run("alive") as run:
        assert run.skipped
        assert run.to_arrow().num_rows == 0
    assert run.receipt is not None
    assert run.receipt.details["skipped"]
    scan.commit(left, rows=10)
    with make_scan(table, on_pending="wait").run("alive") as run:
        assert run.plan.run_key == "alive"


def test_starts(tables: EventTables, make_scan: MakeScan) -> None:
    table = tables.events(buckets=2)
    tables.append(table, rows(range(20)))
    late = make_scan(table, name="late", start="latest")
    with late.run("one") as run:
        assert run.plan.is_empty
    at = make_scan(table, name="at", start={0: 3})
    plan = at.plan("one")
    assert {r.bucket: r.start for r in plan.ranges} == {0: 3, 1: 0}
    assert at.read(plan).read_all().num_rows == 17
    tables.append(table, rows(range(20, 30)))
    with late.run("two") as run:
        assert sorted(ids(run.to_arrow())) == list(range(20, 30))


def test_an_abandoned_first_plan_does_not_lose_its_start(
    tables: EventTables, make_scan: MakeScan, store: CheckpointStore
) -> None:
    table = tables.events()
    scan = make_scan(table, start="latest")
    scan.plan("one")
    store.abandon(scan.name)
    tables.append(table, rows(range(5)))
    with scan.run("two") as run:
        assert sorted(ids(run.to_arrow())) == list(range(5))


def test_until_offsets_and_receipts(tables: EventTables, make_scan: MakeScan) -> None:
    table = tables.events(buckets=2)
    tables.append(table, rows(range(40)))
    scan = make_scan(table)
    with scan.run("one", until={0: 5, 1: 0}) as run:
        assert run.to_arrow().num_rows == 5
    leader = make_scan(table, name="leader")
    with leader.run("one") as run:
        run.to_arrow()
    assert run.receipt is not None
    tables.append(table, rows(range(40, 60)))
    with scan.run("two", until=run.receipt) as follower:
        assert follower.to_arrow().num_rows == 35
    with scan.run("three", until={0: 1}) as run:
        assert run.plan.is_empty
    with pytest.raises(NotYetError) as caught:
        scan.plan("four", until={1: 10_000})
    assert caught.value.ranges[0].stop == 10_000
    assert caught.value.is_retriable
    with pytest.raises(ConfigError, match="no place"):
        scan.plan("four", until={7: 1})
    with pytest.raises(ConfigError, match="until cannot be"):
        scan.plan("four", until="soon")


def test_projection_and_its_order(tables: EventTables, make_scan: MakeScan) -> None:
    table = tables.events()
    tables.append(table, rows(range(10)))
    with make_scan(table, columns=["text", "id"], metadata_columns=["_bucket"]).run("one") as run:
        found = run.to_arrow()
    assert found.schema.names == ["text", "id", "_bucket"]
    assert all(row["text"] == f"row {row['id']}" for row in found.to_pylist())
    with pytest.raises(SchemaError, match="no column 'nothing'"):
        make_scan(table, name="x", columns=["nothing"]).plan("one")
    with pytest.raises(ConfigError, match="list of names"):
        make_scan(table, columns="id")
    with pytest.raises(ConfigError, match="_what"):
        make_scan(table, metadata_columns=["_what"])
    with pytest.raises(ConfigError, match="on_pending"):
        make_scan(table, on_pending="hope")


def test_parts_together_are_the_whole(tables: EventTables, make_scan: MakeScan) -> None:
    table = tables.days("d1", "d2")
    for day in ("d1", "d2"):
        for start in range(0, 60, 7):
            tables.append(table, rows(range(start, min(60, start + 7)), day))
    scan = make_scan(table, metadata_columns=["_offset", "_bucket", "_partition"])
    plan = scan.plan("one")
    whole = scan.read(plan).read_all()
    for count in (1, 3, 8, 500):
        parts = plan.split(count)
        assert len(parts) <= count
        together = pa.concat_tables([scan.read(part).read_all() for part in parts])
        assert together.equals(whole)
    receipt = scan.commit(plan)
    assert receipt.rows == 120
    tables.append(table, rows(range(60, 70), "d1"))
    with scan.run("two") as run:
        assert run.to_arrow().num_rows == 10


def test_ranges_that_are_read_one_by_one_share_what_is_asked_for_a_plan(
    tables: EventTables, make_scan: MakeScan, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = tables.days("d1", "d2")
    for start in (0, 30):
        for day in ("d1", "d2"):
            tables.append(table, rows(range(start, start + 30), day))
        scan = make_scan(table)
        plan = scan.plan(f"from {start}")
        if start == 0:
            scan.commit(plan, rows=60)
    asked: Counter[str] = Counter()

    def count(owner: Any, name: str) -> None:
        real = getattr(owner, name)

        def counted(*given: Any, **more: Any) -> Any:
            asked[name] += 1
            return real(*given, **more)

        monkeypatch.setattr(owner, name, counted)

    count(reading, "prepare")
    count(finishing, "_ask")
    count(scan.store.log, "event")
    parts = [range_plan(plan, part) for part in plan.ranges]
    assert len(parts) > 2
    assert sum(scan.read(part).read_all().num_rows for part in parts) == 60
    assert asked == {"prepare": 1}

    monkeypatch.setattr(memory, "PREPARED_FRESH_S", -1.0)
    scan.read(parts[0]).read_all()
    assert asked == {"prepare": 2}, "what was checked long ago is checked again"

    elsewhere = make_scan(table)
    assert sum(elsewhere.read(part).read_all().num_rows for part in parts) == 60
    assert asked == {"prepare": 2 + len(parts), "event": 1}

    assert scan.commit(plan).rows == 60
    assert asked["_ask"] == 0, "the reads have seen when the last rows were committed"


def test_progress_is_told(tables: EventTables, make_scan: MakeScan) -> None:
    table = tables.events()
    for start in range(0, 100, 10):
        tables.append(table, rows(range(start, start + 10)))
    told: list[ScanProgress] = []
    with make_scan(table).run("one", progress=told.append) as run:
        run.to_arrow()
    fractions = [p.fraction for p in told]
    assert fractions == sorted(fractions)
    assert told[-1].fraction == 1.0
    assert told[-1].rows == 100
    assert told[-1].bytes == run.receipt.bytes > 0  # type: ignore[union-attr]


def test_progress_of_a_sink_that_reads_part_by_part(
    tables: EventTables, make_scan: MakeScan, tmp_path: Path
) -> None:
    """It is told of the whole plan, whichever parts are read at once."""
    table = tables.events(buckets=5)
    tables.append(table, rows(range(500)))
    told: list[ScanProgress] = []
    result = run_increment(make_scan(table), ParquetSink(tmp_path), "one", progress=told.append)
    assert result.rows == told[-1].rows == 500
    assert {p.offsets_total for p in told} == {500}
    fractions = [p.fraction for p in told]
    assert fractions == sorted(fractions)
    assert fractions[-1] == 1.0


def test_new_partitions_are_read_from_their_beginning(
    tables: EventTables, make_scan: MakeScan
) -> None:
    table = tables.days("d1")
    tables.append(table, rows(range(5), "d1"))
    scan = make_scan(table, start="latest")
    with scan.run("one") as run:
        assert run.plan.is_empty
    tables.admin.create_partition(table.get_table_path(), {"day": "d2"}).result()
    tables.append(table, rows(range(7), "d2"))
    with scan.run("two") as run:
        assert sorted(ids(run.to_arrow())) == list(range(7))


def test_reset_and_retire(tables: EventTables, make_scan: MakeScan, store: CheckpointStore) -> None:
    table = tables.events()
    tables.append(table, rows(range(10)))
    scan = make_scan(table)
    with scan.run("one") as run:
        run.to_arrow()
    scan.reset("earliest", "again, please")
    with scan.run("two") as run:
        assert run.to_arrow().num_rows == 10
    scan.plan("three")
    with pytest.raises(PendingPlanError):
        scan.reset("latest")
    scan.reset("earliest", abandon_pending=True)
    scan.reset("latest")
    with scan.run("four") as run:
        assert run.plan.is_empty
    with pytest.raises(ConfigError, match="state"):
        scan.reset("state")
    store.retire(scan.name)
    with pytest.raises(CheckpointRetiredError):
        scan.plan("five")
