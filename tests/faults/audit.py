"""Looks for known faults in locked requirements with pip-audit.

    python -m tests.faults.audit requirements/dev.txt

pip-audit leaves out what its advisory source does not know and calls the rest clean, also when
nothing is left. So the report is counted here: without one package that was looked at, the audit
has failed.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

UV = Path(sys.executable).with_name("uv")
ARGUMENTS = ("--format", "json", "--progress-spinner", "off", "--require-hashes", "--disable-pip")


def verdict(report: dict[str, Any]) -> tuple[int, str]:
    """The exit status, and what to say."""
    packages = report.get("dependencies", [])
    looked_at = [p for p in packages if "skip_reason" not in p]
    skipped = [p["name"] for p in packages if "skip_reason" in p]
    faults = [
        f"{p['name']} {p['version']}: {fault['id']}, mended in {fault['fix_versions'] or 'none'}"
        for p in looked_at
        for fault in p["vulns"]
    ]
    said = f"{len(looked_at)} packages looked at, {len(skipped)} unknown to the advisory source"
    if not looked_at:
        return 1, f"{said}: nothing could be audited; run this where advisories can be reached"
    if faults:
        return 1, "\n".join([f"{said}, {len(faults)} known faults:", *faults])
    return 0, f"{said}, no known fault" + (f" (left out: {', '.join(skipped)})" if skipped else "")


def main() -> int:
    command = [str(UV), "tool", "run", "--python", sys.executable, "pip-audit", *ARGUMENTS]
    ran = subprocess.run([*command, "-r", sys.argv[1]], stdout=subprocess.PIPE, text=True)
    try:
        report = json.loads(ran.stdout)
    except ValueError:
        print("nothing could be audited: pip-audit gave no report", file=sys.stderr)
        return 1
    status, said = verdict(report)
    print(said)
    return status


if __name__ == "__main__":
    sys.exit(main())
