"""What all sensors share: a condition that is frozen once, and waiting without a worker slot."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from datetime import timedelta
from functools import cached_property
from typing import TYPE_CHECKING, Any

from airflow.sdk import BaseSensorOperator, PokeReturnValue, conf

from fluss_orchestrate.airflow.agreement import check_assets, fluss_assets
from fluss_orchestrate.airflow.errors import (
    FlussTaskError,
    FlussTaskFailedError,
    airflow_errors,
)
from fluss_orchestrate.airflow.flows import named_table
from fluss_orchestrate.airflow.hooks import FlussHook
from fluss_orchestrate.airflow.receipts import publish
from fluss_orchestrate.airflow.templates import CheckedTemplates
from fluss_orchestrate.airflow.triggers.waiting import FlussConditionTrigger
from fluss_orchestrate.airflow.triggers.watching import default_poll_interval

if TYPE_CHECKING:
    from airflow.sdk import Context

    from fluss_client import FlussConnection
    from fluss_orchestrate.core.conditions import Condition

STATE_KEY = "fluss_condition"


class FlussSensor(CheckedTemplates, BaseSensorOperator):
    """A sensor whose condition is made once per task run and kept.

    What it waits for is resolved to offsets at the first look and stays: every retry, every
    reschedule and every restart of the triggerer waits for the same. A task that is cleared after
    its arguments have changed makes its condition anew. `deferrable` sensors wait in the
    triggerer, where all of them share one poller per cluster.
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
        self.check_not_empty()
        with airflow_errors():
            self._check_assets()
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

    def _check_assets(self) -> None:
        uris = fluss_assets(self)
        if uris:
            check_assets(uris, [named_table(self.hook.named_alias, self.table)])

    def _frozen(self, context: Context) -> Condition:
        """The condition of this task run: as it was kept, or made and kept now."""
        from fluss_orchestrate.core.conditions import condition_from_json

        store: Any = context["task_state_store"]
        now = {"arguments": self._arguments(), "series": context["ti"].max_tries}
        kept = store.get(STATE_KEY)
        if isinstance(kept, Mapping) and not self._is_outdated(kept, now):
            return condition_from_json(kept.get("condition", kept))
        made = self.condition(self.hook.get_conn(), context)
        store.set(STATE_KEY, {"condition": made.to_json(), **now})
        return made

    def _is_outdated(self, kept: Mapping[str, Any], now: Mapping[str, Any]) -> bool:
        """Whether the task was cleared and asks for something else now.

        Arguments alone do not tell: a template may give the present time at every look. A clear
        does: it raises the number of tries that the task may have, which retries leave alone.
        """
        if "condition" not in kept:  # kept by an earlier version
            return bool(kept.get("table") != self.table)
        return bool(kept["series"] != now["series"] and kept["arguments"] != now["arguments"])

    def _arguments(self) -> str:
        """The rendered arguments, in a form that can be compared."""
        given = repr([(name, getattr(self, name)) for name in self.template_fields])
        return hashlib.sha256(given.encode()).hexdigest()
