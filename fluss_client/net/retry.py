"""The retry policy of the client: how long to pause between attempts, and when to give up.

Whether an error is worth another attempt is an attribute of its class (`FlussError.retriable`).
Everything else about retries is decided here: `Backoff` says how long to pause, `Deadline` until
when to try, `retrying` runs the loop.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TypeVar

from fluss_client.config import Config
from fluss_client.errors import FlussError

T = TypeVar("T")
DOUBLINGS_MAX = 16
"""Keeps the power of two small; the longest pause is reached long before."""
JITTER_LOW = 0.5
"""Pauses are between this part of the full pause and the whole of it, so that clients that failed
at the same moment do not all come back at the same moment."""


@dataclass(frozen=True, slots=True)
class Backoff:
    """Pauses between attempts: each twice as long as the one before, bounded, and jittered.

    Args:
        first_ms: The full pause after the first failed attempt; `retry-backoff`.
        max_ms: The longest pause; `retry-backoff-max`.
        jitter_low: The smallest part of a full pause that is waited. 0 suits attempts that collide
            with each other, such as commits to one table.
    """

    first_ms: float = Config.retry_backoff_ms.default
    max_ms: float = Config.retry_backoff_max_ms.default
    jitter_low: float = JITTER_LOW

    @classmethod
    def of(cls, config: Config) -> Backoff:
        """Return the backoff that a `config` sets."""
        return cls(config.retry_backoff_ms, config.retry_backoff_max_ms)

    def delay_ms(self, attempt: int) -> float:
        """Return how long to pause after the failed attempt number `attempt`, counted from 0."""
        full_ms = min(self.max_ms, self.first_ms * (1 << min(attempt, DOUBLINGS_MAX)))
        return full_ms * random.uniform(self.jitter_low, 1.0)  # noqa: S311 - jitter needs no secrecy

    async def pause(self, attempt: int) -> None:
        """Wait on the event loop for `delay_ms(attempt)`."""
        await asyncio.sleep(self.delay_ms(attempt) / 1000)

    def pause_blocking(self, attempt: int) -> None:
        """Block this thread for `delay_ms(attempt)`."""
        time.sleep(self.delay_ms(attempt) / 1000)


_DEFAULT = Backoff()


class Deadline:
    """The time at which a call is given up, and the pauses between its attempts.

    Args:
        timeout_ms: The time from now.
        backoff: The pauses.
    """

    def __init__(self, timeout_ms: float, backoff: Backoff = _DEFAULT) -> None:
        self.timeout_ms = timeout_ms
        self.backoff = backoff
        self._at = time.monotonic() + timeout_ms / 1000

    def remaining_ms(self) -> float:
        """Return the milliseconds that are left; negative when the deadline has passed."""
        return (self._at - time.monotonic()) * 1000

    def passed(self) -> bool:
        """Return whether no time is left."""
        return self.remaining_ms() <= 0


async def retrying(
    call: Callable[[], Awaitable[T]],
    deadline: Deadline,
    *,
    on_error: Callable[[FlussError], Awaitable[None]] | None = None,
    retriable: Callable[[FlussError], bool] = lambda error: error.retriable,
) -> T:
    """Repeat a call until it succeeds, fails for good, or its deadline would pass in the pause.

    Args:
        call: Makes one attempt.
        deadline: When to give up, and how long to pause.
        on_error: Is awaited before each pause; for example to renew metadata.
        retriable: Whether another attempt may help after this error.

    Returns:
        The result of the first attempt that succeeds.

    Raises:
        FlussError: The error of the last attempt.
    """
    attempt = 0
    while True:
        try:
            return await call()
        except FlussError as error:
            wait_ms = deadline.backoff.delay_ms(attempt)
            if not retriable(error) or deadline.remaining_ms() < wait_ms:
                raise
            attempt += 1
            if on_error is not None:
                await on_error(error)
        await asyncio.sleep(wait_ms / 1000)
