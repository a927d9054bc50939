"""A reset, a table that was created again and rows that were given up begin a new generation."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa

from fluss_client import FlussConnection, FlussTable
from fluss_orchestrate.core.errors import PositionUnknownError
from fluss_orchestrate.core.incremental import IncrementalScan
from fluss_orchestrate.core.job import run_increment
from fluss_orchestrate.core.plan import Generation, ScanPlan
from fluss_orchestrate.core.sinks import FlussTableSink, IcebergSink, Sink, SqlSink
from fluss_orchestrate.core.sinks.errors import SinkPositionError
from tests.orchestrate.incremental.events import EventTables, rows
from tests.orchestrate.sinks.plans import make_plan, read

MakeScan = Callable[..., IncrementalScan]


def test_a_generation_changes_a_plans_id_and_an_absent_one_does_not() -> None:
    plan = make_plan((0, 0, 10))
    assert plan.plan_id == "7c7c0d3c2e29cafb601dbedd6f25c192"  # as version 1 had it
    assert plan.to_json()["version"] == 1
    later = replace(plan, generation=Generation(3, "abc"))
    assert later.plan_id != plan.plan_id
    assert ScanPlan.from_json(later.to_json()) == later
    assert later.to_json()["version"] == 2


def test_after_a_reset_the_same_run_key_writes_again_into_a_key_table(
    connection: FlussConnection, tables: EventTables, make_scan: MakeScan
) -> None:
    source, target = tables.events(), tables.keyed()
    tables.append(source, rows(range(10)))
    scan = make_scan(source)
    sink = FlussTableSink(connection, target.get_table_path())
    assert run_increment(scan, sink, "one").rows == 10
    with target.new_upsert().create_writer() as writer:
        for number in range(10):
            writer.delete({"id": number})
    scan.reset("earliest", "the target was emptied")
    again = run_increment(make_scan(source), sink, "one")
    assert (again.rows, again.receipt.moved) == (10, 10)
    assert all(tables.lookup(target, {"id": n}) is not None for n in range(10))


def sql_sink(folder: Path) -> Sink:
    return SqlSink(f"sqlite:///{folder}/sink.db", "rows")


def iceberg_sink(folder: Path) -> Sink:
    properties = {
        "type": "sql",
        "uri": f"sqlite:///{folder}/catalog.db",
        "warehouse": f"file://{folder}",
    }
    return IcebergSink(properties, "db.rows")


@pytest.mark.parametrize("make_sink", [sql_sink, iceberg_sink], ids=["sql", "iceberg"])
def test_sinks_with_a_position_follow_a_reset_and_refuse_what_was_before_it(
    tables: EventTables, make_scan: MakeScan, tmp_path: Path, make_sink: Callable[[Path], Sink]
) -> None:
    table = tables.events()
    tables.append(table, rows(range(10)))
    scan, sink = make_scan(table), make_sink(tmp_path)
    assert run_increment(scan, sink, "one").rows == 10
    old = scan.plan("one", sink=sink)
    scan.reset("earliest", "once more")
    tables.append(table, rows(range(10, 15)))
    assert run_increment(make_scan(table), sink, "two").rows == 15
    tables.append(table, rows(range(15, 18)))
    assert run_increment(make_scan(table), sink, "three").rows == 3
    with pytest.raises(SinkPositionError, match="reset after the plan was made"):
        sink.write(old, scan.read)


@pytest.mark.parametrize("make_sink", [sql_sink, iceberg_sink], ids=["sql", "iceberg"])
def test_a_table_made_anew_goes_on_into_a_sink_with_a_position(
    tables: EventTables, make_scan: MakeScan, tmp_path: Path, make_sink: Callable[[Path], Sink]
) -> None:
    table = tables.events()
    tables.append(table, rows(range(10)))
    sink = make_sink(tmp_path)
    options: dict[str, Any] = {"on_recreated": "restart"}
    assert run_increment(make_scan(table, **options), sink, "one").rows == 10
    made = tables.recreate(table)
    tables.append(made, rows(range(100, 104)))
    for run_key, count in (("two", 4), ("three", 0)):
        assert run_increment(make_scan(made, **options), sink, run_key).rows == count
    tables.append(made, rows(range(104, 106)))
    assert run_increment(make_scan(made, **options), sink, "four").rows == 2


def test_another_stores_generation_is_refused(tmp_path: Path) -> None:
    sink = sql_sink(tmp_path)
    first = replace(make_plan((0, 0, 10)), generation=Generation(4, "mine"))
    sink.write(first, read)
    for other in (Generation(4, "other"), Generation(3, "mine"), None):
        with pytest.raises(SinkPositionError, match="generation"):
            sink.write(replace(make_plan((0, 10, 20)), generation=other), read)
    later = replace(make_plan((0, 0, 5)), generation=Generation(9, "later"))
    assert sink.write(later, read).rows == 5
    engine = sa.create_engine(f"sqlite:///{tmp_path}/sink.db")
    with engine.connect() as connection:
        assert connection.execute(sa.text("select count(*) from rows")).scalar_one() == 15


def test_a_reset_names_every_bucket_and_says_what_it_does(
    tables: EventTables,
    make_scan: MakeScan,
    caplog: pytest.LogCaptureFixture,
) -> None:
    table: FlussTable = tables.events(buckets=3)
    tables.append(table, rows(range(30)))
    scan = make_scan(table)
    with scan.run("one") as run:
        run.to_arrow()
    first = run.receipt
    assert first is not None
    tables.append(table, rows(range(30, 31)))
    with scan.run("two") as run:
        run.to_arrow()
    assert run.receipt is not None
    assert len(run.receipt.ranges) == 1
    with pytest.raises(PositionUnknownError) as caught:
        scan.reset({0: 3}, "two buckets are not named")
    assert caught.value.places == ((None, 1), (None, 2))
    with pytest.raises(PositionUnknownError):
        scan.reset(replace(run.receipt, position=None))
    scan.reset(run.receipt, "where that run ended")
    assert caplog.messages == []
    assert scan.plan("three").is_empty
    scan.store.commit(scan.plan("three"), first)
    scan.reset(first, "where the first ended")
    assert "1 offsets that were committed come again" in caplog.text
    assert scan.plan("four").offsets == 1
    caplog.clear()
    scan.reset("start", "everything", abandon_pending=True)
    assert "30 offsets that were committed come again" in caplog.text
    assert "a mirror replaces all its rows" in caplog.text
    scan.reset("earliest")
    caplog.clear()
    scan.reset("latest", "nothing of it")
    assert "31 offsets are never read" in caplog.text
    assert "again" not in caplog.text
