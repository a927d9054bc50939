"""The Iceberg sink: each plan once, whoever writes it, however often, at whatever time."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from fluss_orchestrate.core.lake.catalog import open_catalog
from fluss_orchestrate.core.lake.commits import commit_append
from fluss_orchestrate.core.lake.data_files import PartitionedWriter
from fluss_orchestrate.core.lake.errors import CommitConflictError
from fluss_orchestrate.core.plan import ScanPlan
from fluss_orchestrate.core.sinks import IcebergSink, SinkPositionError, SinkSchemaError
from tests import forked
from tests.orchestrate.sinks.plans import SCHEMA, expected_ids, ids, make_plan, read, rows

TABLE = "lake.orders"


def properties(folder: Path) -> dict[str, str]:
    (folder / "warehouse").mkdir(exist_ok=True)
    return {
        "type": "sql",
        "uri": f"sqlite:///{folder}/catalog.db?timeout=60",
        "warehouse": f"file://{folder}/warehouse",
    }


@pytest.fixture
def catalog(tmp_path: Path) -> Any:
    return open_catalog(properties(tmp_path))


def scan(catalog: Any) -> pa.Table:
    return catalog.load_table(TABLE).scan().to_arrow()


def data_files(folder: Path) -> int:
    return sum(1 for _ in (folder / "warehouse").rglob("*.parquet"))


def test_creates_the_table_and_keeps_plan_and_position(catalog: Any) -> None:
    sink = IcebergSink(catalog, TABLE)
    plan = make_plan((0, 0, 250), (1, 5, 10))
    assert sink.already_done(plan) is None
    result = sink.write(plan, read)

    assert result.rows == 255
    found = scan(catalog)
    assert ids(found) == expected_ids(plan)
    assert found.schema.field("at").type == pa.timestamp("us", tz="UTC")
    position = sink.position("job")
    assert position is not None
    assert position.offsets == {(None, 0): 250, (None, 1): 10}
    table = catalog.load_table(TABLE)
    assert table.properties["fluss.sink.job.plan-id"] == plan.plan_id
    assert "commit.retry.num-retries" not in table.properties
    assert result.details["snapshot_id"] == table.current_snapshot().snapshot_id


def test_again_and_older_plans_write_nothing(catalog: Any) -> None:
    sink = IcebergSink(catalog, TABLE)
    first, second = make_plan((0, 0, 50)), make_plan((0, 50, 80), (1, 0, 3), sequence=2)
    once = sink.write(first, read)
    sink.write(second, read)

    def fail(_: ScanPlan) -> pa.RecordBatchReader:
        raise AssertionError("nothing is left to read")

    for plan in (first, second):
        assert sink.write(plan, fail).rows == plan.offsets
    again = sink.already_done(first)
    assert again is not None
    assert (again.rows, again.bytes) == (once.rows, once.bytes)
    assert ids(scan(catalog)) == expected_ids(first, second)


@pytest.mark.parametrize("ranges", [((0, 60, 70),), ((0, 40, 70),), ((0, 50, 60), (1, 1, 2))])
def test_a_store_that_disagrees_is_an_error(catalog: Any, ranges: Any) -> None:
    sink = IcebergSink(catalog, TABLE)
    sink.write(make_plan((0, 0, 50), (1, 0, 5)), read)
    with pytest.raises(SinkPositionError, match="does not go on where this sink is"):
        sink.write(make_plan(*ranges), read)
    assert scan(catalog).num_rows == 55


def test_another_table_under_the_same_name_is_an_error(catalog: Any) -> None:
    sink = IcebergSink(catalog, TABLE)
    plan = make_plan((0, 0, 50))
    sink.write(plan, read)
    other = replace(plan, table=replace(plan.table, table_id=18))
    with pytest.raises(SinkPositionError, match="id 18"):
        sink.write(other, read)
    sink.reset_position("job")
    assert sink.position("job") is None
    sink.write(other, read)
    assert scan(catalog).num_rows == 100


def test_two_checkpoints_share_a_table(catalog: Any) -> None:
    sink = IcebergSink(catalog, TABLE)
    sink.write(make_plan((0, 0, 50)), read)
    sink.write(make_plan((1, 0, 50), name="other"), read)
    assert scan(catalog).num_rows == 100


@pytest.mark.parametrize(
    "terms", [["region"], ["day(at)"], ["bucket(4, id)", "region"], ["truncate(1, region)"]]
)
def test_partitioned_targets(catalog: Any, terms: list[str]) -> None:
    sink = IcebergSink(catalog, TABLE, partition_by=terms)
    plan = make_plan((0, 0, 230), (1, 0, 30))
    sink.write(plan, read)
    assert ids(scan(catalog)) == expected_ids(plan)
    table = catalog.load_table(TABLE)
    assert len(table.spec().fields) == len(terms)
    assert ids(table.scan("region == 'r1'").to_arrow()) == [
        i for i in expected_ids(plan) if (i % 1_000_000) % 3 == 1
    ]


def test_a_commit_against_an_old_base_fails_without_a_retry(
    catalog: Any, caplog: pytest.LogCaptureFixture
) -> None:
    sink = IcebergSink(catalog, TABLE)
    sink.write(make_plan((0, 0, 10)), read)
    old = catalog.load_table(TABLE)
    sink.write(make_plan((0, 10, 20)), read)

    writer = PartitionedWriter(old, "late")
    writer.write(rows(0, 20, 30))
    with pytest.raises(CommitConflictError):
        commit_append(old, writer.close(), {})
    assert "retrying" not in caplog.text
    assert scan(catalog).num_rows == 20


def test_the_loser_of_a_race_finds_the_plan_and_takes_its_files_back(
    catalog: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sink, rival = IcebergSink(catalog, TABLE), IcebergSink(catalog, TABLE)
    sink.write(make_plan((0, 0, 10)), read)
    plan = make_plan((0, 10, 20))

    def read_slowly(part: ScanPlan) -> pa.RecordBatchReader:
        rival.write(plan, read)
        return read(part)

    result = sink.write(plan, read_slowly)
    assert result.rows == 10
    assert ids(scan(catalog)) == list(range(20))
    assert data_files(tmp_path) == 2


def test_the_loser_against_a_stranger_commits_on_top(catalog: Any) -> None:
    sink, rival = IcebergSink(catalog, TABLE), IcebergSink(catalog, TABLE)
    sink.write(make_plan((0, 0, 10)), read)
    strange = make_plan((5, 0, 7), name="other")

    def read_slowly(part: ScanPlan) -> pa.RecordBatchReader:
        reader = read(part)
        rival.write(strange, read)
        return reader

    sink.write(make_plan((0, 10, 20)), read_slowly)
    assert scan(catalog).num_rows == 27


def _race(folder: Path, number: int, plans: list[ScanPlan], barrier: Any) -> None:
    sink = IcebergSink(properties(folder), TABLE)
    barrier.wait()
    for plan in plans:
        sink.write(plan, read)


@pytest.mark.timeout(300)
def test_processes_racing_on_the_same_plans_leave_each_row_once(
    tmp_path: Path, catalog: Any
) -> None:
    plans = [make_plan((0, at * 10, at * 10 + 10), sequence=at) for at in range(8)]
    IcebergSink(catalog, TABLE).write(plans[0], read)
    barrier = forked.context.Barrier(3)
    runs = [forked.start(_race, tmp_path, n, plans, barrier) for n in range(3)]
    for run in runs:
        run.join()
    assert [run.exitcode for run in runs] == [0, 0, 0]
    assert ids(scan(catalog)) == expected_ids(*plans)
    assert data_files(tmp_path) == len(plans)


KILLED = """
import os, signal, sys
from pathlib import Path
from tests.orchestrate.sinks.plans import make_plan, read
from tests.orchestrate.sinks.test_iceberg import TABLE, properties
from fluss_orchestrate.core.sinks import IcebergSink
from fluss_orchestrate.core.sinks import iceberg
stage, folder = sys.argv[1], Path(sys.argv[2])
die = lambda *_: os.kill(os.getpid(), signal.SIGKILL)
real = iceberg.commit_append
def commit(*args):
    if stage == "before": die()
    real(*args)
    die()
iceberg.commit_append = commit
IcebergSink(properties(folder), TABLE).write(make_plan((0, 0, 300)), read)
"""


@pytest.mark.parametrize("stage", ["before", "after"])
def test_killed_around_the_commit(tmp_path: Path, catalog: Any, stage: str) -> None:
    plan = make_plan((0, 0, 300))
    assert forked.run_program(KILLED, stage, str(tmp_path)) == -9
    sink = IcebergSink(catalog, TABLE)
    assert (sink.already_done(plan) is None) == (stage == "before")
    assert sink.write(plan, read).rows == 300
    assert ids(scan(catalog)) == expected_ids(plan)


def test_schema_policy(catalog: Any) -> None:
    sink = IcebergSink(catalog, TABLE)
    sink.write(make_plan((0, 0, 10)), read)
    wider = SCHEMA.append(pa.field("extra", pa.int64()))
    plan = make_plan((0, 10, 20))
    with pytest.raises(SinkSchemaError, match="extra") as caught:
        sink.write(plan, lambda p: read(p, wider))
    assert caught.value.columns == ("extra",)

    adding = IcebergSink(catalog, TABLE, schema_policy="add_columns")
    adding.write(plan, lambda p: read(p, wider))
    # A plan that was made before the column came still fits.
    adding.write(make_plan((0, 20, 30)), read)
    found = scan(catalog).sort_by("id")
    assert found.column("extra").to_pylist() == [None] * 10 + list(range(20, 40, 2)) + [None] * 10


def test_a_reader_that_fails_leaves_nothing(catalog: Any, tmp_path: Path) -> None:
    sink = IcebergSink(catalog, TABLE)

    def dies(part: ScanPlan) -> pa.RecordBatchReader:
        def some() -> Iterator[pa.RecordBatch]:
            yield rows(0, 0, 10)
            raise OSError("the line broke")

        return pa.RecordBatchReader.from_batches(SCHEMA, some())

    with pytest.raises(OSError, match="the line broke"):
        sink.write(make_plan((0, 0, 20)), dies)
    assert data_files(tmp_path) == 0
    assert sink.position("job") is None
