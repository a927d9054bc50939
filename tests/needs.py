"""What to do when this machine lacks something that a test needs.

At the end of a run a list says how many tests were not run for which reason, and the command that
installs what they need.
"""

from __future__ import annotations

import os
import re
import shutil
from collections import Counter
from collections.abc import Mapping
from typing import NoReturn

import pytest

PREFIX = "not on this machine: "
INSTALL = "apt-get install"


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
        for line in lines_of(reasons):
            terminalreporter.line(line)


def lines_of(reasons: Mapping[str, int]) -> list[str]:
    """What was not run, by reason, and the one command that brings all that Debian has of it."""
    lines = [
        f"{count} {'test needs' if count == 1 else 'tests need'} {reason}"
        for reason, count in sorted(reasons.items())
    ]
    packages = sorted({name for reason in reasons for name in _packages(reason)})
    if packages:
        lines.append(f"to run them all: {INSTALL} {' '.join(packages)}")
    return lines


def _packages(reason: str) -> list[str]:
    found = re.search(rf"{INSTALL} ([a-z0-9.+ -]+)", reason)
    return found[1].split() if found else []
