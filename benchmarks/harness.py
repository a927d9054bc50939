"""Cases, rounds, medians and ratios.

Subjects of a case take turns within each round, so that what the machine does meanwhile hits all
of them. A timed region ends when every write is acknowledged, or when every row was read; the
checksums that subjects return must agree.
"""

from __future__ import annotations

import gc
import json
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any


@dataclass(frozen=True)
class Timed:
    """One measured run: how much was done, in which time, and what it summed up to."""

    amount: float
    seconds: float
    checksum: object = None


Subject = Callable[[], Timed]


@dataclass(frozen=True)
class Case:
    """One piece of work that every subject does in its own way."""

    name: str
    unit: str
    subjects: dict[str, Subject]
    goal: str = ""
    """What `ours` shall reach, such as `2.2x pyfluss`."""


@dataclass
class Result:
    """The rates of every subject of a case, one per round."""

    case: Case
    rates: dict[str, list[float]] = field(default_factory=dict)

    def median(self, subject: str) -> float:
        """The middle rate."""
        return statistics.median(self.rates[subject])

    def ratio(self, peer: str) -> float:
        """Ours over a peer's."""
        return self.median("ours") / self.median(peer)


def stopwatch(work: Callable[[], tuple[float, object]]) -> Timed:
    """Time a function that returns what it did and a checksum."""
    gc.collect()
    started = time.perf_counter()
    amount, checksum = work()
    return Timed(amount, time.perf_counter() - started, checksum)


def run(cases: Sequence[Case], rounds: int) -> list[Result]:
    """Run every case, its subjects taking turns."""
    results = []
    for case in cases:
        print(f"  {case.name} …", end="", file=sys.stderr, flush=True)
        result = Result(case, {name: [] for name in case.subjects})
        for _ in range(rounds):
            checksums = {}
            for name, subject in case.subjects.items():
                timed = subject()
                result.rates[name].append(timed.amount / timed.seconds)
                if timed.checksum is not None:
                    checksums[name] = timed.checksum
            if len(set(checksums.values())) > 1:
                raise SystemExit(f"{case.name}: the subjects read different data: {checksums}")
        shown = ", ".join(f"{name} {_rate(result.median(name))}" for name in case.subjects)
        print(f" {shown} {case.unit}", file=sys.stderr, flush=True)
        results.append(result)
    return results


def report(results: Sequence[Result]) -> str:
    """A table of medians and ratios."""
    lines = [
        f"{'case':<34}{'unit':>8}{'ours':>12}  ratios (ours / peer), goal",
        "-" * 92,
    ]
    for result in results:
        peers = [name for name in result.case.subjects if name != "ours"]
        ratios = "  ".join(
            f"{peer} {_rate(result.median(peer))} → {result.ratio(peer):.2f}x" for peer in peers
        )
        goal = f"  [{result.case.goal}]" if result.case.goal else ""
        ours = _rate(result.median("ours"))
        lines.append(f"{result.case.name:<34}{result.case.unit:>8}{ours:>12}  {ratios}{goal}")
    return "\n".join(lines)


def write_json(results: Sequence[Result], file: Path, facts: dict[str, Any]) -> None:
    """The same figures for machines."""
    value = {
        "facts": facts,
        "cases": {
            r.case.name: {
                "unit": r.case.unit,
                "goal": r.case.goal,
                "rates": r.rates,
                "medians": {name: r.median(name) for name in r.rates},
                "ratios": {name: r.ratio(name) for name in r.rates if name != "ours"},
            }
            for r in results
        },
    }
    file.write_text(json.dumps(value, indent=1) + "\n")


def _rate(rate: float) -> str:
    for limit, suffix in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if rate >= limit:
            return f"{rate / limit:.2f}{suffix}"
    return f"{rate:.1f}"
