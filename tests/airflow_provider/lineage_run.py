"""A DAG under Airflow's OpenLineage listener, which writes to files, in a worker of its own."""

from __future__ import annotations

import importlib
import json
import os
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from fluss_orchestrate.airflow import (
    FlussIncrementalScanOperator,
    FlussProvisionTablesOperator,
    FlussTarget,
    FlussTierToLakeOperator,
    FlussWriteOperator,
    ParquetTarget,
    fluss_table_asset,
)
from tests.airflow_provider.capabilities import has
from tests.airflow_provider.running import run, states

TABLE = "lineage.events"
COPY = "lineage.words"
SECRET = "lineage-secret"


def listen(directory: Path) -> None:
    """Switch the listener of tasks on, as Airflow does that loads its plugins so set."""
    from airflow.providers.openlineage import conf
    from airflow.providers.openlineage.plugins import listener, openlineage

    try:
        from airflow.sdk.listener import get_listener_manager
    except ImportError:  # 3.0, 3.1
        from airflow.listeners.listener import get_listener_manager

    transport = {"type": "file", "log_file_path": str(directory / "event")}
    os.environ["AIRFLOW__OPENLINEAGE__DISABLED"] = "False"
    os.environ["AIRFLOW__OPENLINEAGE__TRANSPORT"] = json.dumps(transport)
    os.environ["AIRFLOW__OPENLINEAGE__NAMESPACE"] = "tests"
    for module in (conf, listener, openlineage):
        importlib.reload(module)
    for found in openlineage.OpenLineageProviderPlugin.listeners:
        get_listener_manager().add_listener(found)


def build(directory: Path) -> Any:
    """The DAG: what works, and what fails before it has done anything."""
    from airflow.sdk import DAG

    columns = {"id": "bigint", "word": "string"}
    specs = [
        {"table": TABLE, "columns": columns, "lake": has("sqlalchemy_2")},
        {"table": COPY, "columns": {"word": "string"}},
    ]
    (directory / "blocked").write_text("a file where a directory should be")
    pq.write_table(pa.table({"id": [3], "word": ["three"]}), directory / "rows.parquet")
    scan: dict[str, Any] = {"table": TABLE, "retries": 0}
    with DAG("lineage") as dag:
        provision = FlussProvisionTablesOperator(task_id="provision", specs=specs)
        write = FlussWriteOperator(
            task_id="write",
            table=TABLE,
            rows=[{"id": 1, "word": "one"}, {"id": 2, "word": "two"}],
            outlets=[fluss_table_asset(TABLE, cluster_alias="shop")],
        )
        files = FlussWriteOperator(
            task_id="files", table=TABLE, rows=str(directory / "rows.parquet")
        )
        target = ParquetTarget(str(directory / "out"))
        scanned = FlussIncrementalScanOperator(
            task_id="scan", checkpoint="lineage", sink=target, **scan
        )
        copied = FlussIncrementalScanOperator(
            task_id="copy", checkpoint="copy", sink=FlussTarget(COPY), columns=["word"], **scan
        )
        broken = FlussIncrementalScanOperator(
            task_id="broken",
            checkpoint="broken",
            sink=ParquetTarget(str(directory / "blocked")),
            **scan,
        )
        provision >> write >> files >> [scanned, copied, broken]
        if has("sqlalchemy_2"):
            files >> FlussTierToLakeOperator(task_id="tier", table=TABLE, allow_tiering=True)
    return dag


def main(directory: Path) -> None:
    """Run the DAG on an embedded directory, with every event in a file under `events`."""
    value = {
        "conn_type": "fluss",
        "host": f"embedded:{directory / 'fluss'}",
        "password": SECRET,
        "extra": {"cluster_alias": "shop"},
    }
    os.environ["AIRFLOW_CONN_FLUSS_DEFAULT"] = json.dumps(value)
    (directory / "events").mkdir()
    listen(directory / "events")
    found = states(run(build(directory)))
    expected = dict.fromkeys(found, "success") | {"broken": "failed"}
    assert found == expected, found
