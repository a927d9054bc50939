"""What all sensors share: a condition that is frozen once, and waiting without a worker slot."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import timedelta
from functools import cached_property
from typing import TYPE_CHECKING, Any

from airflow.sdk import BaseSensorOperator, PokeReturnValue, conf

from fluss_orchestrate.airflow.errors import (
    FlussTaskError,
    FlussTaskFailedError,
    airflow_errors,
)
from fluss_orchestrate.airflow.hooks import FlussHook
from fluss_orchestrate.airflow.receipts import publish
from fluss_orchestrate.airflow.triggers.waiting import FlussConditionTrigger
from fluss_orchestrate.airflow.triggers.watching import default_poll_interval

if TYPE_CHECKING:
    from airflow.sdk import Context

    from fluss_client import FlussConnection
    from fluss_orchestrate.core.conditions import Condition

STATE_KEY = "fluss_condition"


class FlussSensor(BaseSensorOperator):
    """A sensor whose condition is made once per task run and kept.

    What it waits for is resolved to offsets at the first look and stays: every retry, every
    reschedule and every restart of the triggerer waits for the same. `deferrable` sensors wait in
    the triggerer, where all of them share one poller per cluster.
    """

    template_fields: Sequence[str] = ("fluss_conn_id", "table")

    def __init__(
        self,
        *,
        table: str,
        fluss_conn_id: str = FlussHook.default_conn_name,
        deferrable: bool = conf.getboolean("operators", "default_deferrable", fallback=False),
        poll_interval: float | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.table = table
        self.fluss_conn_id = fluss_conn_id
        self.deferrable = deferrable
        self.poll_interval = default_poll_interval() if poll_interval is None else poll_interval

    @cached_property
    def hook(self) -> FlussHook:
        """The way to the client."""
        return FlussHook(self.fluss_conn_id)

    def condition(self, client: FlussConnection, context: Context) -> Condition:
        """What to wait for, with everything resolved."""
        raise NotImplementedError

    def execute(self, context: Context) -> Any:
        """Look once; then wait in the triggerer, or poke."""
        if not self.deferrable:
            return super().execute(context)
        with airflow_errors():
            condition = self._frozen(context)
            outcome = self._look(condition)
        if outcome is not None:
            return publish(context, outcome)
        self.defer(
            trigger=FlussConditionTrigger(
                fluss_conn_id=self.fluss_conn_id,
                condition=condition.to_json(),
                poll_interval=self.poll_interval,
            ),
            method_name="execute_complete",
            timeout=timedelta(seconds=self.timeout),
        )

    def execute_complete(self, context: Context, event: Mapping[str, Any] | None = None) -> Any:
        """Give what the trigger has found, or raise what it met."""
        if not isinstance(event, Mapping) or event.get("status") not in ("success", "error"):
            raise FlussTaskError(f"the trigger gave no event that can be understood: {event!r}")
        if event["status"] == "error":
            kind = FlussTaskError if event.get("retry", True) else FlussTaskFailedError
            raise kind(str(event["message"]))
        return publish(context, event["outcome"])

    def poke(self, context: Context) -> bool | PokeReturnValue:
        """One look."""
        with airflow_errors():
            outcome = self._look(self._frozen(context))
        if outcome is None:
            return False
        return PokeReturnValue(True, publish(context, outcome))

    def _look(self, condition: Condition) -> dict[str, Any] | None:
        from fluss_orchestrate.core.conditions import holds

        return holds(self.hook.get_conn(), condition)

    def _frozen(self, context: Context) -> Condition:
        """The condition of this task run: as it was kept, or made and kept now."""
        from fluss_orchestrate.core.conditions import condition_from_json

        kept = context["task_state_store"].get(STATE_KEY)
        if isinstance(kept, Mapping):
            return condition_from_json(kept)
        made = self.condition(self.hook.get_conn(), context)
        context["task_state_store"].set(STATE_KEY, made.to_json())
        return made
