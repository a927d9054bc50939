"""Writes the outcome of each test into a file as soon as it is known: a plugin of pytest.

`tests/airflow_releases.py` reads the file, also if the run was interrupted.
"""

from __future__ import annotations

import json
import os
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

VARIABLE = "FLUSS_OUTCOMES"


def _write(**line: Any) -> None:
    with Path(os.environ[VARIABLE]).open("a") as file:
        file.write(json.dumps(line) + "\n")


def pytest_collection_finish(session: pytest.Session) -> None:
    for name, count in Counter(item.path.name for item in session.items).items():
        _write(file=name, selected=count)


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    if report.when == "call" or not report.passed:
        path, _, test = report.nodeid.partition("::")
        reason = report.longrepr[2] if isinstance(report.longrepr, tuple) else report.longreprtext
        said = reason.strip().splitlines()[-1] if reason else ""
        _write(file=Path(path).name, test=test, outcome=report.outcome, why=said[:200])
