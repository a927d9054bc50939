"""Tables and partitions of a small shop, there before the data comes."""

from __future__ import annotations

import os
from datetime import datetime

from airflow.sdk import DAG

from fluss_orchestrate.airflow import (
    FlussCreateDatabaseOperator,
    FlussPartitionWindowOperator,
    FlussProvisionTablesOperator,
)

SHOP = os.environ.get("SHOP_DATABASE", "shop")

TABLES = f"""
tables:
  - table: {SHOP}.orders
    comment: one row per order, as they come
    columns:
      order_id: bigint not null
      region: string
      amount: decimal(12,2)
    bucket_keys: [order_id]
    buckets: 2
  - table: {SHOP}.customers
    comment: the newest row per customer
    columns:
      customer_id: bigint not null
      name: string
    primary_key: [customer_id]
    buckets: 2
  - table: {SHOP}.visits
    comment: kept for a month
    columns:
      visitor: bigint
      day: string not null
    partition_keys: [day]
    buckets: 1
"""

with DAG(
    "shop_provisioning",
    schedule="@daily",
    start_date=datetime(2026, 1, 1),
    catchup=False,
    max_active_runs=1,
):
    database = FlussCreateDatabaseOperator(task_id="database", database=SHOP)
    tables = FlussProvisionTablesOperator(task_id="tables", specs=TABLES)
    days = FlussPartitionWindowOperator(
        task_id="days", table=f"{SHOP}.visits", unit="day", ahead=3, retain=30
    )
    database >> tables >> days
