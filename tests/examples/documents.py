"""Reading the project's own documents: their tables and their programs."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]


def programs(document: str) -> list[str]:
    """The Python blocks of a document, in order."""
    text = (ROOT / document).read_text()
    return re.findall(r"^```python\n(.*?)^```", text, re.DOTALL | re.MULTILINE)


def table(document: str, heading: str) -> list[list[str]]:
    """The cells of the first table below a heading, without its head."""
    text = (ROOT / document).read_text()
    _, found, below = text.partition(f"\n{heading}\n")
    assert found, f"{document} has no heading '{heading}'"
    rows = []
    for line in below.splitlines():
        if line.startswith("|"):
            rows.append([cell.strip() for cell in line.strip("|").split("|")])
        elif rows:
            break
    return rows[2:]


def code_in(cell: str) -> list[str]:
    """What stands in backticks."""
    return re.findall(r"`([^`]+)`", cell)
