"""At the end of a run: which blocks of the pages were parsed but could not run here, and why.

A plugin of its own, because with several workers only the process that starts them prints.
"""

from __future__ import annotations

import pytest

from tests.docs.pages import ELSEWHERE, page_paths, read_page

TESTS = "tests/docs/test_snippets.py"


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    reports = (r for kind in terminalreporter.stats.values() for r in kind)
    if not any(str(getattr(report, "nodeid", "")).startswith(TESTS) for report in reports):
        return
    short = not terminalreporter.config.getoption("--long")
    terminalreporter.section("blocks of the pages that were parsed, not run")
    for path in [*page_paths(), *sorted(ELSEWHERE)]:
        for block in read_page(path).blocks:
            reason = block.no_run or (block.long if short else None)
            if reason:
                later = "" if block.no_run else " (the long form runs it)"
                terminalreporter.line(f"{block}: {reason}{later}")
