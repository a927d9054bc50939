"""How many sensors wait, and for what."""

from __future__ import annotations

from dataclasses import dataclass

from benchmarks.place import Scale


@dataclass(frozen=True)
class Sizes:
    """Sensors per case, the tables they wait for, and for how long they are watched."""

    waiters: tuple[int, ...]
    tables: int
    watch_s: float
    alone_max: int
    """Up to so many sensors, the peer polls for each of them."""
    wakes: int
    imports: int
    """How many of the imports are timed."""
    deferred: tuple[int, ...]
    """Sensors on a real triggerer, which takes half a minute to begin."""


SIZES = {
    Scale.TINY: Sizes((1, 10), 2, 0.5, 10, 1, 2, (1,)),
    Scale.QUICK: Sizes((1, 100, 1_000), 20, 3.0, 1_000, 3, 6, (100,)),
    Scale.FULL: Sizes((1, 100, 1_000, 10_000), 100, 5.0, 1_000, 5, 6, (1, 100, 2_000)),
}
POLL_INTERVAL_S = 1.0
