"""A real triggerer process, and tasks that wait in it."""

from __future__ import annotations

import time
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psutil

from tests.airflow_provider.components import Component
from tests.airflow_provider.running import register

if TYPE_CHECKING:
    from airflow.sdk import DAG


class Triggerer(Component):
    """`airflow triggerer`."""

    def __init__(self, log: Path, capacity: int = 1000) -> None:
        super().__init__(["triggerer", "--skip-serve-logs", "--capacity", str(capacity)], log)

    def runner(self) -> psutil.Process:
        """The process that runs the triggers: the busiest of the group."""
        family = psutil.Process(self.pid).children(recursive=True)
        return max(family, key=lambda p: sum(p.cpu_times()[:2]))


def defer(dag: DAG, task_id: str, triggers: Sequence[Any]) -> str:
    """Make a run whose task waits for triggers, one per map index; gives the run's id."""
    from airflow.models.dagrun import DagRun
    from airflow.models.taskinstance import TaskInstance
    from airflow.models.trigger import Trigger
    from airflow.utils.session import create_session
    from airflow.utils.state import TaskInstanceState

    register(dag)
    with create_session() as session:
        done: DagRun = _new_run(dag, session)
        first = done.get_task_instance(task_id, session=session)
        assert isinstance(first, TaskInstance)
        session.delete(first)
        session.flush()
        task = _serialized(dag).get_task(task_id)
        for index, trigger in enumerate(triggers):
            row = Trigger.from_object(trigger)
            session.add(row)
            session.flush()
            ti = TaskInstance(
                task=task,
                run_id=done.run_id,
                map_index=index,
                state=TaskInstanceState.DEFERRED,
                dag_version_id=first.dag_version_id,
            )
            ti.trigger_id = row.id
            ti.next_method = "execute_complete"
            session.add(ti)
        return str(done.run_id)


def _serialized(dag: DAG) -> Any:
    from airflow.models.serialized_dag import SerializedDagModel
    from airflow.utils.session import create_session

    with create_session() as session:
        return SerializedDagModel.get_dag(dag.dag_id, session=session)


def _new_run(dag: DAG, session: Any) -> Any:
    from airflow.utils.state import DagRunState
    from airflow.utils.types import DagRunTriggeredByType, DagRunType

    return _serialized(dag).create_dagrun(
        run_id=f"waits_{time.time_ns()}",
        logical_date=None,
        data_interval=None,
        run_after=datetime.now(UTC),
        run_type=DagRunType.MANUAL,
        triggered_by=DagRunTriggeredByType.TEST,
        state=DagRunState.RUNNING,
        session=session,
    )


def woken(dag_id: str, run_id: str) -> dict[int, Any]:
    """The tasks that wait no more: what their triggers gave, by map index."""
    from airflow.models.taskinstance import TaskInstance
    from airflow.utils.session import create_session
    from sqlalchemy import select

    with create_session() as session:
        rows = session.execute(
            select(TaskInstance.map_index, TaskInstance.next_kwargs).where(
                TaskInstance.dag_id == dag_id,
                TaskInstance.run_id == run_id,
                TaskInstance.state != "deferred",
            )
        ).all()
    return dict(tuple(row) for row in rows)


def asset_events(name: str) -> list[dict[str, Any]]:
    """The payloads of an asset's events, in order."""
    from airflow.models.asset import AssetEvent, AssetModel
    from airflow.utils.session import create_session
    from sqlalchemy import select

    with create_session() as session:
        rows = session.execute(
            select(AssetEvent.extra)
            .join(AssetModel, AssetModel.id == AssetEvent.asset_id)
            .where(AssetModel.name == name)
            .order_by(AssetEvent.id)
        ).all()
    return [extra["payload"] for (extra,) in rows]
