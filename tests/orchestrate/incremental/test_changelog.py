"""Changelogs of key tables: every change, with its kind; and the state as a first plan."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest

from fluss_client import FlussTable
from fluss_client.errors import UnsupportedError
from fluss_client.model.cluster import OffsetSpec
from fluss_client.runtime import runtime
from fluss_orchestrate.core.checkpoints import CheckpointStore
from fluss_orchestrate.core.incremental import IncrementalScan
from tests.orchestrate.incremental.events import EventTables, rows
from tests.waiting import wait_until

MakeScan = Callable[..., IncrementalScan]


def upserted(n: int, text: str) -> pa.Table:
    return rows([n]).set_column(1, "text", pa.array([text]))


def apply(state: dict[int, str], changes: pa.Table) -> None:
    """What a reader of a changelog does with it."""
    for row in changes.to_pylist():
        kind, key, text = row["_change_type"], row["id"], row["text"]
        if kind in ("-U", "-D"):
            assert state.pop(key) == text
        else:
            assert key not in state
            state[key] = text


def test_every_change_is_given_with_its_kind(tables: EventTables, make_scan: MakeScan) -> None:
    table = tables.keyed(buckets=1)
    scan = make_scan(table, metadata_columns=["_change_type", "_offset"])
    tables.upsert(table, upserted(1, "a"))
    tables.upsert(table, upserted(1, "b"))
    with scan.run("one") as run:
        found = run.to_arrow()
    assert run.plan.kind == "changelog"
    assert found["_change_type"].to_pylist() == ["+I", "-U", "+U"]
    assert found["text"].to_pylist() == ["a", "a", "b"]
    tables.delete(table, [{"id": 1}])
    tables.upsert(table, upserted(2, "c"))
    with scan.run("two") as run:
        found = run.to_arrow()
    assert found["_change_type"].to_pylist() == ["-D", "+I"]
    offsets = found["_offset"].to_pylist()
    assert offsets == sorted(offsets)
    with scan.run("three") as run:
        assert run.plan.is_empty


def test_increments_of_a_changelog_add_up_to_the_state(
    tables: EventTables, make_scan: MakeScan
) -> None:
    table = tables.keyed(buckets=3)
    scan = make_scan(table, metadata_columns=["_change_type"])
    state: dict[int, str] = {}
    for turn in range(6):
        with table.new_upsert().create_writer() as writer:
            for n in range(turn, 40, turn + 1):
                writer.upsert({"id": n, "text": f"{n} at {turn}", "day": "d"})
            for n in range(0, 40, 7):
                writer.delete({"id": n})
        with scan.run(f"run-{turn}") as run:
            apply(state, run.to_arrow())
    with table.new_upsert().create_writer() as writer:
        writer.upsert({"id": 0, "text": "last", "day": "d"})
    with scan.run("last") as run:
        apply(state, run.to_arrow())
    expected = {n: tables.lookup(table, {"id": n}) for n in range(40)}
    assert state == {n: row["text"] for n, row in expected.items() if row is not None}


def test_caps_keep_updates_whole(tables: EventTables, make_scan: MakeScan) -> None:
    table = tables.keyed(buckets=1)
    for turn in range(4):
        tables.upsert(
            table,
            rows(range(5)).set_column(1, "text", pa.array([f"{n} at {turn}" for n in range(5)])),
        )
    scan = make_scan(table, metadata_columns=["_change_type"])
    state: dict[int, str] = {}
    plans = 0
    while True:
        plan = scan.plan(f"run-{plans}", max_offsets=3)
        if plan.is_empty:
            break
        changes = scan.read(plan).read_all()
        kinds = changes["_change_type"].to_pylist()
        assert kinds.count("-U") == kinds.count("+U")
        apply(state, changes)
        scan.commit(plan)
        plans += 1
    assert plans > 1
    assert state == {n: f"{n} at 3" for n in range(5)}


def test_chosen_offsets_do_not_cut_an_update_in_two(
    tables: EventTables, make_scan: MakeScan
) -> None:
    table = tables.keyed(buckets=1)
    tables.upsert(table, upserted(1, "a"))
    tables.upsert(table, upserted(1, "b"))
    scan = make_scan(table, metadata_columns=["_change_type", "_offset"])
    everything = scan.read(
        make_scan(table, name="all", metadata_columns=["_change_type", "_offset"]).plan("x")
    ).read_all()
    before = next(r["_offset"] for r in everything.to_pylist() if r["_change_type"] == "-U")
    with scan.run("one", until={0: before + 1}) as run:
        assert run.to_arrow()["_change_type"].to_pylist() == ["+I", "-U", "+U"]
    with scan.run("two") as run:
        assert run.to_arrow().num_rows == 0


def state_of(table: pa.Table) -> dict[int, str]:
    found = {row["id"]: row["text"] for row in table.to_pylist()}
    assert len(found) == table.num_rows
    return found


def test_the_state_is_the_first_plan_and_the_changelog_follows(
    tables: EventTables, make_scan: MakeScan
) -> None:
    table = tables.keyed(buckets=2)
    tables.upsert(table, rows(range(30)))
    tables.upsert(table, upserted(3, "three"))
    tables.delete(table, [{"id": 4}])
    scan = make_scan(table, start="state", metadata_columns=["_change_type", "_offset"])
    plan = scan.plan("one")
    assert plan.kind == "state"
    first = scan.read(plan).read_all()
    expected = {n: f"row {n}" for n in range(30) if n != 4} | {3: "three"}
    assert state_of(first) == expected
    assert set(first["_change_type"].to_pylist()) == {"+I"}
    assert set(first["_offset"].to_pylist()) == {-1}
    # The table goes on; the plan's rows stay as they were.
    tables.upsert(table, upserted(5, "five"))
    tables.upsert(table, upserted(5, "five again"))
    tables.upsert(table, upserted(99, "new"))
    tables.upsert(table, upserted(4, "back"))
    tables.delete(table, [{"id": 6}, {"id": 99}])
    assert scan.read(plan).read_all().equals(first)
    parts = [scan.read(part).read_all() for part in plan.split(2)]
    assert pa.concat_tables(parts).equals(first)
    receipt = scan.commit(plan)
    assert receipt.rows == len(expected)
    cost = receipt.details["state"]
    assert sum(cost["sources"].values()) == len(plan.ranges)
    assert cost.keys() == {"sources", "bytes_fetched", "changes", "snapshot_age_ms"}
    state = state_of(first)
    with scan.run("two") as run:
        assert run.plan.kind == "changelog"
        apply(state, run.to_arrow())
    now = {n: tables.lookup(table, {"id": n}) for n in (*range(30), 99)}
    assert state == {n: row["text"] for n, row in now.items() if row is not None}


def test_a_state_stays_the_same_while_others_write(
    tables: EventTables, make_scan: MakeScan
) -> None:
    table = tables.keyed(buckets=2)
    tables.upsert(table, rows(range(200)))
    over = threading.Event()

    def write() -> None:
        nonlocal flushes
        rng = random.Random(3)
        with table.new_upsert().create_writer() as writer:
            while not over.is_set():
                key = rng.randrange(300)
                if rng.random() < 0.3:
                    writer.delete({"id": key})
                else:
                    writer.upsert({"id": key, "text": f"{rng.random()}", "day": "d"})
                if rng.random() < 0.1:
                    writer.flush().result()
                    flushes += 1

    flushes = 0

    def more_is_written() -> None:
        seen = flushes
        wait_until("another write", lambda: flushes > seen + 1, pause_s=0.005)

    writer = threading.Thread(target=write)
    writer.start()
    try:
        scan = make_scan(table, start="state", metadata_columns=["_change_type"])
        more_is_written()
        plan = scan.plan("one")
        reads = []
        for _ in range(4):
            reads.append(scan.read(plan).read_all())
            more_is_written()
        assert all(read.equals(reads[0]) for read in reads)
        scan.commit(plan)
        state = state_of(reads[0])
        for turn in range(3):
            with scan.run(f"follow-{turn}") as run:
                apply(state, run.to_arrow())
    finally:
        over.set()
        writer.join()
    with scan.run("last") as run:
        apply(state, run.to_arrow())
    now = {n: tables.lookup(table, {"id": n}) for n in range(300)}
    assert state == {n: row["text"] for n, row in now.items() if row is not None}


def test_a_state_of_partitions_and_some_columns(
    tables: EventTables, make_scan: MakeScan, backend_kind: str
) -> None:
    table = tables.sure(
        {"id": pa.int64(), "day": pa.string(), "text": pa.string()},
        ["id", "day"],
        buckets=2,
        partition_keys=["day"],
        partitions=[{"day": "d1"}, {"day": "d2"}],
    )
    with table.new_upsert().create_writer() as writer:
        for n in range(10):
            writer.upsert({"id": n, "day": f"d{n % 2 + 1}", "text": "x"})
    scan = make_scan(table, start="state", columns=["text", "day"], metadata_columns=["_partition"])
    plan = scan.plan("one")
    found = scan.read(plan).read_all()
    assert found.schema.names == ["text", "day", "_partition"]
    assert found["day"].to_pylist() == ["d1"] * 5 + ["d2"] * 5
    assert found["_partition"].to_pylist() == found["day"].to_pylist()
    with table.new_upsert().create_writer() as writer:
        writer.upsert({"id": 0, "day": "d1", "text": "later"})
    assert scan.read(plan).read_all().equals(found)


def test_tables_that_have_no_state_to_begin_with(tables: EventTables, make_scan: MakeScan) -> None:
    with pytest.raises(UnsupportedError, match="no primary key"):
        make_scan(tables.events(), start="state").plan("one")


def test_an_empty_key_table_begins_empty(
    tables: EventTables, make_scan: MakeScan, store: CheckpointStore
) -> None:
    table = tables.keyed()
    scan = make_scan(table, start="state")
    with scan.run("one") as run:
        assert run.to_arrow().num_rows == 0
    tables.upsert(table, rows(range(3)))
    with scan.run("two") as run:
        assert run.to_arrow().num_rows == 3


def test_offsets_without_rows_are_passed(tables: EventTables, make_scan: MakeScan) -> None:
    """An upsert that changes nothing may leave an empty batch that uses an offset up."""
    table = tables.keyed(buckets=1, properties={"table.merge-engine": "first_row"})
    tables.upsert(table, upserted(1, "a"))
    scan = make_scan(table)
    with scan.run("one") as run:
        assert run.to_arrow().num_rows == 1
    before = end_of(tables, table)
    tables.upsert(table, upserted(1, "ignored"))
    with scan.run("two") as run:
        assert run.to_arrow().num_rows == 0
        assert run.plan.offsets == end_of(tables, table) - before
    tables.upsert(table, upserted(2, "b"))
    with scan.run("three") as run:
        assert run.to_arrow()["id"].to_pylist() == [2]


def end_of(tables: EventTables, table: FlussTable) -> Any:
    info = table.get_table_info()
    call = tables.connection.backend.list_offsets(info, None, [0], OffsetSpec.latest())
    return runtime().call(call)[0]


def test_parts_of_a_changelog_hold_whole_buckets(tables: EventTables, make_scan: MakeScan) -> None:
    """Parallel readers of one bucket would lose the order of the changes of a key."""
    table = tables.keyed(buckets=2)
    for _ in range(3):
        tables.upsert(table, rows(range(30)))
    plan = make_scan(table).plan("one")
    assert plan.kind == "changelog"
    parts = plan.split(8)
    assert [r for part in parts for r in part.ranges] == list(plan.ranges)
    assert len(parts) == 2
