"""Bulk loads from a DAG on a real Spark: once, also when the task is cleared, and killed whole."""

from __future__ import annotations

import json
import os
import signal
import threading
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import psutil
import pyarrow.parquet as pq
import pytest

from fluss_client import Config, FlussConnection
from fluss_orchestrate.core.provisioning import apply
from tests.airflow_provider.reading import ids_in
from tests.airflow_provider.rows import numbered, numbers_spec
from tests.airflow_provider.running import result_of, run, states

pytestmark = [pytest.mark.usefixtures("airflow_home", "plain_cluster"), pytest.mark.timeout(400)]
DATE = datetime(2026, 11, 17, 3, tzinfo=UTC)
ROWS = 2000


@pytest.fixture
def client(cluster_conn_id: str) -> Iterator[FlussConnection]:
    from fluss_orchestrate.airflow import FlussHook

    with FlussConnection.create(FlussHook(cluster_conn_id).get_config()).result(60) as made:
        yield made


def test_a_load_is_killed_whole_and_done_once(
    cluster_conn_id: str,
    client: FlussConnection,
    database: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    long_form: bool,
) -> None:
    """The second try goes on with the load of the first, which was killed."""
    from airflow.providers.apache.spark.operators.spark_submit import SparkSubmitOperator
    from airflow.sdk import DAG

    from fluss_orchestrate.airflow import FlussBulkLoadOperator

    spark = {"conn_type": "spark", "host": "local[1]"}
    monkeypatch.setenv("AIRFLOW_CONN_SPARK_HERE", json.dumps(spark))
    spec = numbers_spec(database)
    apply(client, [spec])
    pq.write_table(numbered(0, ROWS), tmp_path / "rows.parquet")
    arguments: dict[str, Any] = {
        "task_id": "load",
        "fluss_conn_id": cluster_conn_id,
        "table": spec.table,
        "source": {"kind": "parquet", "paths": [str(tmp_path / "rows.parquet")]},
        "spark_conn_id": "spark_here",
        "load_id": f"{database}/load",
        "conf": {"spark.ui.enabled": "false"},
    }
    assert issubclass(FlussBulkLoadOperator, SparkSubmitOperator)
    _kill_in_the_middle(FlussBulkLoadOperator(**arguments), client.config)
    for _ in range(3 if long_form else 1):
        with DAG(f"bulk_{database}") as dag:
            FlussBulkLoadOperator(**arguments)
        done = run(dag, logical_date=DATE)
        assert states(done) == {"load": "success"}
        receipt = result_of(done, "load")
        assert (receipt["rows"], receipt["run_key"]) == (ROWS, f"{database}/load")
    assert ids_in(client, spec.table) == list(range(ROWS))


def descendants() -> set[int]:
    return {p.pid for p in psutil.Process().children(recursive=True)}


def _kill_in_the_middle(task: Any, config: Config) -> None:
    """SIGTERM while the driver runs, as Airflow's task runner handles it: nothing stays behind."""
    from airflow.sdk.exceptions import AirflowTaskTerminated

    ti = SimpleNamespace(dag_id="bulk", task_id="load", run_id="killed", map_index=-1)
    before_children = descendants()
    before = signal.signal(signal.SIGTERM, lambda *_: task.on_kill())
    commands: list[str] = []

    def driver_runs() -> bool:
        found = [_process(pid) for pid in descendants() - before_children]
        commands.extend(arguments for _, arguments in found)
        return any("python" in name and "bulk_load" in said for name, said in found)

    def terminate() -> None:
        while not driver_runs():
            time.sleep(0.2)
        time.sleep(1.0)
        driver_runs()
        os.kill(os.getpid(), signal.SIGTERM)

    killer = threading.Thread(target=terminate, daemon=True)
    killer.start()
    try:
        with pytest.raises(AirflowTaskTerminated):
            task.execute({"ti": ti, "task": task})
    finally:
        signal.signal(signal.SIGTERM, before)
        killer.join()
    left = {pid: _process(pid)[0] for pid in descendants() - before_children}
    assert not any("java" in name or "python" in name for name in left.values()), left
    assert any("java" in command for command in commands)
    assert not any(config.security_sasl_password in command for command in commands)


def _process(pid: int) -> tuple[str, str]:
    try:
        process = psutil.Process(pid)
        return process.name(), " ".join(process.cmdline())
    except (psutil.NoSuchProcess, psutil.ZombieProcess):
        return "", ""


def test_what_went_wrong_is_said_in_one_sentence(
    cluster_conn_id: str, database: str, tmp_path: Path
) -> None:
    """A connection that is not there, and a table that is not there."""
    from fluss_orchestrate.airflow import FlussBulkLoadOperator, FlussTaskError

    def load(**more: Any) -> None:
        task = FlussBulkLoadOperator(
            task_id="load",
            fluss_conn_id=cluster_conn_id,
            table=f"{database}.nothing",
            source={"kind": "parquet", "paths": [str(tmp_path)]},
            load_id="x",
            **more,
        )
        task.execute({"ti": None, "task": task})

    with pytest.raises(FlussTaskError, match="there is no connection 'spark_nowhere'"):
        load(spark_conn_id="spark_nowhere")
    with pytest.raises(FlussTaskError, match=f"{database}.nothing.* not"):
        load(master="local[1]")
