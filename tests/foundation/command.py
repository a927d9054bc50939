"""Running the console script as a person would, in its own process."""

from __future__ import annotations

import subprocess
import sys

_HEARS_INTERRUPTS = "import signal; signal.signal(2, signal.default_int_handler); "
_CODE = "from fluss_orchestrate.cli.entry import main; main()"


def run(
    *arguments: str, env: dict[str, str] | None = None, before: str = ""
) -> subprocess.CompletedProcess[str]:
    """Run `fluss-orchestrate` with `arguments`; `before` is code that runs ahead of it."""
    command = [sys.executable, "-c", f"{before}\n{_CODE}", *arguments]
    return subprocess.run(command, capture_output=True, text=True, env=env)


def start(*arguments: str) -> subprocess.Popen[str]:
    """The same, not waited for, and interruptible even where these tests run in the background.

    A shell lets its background jobs ignore SIGINT, which they hand down.
    """
    command = [sys.executable, "-c", _HEARS_INTERRUPTS + _CODE, *arguments]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
