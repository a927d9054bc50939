"""Load a directory of Parquet files on Spark, exactly once for each run."""

from __future__ import annotations

import os
from datetime import datetime
from pathlib import Path

from airflow.sdk import DAG, Param

from fluss_orchestrate.airflow import FlussBulkLoadOperator, fluss_table_asset

SHOP = os.environ.get("SHOP_DATABASE", "shop")
INPUT = os.environ.get("SHOP_INPUT", str(Path.home() / "orders"))

with DAG(
    "shop_bulk_load",
    schedule=None,
    start_date=datetime(2026, 1, 1),
    params={"input": Param(INPUT, type="string"), "master": Param("local[2]", type="string")},
):
    FlussBulkLoadOperator(
        task_id="load",
        table=f"{SHOP}.orders",
        source={"kind": "parquet", "paths": ["{{ params.input }}"]},
        master="{{ params.master }}",
        outlets=[fluss_table_asset(f"{SHOP}.orders")],
    )
