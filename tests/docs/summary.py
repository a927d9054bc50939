"""At the end of a run: which blocks of the pages were parsed but could not run here, and why.

A plugin of its own, because with several workers only the process that starts them prints.
"""

from __future__ import annotations

import pytest

from tests.docs.pages import page_paths, read_page

TESTS = "tests/docs/test_snippets.py"


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    reports = (r for kind in terminalreporter.stats.values() for r in kind)
    if not any(str(getattr(report, "nodeid", "")).startswith(TESTS) for report in reports):
        return
    left = [b for path in page_paths() for b in read_page(path).blocks if b.no_run]
    terminalreporter.section("blocks of the pages that were parsed, not run")
    for block in left:
        terminalreporter.line(f"{block}: {block.no_run}")
