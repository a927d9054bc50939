"""`MessageQueueTrigger(scheme="fluss", table=...)`, Airflow's common way to watch a queue."""

from __future__ import annotations

from typing import TYPE_CHECKING

from airflow.providers.common.messaging.providers.base_provider import BaseMessageQueueProvider

if TYPE_CHECKING:
    from airflow.triggers.base import BaseEventTrigger


class FlussQueueProvider(BaseMessageQueueProvider):
    """A table as a queue: its messages are ranges of new rows."""

    scheme = "fluss"

    def trigger_class(self) -> type[BaseEventTrigger]:
        """Return the trigger for new rows; its arguments are those of `MessageQueueTrigger`."""
        from fluss_orchestrate.airflow.triggers.watching import FlussOffsetTrigger

        return FlussOffsetTrigger
