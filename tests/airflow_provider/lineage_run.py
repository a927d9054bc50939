"""A DAG under Airflow's OpenLineage listener, in a process of its own: `lineage_run.py DIR`."""

from __future__ import annotations

import sys
from pathlib import Path

from airflow.sdk import DAG

from fluss_orchestrate.airflow import (
    FlussIncrementalScanOperator,
    FlussProvisionTablesOperator,
    FlussTierToLakeOperator,
    FlussWriteOperator,
    ParquetTarget,
    fluss_table_asset,
)
from tests.airflow_provider.running import run, states

TABLE = "lineage.events"


def main(directory: Path) -> None:
    spec = {"table": TABLE, "columns": {"id": "bigint", "word": "string"}, "lake": True}
    with DAG("lineage") as dag:
        provision = FlussProvisionTablesOperator(task_id="provision", specs=spec)
        write = FlussWriteOperator(
            task_id="write",
            table=TABLE,
            rows=[{"id": 1, "word": "one"}, {"id": 2, "word": "two"}],
            outlets=[fluss_table_asset(TABLE)],
        )
        scan = FlussIncrementalScanOperator(
            task_id="scan",
            table=TABLE,
            checkpoint="lineage",
            sink=ParquetTarget(str(directory / "out")),
        )
        tier = FlussTierToLakeOperator(task_id="tier", table=TABLE, allow_tiering=True)
        provision >> write >> [scan, tier]
    done = run(dag)
    assert set(states(done).values()) == {"success"}, states(done)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
