"""A pair: one DAG writes orders, the other starts for each batch and adds them up."""

from __future__ import annotations

import os
from datetime import datetime
from decimal import Decimal
from typing import Any

from airflow.sdk import DAG, task

from fluss_orchestrate.airflow import FlussWriteOperator, fluss_table_asset

SHOP = os.environ.get("SHOP_DATABASE", "shop")
ORDERS = fluss_table_asset(f"{SHOP}.orders")
ORDERS_PER_RUN = 100


def new_orders(dag_run: Any) -> list[dict[str, Any]]:
    """Return the orders of one run: a retry must return the same ones.

    `run_after` is fixed for a run; runs that are triggered by hand have no logical date.
    """
    first = int((dag_run.logical_date or dag_run.run_after).timestamp()) * ORDERS_PER_RUN
    return [
        {"order_id": first + n, "region": "north" if n % 2 else "south", "amount": Decimal(n)}
        for n in range(ORDERS_PER_RUN)
    ]


with DAG("shop_orders", schedule="@hourly", start_date=datetime(2026, 1, 1), catchup=False):
    FlussWriteOperator(task_id="write", table=f"{SHOP}.orders", rows=new_orders, outlets=[ORDERS])

with DAG("shop_totals", schedule=[ORDERS]):

    @task.fluss_scan(table=f"{SHOP}.orders", checkpoint=f"{SHOP}-orders-to-totals", rows_as="arrow")
    def totals(rows: Any) -> dict[str, str]:
        """Add up what is new, by region; the checkpoint moves when this returns."""
        summed = rows.group_by("region").aggregate([("amount", "sum")]).to_pylist()
        return {row["region"]: str(row["amount_sum"]) for row in summed}

    totals()
