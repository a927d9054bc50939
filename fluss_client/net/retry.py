"""Bounded exponential backoff with jitter under one total deadline."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Awaitable, Callable
from typing import TypeVar

from fluss_client.errors import FlussError

T = TypeVar("T")
BACKOFF_FIRST_MS = 20
BACKOFF_MAX_MS = 2_000


def backoff_ms(attempt: int) -> float:
    """How long to wait before attempt `attempt` + 1: doubled each time, bounded, jittered."""
    ceiling = min(BACKOFF_MAX_MS, BACKOFF_FIRST_MS << min(attempt, 16))
    return ceiling * random.uniform(0.5, 1.0)  # noqa: S311 (jitter needs no secrecy)


class Deadline:
    """A moment by which something must be done."""

    def __init__(self, timeout_ms: float) -> None:
        self.timeout_ms = timeout_ms
        self._at = time.monotonic() + timeout_ms / 1000

    def remaining_ms(self) -> float:
        """Milliseconds left; negative when it has passed."""
        return (self._at - time.monotonic()) * 1000

    def passed(self) -> bool:
        """Whether nothing is left."""
        return self.remaining_ms() <= 0


async def retrying(
    call: Callable[[], Awaitable[T]],
    deadline: Deadline,
    *,
    on_error: Callable[[FlussError], Awaitable[None]] | None = None,
    retriable: Callable[[FlussError], bool] = lambda error: error.retriable,
) -> T:
    """Call until it succeeds, fails for good, or the deadline passes; the last error is raised."""
    attempt = 0
    while True:
        try:
            return await call()
        except FlussError as error:
            wait_ms = backoff_ms(attempt)
            if not retriable(error) or deadline.remaining_ms() < wait_ms:
                raise
            attempt += 1
            if on_error is not None:
                await on_error(error)
        await asyncio.sleep(wait_ms / 1000)
