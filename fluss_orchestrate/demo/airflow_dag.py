"""The shop's DAG: what is new goes to the analysts' Iceberg tables, and the lake is waited for.

    orders_to_iceberg ─ tier_orders ─ lake_holds_orders     (until it covers the increment)
    order_lines_to_iceberg ─ tier_order_lines ─ lake_holds_order_lines

On a cluster with a tiering service of its own the tasks `tier_…` are not needed.
"""

from __future__ import annotations

import os
from datetime import UTC, datetime
from pathlib import Path

from airflow.sdk import DAG

from fluss_orchestrate.airflow import (
    FlussIncrementalScanOperator,
    FlussLakeSnapshotSensor,
    FlussTierToLakeOperator,
    IcebergTarget,
)
from fluss_orchestrate.demo import shop

place = shop.Shop(Path(os.environ["SHOP_FOLDER"]))

with DAG(
    "shop_round",
    schedule="@hourly",
    start_date=datetime(2026, 11, 1, tzinfo=UTC),
    catchup=False,
    render_template_as_native_obj=True,
) as dag:
    for table in (shop.ORDERS, shop.LINES):
        name = table.partition(".")[2]
        increment = FlussIncrementalScanOperator(
            task_id=f"{name}_to_iceberg",
            table=table,
            checkpoint=f"{name}-to-analytics",
            sink=IcebergTarget(f"analytics.{name}", place.catalog()),
        )
        tier = FlussTierToLakeOperator(task_id=f"tier_{name}", table=table, allow_tiering=True)
        wait = FlussLakeSnapshotSensor(
            task_id=f"lake_holds_{name}",
            table=table,
            covers=f"{{{{ ti.xcom_pull('{name}_to_iceberg') }}}}",
            deferrable=True,
            poke_interval=1,
            timeout=120,
        )
        increment >> tier >> wait
