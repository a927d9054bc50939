"""An audit that looked at nothing is no audit."""

from __future__ import annotations

from typing import Any

import pytest

from tests.faults.audit import verdict

CLEAN: dict[str, Any] = {"name": "a", "version": "1", "vulns": []}
FAULTY: dict[str, Any] = {
    "name": "b",
    "version": "2",
    "vulns": [{"id": "CVE-1", "fix_versions": ["3"]}],
}
UNKNOWN: dict[str, Any] = {"name": "c", "skip_reason": "not found"}


@pytest.mark.parametrize(
    ("packages", "status", "words"),
    [
        ([], 1, "nothing could be audited"),
        ([UNKNOWN, UNKNOWN], 1, "nothing could be audited"),
        ([CLEAN, UNKNOWN], 0, "1 packages looked at, 1 unknown"),
        ([CLEAN, FAULTY], 1, "b 2: CVE-1"),
    ],
)
def test_the_verdict(packages: list[dict[str, Any]], status: int, words: str) -> None:
    found, said = verdict({"dependencies": packages})
    assert (found, words in said) == (status, True), said
