"""The trigger of all sensors: it waits for a condition on the process's one poller."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

from airflow.triggers.base import BaseTrigger, TriggerEvent

from fluss_orchestrate.airflow.errors import retry_helps
from fluss_orchestrate.airflow.loading import loaded
from fluss_orchestrate.airflow.patience import patient_client

CONDITIONS = "fluss_orchestrate.core.conditions"


def event_of(payload: Any) -> TriggerEvent:
    """An event with plain values."""
    return TriggerEvent(payload)  # type: ignore[no-untyped-call]


class FlussConditionTrigger(BaseTrigger):
    """Waits until a condition of the core holds, and fires once.

    The condition is plain values with everything resolved, so that a restarted triggerer goes on
    waiting for the same. The waiting itself happens on the client's I/O thread, where one poller
    asks for all triggers of a cluster.
    """

    def __init__(
        self, *, fluss_conn_id: str, condition: dict[str, Any], poll_interval: float
    ) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.fluss_conn_id = fluss_conn_id
        self.condition = condition
        self.poll_interval = poll_interval

    def serialize(self) -> tuple[str, dict[str, Any]]:
        """The class, and its arguments as plain values."""
        return (
            f"{type(self).__module__}.{type(self).__qualname__}",
            {
                "fluss_conn_id": self.fluss_conn_id,
                "condition": self.condition,
                "poll_interval": self.poll_interval,
            },
        )

    async def run(self) -> AsyncIterator[TriggerEvent]:
        """Wait; an error is an event too, and says whether a retry helps."""
        conditions = await loaded(CONDITIONS)
        errors = await loaded("fluss_client.errors")
        try:
            client = await patient_client(self.fluss_conn_id)
            outcome = await conditions.wait_until(
                client,
                conditions.condition_from_json(self.condition),
                poll_interval_s=self.poll_interval,
            )
        except errors.FlussError as error:
            message = f"{type(error).__name__}: {error}"
            yield event_of({"status": "error", "message": message, "retry": retry_helps(error)})
            return
        yield event_of({"status": "success", "outcome": outcome})
