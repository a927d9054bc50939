"""Workers that die, runs and twins at once: each row once, embedded and on the real cluster."""

from __future__ import annotations

import signal
from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from fluss_client import FlussConnection
from fluss_orchestrate import IncrementalScan
from fluss_orchestrate.airflow import (
    FlussIncrementalScanOperator,
    FlussWriteOperator,
    ParquetTarget,
)
from fluss_orchestrate.core.loading import load_rows
from fluss_orchestrate.core.provisioning import apply_tables
from tests.airflow_provider.forking import Worker, die
from tests.airflow_provider.reading import ids, ids_in
from tests.airflow_provider.rows import numbered, numbers_spec
from tests.airflow_provider.running import register, states

pytestmark = [pytest.mark.usefixtures("airflow_home"), pytest.mark.timeout(240)]
KILLED = -signal.SIGKILL


class DyingTarget(ParquetTarget):
    """Kills its process when its sink has begun, or has written."""

    die_after = ""

    def open(self, client: Any) -> Any:
        sink = super().open(client)
        write = sink.write

        def dying_write(plan: Any, read: Any) -> Any:
            if self.die_after == "begin":
                die()
            done = write(plan, read)
            if self.die_after == "write":
                die()
            return done

        sink.write = dying_write
        return sink


class DyingWrite(FlussWriteOperator):
    """Kills its process when the rows are written, before anybody knows."""

    def work(self, context: Any) -> dict[str, Any]:
        super().work(context)
        die()
        raise AssertionError("a dead process goes on")


def test_dead_workers_and_two_runs_at_once(
    conn_id: str, client: FlussConnection, database: str, tmp_path: Path
) -> None:
    """One worker dies with its sink written and one before; then two runs go on at once."""
    from airflow.sdk import DAG

    spec = numbers_spec(database)
    apply_tables(client, [spec])
    checkpoint = f"dead-{database}"
    with DAG(f"dead_{database}") as dag:
        FlussIncrementalScanOperator(
            task_id="scan",
            fluss_conn_id=conn_id,
            table=spec.table,
            checkpoint=checkpoint,
            sink=DyingTarget(str(tmp_path / "out")),
        )
    register(dag)

    def start(hour: int, die_after: str = "") -> Worker:
        def work() -> None:
            DyingTarget.die_after = die_after
            date = datetime(2026, 11, 17, hour, tzinfo=UTC)
            done = dag.test(logical_date=date, run_after=date)
            assert states(done) == {"scan": "success"}, states(done)

        return Worker(work)

    load_rows(client, spec.table, numbered(0, 1000), "first")
    assert start(1, "write").wait() == KILLED
    assert start(2, "begin").wait() == KILLED
    load_rows(client, spec.table, numbered(1000, 1500), "second")
    both = [start(1), start(3)]
    assert [worker.wait() for worker in both] == [0, 0]
    assert ids(tmp_path / "out") == list(range(1500))
    scan = IncrementalScan(client, spec.table, checkpoint)
    assert scan.store.require(checkpoint).state.pending is None
    scan.store.retire(checkpoint)


def test_twins_of_one_task_run(
    conn_id: str, client: FlussConnection, database: str, tmp_path: Path
) -> None:
    """A worker that was given up for dead writes and scans beside the one that took its place."""
    spec = numbers_spec(database)
    apply_tables(client, [spec])
    checkpoint = f"twins-{database}"
    ti = SimpleNamespace(dag_id="twins", task_id="any", run_id="one", map_index=-1)
    context: Any = {"ti": ti, "dag_run": SimpleNamespace(run_type="manual")}
    common: dict[str, Any] = {"fluss_conn_id": conn_id, "table": spec.table}

    def write(kind: type[FlussWriteOperator] = FlussWriteOperator) -> Any:
        return kind(task_id="write", rows=lambda: numbered(0, 3000), **common).work(context)

    def scan() -> None:
        target = ParquetTarget(str(tmp_path / "out"))
        task = FlussIncrementalScanOperator(
            task_id="scan", checkpoint=checkpoint, sink=target, **common
        )
        assert task.work(context)["rows"] == 3000

    assert Worker(lambda: write(DyingWrite)).wait() == KILLED
    assert [twin.wait() for twin in [Worker(write), Worker(write)]] == [0, 0]
    assert ids_in(client, spec.table) == list(range(3000))
    assert [twin.wait() for twin in [Worker(scan), Worker(scan)]] == [0, 0]
    assert ids(tmp_path / "out") == list(range(3000))
    IncrementalScan(client, spec.table, checkpoint).store.retire(checkpoint)
