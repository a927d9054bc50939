"""What each process of a soak uses, and whether that stays flat."""

from __future__ import annotations

import os
import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Self

PARTS = 3
SAMPLES_MIN = 15
"""Fewer samples of a process say nothing."""
LIFE_S_MIN = 90.0
MEMORY_GROWTH, MEMORY_MB = 1.10, 16.0
COUNT_MORE = 8


@dataclass(frozen=True)
class Sample:
    """What a process uses at one moment."""

    at_s: float
    memory_mb: float
    files: int
    threads: int
    connections: int
    temporary_files: int

    @classmethod
    def take(cls, at_s: float, pid: int, temporary: Path) -> Self | None:
        """Look at a process; None if it has ended."""
        try:
            status = dict(
                line.split(":", 1) for line in Path(f"/proc/{pid}/status").read_text().splitlines()
            )
            targets = [_target(file) for file in Path(f"/proc/{pid}/fd").iterdir()]
        except OSError:
            return None
        if "VmRSS" not in status:
            return None
        return cls(
            at_s,
            int(status["VmRSS"].split()[0]) / 1024,
            len(targets),
            int(status["Threads"]),
            sum(target.startswith("socket:") for target in targets),
            sum(len(files) for _, _, files in os.walk(temporary)),
        )


def _target(file: Path) -> str:
    try:
        return str(file.readlink())
    except OSError:
        return ""


@dataclass(frozen=True)
class Use:
    """How the use of one thing went: medians of the second and of the last third of a life."""

    name: str
    before: float
    after: float

    @property
    def is_flat(self) -> bool:
        """Whether it grew by no more than chance."""
        if self.name == "memory_mb":
            return self.after <= self.before * MEMORY_GROWTH + MEMORY_MB
        return self.after <= self.before + COUNT_MORE


def uses(samples: Sequence[Sample]) -> list[Use]:
    """How the use of each thing went in the life of one process; empty if it was too short.

    The first third is left out: there, a process imports, connects and fills its caches.
    """
    if len(samples) < SAMPLES_MIN or samples[-1].at_s - samples[0].at_s < LIFE_S_MIN:
        return []
    third = len(samples) // PARTS
    middle, last = samples[third : 2 * third], samples[2 * third :]

    def median(part: Sequence[Sample], of: Callable[[Sample], float]) -> float:
        return statistics.median(of(sample) for sample in part)

    found = []
    for each in fields(Sample):
        if each.name != "at_s":
            name = each.name
            before, after = (
                median(part, lambda s, name=name: float(getattr(s, name)))  # type: ignore[misc]
                for part in (middle, last)
            )
            found.append(Use(name, before, after))
    return found
