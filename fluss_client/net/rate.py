"""A limit for the bytes that a connection reads per second."""

from __future__ import annotations

import asyncio
import threading
import time


class RateLimit:
    """Lets a read begin when the bytes of earlier reads are paid for.

    Reads are not cut: a large answer is delivered at once, and the next request waits longer. All
    reads of a connection share one limit, on the event loop and on threads.

    Args:
        bytes_per_second_max: The limit; 0 is none.
    """

    def __init__(self, bytes_per_second_max: int) -> None:
        self._rate = bytes_per_second_max
        self._lock = threading.Lock()
        self._free_at_s = 0.0

    def add(self, count: int) -> None:
        """Record that bytes were read."""
        if self._rate:
            with self._lock:
                self._free_at_s = max(self._free_at_s, time.monotonic()) + count / self._rate

    def delay_s(self) -> float:
        """Return how long the next read has to wait."""
        return max(0.0, self._free_at_s - time.monotonic()) if self._rate else 0.0

    async def ready(self) -> None:
        """Wait until the next read may begin."""
        if delay_s := self.delay_s():
            await asyncio.sleep(delay_s)

    def block_until_ready(self) -> None:
        """Wait until the next read may begin; for threads."""
        if delay_s := self.delay_s():
            time.sleep(delay_s)
