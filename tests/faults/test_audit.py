"""An audit that looked at nothing is no audit, and a licence that nobody knows is noticed."""

from __future__ import annotations

from typing import Any

import pytest

from tests.faults.audit import verdict
from tests.faults.licences import declared, pinned, refused
from tests.foundation.environments import ROOT

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


def test_licences_that_are_not_permissive_are_refused_unless_reviewed() -> None:
    licences = [
        ("a", "Apache-2.0 OR MIT"),
        ("b", ""),
        ("c", "GNU General Public License v3 (GPLv3)"),
        ("d", "MIT License / GNU General Public License (GPL)"),
        ("psycopg2-binary", "LGPL with exceptions"),
    ]
    assert [line.partition(":")[0] for line in refused(licences)] == ["b", "c", "d"]


def test_the_licences_of_all_locked_packages_are_known() -> None:
    names = pinned((ROOT / "requirements" / "image.txt").read_text())
    assert len(names) > 100
    assert refused((name, declared(name)) for name in names) == []
