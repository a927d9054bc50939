"""The shop's DAG, and one scheduled run of it in a process of its own, so that it can be killed:

    python -m fluss_orchestrate._demo.airflow_round ROUND [--die-in STAGE]

A killed run is started again under its own date, as a scheduler would do it.
"""

from __future__ import annotations

import argparse
import asyncio
import importlib
import os
import signal
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fluss_orchestrate._demo import shop
from fluss_orchestrate._demo.processes import run_or_serve

if TYPE_CHECKING:
    from airflow.sdk import DAG

STAGES = ("read", "sink-and-commit")
NEEDED = (
    "airflow.api_fastapi.execution_api.routes",
    "airflow.api_fastapi.execution_api.versions",
    "airflow.dag_processing.bundles.local",
    "airflow.dag_processing.bundles.manager",
    "airflow.dag_processing.collection",
    "airflow.dag_processing.dagbag",
    "airflow.models.serialized_dag",
    "airflow.sdk.execution_time.supervisor",
    "airflow.sdk.execution_time.task_runner",
    "fluss_orchestrate.core.lake.tiering",
    "fluss_orchestrate.core.mirror.verification",
    "fluss_orchestrate.core.sinks.iceberg",
    "fluss_orchestrate.core.sinks.sql",
    "airflow.sdk",
    "pandas",
    "pyiceberg.catalog.sql",
)


def die_in(stage: str) -> None:
    """Let the process be killed with SIGKILL when the first increment reaches a stage."""
    from fluss_orchestrate.core.sinks import IcebergSink

    write = IcebergSink.write

    def dying(self: IcebergSink, plan: Any, read: Any) -> Any:
        if stage == "read":
            read(plan).read_next_batch()
        else:
            write(self, plan, read)
        os.kill(os.getpid(), signal.SIGKILL)

    IcebergSink.write = dying  # type: ignore[method-assign]


def import_everything() -> None:
    """Import what every round needs before the fork, so that it is done once."""
    from sqlalchemy.orm import configure_mappers

    for name in NEEDED:
        importlib.import_module(name)
    configure_mappers()
    asyncio.run(_build_task_api())


async def _build_task_api() -> None:
    """Let Airflow build the API of its tasks, which takes longer than a round.

    It builds it at the first request. Afterwards no thread is left, so the API survives the fork.
    """
    import httpx
    from airflow.sdk.execution_time.supervisor import in_process_api_server

    transport = httpx.ASGITransport(in_process_api_server().app)
    async with httpx.AsyncClient(transport=transport, base_url="http://in-process") as client:
        await client.get("/health")


def shop_dag() -> DAG:
    """Return the shop's DAG: increments to Iceberg, then wait for the lake; a mirror in SQL.

        orders_to_iceberg ─ tier_orders ─ lake_holds_orders     (until it covers the increment)
        order_lines_to_iceberg ─ tier_order_lines ─ lake_holds_order_lines
        mirror_customers ─ check_customers                      (a SQL table equal to a key table)

    On a cluster with a tiering service of its own the tasks `tier_…` are not needed.
    """
    from airflow.sdk import DAG

    from fluss_orchestrate.airflow import (
        FlussIncrementalScanOperator,
        FlussLakeSnapshotSensor,
        FlussMirrorCheckOperator,
        FlussMirrorOperator,
        FlussTierToLakeOperator,
        IcebergTarget,
        SqlTarget,
    )

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
        customers: dict[str, Any] = {
            "table": shop.CUSTOMERS,
            "checkpoint": shop.MIRROR,
            "sink": SqlTarget("customers", shop.WAREHOUSE, form="mirror"),
        }
        mirror = FlussMirrorOperator(task_id="mirror_customers", **customers)
        mirror >> FlussMirrorCheckOperator(task_id="check_customers", **customers)
    return dag


def run_round(number: int) -> bool:
    """The DAG, run against a real metadata database; whether it succeeded."""
    from airflow.dag_processing.bundles.manager import DagBundlesManager
    from airflow.dag_processing.dagbag import DagBag, sync_bag_to_db
    from airflow.utils import db
    from airflow.utils.session import create_session

    dag = shop_dag()
    if number == 1:
        db.initdb()
    with create_session() as session:
        DagBundlesManager().sync_bundles_to_db(session=session)  # type: ignore[no-untyped-call]
    bag = DagBag(os.devnull)
    bag.bag_dag(dag)
    sync_bag_to_db(bag, "dags-folder", None)
    date = datetime(2026, 11, 17, number, tzinfo=UTC)
    run = dag.test(logical_date=date, run_after=date)
    return str(run.state) == "success"


def work(words: Sequence[str]) -> bool:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("round", type=int)
    parser.add_argument("--die-in", default="", choices=["", *STAGES])
    options = parser.parse_args(words)
    if options.die_in:
        die_in(options.die_in)
    return run_round(options.round)


if __name__ == "__main__":
    import_everything()
    run_or_serve(work)
