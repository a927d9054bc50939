"""Loads that kill themselves, one forked process each.

    python -m tests.orchestrate.sinks.load_crasher

Reads one JSON object per line, as `tests/orchestrate/incremental/crasher.py` does: {"config",
"table", "run_key", "load", "days", "stage", "seed"}. The rows of a load follow from its number.
"""

from __future__ import annotations

import random
from typing import Any

import pyarrow as pa

from fluss_client import Config, FlussConnection
from fluss_orchestrate import load_rows
from fluss_orchestrate.core.loading import sending, units
from tests.orchestrate.incremental import crasher
from tests.orchestrate.mirror_sql.mirror_crasher import dying_before

STAGES = ("before a block is sent", "after a block is sent", "before the load is finished")
ROWS = 240
"""Seven units of 35 rows, in three blocks."""
FIELDS = pa.schema(
    [
        pa.field("id", pa.int64(), nullable=False),
        pa.field("day", pa.string(), nullable=False),
        pa.field("text", pa.string()),
    ]
)


def rows_of(load: int, days: list[str]) -> pa.Table:
    """The rows of a load, in all of some partitions."""
    ids = range(load * ROWS, (load + 1) * ROWS)
    columns = {
        "id": list(ids),
        "day": [days[n % len(days)] for n in ids],
        "text": [f"row {n}" for n in ids],
    }
    return pa.table(columns, schema=FIELDS)


def arm(stage: str, chance: random.Random) -> None:
    """Let this process die at a stage: before or after the first or second block, or at the end."""
    skip = chance.randrange(2)
    if stage == "before a block is sent":
        dying_before(sending.Pins, "block", skip=skip)
    elif stage == "after a block is sent":
        dying_before(sending.PinnedLoad, "_report", skip=skip)
    elif stage == "before the load is finished":
        dying_before(sending.Pins, "finish")


def job(spec: dict[str, Any]) -> None:
    """Load the rows once, and die at a stage."""
    # So that a few rows have many units.
    units.BATCH_ROWS_MAX, sending.BLOCK_UNITS = 7, 3
    arm(spec["stage"], random.Random(spec["seed"]))
    with FlussConnection.create(Config(spec["config"])).result() as connection:
        crasher.until_placed(
            lambda: load_rows(
                connection,
                spec["table"],
                rows_of(spec["load"], spec["days"]),
                f"load-{spec['load']}",
                create_partitions=True,
                ledger_replicas=1,
            )
        )


if __name__ == "__main__":
    crasher.main(job)
