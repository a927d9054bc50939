"""What a sink makes of rows decides which plans it takes, and how they begin."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import pyarrow as pa
import pytest

from fluss_client import FlussConnection, FlussTable
from fluss_client.errors import ConfigError
from fluss_orchestrate.core.checkpoints import CheckpointStore, TablePosition
from fluss_orchestrate.core.errors import CheckpointNotFoundError
from fluss_orchestrate.core.incremental import IncrementalScan, IntervalScan
from fluss_orchestrate.core.mirror.table import mirror_scan, mirror_table
from fluss_orchestrate.core.plan import ScanPlan
from fluss_orchestrate.core.row_schema import partition_key_of, primary_key_of
from fluss_orchestrate.core.sinks.base import ReadPlan, SinkForm, SinkResult
from fluss_orchestrate.core.sinks.errors import SinkChangesError, SinkFormError
from fluss_orchestrate.core.sinks.position import (
    PlanState,
    SinkPosition,
    dropped_names,
    plan_state,
    position_after,
)
from tests.orchestrate.incremental.events import EventTables, rows
from tests.orchestrate.sinks.plans import make_plan

MakeScan = Callable[..., IncrementalScan]


@dataclass
class Recording:
    """A sink that keeps what it was given."""

    form: SinkForm | None = SinkForm.MIRROR
    identity: str = "recording"
    exactly_once: bool = True
    plans: list[ScanPlan] = field(default_factory=list)
    tables: list[pa.Table] = field(default_factory=list)

    def write(self, plan: ScanPlan, read: ReadPlan) -> SinkResult:
        found = read(plan).read_all()
        self.plans.append(plan)
        self.tables.append(found)
        return SinkResult(found.num_rows)


def day_table(tables: EventTables, *days: str) -> FlussTable:
    """A key table with one partition per day."""
    columns = {"id": pa.int64(), "text": pa.string(), "day": pa.string()}
    return tables.sure(
        columns,
        ["id", "day"],
        buckets=1,
        partition_keys=["day"],
        partitions=[{"day": day} for day in days],
    )


def test_a_mirror_begins_with_the_state_and_goes_on_with_the_changes(
    connection: FlussConnection, tables: EventTables, store: CheckpointStore
) -> None:
    table, sink = tables.keyed(), Recording()
    tables.upsert(table, rows(range(3)))
    path = table.get_table_path()
    options: dict[str, Any] = {"checkpoint": "mirror", "store": store}
    mirror_table(connection, path, sink, "one", **options)
    tables.upsert(table, rows(range(2, 5)))
    mirror_table(connection, path, sink, "two", **options)
    assert [plan.kind for plan in sink.plans] == ["state", "changelog"]
    first, second = sink.tables
    assert sorted(first["id"].to_pylist()) == [0, 1, 2]
    assert set(first["_change_type"].to_pylist()) == {"+I"}
    assert sorted(second["_change_type"].to_pylist()) == ["+I", "+I", "+U", "-U"]
    assert primary_key_of(first.schema) == primary_key_of(second.schema) == ("id",)
    assert partition_key_of(first.schema) == ()


def test_a_reset_to_start_begins_with_the_state_in_a_new_generation(
    connection: FlussConnection, tables: EventTables, store: CheckpointStore
) -> None:
    table, sink = tables.keyed(), Recording()
    tables.upsert(table, rows(range(3)))
    scan = mirror_scan(connection, table.get_table_path(), "mirror", store=store)
    with pytest.raises(CheckpointNotFoundError):
        scan.reset("start", "there is nothing yet")
    scan.run("one", sink=sink).write_to(sink)
    event = scan.reset("start", "rebuild")
    assert event.state.position is None
    scan.run("one", sink=sink).write_to(sink)
    assert [plan.kind for plan in sink.plans] == ["state", "state"]
    before, after = (plan.generation for plan in sink.plans)
    assert before is None
    assert after is not None
    assert after.sequence == event.sequence


def test_an_abandoned_state_is_followed_by_a_state(
    connection: FlussConnection, tables: EventTables, store: CheckpointStore
) -> None:
    table, sink = tables.keyed(), Recording()
    tables.upsert(table, rows(range(3)))
    scan = mirror_scan(connection, table.get_table_path(), "mirror", store=store)
    assert scan.plan("one", sink=sink).kind == "state"
    store.abandon("mirror", reason="once more")
    assert scan.plan("two", sink=sink).kind == "state"


def test_other_resets_of_a_mirror_are_refused(
    connection: FlussConnection, tables: EventTables, store: CheckpointStore
) -> None:
    table, sink = tables.keyed(), Recording()
    tables.upsert(table, rows(range(3)))
    scan = mirror_scan(connection, table.get_table_path(), "mirror", store=store)
    scan.run("one", sink=sink).write_to(sink)
    for to in ("latest", "current"):
        scan.reset(to, "by mistake")
        with pytest.raises(SinkFormError, match="begins with all rows"):
            scan.plan("two", sink=sink)
    scan.reset("earliest", "the whole changelog is there")
    assert scan.plan("two", sink=sink).kind == "changelog"


def test_plans_that_a_mirror_cannot_follow_are_refused(
    tables: EventTables, make_scan: MakeScan, connection: FlussConnection, store: CheckpointStore
) -> None:
    log_table, table, sink = tables.events(), tables.keyed(), Recording()
    tables.append(log_table, rows(range(3)))
    tables.upsert(table, rows(range(3)))
    with pytest.raises(SinkFormError, match="is a log table"):
        make_scan(log_table, name="a").plan("one", sink=sink)
    with pytest.raises(SinkChangesError, match="_change_type"):
        make_scan(table, name="b", start="state").plan("one", sink=sink)
    changes: dict[str, Any] = {"metadata_columns": ["_change_type"], "start": "state"}
    with pytest.raises(SinkFormError, match="whole primary key"):
        make_scan(table, name="c", columns=["text"], **changes).plan("one", sink=sink)
    with pytest.raises(SinkFormError, match="on_retention"):
        make_scan(table, name="d", on_retention="earliest", **changes).plan("one", sink=sink)
    with pytest.raises(SinkFormError, match="an interval gives it some"):
        IntervalScan(connection, table.get_table_path(), "e", store=store).plan(
            "one", since=0, until=1, sink=sink
        )
    with pytest.raises(SinkChangesError, match="_offset, _timestamp"):
        make_scan(table, name="f", metadata_columns=["_change_type"]).plan(
            "one", sink=Recording(SinkForm.CHANGES)
        )
    with pytest.raises(SinkFormError, match="does not replace them"):
        mirror_table(
            connection, table.get_table_path(), Recording(SinkForm.APPEND), "x", checkpoint="g"
        )
    with pytest.raises(ConfigError, match="sets start itself"):
        mirror_scan(connection, table.get_table_path(), "h", scan_options={"start": "latest"})


def test_a_plan_of_a_mirror_names_the_partitions_that_were_dropped(
    connection: FlussConnection, tables: EventTables, store: CheckpointStore
) -> None:
    table, sink = day_table(tables, "d1", "d2"), Recording()
    path = table.get_table_path()
    for day in ("d1", "d2"):
        tables.upsert(table, rows(range(2), day))
    scan = mirror_scan(connection, path, "mirror", store=store)
    scan.run("one", sink=sink).write_to(sink)
    assert partition_key_of(sink.tables[0].schema) == ("day",)
    (gone,) = [
        p for p in tables.admin.list_partition_infos(path).result() if p.partition_name == "d1"
    ]
    tables.admin.drop_partition(path, {"day": "d1"}).result()
    run = scan.run("two", sink=sink)
    assert run.plan.dropped == ((gone.partition_id, "d1"),)
    assert not run.plan.is_empty
    run.write_to(sink)
    assert scan.plan("three", sink=sink).dropped == ()
    with pytest.raises(SinkFormError, match="others cannot delete"):
        IncrementalScan(connection, path, "other", store=store, on_partition_gone="delete").plan(
            "one", sink=Recording(None)
        )
    with pytest.raises(SinkFormError, match="on_partition_gone='delete'"):
        IncrementalScan(
            connection, path, "other", store=store, metadata_columns=["_change_type"]
        ).plan("one", sink=sink)


def test_dropped_partitions_are_part_of_a_plan_and_of_its_id() -> None:
    plan = make_plan((0, 0, 10))
    later = replace(plan, dropped=((7, "d1"),))
    assert later.plan_id != plan.plan_id
    assert later.to_json()["version"] == 3
    assert ScanPlan.from_json(later.to_json()) == later


def test_a_late_plan_deletes_no_partition_that_came_after_it() -> None:
    plan = replace(make_plan(), dropped=((7, "d1"),))
    held = SinkPosition(TablePosition(plan.table, {(7, 0): 5, (8, 0): 2}))
    assert dropped_names(plan, held) == ["d1"]
    assert plan_state("sink", plan, "", held) is PlanState.NEXT
    after = position_after(plan, held)
    assert after.offsets.offsets == {(8, 0): 2}
    assert dropped_names(plan, after) == []
    assert plan_state("sink", plan, "", after) is PlanState.DONE
