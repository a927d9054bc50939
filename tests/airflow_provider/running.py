"""Running DAGs as Airflow does, against the real metadata database, in this process.

The environments of `release_smoke` have neither pytest nor the rest of what tests need.
"""

from __future__ import annotations

import importlib
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from airflow.sdk import DAG

DAGS = Path(__file__).parents[2] / "dags"


def load_dags() -> dict[str, Any]:
    """All DAGs under `dags`, by id, as Airflow finds them."""
    for name in [name for name in sys.modules if name.startswith("unusual_prefix")]:
        del sys.modules[name]
    bag = new_bag(DAGS)
    assert bag.import_errors == {}
    for dag in bag.dags.values():
        for task in dag.tasks:
            # A failure shall fail the test, not come again a minute later.
            task.retries = 0
    return dict(bag.dags)


def new_bag(folder: Path | str) -> Any:
    """The DAGs of a folder or file, as Airflow finds them."""
    try:
        from airflow.dag_processing.dagbag import DagBag
    except ImportError:  # before 3.2
        from airflow.models.dagbag import DagBag
    return DagBag(folder)


def register(dag: DAG) -> None:
    """Bring the DAG into the metadata database, as a DAG processor would."""
    bag = new_bag(os.devnull)
    bag.bag_dag(dag)
    store(bag)


def store(bag: Any) -> None:
    """Bring all DAGs of a bag into the metadata database."""
    from airflow.dag_processing.bundles.manager import DagBundlesManager
    from airflow.utils.session import create_session

    with create_session() as session:
        DagBundlesManager().sync_bundles_to_db(session=session)
    module = importlib.import_module(type(bag).__module__)
    if hasattr(module, "sync_bag_to_db"):
        module.sync_bag_to_db(bag, "dags-folder", None)
    else:  # 3.0
        for dag in bag.dags.values():
            dag.relative_fileloc = dag.relative_fileloc or Path(dag.fileloc).name
        with create_session() as session:
            bag.sync_to_db("dags-folder", None, session=session)


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
    from sqlalchemy import select

    with create_session() as session:
        found = select(XComModel).where(
            XComModel.key == key,
            XComModel.task_id == task_id,
            XComModel.dag_id == dag_run.dag_id,
            XComModel.run_id == dag_run.run_id,
        )
        row = session.scalars(found).first()
        return None if row is None else XComModel.deserialize_value(row)


def states(dag_run: Any) -> dict[str, str]:
    """Each task's state."""
    return {ti.task_id: str(ti.state) for ti in dag_run.get_task_instances()}
