"""Work in a process of its own: for memory at peak, a core of its own, or a fresh start."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any


def in_child(module: str, *arguments: str) -> dict[str, Any]:
    """Run `python -m module` and read the JSON object on its last line."""
    done = subprocess.run(
        [sys.executable, "-m", module, *arguments], capture_output=True, text=True, check=False
    )
    if done.returncode:
        what = f"{module} {' '.join(arguments)} ended with {done.returncode}"
        raise SystemExit(f"{what}:\n{done.stderr[-2000:]}")
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found
