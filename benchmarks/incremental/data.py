"""How much the incremental cases do."""

from __future__ import annotations

from dataclasses import dataclass

from benchmarks.place import Scale


@dataclass(frozen=True)
class Sizes:
    """Rows of one increment, empty runs per figure, and how wide tables get."""

    rows: int
    buckets: int
    empty_runs: int
    history: int
    widths: tuple[tuple[int, int], ...]
    """(buckets, partitions) of tables whose planning is timed; 0 for no partitions."""
    changes: tuple[int, ...]
    """How many buckets of the widest table have changed."""


SIZES = {
    Scale.TINY: Sizes(20_000, 2, 2, 2, ((1, 0), (2, 2)), (1,)),
    Scale.QUICK: Sizes(2_000_000, 4, 20, 100, ((1, 0), (16, 0), (16, 10)), (1, 10)),
    Scale.FULL: Sizes(8_000_000, 4, 50, 200, ((1, 0), (16, 0), (16, 63), (16, 625)), (1, 16, 160)),
}
