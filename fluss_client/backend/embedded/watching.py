"""Waiting for new data: told at once of this backend's own commits, of others' by a short poll.

SQLite has no way to tell one process of another's commit. `PRAGMA data_version` costs
microseconds and changes with every commit of anyone else, so one poll serves all that wait.
"""

from __future__ import annotations

import asyncio
import contextlib
import sqlite3
from collections.abc import Awaitable, Callable

from fluss_client.errors import ClosedError

POLL_FIRST_S = 0.002
POLL_LONGEST_S = 0.02
IDLE_POLLS_MAX = 50


def data_version(connection: sqlite3.Connection) -> int:
    """A number that changes when another connection commits."""
    (version,) = connection.execute("PRAGMA data_version").fetchone()
    return int(version)


class Watch:
    """Wakes those who wait whenever something was committed."""

    def __init__(self, ask: Callable[[], Awaitable[int]]) -> None:
        self._ask = ask
        self._changed = asyncio.Event()
        self._waiting = 0
        self._poll: asyncio.Task[None] | None = None
        self._closed = False

    def changed(self) -> None:
        """Something was committed."""
        event, self._changed = self._changed, asyncio.Event()
        event.set()

    def mark(self) -> asyncio.Event:
        """What to wait on for changes after this moment."""
        return self._changed

    async def wait(self, mark: asyncio.Event, timeout_s: float) -> None:
        """Come back when something has changed since the mark, or when the time is over."""
        if self._closed:
            # A scanner that was left open may wait on; a new poll would have nobody to end it.
            raise ClosedError("the embedded engine was closed; make a new FlussConnection")
        self._waiting += 1
        if self._poll is None or self._poll.done():
            self._poll = asyncio.create_task(self._polling())
        try:
            async with asyncio.timeout(timeout_s):
                await mark.wait()
        except TimeoutError:
            return
        finally:
            self._waiting -= 1

    async def _polling(self) -> None:
        # The lanes end before this when a client was dropped without being closed.
        with contextlib.suppress(ClosedError):
            await self._poll_until_idle()

    async def _poll_until_idle(self) -> None:
        seen = await self._ask()
        # A commit between the reader's look and this one would go unnoticed.
        self.changed()
        interval_s, idle = POLL_FIRST_S, 0
        # One who has just been woken is about to wait again: do not start anew each time.
        while (idle := 0 if self._waiting else idle + 1) < IDLE_POLLS_MAX:
            await asyncio.sleep(interval_s)
            version = await self._ask()
            if version != seen:
                seen = version
                interval_s = POLL_FIRST_S
                self.changed()
            else:
                interval_s = min(interval_s * 1.5, POLL_LONGEST_S)

    async def close(self) -> None:
        """Stop polling and wake everyone."""
        self._closed = True
        self.changed()
        if self._poll is not None:
            self._poll.cancel()
            await asyncio.gather(self._poll, return_exceptions=True)
