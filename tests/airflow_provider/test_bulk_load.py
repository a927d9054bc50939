"""Bulk loads from a DAG on a real Spark: once, also when the task is cleared, and killed whole."""

from __future__ import annotations

import json
import os
import signal
import threading
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import psutil
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from fluss_client import Config, FlussConnection
from fluss_orchestrate.core.provisioning import TableSpec, apply_tables
from tests.airflow_provider.reading import ids_in
from tests.airflow_provider.running import load_dags, result_of, run, states
from tests.fix_either import CLUSTER_FIRST
from tests.waiting import wait_until

pytestmark = [pytest.mark.usefixtures("airflow_home"), pytest.mark.timeout(400)]
DATE = datetime(2026, 11, 17, 3, tzinfo=UTC)
ROWS = 2000


def orders() -> pa.Table:
    """The rows of the shop's DAG."""
    ids = list(range(ROWS))
    amounts = pa.array([Decimal(n) for n in ids], pa.decimal128(12, 2))
    return pa.table({"order_id": ids, "region": ["north"] * ROWS, "amount": amounts})


@pytest.fixture
def shop(
    conn_id: str,
    client: FlussConnection,
    database: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> TableSpec:
    """The table that the shop's DAG fills, and the files that it loads."""
    monkeypatch.setenv("AIRFLOW_CONN_FLUSS_DEFAULT", os.environ[f"AIRFLOW_CONN_{conn_id.upper()}"])
    monkeypatch.setenv("SHOP_DATABASE", database)
    monkeypatch.setenv("SHOP_INPUT", str(tmp_path / "rows.parquet"))
    pq.write_table(orders(), tmp_path / "rows.parquet")
    columns = {"order_id": "bigint not null", "region": "string", "amount": "decimal(12,2)"}
    value = {"table": f"{database}.orders", "columns": columns, "buckets": 2}
    spec = TableSpec.from_mapping({**value, "bucket_keys": ["order_id"]})
    apply_tables(client, [spec])
    return spec


@pytest.mark.parametrize("fluss_kind", CLUSTER_FIRST, indirect=True)
def test_the_shops_load_is_killed_whole_and_done_once(
    shop: TableSpec, client: FlussConnection, tmp_path: Path, long_form: bool
) -> None:
    """The second try goes on with the load of the first, which was killed."""
    from airflow.providers.apache.spark.operators.spark_submit import SparkSubmitOperator

    from fluss_orchestrate.airflow import FlussBulkLoadOperator

    load_id = f"airflow/shop_bulk_load/load/manual__{DATE.isoformat()}"
    killed = FlussBulkLoadOperator(
        task_id="load",
        table=shop.table,
        source={"kind": "parquet", "paths": [str(tmp_path / "rows.parquet")]},
        master="local[1]",
        load_id=load_id,
    )
    assert isinstance(killed, SparkSubmitOperator)
    _kill_in_the_middle(killed, client.config)
    for _ in range(2 if long_form else 1):
        done = run(load_dags()["shop_bulk_load"], logical_date=DATE)
        assert states(done) == {"load": "success"}
        receipt = result_of(done, "load")
        assert (receipt["rows"], receipt["run_key"]) == (ROWS, load_id)
    assert ids_in(client, shop.table, "order_id") == list(range(ROWS))


def descendants() -> set[int]:
    return {p.pid for p in psutil.Process().children(recursive=True)}


def _kill_in_the_middle(task: Any, config: Config) -> None:
    """SIGTERM while the driver runs, as Airflow's task runner handles it: nothing stays behind."""
    from fluss_orchestrate.airflow.version_compat import AirflowTaskTerminated

    ti = SimpleNamespace(dag_id="bulk", task_id="load", run_id="killed", map_index=-1)
    before_children = descendants()
    before = signal.signal(signal.SIGTERM, lambda *_: task.on_kill())
    commands: list[str] = []

    def driver_runs() -> bool:
        found = [_process(pid) for pid in descendants() - before_children]
        commands.extend(arguments for _, arguments in found)
        return any("python" in name and "bulk_load" in said for name, said in found)

    def terminate() -> None:
        wait_until(
            "the driver",
            lambda: driver_runs() and any("java" in command for command in commands),
            300,
            pause_s=0.2,
        )
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
    if config.security_sasl_password:
        assert not any(config.security_sasl_password in command for command in commands)


def _process(pid: int) -> tuple[str, str]:
    try:
        process = psutil.Process(pid)
        return process.name(), " ".join(process.cmdline())
    except (psutil.NoSuchProcess, psutil.ZombieProcess):
        return "", ""


def test_what_went_wrong_is_said_in_one_sentence(
    embedded_conn_id: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A connection that is not there; and a table, by a connection that is there."""
    from fluss_orchestrate.airflow import FlussBulkLoadOperator, FlussTaskError

    def load(**more: Any) -> None:
        task = FlussBulkLoadOperator(
            task_id="load",
            fluss_conn_id=embedded_conn_id,
            table="nowhere.nothing",
            source={"kind": "parquet", "paths": [str(tmp_path)]},
            load_id="x",
            **more,
        )
        task.execute({"ti": None, "task": task})

    spark = {"conn_type": "spark", "host": "local[1]"}
    monkeypatch.setenv("AIRFLOW_CONN_SPARK_HERE", json.dumps(spark))
    with pytest.raises(FlussTaskError, match="there is no connection 'spark_nowhere'"):
        load(spark_conn_id="spark_nowhere")
    with pytest.raises(FlussTaskError, match=r"nowhere.* not"):
        load(spark_conn_id="spark_here")
