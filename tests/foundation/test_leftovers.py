"""The check that tests leave no process behind sees orphans, and not what is shared."""

from __future__ import annotations

import os
import signal
import subprocess
from pathlib import Path

from tests.contract.tables import eventually
from tests.leftovers import MARK, leftovers


def test_an_orphan_is_found_until_it_is_gone() -> None:
    mark = "an orphan of this test"
    shell = ["bash", "-c", "sleep 300 >&- 2>&- & echo $!"]
    told = subprocess.run(
        shell, env={**os.environ, MARK: mark}, capture_output=True, text=True, check=True
    )
    pid = int(told.stdout)
    try:
        # The shell's child has no words of its own before it becomes `sleep`.
        words = eventually(Path(f"/proc/{pid}/cmdline").read_bytes, b"sleep\x00300\x00".__eq__)
        assert words == b"sleep\x00300\x00"
        assert leftovers(mark, "/shared") == [f"{pid}: sleep 300"]
        assert leftovers(mark, "sleep 300") == []
        assert leftovers("another mark", "/shared") == []
    finally:
        os.kill(pid, signal.SIGKILL)
