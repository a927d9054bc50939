"""How long tests wait: the one place that knows how busy the machine is.

Tests give limits in seconds of a machine that has nothing else to do. While more threads want to
run than there are cores, the same work takes longer, and so do the limits. A limit ends a wait that
would never end; what a test proves never depends on it. A call that a test waits for needs no limit
of its own (`.result()`): the limit of the whole test ends it, too.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from typing import TypeVar

import pytest
import pytest_timeout

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
    def has_passed(self) -> bool:
        """Whether the wait is over."""
        return time.monotonic() - self._began > scaled(self._seconds)


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
        if deadline.has_passed:
            said = "" if details is None else f"\n{details()}"
            raise AssertionError(f"{what}: {deadline}{said}")
        time.sleep(pause_s)
    return found


@pytest.hookimpl(tryfirst=True)
def pytest_timeout_set_timer(item: pytest.Item, settings: pytest_timeout.Settings) -> object:
    """Stretch the limit of a whole test, too."""
    stretched = settings._replace(timeout=scaled(settings.timeout))
    return pytest_timeout.pytest_timeout_set_timer(item, stretched)
