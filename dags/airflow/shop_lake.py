"""Wait until the lake holds what a task has written, then query the lake.

On a cluster with a tiering service of its own, leave the task `tier` out.
"""

from __future__ import annotations

import os
from datetime import datetime
from typing import Any

from airflow.sdk import DAG, task

from fluss_orchestrate.airflow import (
    FlussHook,
    FlussLakeSnapshotSensor,
    FlussProvisionTablesOperator,
    FlussTierToLakeOperator,
    FlussWriteOperator,
)

SHOP = os.environ.get("SHOP_DATABASE", "shop")
RETURNS = f"{SHOP}.returns"

with DAG(
    "shop_lake",
    schedule="@daily",
    start_date=datetime(2026, 1, 1),
    catchup=False,
    render_template_as_native_obj=True,
):
    provision = FlussProvisionTablesOperator(
        task_id="provision",
        specs={
            "table": RETURNS,
            "columns": {"order_id": "bigint", "reason": "string"},
            "buckets": 1,
            "lake": True,
        },
    )
    write = FlussWriteOperator(
        task_id="write",
        table=RETURNS,
        rows=[{"order_id": n, "reason": "too small"} for n in range(50)],
    )
    tier = FlussTierToLakeOperator(task_id="tier", table=RETURNS, allow_tiering=True)
    wait = FlussLakeSnapshotSensor(
        task_id="wait",
        table=RETURNS,
        covers="{{ ti.xcom_pull('write') }}",
        deferrable=True,
        timeout=600,
    )

    @task
    def count(found: dict[str, Any]) -> int:
        """Count the rows of the snapshot in Iceberg itself."""
        from fluss_client import TablePath
        from fluss_orchestrate.core.lake import load_lake_table

        client = FlussHook().get_conn()
        info = client.get_admin().result().get_table_info(TablePath.parse(RETURNS)).result()
        lake = load_lake_table(info, client.config.resolved_alias())
        rows: int = lake.scan(snapshot_id=found["snapshot_id"]).to_arrow().num_rows
        return rows

    provision >> write >> tier >> wait
    count(wait.output)
