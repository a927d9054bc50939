"""The trigger of deferred bulk loads: it follows what a load's supervisor records in the cluster.

The job itself runs elsewhere (`core.spark_submit.detached`), so that a worker or a triggerer that
restarts neither ends nor repeats it.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncIterator
from functools import partial
from typing import Any

from airflow.triggers.base import BaseTrigger, TriggerEvent

from fluss_orchestrate.airflow.errors import retry_helps
from fluss_orchestrate.airflow.hooks import loaded
from fluss_orchestrate.airflow.triggers.waiting import Retries, event_of, reachable_client

log = logging.getLogger(__name__)
DETACHED = "fluss_orchestrate.core.spark_submit.detached"
DONE, LOST = "done", "lost"


class FlussLoadTrigger(BaseTrigger):
    """Waits until a bulk load has ended, and fires once.

    The outcome is `done`, or `lost` if nothing was heard of the load's supervisor for too long: its
    machine may be gone, and the task submits the load again. Progress goes into the task log.

    Args:
        fluss_conn_id: The Airflow connection of the cluster.
        table: The table, as `database.table`.
        load_id: The id of the load.
        token: Names the supervisor.
        poll_interval: Seconds between two looks.
        times_lost: How often the load's supervisor was lost before.
        deadline_ms: When the load is told to stop, in milliseconds since 1970; None means never.
        timeout: The whole duration in seconds, for the sentence that says so.
    """

    def __init__(
        self,
        *,
        fluss_conn_id: str,
        table: str,
        load_id: str,
        token: str,
        poll_interval: float,
        times_lost: int = 0,
        deadline_ms: int | None = None,
        timeout: float | None = None,
    ) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.fluss_conn_id = fluss_conn_id
        self.table = table
        self.load_id = load_id
        self.token = token
        self.poll_interval = poll_interval
        self.times_lost = times_lost
        self.deadline_ms = deadline_ms
        self.timeout = timeout

    def serialize(self) -> tuple[str, dict[str, Any]]:
        """Return the path of the class, and its arguments as plain values."""
        return (
            f"{type(self).__module__}.{type(self).__qualname__}",
            {
                "fluss_conn_id": self.fluss_conn_id,
                "table": self.table,
                "load_id": self.load_id,
                "token": self.token,
                "poll_interval": self.poll_interval,
                "times_lost": self.times_lost,
                "deadline_ms": self.deadline_ms,
                "timeout": self.timeout,
            },
        )

    async def run(self) -> AsyncIterator[TriggerEvent]:
        """Wait, and yield one event, as `FlussConditionTrigger` does."""
        errors = await loaded("fluss_client.errors")
        try:
            event = await self._wait(errors)
        except errors.FlussError as error:
            message = f"{type(error).__name__}: {error}"
            event = {"status": "error", "message": message, "retry": retry_helps(error)}
        yield event_of(event)

    async def on_kill(self) -> None:
        """Stop the load: the task was marked or cleared (Airflow 3.3 and later tell it)."""
        await self._stop()

    async def _stop(self) -> None:
        detached = await loaded(DETACHED)
        client = await reachable_client(self.fluss_conn_id)
        await detached.aask_to_stop(client, self.table, self.load_id, self.token)

    async def _wait(self, errors: Any) -> dict[str, Any]:
        detached = await loaded(DETACHED)
        polling = await loaded("fluss_orchestrate.core.polling")
        report = polling.LookReport(lambda text: log.info("%s", text))
        client = await reachable_client(self.fluss_conn_id)
        retries = Retries()
        last: Any = None
        changed_s = time.monotonic()
        while True:
            try:
                found = await detached.alast_record(client, self.table, self.load_id)
            except errors.FlussError as error:
                if not retry_helps(error):
                    raise
                await retries.pause(error, f"load {self.load_id}")
                changed_s = time.monotonic()  # What could not be heard is not lost.
                continue
            retries.reset()
            if found != last:
                last, changed_s = found, time.monotonic()
            event = self._ended(found, detached)
            if event is not None:
                return event
            if time.monotonic() - changed_s > detached.LOST_S:
                return self._lost(f"nothing was heard of it for {detached.LOST_S:.0f} s")
            if self.deadline_ms is not None and time.time() * 1000 > self.deadline_ms:
                await self._stop()
                said = f"did not end within {self.timeout:.0f} s, and was told to stop"
                return {"status": "timeout", "message": f"load {self.load_id}: it {said}"}
            said = found.said if found is not None else ""
            report.look(partial(str, said or "Spark is starting"))
            await asyncio.sleep(self.poll_interval)

    def _ended(self, found: Any, detached: Any) -> dict[str, Any] | None:
        """Return the event for what was recorded last; None while the load goes on."""
        if found is None or found.phase == detached.RUNNING:
            return None
        if found.phase == detached.DONE:
            return {"status": "success", "outcome": {"state": DONE}}
        if found.token != self.token:  # another try, which was ended
            return self._lost(f"another try has ended it ({found.phase})")
        for line in found.log_tail:
            log.info("spark: %s", line)
        # A load that Spark has broken off is resumed by the next try.
        return {"status": "error", "message": f"SubmitError: {found.message}", "retry": True}

    def _lost(self, why: str) -> dict[str, Any]:
        log.warning("load %s into %s: %s", self.load_id, self.table, why)
        outcome = {"state": LOST, "why": why, "times_lost": self.times_lost + 1}
        return {"status": "success", "outcome": outcome}
