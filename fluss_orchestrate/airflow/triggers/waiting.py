"""The trigger of all sensors, and the retries of all triggers.

The trigger waits for a condition on the one poller of the process. While a cluster or a table
cannot be reached, triggers try again without blocking Airflow's event loop.
"""

from __future__ import annotations

import asyncio
import contextvars
import logging
import time
from collections.abc import AsyncIterator, Mapping
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from airflow.triggers.base import BaseTrigger, TriggerEvent

from fluss_orchestrate.airflow.errors import FlussTaskError, FlussTaskFailedError, retry_helps
from fluss_orchestrate.airflow.hooks import FlussHook, loaded
from fluss_orchestrate.airflow.version_compat import AirflowSensorTimeout

if TYPE_CHECKING:
    from fluss_client import FlussConnection
    from fluss_orchestrate.core.conditions import Condition
    from fluss_orchestrate.core.polling import LookReport

log = logging.getLogger(__name__)
CONDITIONS = "fluss_orchestrate.core.conditions"
RETRY_FIRST_MS = 1_000.0
RETRY_MAX_MS = 60_000.0
TIMEOUT_GRACE_S = 60.0
"""How much later than our own timeout Airflow's comes, which cannot say what was waited for."""


class Retries:
    """The pauses of one trigger between attempts: those of the client's `Backoff`, but longer."""

    def __init__(self) -> None:
        self._attempt = 0

    async def pause(self, error: Exception, what: str) -> None:
        """Log the error, and wait."""
        engine = await loaded("fluss_client.engine")
        backoff = engine.Backoff(RETRY_FIRST_MS, RETRY_MAX_MS)
        pause_s = backoff.delay_ms(self._attempt) / 1000
        self._attempt += 1
        log.warning("%s: %s; looking again in %.0f s", what, error, pause_s)
        await asyncio.sleep(pause_s)

    def reset(self) -> None:
        """Begin again with the shortest pause."""
        self._attempt = 0


async def reachable_client(conn_id: str) -> FlussConnection:
    """Return the client of a connection, once the cluster can be reached.

    Args:
        conn_id: The Airflow connection.

    Raises:
        FlussError: If waiting cannot help, for example because the password is wrong.
    """
    errors = await loaded("fluss_client.errors")
    retries = Retries()
    while True:
        try:
            return await FlussHook(conn_id).aget_client()
        except errors.FlussError as error:
            if not retry_helps(error):
                raise
            await retries.pause(error, f"connection {conn_id}")


def event_of(payload: Any) -> TriggerEvent:
    """Return an event with plain values."""
    return TriggerEvent(payload)  # type: ignore[no-untyped-call]


def outcome_of(event: Mapping[str, Any] | None) -> dict[str, Any]:
    """Return what a trigger has found.

    Args:
        event: The event of `FlussConditionTrigger` or `FlussLoadTrigger`.

    Raises:
        FlussTaskError: If a retry may help.
        FlussTaskFailedError: If no retry can help.
        AirflowSensorTimeout: If the time has passed; it says how far the wait was.
    """
    status = event.get("status") if isinstance(event, Mapping) else None
    if event is None or status not in ("success", "error", "timeout"):
        raise FlussTaskError(f"the event of the trigger cannot be understood: {event!r}")
    if status == "timeout":
        raise AirflowSensorTimeout(str(event["message"]))
    if status == "error":
        kind = FlussTaskError if event.get("retry", True) else FlussTaskFailedError
        raise kind(str(event["message"]))
    return dict(event["outcome"])


class FlussConditionTrigger(BaseTrigger):
    """Waits until a condition of the core holds, and fires once.

    The condition is plain values with everything resolved, so that a restarted triggerer goes on
    waiting for the same. The waiting itself happens on the client's I/O thread, where one poller
    asks for all triggers of a cluster. How far the condition is goes into the task log, at
    intervals that grow to a minute.

    Args:
        fluss_conn_id: The Airflow connection of the cluster.
        condition: The condition, by `Condition.to_json`.
        poll_interval: Seconds between two looks.
        deadline_ms: When the wait ends with an event of status `timeout`, in milliseconds since
            1970; None waits for ever. A time rather than a duration, so that a restart of the
            triggerer does not begin the wait anew.
        timeout: The whole duration in seconds, for the sentence that says so.
    """

    def __init__(
        self,
        *,
        fluss_conn_id: str,
        condition: dict[str, Any],
        poll_interval: float,
        deadline_ms: int | None = None,
        timeout: float | None = None,
    ) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.fluss_conn_id = fluss_conn_id
        self.condition = condition
        self.poll_interval = poll_interval
        self.deadline_ms = deadline_ms
        self.timeout = timeout

    @classmethod
    def deferral(
        cls, fluss_conn_id: str, condition: Condition, poll_interval: float, timeout_s: float
    ) -> dict[str, Any]:
        """Return the arguments with which a task is deferred until a condition holds.

        Args:
            fluss_conn_id: The Airflow connection of the cluster.
            condition: The condition.
            poll_interval: Seconds between two looks.
            timeout_s: How many seconds it waits.
        """
        trigger = cls(
            fluss_conn_id=fluss_conn_id,
            condition=condition.to_json(),
            poll_interval=poll_interval,
            deadline_ms=int((time.time() + timeout_s) * 1000),
            timeout=timeout_s,
        )
        timeout = timedelta(seconds=timeout_s + TIMEOUT_GRACE_S)
        return {"trigger": trigger, "method_name": "execute_complete", "timeout": timeout}

    def serialize(self) -> tuple[str, dict[str, Any]]:
        """Return the path of the class, and its arguments as plain values."""
        return (
            f"{type(self).__module__}.{type(self).__qualname__}",
            {
                "fluss_conn_id": self.fluss_conn_id,
                "condition": self.condition,
                "poll_interval": self.poll_interval,
                "deadline_ms": self.deadline_ms,
                "timeout": self.timeout,
            },
        )

    async def run(self) -> AsyncIterator[TriggerEvent]:
        """Wait, and yield one event.

        The event has the status `success` with the outcome, `timeout` with a message, or `error`
        with a message and whether a retry helps.
        """
        conditions = await loaded(CONDITIONS)
        errors = await loaded("fluss_client.errors")
        lake = await loaded("fluss_orchestrate.core.lake")
        try:
            condition = conditions.condition_from_json(self.condition)
            log.info("waiting until %s", condition.wanted)
            outcome = await self._wait(conditions, lake.WaitTimedOutError, condition)
        except lake.WaitTimedOutError as error:
            yield event_of({"status": "timeout", "message": f"{type(error).__name__}: {error}"})
        except errors.FlussError as error:
            message = f"{type(error).__name__}: {error}"
            yield event_of({"status": "error", "message": message, "retry": retry_helps(error)})
        else:
            yield event_of({"status": "success", "outcome": outcome})

    async def _wait(self, conditions: Any, timed_out: Any, condition: Any) -> dict[str, Any]:
        total = 0.0 if self.timeout is None else self.timeout
        try:
            async with asyncio.timeout(self._left_s()):
                client = await reachable_client(self.fluss_conn_id)
        except TimeoutError:
            unmet = "the cluster could not be reached: see the warnings above"
            raise timed_out.after(condition.path, total, unmet) from None
        left_s = self._left_s()
        try:
            found: dict[str, Any] = await conditions.wait_until(
                client,
                condition,
                timeout_s=left_s,
                poll_interval_s=self.poll_interval,
                report=self._report(conditions),
            )
            return found
        except timed_out as error:
            raise timed_out.after(condition.path, total, error.unmet) from None

    def _left_s(self) -> float | None:
        if self.deadline_ms is None:
            return None
        return max(0.0, self.deadline_ms / 1000 - time.time())

    def _report(self, conditions: Any) -> LookReport:
        # Looks are made on the client's I/O thread. Airflow finds the log of a trigger by its
        # context variables, which only the trigger's own task has.
        loop, context = asyncio.get_running_loop(), contextvars.copy_context()

        def say(text: str) -> None:
            loop.call_soon_threadsafe(log.info, "%s", text, context=context)

        made: LookReport = conditions.LookReport(say)
        return made
