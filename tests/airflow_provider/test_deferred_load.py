"""Bulk loads that wait in the triggerer: workers, supervisors and waiting tasks that go away."""

from __future__ import annotations

import os
import signal
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from fluss_client import FlussConnection
from fluss_orchestrate.core.provisioning import TableSpec, apply_tables
from fluss_orchestrate.core.spark_submit import detached
from tests.airflow_provider.forking import Worker, die
from tests.airflow_provider.reading import ids_in
from tests.airflow_provider.rows import numbers_spec
from tests.airflow_provider.running import register, result_of, run, states
from tests.fix_either import CLUSTER_FIRST
from tests.waiting import scaled, wait_until

pytestmark = [pytest.mark.usefixtures("airflow_home"), pytest.mark.timeout(900)]
ROWS = 3000
WAIT_S = 400.0


@pytest.fixture
def table(client: FlussConnection, database: str, tmp_path: Path) -> TableSpec:
    """A table, and a folder with rows for it."""
    spec = numbers_spec(database, buckets=2)
    apply_tables(client, [spec])
    (tmp_path / "in").mkdir()
    rows = {"id": pa.array(range(ROWS), pa.int64()), "word": ["x"] * ROWS}
    pq.write_table(pa.table(rows), tmp_path / "in" / "rows.parquet")
    return spec


@pytest.fixture
def supervisors(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Callable[[], list[psutil.Process]]]:
    """The supervisors that this test has started; they are gone afterwards.

    Other tests of this machine have supervisors, too. The folder of each is an argument of it.
    """
    # One that is killed leaves its folder behind.
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))

    def own() -> list[psutil.Process]:
        found = psutil.process_iter(["cmdline"])
        commands = {process: process.info["cmdline"] or () for process in found}
        return [
            process
            for process, words in commands.items()
            if detached.__name__ in words and str(tmp_path) in words[-1]
        ]

    yield own
    for process in own():
        _kill_whole(process)


def _driver_runs(supervisors: list[psutil.Process]) -> bool:
    """Whether a supervisor has a Spark that works."""
    started = [p for one in supervisors for p in one.children(recursive=True)]
    return any("bulk_load" in word for p in started for word in p.cmdline()) and len(started) > 1


def _kill_whole(supervisor: psutil.Process) -> None:
    """Kill a supervisor with its spark-submit, as a machine that goes away does."""
    for process in [*supervisor.children(recursive=True), supervisor]:
        process.kill()


def dag_of(conn_id: str, spec: TableSpec, tmp_path: Path, **more: Any) -> Any:
    from airflow.sdk import DAG

    from fluss_orchestrate.airflow import FlussBulkLoadOperator

    given: dict[str, Any] = {
        "deferrable": True,
        "poll_interval": 0.5,
        "wait_timeout": scaled(WAIT_S),
    }
    with DAG(f"deferred_{spec.path.table_name}_{os.getpid()}") as dag:
        FlussBulkLoadOperator(
            task_id="load",
            fluss_conn_id=conn_id,
            table=spec.table,
            source={"kind": "parquet", "paths": [str(tmp_path / "in")]},
            master="local[1]",
            load_id=f"{spec.table} once",
            **{**given, **more},
        )
    return dag


@pytest.mark.parametrize("fluss_kind", CLUSTER_FIRST, indirect=True)
def test_a_worker_dies_and_the_next_try_waits_for_its_spark(
    conn_id: str,
    client: FlussConnection,
    table: TableSpec,
    tmp_path: Path,
    supervisors: Callable[[], list[psutil.Process]],
) -> None:
    """The worker dies before it defers. One spark-submit does all of the work."""
    from fluss_orchestrate.airflow.operators.bulk_load import FlussBulkLoadOperator

    dag = dag_of(conn_id, table, tmp_path)
    register(dag)

    def work() -> None:
        begun = FlussBulkLoadOperator._begun

        def dying(self: Any, spec: Any) -> None:
            begun(self, spec)
            die()

        FlussBulkLoadOperator._begun = dying  # type: ignore[assignment]
        dag.test()

    assert Worker(work).wait() == -signal.SIGKILL
    (supervisor,) = supervisors()
    done = run(dag)
    assert states(done) == {"load": "success"}
    assert result_of(done, "load")["rows"] == ROWS
    assert ids_in(client, table.table) == list(range(ROWS))
    left = supervisors()
    assert left in ([], [supervisor]), "a second spark-submit ran"
    record = detached.last_record(client, table.table, f"{table.table} once")
    assert record is not None
    assert record.phase == detached.DONE
    assert f"{ROWS:,} rows" in record.said
    again = run(dag)
    assert states(again) == {"load": "success"}, "a load that is done is not submitted again"
    assert result_of(again, "load")["rows"] == ROWS


@pytest.mark.long
@pytest.mark.parametrize("fluss_kind", ["embedded", "cluster"], indirect=True)
def test_a_lost_supervisor_is_replaced(
    conn_id: str,
    client: FlussConnection,
    table: TableSpec,
    tmp_path: Path,
    supervisors: Callable[[], list[psutil.Process]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Its machine goes away with Spark in the middle of the work: the task submits again."""
    monkeypatch.setattr(detached, "LOST_S", 25.0)
    worker = Worker(lambda: run(dag_of(conn_id, table, tmp_path)))
    wait_until("the driver", lambda: _driver_runs(supervisors()), WAIT_S, pause_s=0.2)
    _kill_whole(supervisors()[0])
    assert worker.wait(WAIT_S) == 0
    assert ids_in(client, table.table) == list(range(ROWS))
    record = detached.last_record(client, table.table, f"{table.table} once")
    assert record is not None
    assert record.phase == detached.DONE


@pytest.mark.long
def test_a_load_that_takes_too_long_or_cannot_work(
    embedded_conn_id: str,
    tmp_path: Path,
    supervisors: Callable[[], list[psutil.Process]],
) -> None:
    """It is told to stop, and nothing is left of it; a mistake is said in one sentence."""
    from fluss_orchestrate.airflow import FlussHook

    client = FlussHook(embedded_conn_id).get_conn()
    spec = numbers_spec("deferred", buckets=1)
    apply_tables(client, [spec])
    (tmp_path / "in").mkdir()
    rows = {"nothing": pa.array(range(ROWS), pa.int64())}
    pq.write_table(pa.table(rows), tmp_path / "in" / "rows.parquet")
    short = run(dag_of(embedded_conn_id, spec, tmp_path, wait_timeout=1.0))
    assert states(short) == {"load": "failed"}
    wait_until("the end of it", lambda: not supervisors(), WAIT_S, pause_s=0.5)
    stopped = detached.last_record(client, spec.table, f"{spec.table} once")
    assert stopped is not None
    assert stopped.phase == detached.STOPPED
    assert states(run(dag_of(embedded_conn_id, spec, tmp_path))) == {"load": "failed"}
    failed = detached.last_record(client, spec.table, f"{spec.table} once")
    assert failed is not None
    assert failed.phase == detached.FAILED
    assert "the input does not fit" in failed.message
