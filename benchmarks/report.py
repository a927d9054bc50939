"""The results as a table for people and as JSON for machines."""

from __future__ import annotations

import json
import os
import platform
import statistics
import subprocess
from collections.abc import Iterable, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

from benchmarks.figures import shown, times
from benchmarks.harness import Result
from benchmarks.place import Scale
from fluss_client.testing.jars import FLUSS_VERSION

HEAD = ("part", "case", "ours", "beside: figure → ours is", "goal", "")
PACKAGES = ("fluss-orchestrate", "pyfluss", "pyarrow", "numpy", "pyspark", "pyiceberg", "duckdb")


def table(results: Sequence[Result]) -> str:
    """Medians, ratios and goals as Markdown; a goal that was missed is marked."""
    rows = [HEAD, *(_row(result) for result in results)]
    widths = [max(len(row[at]) for row in rows) for at in range(len(HEAD))]
    lines = [_line(row, widths) for row in rows]
    lines.insert(1, _line(["-" * width for width in widths], widths))
    return "\n".join(lines)


def _line(cells: Sequence[str], widths: Sequence[int]) -> str:
    padded = (cell.ljust(width) for cell, width in zip(cells, widths, strict=True))
    return f"| {' | '.join(padded)} |"


def _row(result: Result) -> tuple[str, ...]:
    case = result.case
    beside = [
        f"{peer} {shown(result.median(peer), case.unit)} → {times(result.ratio(peer))}"
        for peer in result.peers
    ]
    beside += [f"{what} {_plain(statistics.median(v))}" for what, v in result.also.items()]
    missed = result.missed()
    return (
        result.part,
        case.name,
        shown(result.median("ours"), case.unit),
        "; ".join(beside),
        _goal(result),
        "missed" if missed else "met" if case.goals or case.bound is not None else "",
    )


def _goal(result: Result) -> str:
    case = result.case
    goals = [f"≥ {times(goal)} {peer}" for peer, goal in case.goals.items()]
    if case.bound is not None:
        goals.append(f"{'≤' if case.lower_is_better else '≥'} {shown(case.bound, case.unit)}")
    return ", ".join(goals)


def _plain(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.2f}"


def as_json(results: Iterable[Result], facts: dict[str, Any]) -> str:
    """The same figures for machines; cases are keyed `part: name`."""
    cases = {
        f"{r.part}: {r.case.name}": {
            "unit": r.case.unit,
            "lower_is_better": r.case.lower_is_better,
            "goals": dict(r.case.goals),
            "bound": r.case.bound,
            "noise": r.case.noise,
            "values": r.values,
            "medians": {name: r.median(name) for name in r.values},
            "ratios": {peer: r.ratio(peer) for peer in r.peers},
            "also": r.also,
            "missed": r.missed(),
        }
        for r in results
    }
    return json.dumps({"facts": facts, "cases": cases}, indent=1) + "\n"


def facts(rounds: int, scale: Scale, keys: int = 0) -> dict[str, Any]:
    """What the figures were taken with."""
    return {
        "commit": _commit(),
        "scale": str(scale),
        **({"keys": keys} if keys else {}),
        "rounds": rounds,
        "cores": os.cpu_count(),
        "processor": _processor(),
        "system": f"{platform.system()} {platform.release()}",
        "python": platform.python_version(),
        "fluss": FLUSS_VERSION,
        "versions": {name: version(name) for name in PACKAGES},
    }


def _commit() -> str:
    asked = subprocess.run(
        ["git", "describe", "--always", "--dirty"],
        cwd=Path(__file__).parent,
        capture_output=True,
        text=True,
        check=False,
    )
    return asked.stdout.strip()


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor()
    return next((line.split(":")[1].strip() for line in lines if "model name" in line), "")
