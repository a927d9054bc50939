"""Cases, rounds, medians and ratios.

Subjects of a case take turns within each round, so that what the machine does meanwhile hits all
of them. A timed region ends when every write is acknowledged, or when every row was read; the
checksums that subjects return must agree.
"""

from __future__ import annotations

import gc
import statistics
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from benchmarks.figures import shown

NOISE = 0.5
"""By how much a ratio differs between two runs of the same code: the band of `bench-check`."""


@dataclass(frozen=True)
class Measured:
    """One figure, what the work summed up to, and figures seen along the way."""

    value: float
    checksum: object = None
    also: Mapping[str, float] = field(default_factory=dict)


Subject = Callable[[], Measured]


@dataclass(frozen=True)
class Case:
    """One piece of work that every subject does in its own way; `ours` is the first."""

    name: str
    unit: str
    subjects: Mapping[str, Subject]
    goals: Mapping[str, float] = field(default_factory=dict)
    """How many times better than a peer `ours` shall be."""
    bound: float | None = None
    """What `ours` shall reach by itself, or stay below where lower is better."""
    lower_is_better: bool = False
    noise: float = NOISE


@dataclass
class Result:
    """The figures of every subject of a case, one per round."""

    part: str
    case: Case
    values: dict[str, list[float]] = field(default_factory=dict)
    also: dict[str, list[float]] = field(default_factory=dict)

    @property
    def peers(self) -> list[str]:
        """Every subject but ours."""
        return [name for name in self.values if name != "ours"]

    def median(self, subject: str) -> float:
        """The middle figure."""
        return statistics.median(self.values[subject])

    def ratio(self, peer: str) -> float:
        """How many times better ours is than a peer."""
        ratio = self.median("ours") / self.median(peer)
        return 1 / ratio if self.case.lower_is_better else ratio

    def missed(self) -> list[str]:
        """The goals that were not reached; empty if all were."""
        found = [peer for peer, goal in self.case.goals.items() if self.ratio(peer) < goal]
        if self.case.bound is not None:
            over = self.median("ours") - self.case.bound
            if (over > 0) if self.case.lower_is_better else (over < 0):
                found.append("ours")
        return found


def stopwatch(work: Callable[[], tuple[float, object]]) -> Measured:
    """Time a function that returns what it did and a checksum: the figure is its rate."""
    gc.collect()
    started = time.perf_counter()
    amount, checksum = work()
    return Measured(amount / (time.perf_counter() - started), checksum)


def milliseconds(work: Callable[[], object], count: int) -> float:
    """The middle of the durations of some calls."""
    gc.collect()

    def one() -> float:
        started = time.perf_counter()
        work()
        return (time.perf_counter() - started) * 1000

    return statistics.median(one() for _ in range(count))


def median_of(measured: Sequence[Measured]) -> Measured:
    """The middle of several measurements of one kind."""
    return replace(measured[0], value=statistics.median(m.value for m in measured))


def run(part: str, cases: Sequence[Case], rounds: int, warm_ups: int = 0) -> list[Result]:
    """Run every case, its subjects taking turns; the rounds that warm up are not counted."""
    return [_run_case(part, case, rounds, warm_ups) for case in cases]


def _run_case(part: str, case: Case, rounds: int, warm_ups: int) -> Result:
    print(f"  {part}: {case.name} …", end="", file=sys.stderr, flush=True)
    started = time.monotonic()
    for _ in range(warm_ups):
        for subject in case.subjects.values():
            subject()
    result = Result(part, case, {name: [] for name in case.subjects})
    for _ in range(rounds):
        checksums: dict[str, Any] = {}
        for name, subject in case.subjects.items():
            measured = subject()
            result.values[name].append(measured.value)
            if measured.checksum is not None:
                checksums[name] = measured.checksum
            if name == "ours":
                for what, value in measured.also.items():
                    result.also.setdefault(what, []).append(value)
        if len(set(checksums.values())) > 1:
            raise SystemExit(f"{case.name}: the subjects saw different data: {checksums}")
    figures = ", ".join(f"{name} {shown(result.median(name), case.unit)}" for name in result.values)
    print(f" {figures} ({time.monotonic() - started:.0f} s)", file=sys.stderr, flush=True)
    return result
