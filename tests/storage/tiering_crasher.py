"""Tiering rounds that kill themselves, one forked process each.

    python -m tests.storage.tiering_crasher

Reads one JSON object per line, as `tests/orchestrate/incremental/crasher.py` does: {"config",
"table", "run_key", "stage", "seed"}. The environment has the keys of the lake.
"""

from __future__ import annotations

import random
import threading
from typing import Any

from fluss_client import Config, FlussConnection
from fluss_orchestrate.core.lake import tiering
from fluss_orchestrate.core.lake.known_lake import KnownLake
from tests.orchestrate.incremental import crasher
from tests.orchestrate.incremental.crasher import die

STAGES = (
    "while files are written",
    "before the commit",
    "between the commits",
    "after the commits",
)
WRITE_MS_MAX = 400


def arm(stage: str, chance: random.Random) -> None:
    """Let this process die at a stage."""

    def dying(*_: Any, **__: Any) -> None:
        die()

    if stage == "while files are written":
        threading.Timer(chance.uniform(0, WRITE_MS_MAX) / 1000, die).start()
    elif stage == "before the commit":
        # What a log table's round commits, and what a key table's does.
        tiering.commit_append = tiering.commit_row_delta = dying  # type: ignore[assignment]
    elif stage == "between the commits":
        KnownLake.tell = dying  # type: ignore[method-assign]
    elif stage == "after the commits":
        real = KnownLake.tell

        def tell(*args: Any, **more: Any) -> None:
            real(*args, **more)
            die()

        KnownLake.tell = tell  # type: ignore[method-assign]


def job(spec: dict[str, Any]) -> None:
    """One round."""
    arm(spec["stage"], random.Random(spec["seed"]))
    with FlussConnection.create(Config(spec["config"])).result() as connection:
        tiering.tier_table(connection, spec["table"], allow_tiering=True)


if __name__ == "__main__":
    crasher.main(job)
