"""Killed, retried, cleared, run twice, run for the past: each row once in the sink."""

from __future__ import annotations

import os
import signal
import threading
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from fluss_client import FlussConnection
from fluss_orchestrate import IncrementalScan
from fluss_orchestrate.core.loading import load_rows
from fluss_orchestrate.core.provisioning import apply_tables
from tests.airflow_provider.reading import ids, ids_in
from tests.airflow_provider.rows import numbered, numbers_spec
from tests.airflow_provider.running import result_of, run, states
from tests.waiting import WAIT_S, moment_between, scaled, wait_until

pytestmark = pytest.mark.usefixtures("airflow_home")
DATE = datetime(2026, 11, 17, 3, tzinfo=UTC)


def test_a_retry_and_a_clear_write_once(
    conn_id: str, client: FlussConnection, database: str, tmp_path: Path
) -> None:
    """The write is tried again after it was done, the scan after its sink has failed."""
    from airflow.sdk import DAG

    from fluss_orchestrate.airflow import FlussIncrementalScanOperator, FlussWriteOperator

    spec = numbers_spec(database)
    apply_tables(client, [spec])
    tries: list[str] = []

    class LostAnswer(FlussWriteOperator):
        """Writes, and then does not come to say so the first time."""

        def work(self, context: Any) -> dict[str, Any]:
            done = super().work(context)
            tries.append("write")
            if tries.count("write") == 1:
                raise TimeoutError("the worker was too slow")
            return done

    def deliver(reader: Any, ti: Any) -> None:
        tries.append(f"deliver {ti.try_number}")
        table = reader.read_all()
        if tries.count("deliver 1") == 1 and ti.try_number == 1:
            raise TimeoutError("the target was away")
        pq.write_table(table, tmp_path / f"{table.num_rows}.parquet")

    def build() -> Any:
        options: dict[str, Any] = {"retries": 1, "retry_delay": timedelta(0)}
        with DAG(f"retry_{database}") as dag:
            write = LostAnswer(
                task_id="write",
                fluss_conn_id=conn_id,
                table=spec.table,
                rows=lambda logical_date: numbered(0, 1000 + logical_date.minute),
                **options,
            )
            scan = FlussIncrementalScanOperator(
                task_id="scan",
                fluss_conn_id=conn_id,
                table=spec.table,
                checkpoint=f"retry-{database}",
                sink=deliver,
                **options,
            )
            write >> scan
        return dag

    first = run(build(), logical_date=DATE)
    assert states(first) == {"write": "success", "scan": "success"}
    assert tries == ["write", "write", "deliver 1", "deliver 2"]
    again = run(build(), logical_date=DATE)
    assert states(again) == {"write": "success", "scan": "success"}
    assert ids_in(client, spec.table) == list(range(1000))
    assert ids(tmp_path) == list(range(1000))
    assert result_of(first, "scan")["plan_id"] == result_of(again, "scan")["plan_id"]


def test_other_rows_under_the_same_run_are_refused_for_good(
    conn_id: str, client: FlussConnection, database: str
) -> None:
    from airflow.sdk import DAG

    from fluss_orchestrate.airflow import FlussWriteOperator

    spec = numbers_spec(database)
    apply_tables(client, [spec])
    calls: list[int] = []

    def changing() -> Any:
        calls.append(1)
        return numbered(0, 10 * len(calls))

    def build() -> Any:
        with DAG(f"differ_{database}") as dag:
            FlussWriteOperator(
                task_id="write",
                fluss_conn_id=conn_id,
                table=spec.table,
                rows=changing,
                retries=3,
                retry_delay=timedelta(0),
            )
        return dag

    assert states(run(build(), logical_date=DATE)) == {"write": "success"}
    # A second call gives other rows: the task fails at once and uses no retry.
    assert states(run(build(), logical_date=DATE)) == {"write": "failed"}
    assert len(calls) == 2
    assert ids_in(client, spec.table) == list(range(10))


def test_intervals_of_past_dates_meet_exactly(
    conn_id: str, client: FlussConnection, database: str, tmp_path: Path
) -> None:
    """Runs for past intervals, out of order and twice, leave each row once."""
    from fluss_orchestrate.airflow import FlussIncrementalScanOperator, ParquetTarget

    spec = numbers_spec(database)
    apply_tables(client, [spec])
    cuts = [_now()]
    for part in range(3):
        load_rows(client, spec.table, numbered(part * 100, part * 100 + 100), f"part {part}")
        cuts.append(_now())

    for index in (1, 0, 2, 1):
        sink = FlussIncrementalScanOperator(
            task_id="scan",
            fluss_conn_id=conn_id,
            table=spec.table,
            checkpoint=f"past-{database}",
            mode="interval",
            sink=ParquetTarget(str(tmp_path / "out")),
        )
        context = _context(sink, cuts[index], cuts[index + 1], f"run-{index}")
        assert sink.work(context)["rows"] == 100
    assert ids(tmp_path / "out") == list(range(300))


def _now() -> datetime:
    return datetime.fromtimestamp(moment_between() / 1000, UTC)


def _context(task: Any, since: datetime, until: datetime, run_id: str) -> Any:
    """The part of a backfill's context that a scan reads, with times as Airflow gives them."""
    from types import SimpleNamespace

    import pendulum

    ti = SimpleNamespace(dag_id="past", task_id=task.task_id, run_id=run_id, map_index=-1)
    return {
        "ti": ti,
        "task": task,
        "dag_run": SimpleNamespace(run_type="backfill"),
        "data_interval_start": pendulum.instance(since),
        "data_interval_end": pendulum.instance(until),
    }


def test_a_killed_task_stops_and_another_try_goes_on(
    conn_id: str, client: FlussConnection, database: str, tmp_path: Path
) -> None:
    """SIGTERM, as Airflow's task runner handles it: `on_kill` in the middle of the work."""
    from fluss_orchestrate.airflow import FlussIncrementalScanOperator
    from fluss_orchestrate.airflow.version_compat import AirflowTaskTerminated

    spec = numbers_spec(database)
    apply_tables(client, [spec])
    load_rows(client, spec.table, numbered(0, 500), "rows")

    reading = threading.Event()

    def stuck(reader: Any) -> None:
        reader.read_next_batch()
        reading.set()
        # Short pauses: a signal that comes just before one long sleep would be seen after it.
        wait_until("the error of the signal", lambda: False)

    def terminate() -> None:
        reading.wait(scaled(WAIT_S))
        os.kill(os.getpid(), signal.SIGTERM)

    arguments = {
        "task_id": "scan",
        "fluss_conn_id": conn_id,
        "table": spec.table,
        "checkpoint": f"killed-{database}",
    }
    task = FlussIncrementalScanOperator(sink=stuck, **arguments)
    context = _context(task, DATE, DATE, "killed")
    context["dag_run"].run_type = "manual"
    before = signal.signal(signal.SIGTERM, lambda *_: task.on_kill())
    killer = threading.Thread(target=terminate)
    killer.start()
    try:
        with pytest.raises(AirflowTaskTerminated):
            task.execute(context)
    finally:
        signal.signal(signal.SIGTERM, before)
        killer.join()
    task.on_kill()  # with nothing under way it does nothing
    scan = IncrementalScan(client, spec.table, f"killed-{database}")
    pending = scan.store.require(f"killed-{database}").state.pending
    assert pending is not None

    def written(reader: Any) -> None:
        pq.write_table(reader.read_all(), tmp_path / "rows.parquet")

    again = FlussIncrementalScanOperator(sink=written, **arguments)
    assert again.work(context)["plan_id"] == pending.plan_id
    assert ids(tmp_path) == list(range(500))
