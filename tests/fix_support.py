"""The marker behind the support matrix: what a test proves, and how it went in this run.

`@pytest.mark.supports("Admin.createTable", ...)` names rows of `tests/support_matrix.py`. With
`--support-results FILE` the outcome of every marked test is written there.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest

MARKER = "supports"


class Outcomes:
    """Per marked test: which rows it proves, and whether it passed."""

    def __init__(self) -> None:
        self.tests: dict[str, dict[str, object]] = {}

    def note(self, item: pytest.Item, report: pytest.TestReport) -> None:
        rows = rows_of(item)
        if not rows:
            return
        name = item.nodeid.partition("[")[0]
        known = self.tests.setdefault(name, {"rows": rows, "outcome": "passed"})
        if report.outcome != "passed":
            known["outcome"] = report.outcome


_OUTCOMES = pytest.StashKey[Outcomes]()


def rows_of(item: pytest.Item) -> list[str]:
    """The rows of the matrix that a test proves."""
    return sorted({str(row) for mark in item.iter_markers(MARKER) for row in mark.args})


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--support-results", type=Path, help="write the outcomes of marked tests here")


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line(
        "markers", f"{MARKER}(*rows): what of the support matrix this test proves"
    )
    config.stash[_OUTCOMES] = Outcomes()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> object:
    report = yield
    item.config.stash[_OUTCOMES].note(item, report)
    return report


def pytest_unconfigure(config: pytest.Config) -> None:
    target = config.getoption("--support-results", default=None)
    if target is not None:
        text = json.dumps(config.stash[_OUTCOMES].tests, indent=1, sort_keys=True)
        Path(target).write_text(text + "\n")
