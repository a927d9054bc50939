"""Writes the software bill of materials of the wheel: the packages that it was tested with.

    python -m tests.faults.bill_of_materials            write requirements/sbom.cdx.json
    python -m tests.faults.bill_of_materials --check    fail if the file is out of date

The bill is CycloneDX 1.6. It has what requirements/image.txt locks: the base and all extras, with
versions and declared licences. The wheel carries it in its folder `sboms`. It depends on
the locked file alone, so that two builds of one commit are the same bytes.
"""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path
from typing import Any

from tests.faults.licences import declared

ROOT = Path(__file__).parents[2]
LOCKED = ROOT / "requirements" / "image.txt"
BILL = ROOT / "requirements" / "sbom.cdx.json"
_ENTRY = re.compile(r"^([A-Za-z0-9_.-]+)==(\S+)", re.MULTILINE)


def components(locked: str) -> list[dict[str, Any]]:
    """Return the entries of the bill for a locked file of requirements."""
    found = []
    for name, version in _ENTRY.findall(locked):
        found.append(
            {
                "type": "library",
                "name": name,
                "version": version,
                "purl": f"pkg:pypi/{name}@{version}",
                "licenses": [{"license": {"name": declared(name) or "not declared"}}],
            }
        )
    return found


def bill(locked: str) -> str:
    """Return the whole bill as text."""
    content = {
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "version": 1,
        "metadata": {"component": {"type": "library", "name": "fluss-orchestrate"}},
        "components": components(locked),
    }
    return json.dumps(content, indent=1, sort_keys=True) + "\n"


def main() -> int:
    made = bill(LOCKED.read_text())
    if "--check" not in sys.argv:
        BILL.write_text(made)
        return 0
    if BILL.exists() and BILL.read_text() == made:
        return 0
    print("requirements/sbom.cdx.json is out of date: run 'make lock'")
    return 1


if __name__ == "__main__":
    sys.exit(main())
