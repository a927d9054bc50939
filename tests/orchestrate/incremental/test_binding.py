"""A checkpoint belongs to one table, one projection and one sink."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest

from fluss_orchestrate.core.checkpoints import CheckpointStore
from fluss_orchestrate.core.errors import CheckpointBindingError
from fluss_orchestrate.core.incremental import IncrementalScan
from fluss_orchestrate.core.job import run_increment
from fluss_orchestrate.core.sinks import FunctionSink, ParquetSink, SqlSink
from fluss_orchestrate.core.sinks.errors import SinkChangesError
from tests.orchestrate.checkpoints.memory_log import MemoryEventLog
from tests.orchestrate.incremental.events import EventTables, rows

MakeScan = Callable[..., IncrementalScan]


def test_a_plan_of_another_table_is_not_adopted(
    tables: EventTables, make_scan: MakeScan, store: CheckpointStore, tmp_path: Path
) -> None:
    salaries, notes = tables.events(), tables.events()
    tables.append(salaries, rows(range(10)))
    tables.append(notes, rows(range(100, 110)))
    left = make_scan(salaries, name="same").plan("same key", sink=ParquetSink(tmp_path / "s"))
    for run_key in ("same key", "another key"):
        with pytest.raises(CheckpointBindingError) as caught:
            run_increment(make_scan(notes, name="same"), ParquetSink(tmp_path / "n"), run_key)
        assert str(salaries.get_table_path().table_name) in caught.value.expected
        assert str(notes.get_table_path().table_name) in caught.value.found
    assert not (tmp_path / "n").exists()
    head = store.require("same")
    assert (head.state.pending, head.state.adopted_by) == (left, "")


@pytest.mark.parametrize(
    "other",
    [
        {"columns": ["id"]},
        {"metadata_columns": ["_offset"]},
        {"columns": ["id", "text", "day"]},
    ],
)
def test_another_projection_is_refused_pending_or_not(
    tables: EventTables, make_scan: MakeScan, other: dict[str, list[str]]
) -> None:
    table = tables.events()
    tables.append(table, rows(range(10)))
    scan = make_scan(table)
    left = scan.plan("one")
    for _ in range(2):
        with pytest.raises(CheckpointBindingError, match="all columns"):
            make_scan(table, **other).plan("two")
        scan.commit(left, rows=10)


def test_another_sink_is_refused_until_a_reset(
    tables: EventTables, make_scan: MakeScan, tmp_path: Path
) -> None:
    table = tables.events()
    tables.append(table, rows(range(10)))
    first, second = ParquetSink(tmp_path / "a"), ParquetSink(tmp_path / "b")
    scan = make_scan(table)
    assert run_increment(scan, first, "one").rows == 10
    tables.append(table, rows(range(10, 15)))
    for taker in (second, FunctionSink(pa.RecordBatchReader.read_all, identity="asset x")):
        with pytest.raises(CheckpointBindingError, match="--to current") as caught:
            run_increment(make_scan(table), taker, "two")
        assert str(tmp_path / "a") in caught.value.expected
    with pytest.raises(CheckpointBindingError), make_scan(table).run("two"):
        pass
    scan.reset("current", "the files move to b")
    assert run_increment(make_scan(table), second, "two").rows == 5
    with pytest.raises(CheckpointBindingError):
        run_increment(make_scan(table), first, "three")


def test_an_abandoned_first_plan_leaves_the_checkpoint_free(
    tables: EventTables, make_scan: MakeScan, store: CheckpointStore
) -> None:
    table = tables.events()
    tables.append(table, rows(range(10)))
    scan = make_scan(table)
    scan.plan("one")
    store.abandon(scan.name)
    narrow = make_scan(table, columns=["id"])
    with narrow.run("one") as run:
        assert run.to_arrow().schema.names == ["id"]
    tables.append(table, rows(range(10, 12)))
    narrow.plan("two")
    store.abandon(scan.name)
    with pytest.raises(CheckpointBindingError):
        scan.plan("two")


def test_a_column_that_is_added_changes_nothing(tables: EventTables, make_scan: MakeScan) -> None:
    table = tables.events()
    tables.append(table, rows(range(10)))
    with make_scan(table).run("one") as run:
        run.to_arrow()
    path = table.get_table_path()
    tables.admin.alter_table(path, add_columns=[pa.field("more", pa.int32())]).result()
    wider = rows(range(10, 12)).append_column("more", pa.array([1, 2], pa.int32()))
    tables.append(tables.open(path), wider)
    with make_scan(table).run("two") as run:
        assert sorted(run.to_arrow()["more"].to_pylist()) == [1, 2]


def test_a_checkpoint_of_an_earlier_version_takes_its_binding_with_its_next_plan(
    tables: EventTables, make_scan: MakeScan, store: CheckpointStore
) -> None:
    table = tables.events()
    tables.append(table, rows(range(10)))
    scan = make_scan(table)
    with scan.run("one") as run:
        run.to_arrow()
    assert isinstance(store.log, MemoryEventLog)
    store.log.rewrite(scan.name, lambda e: replace(e, state=replace(e.state, binding=None)))
    narrow = make_scan(table, columns=["id"])
    with narrow.run("two"):
        pass
    with pytest.raises(CheckpointBindingError):
        scan.plan("three")


@pytest.mark.parametrize("kind", ["parquet", "sql"])
def test_changes_of_a_key_table_are_not_appended_as_rows(
    tables: EventTables, make_scan: MakeScan, store: CheckpointStore, tmp_path: Path, kind: str
) -> None:
    table = tables.keyed()
    tables.upsert(table, rows(range(5)))
    sink = ParquetSink(tmp_path) if kind == "parquet" else SqlSink(f"sqlite:///{tmp_path}/s", "t")
    with pytest.raises(SinkChangesError, match="_change_type"):
        run_increment(make_scan(table), sink, "one")
    assert store.names(internal=True) == []
    marked = make_scan(table, metadata_columns=["_change_type"])
    assert run_increment(marked, sink, "one").rows == 5


def test_a_table_that_keeps_first_rows_may_be_appended(
    tables: EventTables, make_scan: MakeScan, tmp_path: Path
) -> None:
    table = tables.keyed(properties={"table.merge-engine": "first_row"})
    tables.upsert(table, rows(range(5)))
    tables.upsert(table, rows(range(3, 8)))
    assert run_increment(make_scan(table), ParquetSink(tmp_path), "one").rows == 8
