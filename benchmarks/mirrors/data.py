"""How much the mirrors do."""

from __future__ import annotations

from dataclasses import dataclass

from benchmarks.place import Place, Scale

CHANGES_PER_KEY = 5
DELETED = 0.05
"""The share of the changes that delete a row."""
KEYS = {Scale.TINY: 1_000, Scale.QUICK: 100_000, Scale.FULL: 1_000_000}


@dataclass(frozen=True)
class Sizes:
    """The rows that a mirror holds at first, and the changes of its second plan."""

    keys: int
    changes: int


def sizes(place: Place) -> Sizes:
    """What the run asks for."""
    keys = place.keys or KEYS[place.scale]
    return Sizes(keys, keys * CHANGES_PER_KEY)
