"""One scheduled run of the shop's DAG, in a process of its own, so that it can be killed:

    python -m fluss_orchestrate.demo.airflow_round ROUND [--die-in STAGE]

A killed run is started again under its own date, as a scheduler would do it.
"""

from __future__ import annotations

import argparse
import importlib
import os
import signal
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

from fluss_orchestrate.demo.processes import run_or_serve

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
    "fluss_orchestrate.core.sinks.iceberg",
    "fluss_orchestrate.demo.airflow_dag",
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
    """What every round needs: before the fork, so that it is done once."""
    from sqlalchemy.orm import configure_mappers

    for name in NEEDED:
        importlib.import_module(name)
    configure_mappers()


def run_round(number: int) -> bool:
    """The DAG, run against a real metadata database; whether it succeeded."""
    from airflow.dag_processing.bundles.manager import DagBundlesManager
    from airflow.dag_processing.dagbag import DagBag, sync_bag_to_db
    from airflow.utils import db
    from airflow.utils.session import create_session

    from fluss_orchestrate.demo.airflow_dag import dag

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
