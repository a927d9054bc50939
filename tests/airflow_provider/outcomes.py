"""Writes the outcome of each test into a file as soon as it is known: a plugin of pytest.

`tests/airflow_releases.py` reads the file, also if the run was interrupted.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from tests.airflow_provider.capabilities import is_for_this_release

VARIABLE = "FLUSS_OUTCOMES"


def _write(**line: Any) -> None:
    with Path(os.environ[VARIABLE]).open("a") as file:
        file.write(json.dumps(line) + "\n")


def pytest_deselected(items: list[pytest.Item]) -> None:
    # What belongs to another release, or to the long form, is no test of this one.
    _selected([i for i in items if not i.get_closest_marker("long") and is_for_this_release(i)])


def pytest_collection_finish(session: pytest.Session) -> None:
    _selected(session.items)


def _selected(items: list[pytest.Item]) -> None:
    selected: dict[str, list[str]] = {}
    for item in items:
        selected.setdefault(item.path.name, []).append(item.nodeid.partition("::")[2])
    for name, tests in selected.items():
        _write(file=name, selected=tests)


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    if report.when == "call" or not report.passed:
        path, _, test = report.nodeid.partition("::")
        reason = report.longrepr[2] if isinstance(report.longrepr, tuple) else report.longreprtext
        said = reason.strip().splitlines()[-1] if reason else ""
        _write(file=Path(path).name, test=test, outcome=report.outcome, why=said[:200])
