"""Every hour, what is new among the orders goes to Parquet files and to an Iceberg table."""

from __future__ import annotations

import os
from datetime import datetime, timedelta
from pathlib import Path

from airflow.sdk import DAG

from fluss_orchestrate.airflow import FlussIncrementalScanOperator, IcebergTarget, ParquetTarget

SHOP = os.environ.get("SHOP_DATABASE", "shop")
OUTPUT = os.environ.get("SHOP_OUTPUT", str(Path.home()))
CATALOG = {
    "type": "sql",
    "uri": f"sqlite:///{OUTPUT}/catalog.db",
    "warehouse": f"file://{OUTPUT}/warehouse",
}

with DAG(
    "shop_hourly",
    schedule="@hourly",
    start_date=datetime(2026, 1, 1),
    catchup=False,
    default_args={"retries": 3, "retry_delay": timedelta(minutes=1)},
):
    # Each target has a checkpoint of its own, so that one may lag or fail without the other.
    FlussIncrementalScanOperator(
        task_id="to_parquet",
        table=f"{SHOP}.orders",
        checkpoint=f"{SHOP}-orders-to-parquet",
        sink=ParquetTarget(f"{OUTPUT}/orders"),
    )
    FlussIncrementalScanOperator(
        task_id="to_iceberg",
        table=f"{SHOP}.orders",
        checkpoint=f"{SHOP}-orders-to-iceberg",
        sink=IcebergTarget("analytics.orders", CATALOG),
    )
