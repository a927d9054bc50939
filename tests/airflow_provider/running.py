"""Running DAGs as Airflow does, against the real metadata database, in this process."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from airflow.sdk import DAG

DAGS = Path(__file__).parents[2] / "dags"


def load_dags() -> dict[str, Any]:
    """All DAGs under `dags`, by id, as Airflow finds them."""
    from airflow.dag_processing.dagbag import DagBag

    for name in [name for name in sys.modules if name.startswith("unusual_prefix")]:
        del sys.modules[name]
    bag = DagBag(DAGS)
    assert bag.import_errors == {}
    for dag in bag.dags.values():
        for task in dag.tasks:
            # A failure shall fail the test, not come again a minute later.
            task.retries = 0
    return dict(bag.dags)


def register(dag: DAG) -> None:
    """Bring the DAG into the metadata database, as a DAG processor would."""
    from airflow.dag_processing.bundles.manager import DagBundlesManager
    from airflow.dag_processing.dagbag import DagBag, sync_bag_to_db
    from airflow.utils.session import create_session

    with create_session() as session:
        DagBundlesManager().sync_bundles_to_db(session=session)
    bag = DagBag(os.devnull)
    bag.bag_dag(dag)
    sync_bag_to_db(bag, "dags-folder", None)


def run(dag: DAG, **given: Any) -> Any:
    """`dag.test()` of a DAG that the database knows; the run.

    With a `logical_date` the run has the id of that date: a second one is the first one cleared.
    """
    register(dag)
    if "logical_date" in given:
        given.setdefault("run_after", given["logical_date"])
    return dag.test(**given)


def result_of(dag_run: Any, task_id: str, key: str = "return_value") -> Any:
    """What a task has put into XCom."""
    from airflow.models.xcom import XComModel
    from airflow.utils.session import create_session

    with create_session() as session:
        found = XComModel.get_many(
            key=key,
            task_ids=task_id,
            dag_ids=dag_run.dag_id,
            run_id=dag_run.run_id,
        )
        row = session.execute(found).first()
        return None if row is None else XComModel.deserialize_value(row[0])


def states(dag_run: Any) -> dict[str, str]:
    """Each task's state."""
    return {ti.task_id: str(ti.state) for ti in dag_run.get_task_instances()}
