"""A password stays in its connection: not in logs, nor in anything that Airflow stores.

`test_bulk_load` looks for it in the arguments of processes, `test_lineage` in OpenLineage's events.
"""

from __future__ import annotations

import json
import logging
import sqlite3
import uuid
from collections.abc import Iterator
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

import psutil
import pytest

from fluss_client.testing import LocalCluster
from tests.airflow_provider.capabilities import has
from tests.airflow_provider.running import run, states

pytestmark = pytest.mark.usefixtures("airflow_home")
STORED = ("xcom", "rendered_task_instance_fields", "asset_event")


@pytest.fixture
def secret(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, plain_cluster: LocalCluster
) -> Iterator[str]:
    """A password of one connection that works, and of one that the cluster refuses."""
    # Not a constant: the database holds the source of DAGs, and so of this file.
    word = uuid.uuid4().hex
    login = {"conn_type": "fluss", "login": "writer", "password": word}
    cluster = str(plain_cluster.info.sasl_bootstrap_servers)
    for name, host in {"SECRET": f"embedded:{tmp_path / 'fluss'}", "REFUSED": cluster}.items():
        monkeypatch.setenv(f"AIRFLOW_CONN_FLUSS_{name}", json.dumps({**login, "host": host}))
    yield word
    from fluss_orchestrate.airflow.hooks import close_clients

    close_clients()


def build(dag_id: str, out: Path) -> Any:
    """All kinds of tasks, and one whose password is wrong."""
    from airflow.sdk import DAG

    from fluss_orchestrate.airflow import (
        FlussIncrementalScanOperator,
        FlussProvisionTablesOperator,
        FlussTableSensor,
        FlussWriteOperator,
        ParquetTarget,
        fluss_table_asset,
    )

    common: dict[str, Any] = {"fluss_conn_id": "fluss_secret"}
    table = "secrets.things"
    with DAG(dag_id) as dag:
        specs = {"table": table, "columns": {"id": "bigint"}}
        provision = FlussProvisionTablesOperator(task_id="provision", specs=specs, **common)
        write = FlussWriteOperator(
            task_id="write",
            table=table,
            rows=[{"id": 1}],
            outlets=[fluss_table_asset(table)],
            **common,
        )
        scan = FlussIncrementalScanOperator(
            task_id="scan",
            table=table,
            checkpoint="secrets",
            sink=ParquetTarget(str(out)),
            **common,
        )
        wait = FlussTableSensor(task_id="wait", table=table, deferrable=True, **common)
        refused = FlussTableSensor(task_id="refused", table=table, fluss_conn_id="fluss_refused")
        provision >> write >> scan >> wait >> refused
    return dag


def test_no_secret_leaves_the_connection(
    secret: str,
    airflow_home: Path,
    tmp_path: Path,
    capfd: pytest.CaptureFixture[str],
    caplog: pytest.LogCaptureFixture,
) -> None:
    from fluss_orchestrate.airflow import FlussHook

    with caplog.at_level(logging.DEBUG):
        found = states(run(build("secrets", tmp_path / "out")))
    assert found == dict.fromkeys(found, "success") | {"refused": "failed"}
    hook = FlussHook("fluss_secret")
    assert secret not in f"{hook.get_config()!r} {hook.get_conn()!r} {vars(hook)}"
    said = capfd.readouterr()
    assert "secrets.things" in caplog.text + said.out + said.err, "something was logged"
    assert secret not in caplog.text + said.out + said.err
    for file in (airflow_home / "logs").rglob("*"):
        assert file.is_dir() or secret.encode() not in file.read_bytes(), file
    for process in (psutil.Process(), *psutil.Process().children(recursive=True)):
        with suppress(psutil.NoSuchProcess):  # or it has ended just now
            assert secret not in " ".join(process.cmdline())
    with closing(sqlite3.connect(airflow_home / "airflow.db")) as database:
        assert stored_with(database, secret) == []
        for table in (*STORED, *(["task_state_store"] if has("task_state") else [])):
            (rows,) = database.execute(f'SELECT COUNT(*) FROM "{table}"').fetchone()
            assert rows > 0, f"{table} holds something that could have been a secret"


def stored_with(database: sqlite3.Connection, word: str) -> list[str]:
    """Where the metadata database holds a word."""
    found = []
    tables = database.execute("SELECT name FROM sqlite_master WHERE type = 'table'").fetchall()
    for (table,) in tables:
        for row in database.execute(f'SELECT * FROM "{table}"'):
            found += [f"{table}: {value!r}" for value in row if word in str(value)]
    return found
