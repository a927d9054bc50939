"""How long tests wait: the one place that knows how busy the machine is.

Tests give limits in seconds of a machine that has nothing else to do. While more threads want to
run than there are cores, the same work takes longer, and so do the limits. A limit ends a wait that
would never end; what a test proves never depends on it. A call that a test waits for needs no limit
of its own (`.result()`): the limit of the whole test ends it, too.

`test_waiting.py` in `foundation` keeps other ways to wait out of the tests.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import time
from collections.abc import Awaitable, Callable, Iterator
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from playwright.sync_api import Page

WAIT_S = 60.0
PAUSE_S = 0.05
SLOWEST = 5.0
"""At most so many times a limit is stretched, so that a wait ends on any machine."""

T = TypeVar("T")


def slowdown() -> float:
    """How much longer work takes now than on an idle machine, 1 to `SLOWEST`.

    It is the average of threads that wanted to run in the last minute, per core.
    """
    return min(max(os.getloadavg()[0] / (os.cpu_count() or 1), 1.0), SLOWEST)


def scaled(seconds: float) -> float:
    """The limit that corresponds to so many seconds of an idle machine."""
    return seconds * slowdown()


def client_limits(**limits_ms: float) -> dict[str, str]:
    """Settings of a client by their names, with `_` for `-`, in ms of an idle machine."""
    return {name.replace("_", "-"): f"{scaled(ms):.0f}ms" for name, ms in limits_ms.items()}


class Deadline:
    """The end of a wait of so many seconds of an idle machine.

    It moves as long as the wait lasts: load that comes later counts, too.
    """

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._began = time.monotonic()

    def __str__(self) -> str:
        waited = time.monotonic() - self._began
        return f"waited {waited:.0f} s ({self._seconds:g} s on an idle machine)"

    @property
    def left_s(self) -> float:
        """How many seconds are left as far as one can tell now; 0 if the wait is over."""
        return max(scaled(self._seconds) - (time.monotonic() - self._began), 0.0)

    @property
    def has_passed(self) -> bool:
        """Whether the wait is over."""
        return self.left_s == 0

    def check(self, what: str, details: Callable[[], str] | None = None) -> None:
        """Raise an `AssertionError` that says `what` was waited for if the wait is over."""
        if self.has_passed:
            said = "" if details is None else f"\n{details()}"
            raise AssertionError(f"{what}: {self}{said}")


def wait_until(
    what: str,
    look: Callable[[], T],
    seconds: float = WAIT_S,
    *,
    pause_s: float = PAUSE_S,
    details: Callable[[], str] | None = None,
) -> T:
    """Look again and again until there is something to see.

    Args:
        what: What is waited for, for the error.
        look: Returns something true when the wait is over.
        seconds: The limit, on an idle machine.
        pause_s: How long to wait between two looks.
        details: What the error says beside, for instance the end of a log.

    Returns:
        What `look` returned.

    Raises:
        AssertionError: If the limit passed before.
    """
    deadline = Deadline(seconds)
    while not (found := look()):
        deadline.check(what, details)
        time.sleep(pause_s)
    return found


async def wait_until_async(
    what: str,
    look: Callable[[], Awaitable[T]],
    seconds: float = WAIT_S,
    *,
    pause_s: float = PAUSE_S,
    details: Callable[[], str] | None = None,
) -> T:
    """Look again and again, as `wait_until` does, while the other tasks of the loop run."""
    deadline = Deadline(seconds)
    while not (found := await look()):
        deadline.check(what, details)
        await asyncio.sleep(pause_s)
    return found


@contextlib.contextmanager
def within(seconds: float, what: str) -> Iterator[None]:
    """Fail if the block takes longer than so many seconds of an idle machine.

    For what must come at once, where another way would take many times as long.
    """
    deadline = Deadline(seconds)
    yield
    deadline.check(what)


def let_pass(seconds: float, why: str) -> None:
    """Let so much time pass, where that is what a test is about: how long a server is down, say.

    It never stands for a wait: what a test waits for can be seen, and `wait_until` looks.
    """
    assert why, "say why time itself matters"
    time.sleep(seconds)


async def let_pass_async(seconds: float, why: str) -> None:
    """Let so much time pass, as `let_pass` does, while the other tasks of the loop run."""
    assert why, "say why time itself matters"
    await asyncio.sleep(seconds)


def patient(page: Page) -> Page:
    """Return the page of a browser, whose limits, and those of `expect`, follow the load."""
    from playwright.sync_api import expect

    limit_ms = scaled(WAIT_S) * 1000
    page.set_default_timeout(limit_ms)
    expect.set_options(timeout=limit_ms)
    return page


def moment_between() -> int:
    """Return a time in ms that is later than all that was done before, and earlier than the rest.

    The servers of the tests have the clock of this machine. The wait ends with the millisecond.
    """
    moment_ms = _next_ms()
    _next_ms()
    return moment_ms


def _next_ms() -> int:
    began_ms = time.time_ns() // 1_000_000
    while (now_ms := time.time_ns() // 1_000_000) <= began_ms:
        time.sleep(0.0002)
    return now_ms
