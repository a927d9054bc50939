"""What fault tests did and found, one JSON object per line: docs/reliability.md is made of these.

A test calls `record_fault(...)` when it is done. The record is written before it is judged, so
that the table shows a fault that lost rows as well as one that did not.
"""

from __future__ import annotations

import datetime
import json
import os
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "reliability.md"
RESULTS = Path(__file__).parent / "reliability_results.jsonl"
"""The records that the page is made of."""
SEED_VARIABLE = "FLUSS_FAULT_SEED"
SEED = 20261117
KILLS_PER_PART = 25


class FaultRecorder:
    """Writes the records of one test; without a file it only judges them."""

    def __init__(self, test: str, long_form: bool, path: Path | None) -> None:
        self._test = test
        self._long_form = long_form
        self._path = path
        self._run: dict[str, str] = {}
        if path is not None:
            # What is run is what was there when it began.
            self._run["commit"] = commit_id()
            self._run["date"] = datetime.datetime.now(datetime.UTC).date().isoformat()

    def __call__(
        self,
        fault: str,
        injected: int,
        *,
        lost: int = 0,
        doubled: int = 0,
        hung: int = 0,
        seed: int | None = None,
        stages: Mapping[str, int] | None = None,
        figures: Mapping[str, str] | None = None,
    ) -> None:
        """`injected` counts the faults that struck; `stages` how many of them at each point.

        `figures` are shown on the page below the table.
        """
        record = {
            "fault": fault,
            "injected": injected,
            "lost": lost,
            "doubled": doubled,
            "hung": hung,
            "test": self._test,
            "seed": seed,
            "stages": dict(stages or {}),
            "figures": dict(figures or {}),
            "long": self._long_form,
            **self._run,
        }
        if self._path is not None:
            with self._path.open("a") as file:
                file.write(json.dumps(record) + "\n")
        assert injected > 0, f"{fault}: nothing was injected, so nothing was shown"
        assert all(record["stages"].values()), f"{fault}: a stage was never hit: {stages}"
        assert (lost, doubled, hung) == (0, 0, 0), record


def parts_of(kills: int, default: object = ()) -> list[Any]:
    """The parts of a long form with so many kills (or programs), for `parametrize`; the first is in
    every form.

    Each part has a seed of its own and reaches every stage, so that a long form that was
    interrupted goes on with the parts that it lacks.
    """
    numbers = range(-(-kills // KILLS_PER_PART))
    return [pytest.param(n, marks=pytest.mark.long if n else default) for n in numbers]


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--fault-records", metavar="PATH", help="append what fault tests found to this file"
    )


@pytest.fixture
def record_fault(request: pytest.FixtureRequest, long_form: bool) -> FaultRecorder:
    """Tells what was injected and found: `record_fault(fault, injected, lost=…, …)`."""
    given = request.config.getoption("--fault-records")
    return FaultRecorder(request.node.nodeid, long_form, Path(given) if given else None)


@pytest.fixture(scope="session")
def fault_seed() -> int:
    """The seed of everything random in these tests; the environment may set another one."""
    return int(os.environ.get(SEED_VARIABLE) or SEED)


def commit_id() -> str:
    """The commit of the tree, with a mark when the tree is not that commit.

    The page and its records do not count: every run changes them.
    """
    described = subprocess.run(
        ["git", "rev-parse", "--short=12", "HEAD"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    ours = [f":!{path.relative_to(ROOT)}" for path in (PAGE, RESULTS)]
    changed = subprocess.run(["git", "diff", "--quiet", "HEAD", "--", ".", *ours], cwd=ROOT)
    return described.stdout.strip() + ("-dirty" if changed.returncode else "")
