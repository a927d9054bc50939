"""Bulk loads from a DAG on a real Spark: once, also when the task is cleared, and killed whole."""

from __future__ import annotations

import json
import os
import signal
import threading
import time
from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import psutil
import pyarrow.parquet as pq
import pytest

from fluss_client import FlussConnection
from fluss_orchestrate import IncrementalScan
from fluss_orchestrate.core.provisioning import apply
from tests.airflow_provider.rows import numbered, numbers_spec
from tests.airflow_provider.running import result_of, run, states

pytestmark = [
    pytest.mark.usefixtures("airflow_home", "plain_cluster"),
    pytest.mark.timeout(400),
    pytest.mark.long,
]
DATE = datetime(2026, 11, 17, 3, tzinfo=UTC)


def descendants() -> set[int]:
    return {p.pid for p in psutil.Process().children(recursive=True)}


def test_a_load_is_done_once_and_killed_whole(
    cluster_conn_id: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from airflow.sdk import DAG
    from airflow.sdk.exceptions import AirflowTaskTerminated

    from fluss_orchestrate.airflow import FlussBulkLoadOperator, FlussHook

    monkeypatch.setenv(
        "AIRFLOW_CONN_SPARK_HERE", json.dumps({"conn_type": "spark", "host": "local[1]"})
    )
    database = f"af_bulk_{os.getpid()}"
    spec = numbers_spec(database)
    pq.write_table(numbered(0, 2000), tmp_path / "rows.parquet")
    arguments: dict[str, Any] = {
        "task_id": "load",
        "fluss_conn_id": cluster_conn_id,
        "table": spec.table,
        "source": {"kind": "parquet", "paths": [str(tmp_path / "rows.parquet")]},
        "spark_conn_id": "spark_here",
    }

    def build() -> Any:
        with DAG(f"bulk_{database}") as dag:
            FlussBulkLoadOperator(**arguments)
        return dag

    client = FlussConnection.create(FlussHook(cluster_conn_id).get_config()).result(60)
    try:
        apply(client, [spec])
        _kill_in_the_middle(FlussBulkLoadOperator(**arguments), AirflowTaskTerminated)
        for _ in range(2):
            done = run(build(), logical_date=DATE)
            assert states(done) == {"load": "success"}
            assert result_of(done, "load")["rows"] == 2000
        scan = IncrementalScan(client, spec.table, f"bulk-{database}")
        with scan.run("count") as whole:
            ids = whole.to_arrow().column("id").to_pylist()
        scan.store.retire(f"bulk-{database}")
        assert sorted(ids) == list(range(2000))
    finally:
        client.get_admin().result().drop_database(
            database, ignore_if_not_exists=True, cascade=True
        ).result(30)
        client.close()


def _kill_in_the_middle(task: Any, expected: type[BaseException]) -> None:
    """SIGTERM while Spark starts, as Airflow's task runner handles it: nothing stays behind."""
    ti = SimpleNamespace(
        dag_id=f"bulk_{task.table.partition('.')[0]}",
        task_id="load",
        run_id="killed",
        map_index=-1,
    )
    before_children = descendants()
    before = signal.signal(signal.SIGTERM, lambda *_: task.on_kill())

    def terminate() -> None:
        while not any("java" in _name(pid) for pid in descendants() - before_children):
            time.sleep(0.2)
        time.sleep(1.0)
        os.kill(os.getpid(), signal.SIGTERM)

    killer = threading.Thread(target=terminate, daemon=True)
    killer.start()
    try:
        with pytest.raises(expected):
            task.execute({"ti": ti, "task": task})
    finally:
        signal.signal(signal.SIGTERM, before)
    left = {pid: _name(pid) for pid in descendants() - before_children}
    assert not any("java" in name or "python" in name for name in left.values()), left


def _name(pid: int) -> str:
    try:
        return psutil.Process(pid).name()
    except psutil.NoSuchProcess:
        return ""
