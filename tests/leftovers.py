"""No test leaves a process behind: whatever a module's tests start is gone at its end.

Children inherit a mark in their environment, so those that have lost their parent are found too.
A part of the tests asks for this by importing the fixture into its conftest.
"""

from __future__ import annotations

import os
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.fix_cluster import clusters_folder
from tests.waiting import wait_until

MARK = "FLUSS_TEST_MARK"
PATIENCE_S = 30.0
# These end with this very process, and are its own: Python's helpers, and PySpark's gateway.
HELPERS = ("multiprocessing.resource_tracker", "multiprocessing.forkserver", "pyspark-shell")


@pytest.fixture(scope="module", autouse=True)
def no_process_is_left(request: pytest.FixtureRequest) -> Iterator[None]:
    """At the end of a module, wait a little for its processes to go; then there is none."""
    mark, before = uuid.uuid4().hex, os.environ.get(MARK)
    os.environ[MARK] = mark
    yield
    if before is None:
        del os.environ[MARK]
    else:
        os.environ[MARK] = before
    shared = str(clusters_folder(request.config))
    wait_until(
        "left behind",
        lambda: not leftovers(mark, shared),
        PATIENCE_S,
        pause_s=0.2,
        details=lambda: "\n".join(leftovers(mark, shared)),
    )


def leftovers(mark: str, shared: str) -> list[str]:
    """The processes with this mark, but for servers that many modules share."""
    found = []
    for folder in Path("/proc").iterdir():
        if not folder.name.isdigit() or int(folder.name) == os.getpid():
            continue
        try:
            if f"{MARK}={mark}".encode() not in (folder / "environ").read_bytes().split(b"\0"):
                continue
            words = (folder / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
            fields = (folder / "stat").read_text(errors="replace").rpartition(")")[2].split()
        except OSError:
            continue  # gone meanwhile, or not ours to look at
        state, parent = fields[0], int(fields[1])
        own_helper = parent == os.getpid() and any(name in words for name in HELPERS)
        if state not in "ZX" and shared not in words and not own_helper:
            found.append(f"{folder.name}: {words.strip()}")
    return found
