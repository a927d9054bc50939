"""Operators in DAGs that Airflow runs: embedded, and on the real cluster."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from tests.airflow_provider.running import result_of, run, states

pytestmark = pytest.mark.usefixtures("airflow_home")


def events_spec(database: str) -> dict[str, Any]:
    return {
        "table": f"{database}.events",
        "columns": {"id": "bigint", "word": "string"},
        "buckets": 2,
    }


def test_a_pipeline_from_nothing_to_files(conn_id: str, database: str, tmp_path: Path) -> None:
    from airflow.sdk import DAG

    from fluss_orchestrate.airflow.operators import (
        FlussIncrementalScanOperator,
        FlussProvisionTablesOperator,
        FlussWriteOperator,
    )
    from fluss_orchestrate.airflow.targets import ParquetTarget

    table = f"{database}.events"
    with DAG(f"pipeline_{database}") as dag:
        provision = FlussProvisionTablesOperator(
            task_id="provision", fluss_conn_id=conn_id, specs=[events_spec(database)]
        )
        write = FlussWriteOperator(
            task_id="write",
            fluss_conn_id=conn_id,
            table=table,
            rows=[{"id": n, "word": f"w{n}"} for n in range(100)],
        )
        scan = FlussIncrementalScanOperator(
            task_id="scan",
            fluss_conn_id=conn_id,
            table=table,
            checkpoint=f"{database}-files",
            sink=ParquetTarget(str(tmp_path / "out")),
        )
        provision >> write >> scan
    first = run(dag)
    assert states(first) == {"provision": "success", "write": "success", "scan": "success"}
    receipt = result_of(first, "scan")
    assert receipt["rows"] == 100
    assert pq.read_table(tmp_path / "out").num_rows == 100
