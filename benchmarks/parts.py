"""The parts of a run. Each is a package whose `cases` sets up, gives its cases, and tears down.

A server that has just started compiles what it runs, on the cores that are measured, and memory
that a process touches first takes long on a virtual machine. Both hit subjects differently, so the
cases of `WARMED` run once before they count.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager

from benchmarks.harness import Case, Result, run
from benchmarks.place import Place, Scale

PARTS = (
    "client",
    "embedded",
    "incremental",
    "spark",
    "orchestration",
    "growth",
    "tiering",
    "keys",
    "mirrors",
    "lake_keys",
    "storage",
)

WARMED = ("client", "embedded", "keys", "storage")

OpenCases = Callable[[Place], AbstractContextManager[Sequence[Case]]]


def run_part(name: str, place: Place, rounds: int, only: str = "") -> list[Result]:
    """Run a part's cases whose name holds the text `only`."""
    # A part is imported when it runs: each needs packages that the others do not.
    open_cases: OpenCases = importlib.import_module(f"benchmarks.{name}.cases").cases
    with open_cases(place) as cases:
        chosen = [case for case in cases if only in case.name]
        warm_ups = int(name in WARMED and place.scale is not Scale.TINY)
        return run(name, chosen, rounds, warm_ups)
