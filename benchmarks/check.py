"""`python -m benchmarks.check FILE`: have ratios of a run fallen below the committed baseline?

FILE is what `python -m benchmarks --json` wrote. Only ratios are compared, since they change little
from machine to machine. Each may fall by the noise that its case states, 50 % where it states
none; a case that the baseline has and the run has not counts as fallen, too.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.figures import times

BASELINE = Path(__file__).parent / "baseline.json"

Figures = Mapping[str, Any]


@dataclass(frozen=True)
class Comparison:
    """One ratio, before and now; `now` is None when the case or its peer did not run."""

    case: str
    peer: str
    before: float
    now: float | None
    noise: float

    @property
    def fell(self) -> bool:
        """Whether it is worse by more than noise."""
        return self.now is None or self.now < self.before * (1 - self.noise)

    def __str__(self) -> str:
        now = "did not run" if self.now is None else times(self.now)
        mark = f"  FELL by more than {self.noise:.0%}" if self.fell else ""
        return f"{self.case}, beside {self.peer}: {times(self.before)} → {now}{mark}"


def compare(baseline: Figures, run: Figures) -> Iterator[Comparison]:
    """Every ratio of the baseline beside that of the run."""
    for name, case in baseline["cases"].items():
        found = run["cases"].get(name, {"ratios": {}})["ratios"]
        for peer, before in case["ratios"].items():
            yield Comparison(name, peer, before, found.get(peer), case["noise"])


def main(given: list[str] | None = None) -> None:
    """Print every ratio; exit with 1 if one fell."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.check", description=__doc__)
    parser.add_argument("run", type=Path, metavar="FILE")
    parser.add_argument("--baseline", type=Path, default=BASELINE)
    options = parser.parse_args(given)
    found = list(compare(_read(options.baseline), _read(options.run)))
    for comparison in found:
        print(comparison)
    fallen = sum(comparison.fell for comparison in found)
    if fallen:
        raise SystemExit(f"{fallen} of {len(found)} ratios fell: profile them, or run again alone")
    print(f"none of {len(found)} ratios fell by more than noise")


def _read(file: Path) -> Figures:
    found: Figures = json.loads(file.read_text())
    return found


if __name__ == "__main__":
    main()
