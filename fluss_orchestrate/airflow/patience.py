"""Going on when a cluster or a table is away, without blocking Airflow's event loop."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING

from fluss_orchestrate.airflow.errors import retry_helps
from fluss_orchestrate.airflow.hooks import FlussHook
from fluss_orchestrate.airflow.loading import loaded

if TYPE_CHECKING:
    from fluss_client import FlussConnection

log = logging.getLogger(__name__)
BACKOFF_FIRST_S = 1.0
BACKOFF_MAX_S = 60.0


class Backoff:
    """Longer and longer pauses."""

    def __init__(self) -> None:
        self._pause_s = BACKOFF_FIRST_S

    async def pause(self, error: Exception, what: str) -> None:
        """Say what is the matter, and wait."""
        log.warning("%s: %s; looking again in %.0f s", what, error, self._pause_s)
        await asyncio.sleep(self._pause_s)
        self._pause_s = min(BACKOFF_MAX_S, self._pause_s * 2)

    def reset(self) -> None:
        """All is well again."""
        self._pause_s = BACKOFF_FIRST_S


async def patient_client(conn_id: str) -> FlussConnection:
    """The client of a connection, once the cluster can be reached.

    What waiting cannot mend, such as a wrong password, is raised.
    """
    errors = await loaded("fluss_client.errors")
    backoff = Backoff()
    while True:
        try:
            return await FlussHook(conn_id).aget_client()
        except errors.FlussError as error:
            if not retry_helps(error):
                raise
            await backoff.pause(error, f"connection {conn_id}")
