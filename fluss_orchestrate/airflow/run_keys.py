"""Who asks: the name of a task's run that stays the same when it is retried or cleared."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from airflow.sdk import Context


def run_key(context: Context) -> str:
    """`airflow/dag/task/run/map index`: the same for every try of one task instance."""
    ti = context["ti"]
    parts = ["airflow", ti.dag_id, ti.task_id, ti.run_id]
    if ti.map_index is not None and ti.map_index >= 0:
        parts.append(str(ti.map_index))
    return "/".join(parts)


def is_backfill(context: Context) -> bool:
    """Whether the run belongs to a backfill, which must leave the shared position alone."""
    return str(context["dag_run"].run_type).rpartition(".")[2].lower().startswith("backfill")
