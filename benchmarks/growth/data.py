"""How far each curve goes."""

from __future__ import annotations

from dataclasses import dataclass

from benchmarks.place import Scale


@dataclass(frozen=True)
class Sizes:
    """The points of each curve."""

    positions: tuple[tuple[int, int], ...]
    """(buckets, partitions) of tables in an embedded directory; 0 for no partitions."""
    partitions: tuple[int, ...]
    """Partitions of one bucket each, on the cluster."""
    waiters: tuple[int, ...]
    """Sensors on one poller, in an embedded directory."""
    tables: int
    """What they wait for."""
    watch_s: float
    runs: int
    """Increments per figure of planning."""


SIZES = {
    Scale.TINY: Sizes(((1, 0), (20, 20)), (2,), (5,), 2, 0.5, 2),
    Scale.QUICK: Sizes(((1, 0), (100, 100)), (1, 100), (100, 10_000), 100, 3.0, 3),
    Scale.FULL: Sizes(
        ((1, 0), (10, 10), (10, 100), (100, 100), (100, 1_000)),
        (1, 10, 100, 1_000),
        (1, 100, 1_000, 10_000, 100_000),
        100,
        5.0,
        5,
    ),
}
PLAN_MS_MAX = 3_000.0
PLAN_MB_MAX = 300.0
COMMIT_MS_MAX = 50.0
SENSORS_CPU_MAX = 50.0
"""Percent of a core."""
