"""Notifications about checkpoints that fall behind, or are about to lose rows to retention."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from airflow.sdk import BaseNotifier

from fluss_orchestrate.airflow.hooks import FlussHook

if TYPE_CHECKING:
    from airflow.sdk import Context


class FlussLagNotifier(BaseNotifier):
    """Looks at a checkpoint when a task ends, and sends a message if it is too far behind.

    Use it as a callback of a task or a DAG: `on_success_callback` and `on_failure_callback`. It
    says nothing while the checkpoint is within its limits.

    Args:
        checkpoint: The name of the checkpoint.
        send: Called with the message and Airflow's context. Without it the message is logged as a
            warning.
        max_offsets: The most unread offsets.
        max_age: The age that the oldest unread row may have: a `timedelta`, or seconds.
        min_time_left: The least time until retention may delete unread rows.
        fluss_conn_id: The Airflow connection of the cluster.

    Raises:
        ValueError: If no limit is given.
    """

    template_fields: Sequence[str] = ("fluss_conn_id", "checkpoint")

    def __init__(
        self,
        *,
        checkpoint: str,
        send: Callable[[str, Context], Any] | None = None,
        max_offsets: int | None = None,
        max_age: timedelta | float | None = None,
        min_time_left: timedelta | float | None = None,
        fluss_conn_id: str = FlussHook.default_conn_name,
    ) -> None:
        super().__init__()
        if max_offsets is None and max_age is None and min_time_left is None:
            raise ValueError("give max_offsets, max_age or min_time_left: a notifier needs a limit")
        self.checkpoint = checkpoint
        self.send = send
        self.max_offsets = max_offsets
        self.max_age = max_age
        self.min_time_left = min_time_left
        self.fluss_conn_id = fluss_conn_id

    def notify(self, context: Context) -> None:
        """Look at the checkpoint, and send a message if it passes a limit.

        Args:
            context: Airflow's context.
        """
        from fluss_orchestrate.airflow.operators.checks import lag_of, lag_problems, seconds_of

        lag = lag_of(FlussHook(self.fluss_conn_id).get_conn(), self.checkpoint)
        problems = lag_problems(
            lag, self.max_offsets, seconds_of(self.max_age), seconds_of(self.min_time_left)
        )
        if not problems:
            return
        message = f"checkpoint '{self.checkpoint}' of {lag.table}: {problems}"
        if self.send is None:
            self.log.warning("%s", message)
        else:
            self.send(message, context)
