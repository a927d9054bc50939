"""Decisions about checkpoints: give a pending plan up, or end a checkpoint."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from fluss_orchestrate.airflow.operators.base import FlussOperator

if TYPE_CHECKING:
    from airflow.sdk import Context

    from fluss_orchestrate.core.checkpoints import CheckpointStore, Event

NAMES_SHOWN_MAX = 5


def check_exists(store: CheckpointStore, name: str, what: str, more: str = "") -> None:
    """Check that there is a checkpoint of a name.

    Args:
        store: The store.
        name: The name of the checkpoint.
        what: What is to be done with it.
        more: A further way out.

    Raises:
        ConfigError: If there is none; it names those that are similar.
    """
    from difflib import get_close_matches

    from fluss_client.errors import ConfigError

    if store.head(name) is not None:
        return
    names = store.names()
    near = get_close_matches(name, names) or names[:NAMES_SHOWN_MAX]
    raise ConfigError(
        f"there is no checkpoint '{name}' to {what}"
        + (f"; there are {', '.join(near)}" if near else "")
        + f". Correct the name{more}"
    )


class _CheckpointOperator(FlussOperator):
    template_fields: Sequence[str] = ("fluss_conn_id", "checkpoint", "reason")
    free_fields = ("reason",)

    def __init__(self, *, checkpoint: str, reason: str = "", **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.checkpoint = checkpoint
        self.reason = reason

    def _reason(self, context: Context) -> str:
        ti = context["ti"]
        return self.reason or f"Airflow: {ti.dag_id}.{ti.task_id} in {ti.run_id}"

    def _store(self, what: str) -> CheckpointStore:
        from fluss_orchestrate.core.checkpoints import FlussCheckpointStore

        store = FlussCheckpointStore(self.hook.get_conn())
        check_exists(store, self.checkpoint, what)
        return store

    def _done(self, event: Event, reason: str) -> dict[str, Any]:
        return {"checkpoint": self.checkpoint, "sequence": event.sequence, "reason": reason}


class FlussCheckpointAbandonOperator(_CheckpointOperator):
    """Give up the pending plan of a checkpoint, so that its rows are planned again.

    Use it when a run that planned rows can never finish, and its sink does not hold them. If the
    sink holds some of the rows, remove them first.

    Args:
        checkpoint: The name of the checkpoint.
        plan_id: The plan to give up. With it, a plan that another run has made meanwhile is an
            error; without it, any pending plan is given up.
        reason: Why; the name of the task by default. It is recorded.
        missing_ok: Whether a checkpoint without a pending plan is no error.
        **kwargs: `fluss_conn_id`, and the arguments of Airflow's `BaseOperator`.
    """

    template_fields = (*_CheckpointOperator.template_fields, "plan_id")

    def __init__(
        self, *, plan_id: str | None = None, missing_ok: bool = True, **kwargs: Any
    ) -> None:
        super().__init__(**kwargs)
        self.plan_id = plan_id
        self.missing_ok = missing_ok

    def work(self, context: Context) -> dict[str, Any]:
        """Abandon the plan, and return its id; None if none was pending.

        Args:
            context: The context of the Airflow task.
        """
        store = self._store("abandon the plan of")
        pending = store.require(self.checkpoint).state.pending
        if pending is None and self.missing_ok:
            self.log.info("'%s' has no pending plan: nothing is abandoned", self.checkpoint)
            return {"checkpoint": self.checkpoint, "abandoned": None}
        reason = self._reason(context)
        event = store.abandon(self.checkpoint, self.plan_id, reason)
        plan_id = None if pending is None else pending.plan_id
        self.log.info("abandoned plan %s of '%s'", plan_id, self.checkpoint)
        return {**self._done(event, reason), "abandoned": plan_id}


class FlussCheckpointRetireOperator(_CheckpointOperator):
    """End a checkpoint that is not used any more.

    Its history stays. It does not hold partitions back any more, and scans under its name fail
    until it is reset.

    Args:
        checkpoint: The name of the checkpoint.
        reason: Why; the name of the task by default. It is recorded.
        with_pending: Retire it although a plan is pending, which is given up.
        **kwargs: `fluss_conn_id`, and the arguments of Airflow's `BaseOperator`.
    """

    def __init__(self, *, with_pending: bool = False, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.with_pending = with_pending

    def work(self, context: Context) -> dict[str, Any]:
        """Retire the checkpoint.

        Args:
            context: The context of the Airflow task.
        """
        reason = self._reason(context)
        event = self._store("retire").retire(
            self.checkpoint, reason, with_pending=self.with_pending
        )
        return self._done(event, reason)
