"""Tables that change under a checkpoint: dropped, made anew, with other partitions or columns."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pyarrow as pa
import pytest

from fluss_orchestrate.core.checkpoints import CheckpointStore
from fluss_orchestrate.core.errors import (
    CheckpointBindingError,
    LogWentBackwardsError,
    PartitionGoneError,
    TableIdentityChangedError,
)
from fluss_orchestrate.core.incremental import IncrementalScan
from fluss_orchestrate.core.plan import Place, ScanPlan
from tests.orchestrate.incremental.events import EventTables, rows
from tests.waiting import wait_until

MakeScan = Callable[..., IncrementalScan]


def taken(scan: IncrementalScan, run_key: str) -> pa.Table:
    with scan.run(run_key) as run:
        return run.to_arrow()


def read_until_gone(scan: IncrementalScan, plan: ScanPlan, backend_kind: str) -> None:
    """Read a plan of a dropped partition until that fails; what is read before is all of it.

    The coordinator answers a drop before the servers let go of the rows. The embedded engine
    deletes them at once.
    """

    def read() -> None:
        assert scan.read(plan).read_all().num_rows == plan.offsets
        assert backend_kind != "embedded"

    wait_until("the error of a read", read)


def test_a_table_made_anew_is_another_one(
    tables: EventTables, make_scan: MakeScan, store: CheckpointStore
) -> None:
    table = tables.events()
    tables.append(table, rows(range(10)))
    scan = make_scan(table)
    taken(scan, "one")
    tables.append(table, rows(range(10, 20)))
    left = scan.plan("two")
    table = tables.recreate(table)
    tables.append(table, rows(range(100, 103)))
    with pytest.raises(TableIdentityChangedError, match="created again") as caught:
        scan.read(left)
    assert caught.value.expected == left.table
    assert caught.value.found is not None
    assert caught.value.found.table_id == table.get_table_info().table_id
    store.abandon(scan.name, left.plan_id)
    with pytest.raises(TableIdentityChangedError):
        scan.plan("three")
    again = make_scan(table, on_recreated="restart")
    with again.run("four") as run:
        assert sorted(run.to_arrow()["id"].to_pylist()) == [100, 101, 102]
    assert run.receipt is not None
    assert run.receipt.details["restarted"]
    scan.reset("earliest")
    assert taken(scan, "five").num_rows == 3


def test_a_dropped_table(tables: EventTables, make_scan: MakeScan) -> None:
    table = tables.events()
    tables.append(table, rows(range(10)))
    scan = make_scan(table)
    left = scan.plan("one")
    tables.admin.drop_table(table.get_table_path()).result()
    with pytest.raises(TableIdentityChangedError, match="does not exist any more"):
        scan.read(left)
    # The commit itself needs no table: the rows may have been read before it went.
    assert scan.commit(left, rows=10).rows == 10
    with pytest.raises(TableIdentityChangedError, match="does not exist any more"):
        scan.plan("two")


def test_a_name_belongs_to_one_table(tables: EventTables, make_scan: MakeScan) -> None:
    first, second = tables.events(), tables.events()
    taken(make_scan(first, name="mine"), "one")
    with pytest.raises(CheckpointBindingError) as caught:
        make_scan(second, name="mine", on_recreated="restart").plan("two")
    assert str(first.get_table_path().table_name) in caught.value.expected
    assert str(second.get_table_path().table_name) in caught.value.found


def test_a_dropped_partition(
    tables: EventTables, make_scan: MakeScan, store: CheckpointStore, backend_kind: str
) -> None:
    table = tables.days("d1", "d2")
    path = table.get_table_path()
    tables.append(table, rows(range(5), "d1"))
    tables.append(table, rows(range(5), "d2"))
    scan = make_scan(table)
    taken(scan, "one")
    tables.append(table, rows(range(5, 9), "d1"))
    tables.append(table, rows(range(5, 9), "d2"))
    left = scan.plan("two")
    tables.admin.drop_partition(path, {"day": "d1"}).result()
    with pytest.raises(PartitionGoneError, match="partition d1") as caught:
        read_until_gone(scan, left, backend_kind)
    assert set(caught.value.ranges) == {r for r in left.ranges if r.partition == "d1"}
    store.abandon(scan.name)
    with pytest.raises(PartitionGoneError, match="forget") as caught:
        scan.plan("three")
    assert {r.partition for r in caught.value.ranges} == {"d1"}
    assert {r.stop for r in caught.value.ranges} == {-1}
    assert sum(r.start for r in caught.value.ranges) == 5
    with make_scan(table, on_partition_gone="forget").run("four") as run:
        assert run.to_arrow()["day"].to_pylist() == ["d2"] * 4
    assert run.receipt is not None
    assert len(run.receipt.details["gone_ranges"]) == 2
    tables.admin.create_partition(path, {"day": "d1"}).result()
    tables.append(table, rows(range(3), "d1"))
    assert sorted(taken(scan, "five")["id"].to_pylist()) == [0, 1, 2]


def test_a_partition_dropped_and_made_anew(
    tables: EventTables, make_scan: MakeScan, backend_kind: str
) -> None:
    table = tables.days("d1")
    path = table.get_table_path()
    tables.append(table, rows(range(5), "d1"))
    scan = make_scan(table, on_partition_gone="forget")
    left = scan.plan("one")
    tables.admin.drop_partition(path, {"day": "d1"}).result()
    tables.admin.create_partition(path, {"day": "d1"}).result()
    tables.append(table, rows(range(100, 120), "d1"))
    with pytest.raises(PartitionGoneError):
        read_until_gone(scan, left, backend_kind)
    scan.skip(left, "its partition was dropped")
    assert sorted(taken(scan, "two")["id"].to_pylist()) == list(range(100, 120))


def test_a_column_added_between_plan_and_replay(tables: EventTables, make_scan: MakeScan) -> None:
    table = tables.events(buckets=1)
    path = table.get_table_path()
    tables.append(table, rows(range(5)))
    scan = make_scan(table, metadata_columns=["_offset"])
    plan = scan.plan("one")
    first = scan.read(plan).read_all()
    tables.admin.alter_table(path, add_columns=[pa.field("more", pa.int32())]).result()
    assert scan.read(plan).read_all().equals(first)
    wider = tables.open(path)
    tables.append(
        wider, rows(range(5, 9)).append_column("more", pa.array([1, 2, 3, 4], pa.int32()))
    )
    assert scan.read(plan).read_all().equals(first)
    assert scan.read(plan).schema.equals(first.schema)
    scan.commit(plan)
    with scan.run("two") as run:
        found = run.to_arrow()
    assert found.schema.names == ["id", "text", "day", "more", "_offset"]
    assert found["more"].to_pylist() == [1, 2, 3, 4]
    whole = make_scan(table, name="whole", columns=["more", "id"])
    plan = whole.plan("one")
    second = whole.read(plan).read_all()
    assert second["more"].to_pylist() == [None] * 5 + [1, 2, 3, 4]
    tables.admin.alter_table(path, add_columns=[pa.field("even_more", pa.int32())]).result()
    assert whole.read(plan).read_all().equals(second)


def test_a_plan_of_an_older_schema_reads_newer_rows(
    tables: EventTables, make_scan: MakeScan
) -> None:
    """A plan may pin a schema and yet hold rows of a newer one, when the two race."""
    table = tables.events(buckets=1)
    path = table.get_table_path()
    tables.append(table, rows(range(3)))
    scan = make_scan(table)
    old = scan.plan("one")
    scan.commit(old, rows=3)
    tables.admin.alter_table(path, add_columns=[pa.field("more", pa.int32())]).result()
    wider = tables.open(path)
    tables.append(wider, rows(range(3, 5)).append_column("more", pa.array([1, 2], pa.int32())))
    plan = scan.plan("two")
    mixed = replace(plan, schema_id=old.schema_id, columns=old.columns, sequence=-1)
    found = scan.read(mixed).read_all()
    assert found.schema.names == ["id", "text", "day"]
    assert found["id"].to_pylist() == [3, 4]


def test_a_log_that_ends_before_the_position(
    tables: EventTables, make_scan: MakeScan, store: CheckpointStore
) -> None:
    """As a store that was kept while its cluster was restored from something older sees it."""
    table = tables.events(buckets=2)
    tables.append(table, rows(range(20)))
    scan = make_scan(table, backwards_wait_ms=200)
    taken(scan, "one")
    position = store.require(scan.name).state.position
    assert position is not None
    ahead = {place: offset + 5 for place, offset in position.offsets.items()}
    store.reset(scan.name, replace(position, offsets=ahead))
    with pytest.raises(LogWentBackwardsError, match="ends before") as caught:
        scan.plan("two")
    assert sum(r.count for r in caught.value.ranges) == 10


def test_a_log_with_other_rows_before_the_position(
    tables: EventTables, make_scan: MakeScan, store: CheckpointStore
) -> None:
    table = tables.events(buckets=2)
    tables.append(table, rows(range(20)))
    scan = make_scan(table)
    taken(scan, "one")
    position = store.require(scan.name).state.position
    assert position is not None
    assert position.commit_ms.keys() == position.offsets.keys()
    place: Place = (None, 1)
    times = {**position.commit_ms, place: position.commit_ms[place] - 1}
    store.reset(scan.name, replace(position, commit_ms=times))
    tables.append(table, rows(range(20, 40)))
    plan = scan.plan("two")
    with pytest.raises(LogWentBackwardsError, match="committed at") as caught:
        scan.read(plan).read_all()
    assert [r.place for r in caught.value.ranges] == [place]
    store.abandon(scan.name)
    store.reset(scan.name, position)
    assert sorted(taken(scan, "three")["id"].to_pylist()) == list(range(20, 40))
