"""`python -m benchmarks.growth.fit FILE ...`: models of the curves, from what `--json` wrote.

Each curve is taken for `a + b n`, fitted by least squares of the relative errors, so that small
sizes count as much as large ones. Prints a Markdown table: a, b, how far the worst point is from
the line, and what the line says for a million.
"""

from __future__ import annotations

import json
import re
import statistics
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

NAME = re.compile(r"^growth: (?P<what>plan|.*sensors wait).*?(?P<where>embedded|cluster)")
COUNT = re.compile(r"([\d,]+) (positions|partitions|sensors)")
FAR = 1_000_000

Point = tuple[float, float]


def fitted(points: Sequence[Point]) -> tuple[float, float]:
    """Return a and b of `a + b n`, with the smallest sum of squares of the relative errors."""
    s0 = sum(1 / y**2 for _, y in points)
    s1 = sum(x / y**2 for x, y in points)
    s2 = sum(x**2 / y**2 for x, y in points)
    t0, t1 = sum(1 / y for _, y in points), sum(x / y for x, y in points)
    determinant = s0 * s2 - s1 * s1
    return (t0 * s2 - t1 * s1) / determinant, (t1 * s0 - t0 * s1) / determinant


def worst(points: Sequence[Point], a: float, b: float) -> float:
    """Return the largest relative distance of a point from the line."""
    return max(abs(a + b * x - y) / y for x, y in points)


def curves(cases: Mapping[str, Any]) -> dict[tuple[str, str, str], list[Point]]:
    """Return the points of each curve: by what grows, where, and what was measured."""
    found: dict[tuple[str, str, str], list[Point]] = {}
    for name, case in cases.items():
        size = COUNT.search(name)
        which = NAME.match(name)
        if size is None or which is None:
            continue
        count = float(size[1].replace(",", ""))
        first = f"plan {case['unit']}" if which["what"] == "plan" else f"CPU {case['unit']}"
        figures = {first: case["values"]["ours"], **case["also"]}
        for what, values in figures.items():
            key = (size[2], which["where"], what)
            found.setdefault(key, []).append((count, statistics.median(values)))
    return {key: sorted(points) for key, points in found.items() if len(points) > 2}


def main(files: Sequence[str]) -> None:
    """Print the models of all curves."""
    cases: dict[str, Any] = {}
    for file in files:
        cases |= json.loads(Path(file).read_text())["cases"]
    print("| grows with | where | what | points | a | b per 1,000 | worst | at 1,000,000 |")
    print("|---|---|---|---|---|---|---|---|")
    for (grows, where, what), points in curves(cases).items():
        a, b = fitted(points)
        shown = ", ".join(f"{x:,.0f}: {y:,.3g}" for x, y in points)
        line = f"{a:.3g} | {b * 1000:.3g} | {worst(points, a, b):.0%} | {a + b * FAR:,.0f}"
        print(f"| {grows} | {where} | {what} | {shown} | {line} |")


if __name__ == "__main__":
    main(sys.argv[1:])
