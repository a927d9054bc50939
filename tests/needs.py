"""What to do when this machine lacks something that a test needs.

At the end of a run a list says how many tests were not run for which reason, and the command that
installs what they need.
"""

from __future__ import annotations

import os
import shutil
from collections import Counter
from typing import NoReturn

import pytest

PREFIX = "not on this machine: "


def unavailable(what: str, command: str = "") -> NoReturn:
    """Skip the test and say why; where CI=true it fails instead, so that nothing goes untested.

    Args:
        what: What the machine lacks.
        command: The command that installs it, as Debian has it.
    """
    reason = PREFIX + what + (f" (to install it: {command})" if command else "")
    if os.environ.get("CI") == "true":
        pytest.fail(reason, pytrace=False)
    pytest.skip(reason)


def chromium() -> str:
    """A real browser's program."""
    for name in ("chromium", "chromium-browser", "google-chrome"):
        found = shutil.which(name)
        if found is not None:
            return found
    unavailable("Chromium", "apt-get install chromium")


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """List the tests that were not run, by reason."""
    reasons: Counter[str] = Counter()
    for report in terminalreporter.stats.get("skipped", []):
        reason = report.longrepr[2] if isinstance(report.longrepr, tuple) else str(report.longrepr)
        if PREFIX in reason:
            reasons[reason.partition(PREFIX)[2]] += 1
    if reasons:
        terminalreporter.section("tests that were not run here")
        for reason, count in sorted(reasons.items()):
            terminalreporter.line(f"{count} tests need {reason}")
