"""Small values that a task run keeps over retries and clears."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

from fluss_orchestrate.airflow.run_context import run_key
from fluss_orchestrate.airflow.version_compat import CAPABILITIES

if TYPE_CHECKING:
    from airflow.sdk import Context

    from fluss_orchestrate.airflow.hooks import FlussHook


class RunState(Protocol):
    """Values by key, of one task run."""

    def get(self, key: str) -> Any:
        """Return the value of a key, or None."""

    def set(self, key: str, value: Any) -> None:
        """Set the value of a key."""


class ClusterRunState:
    """The state of a task run in the cluster, where Airflow has no task state (before 3.3).

    Args:
        hook: The cluster.
        key: The run key of the task run.
    """

    def __init__(self, hook: FlussHook, key: str) -> None:
        self._hook = hook
        self._key = key

    def get(self, key: str) -> Any:
        """Return the value of a key, or None."""
        from fluss_orchestrate.core.checkpoints import get_state

        return get_state(self._hook.get_conn(), f"{self._key}#{key}")

    def set(self, key: str, value: Any) -> None:
        """Set the value of a key."""
        from fluss_orchestrate.core.checkpoints import set_state

        set_state(self._hook.get_conn(), f"{self._key}#{key}", value)


def run_state(context: Context, hook: FlussHook) -> RunState:
    """Return the state of a task run: Airflow's task state, or else a table of the cluster.

    Args:
        context: Airflow's context.
        hook: The hook of the task's cluster.
    """
    store: Any = context.get("task_state_store") if CAPABILITIES.task_state else None
    return ClusterRunState(hook, run_key(context)) if store is None else store
