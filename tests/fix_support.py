"""The marker behind the support matrix: what a test proves, and how it went when it was last run.

`@pytest.mark.supports("Admin.createTable", ...)` names rows of `tests/support_rows.py`. The outcome
of every marked test is kept in pytest's cache, where `python -m tests.support_matrix` finds it.
"""

from __future__ import annotations

from collections.abc import Generator

import pytest

from tests.support_rows import MARKER, OUTCOMES_KEY, rows_of

SUPPORTS = "supports"
"""The property by which a report says that its test is marked."""


class Outcomes:
    """Per marked test whether all of its cases passed in this run."""

    def __init__(self) -> None:
        self.tests: dict[str, str] = {}

    def note(self, report: pytest.TestReport) -> None:
        """Remember the worst outcome of a test's cases and phases."""
        name = report.nodeid.partition("[")[0]
        before = self.tests.get(name, "passed")
        self.tests[name] = before if report.outcome == "passed" else report.outcome


_OUTCOMES = pytest.StashKey[Outcomes]()


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line(
        "markers", f"{MARKER}(*rows): what of the support matrix this test proves"
    )
    config.stash[_OUTCOMES] = Outcomes()
    if not hasattr(config, "workerinput"):
        config.pluginmanager.register(Notes(config))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    if rows_of(item):
        report.user_properties.append((SUPPORTS, True))
    return report


class Notes:
    """Hears every report where the run is controlled, also those of parallel workers."""

    def __init__(self, config: pytest.Config) -> None:
        self._config = config

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if (SUPPORTS, True) in map(tuple, report.user_properties):
            self._config.stash[_OUTCOMES].note(report)

    def pytest_sessionfinish(self) -> None:
        cache = getattr(self._config, "cache", None)
        ours = self._config.stash[_OUTCOMES].tests
        if cache is not None and ours:
            cache.set(OUTCOMES_KEY, {**cache.get(OUTCOMES_KEY, {}), **ours})
