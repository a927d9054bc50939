"""Writes the intervals of a large table as an earlier release records them, into a SQL store.

Run it with the code of that release on the path:

    PYTHONPATH=<checkout of the release> python make_wide_interval.py FILE

The table has 320 places. There are the boundaries of two times, and the interval between them,
whose plan is pending. All three have whole positions. The test unpacks the file from
`wide_interval.db.gz`.
"""

from __future__ import annotations

import sys

from fluss_client import TablePath
from fluss_orchestrate.core.checkpoints import SqlCheckpointStore, TablePosition
from fluss_orchestrate.core.identity import TableIdentity
from fluss_orchestrate.core.plan import BucketRange, ScanPlan

TABLE = TableIdentity("shop", TablePath("db", "events"), 7, 1_700_000_000_000)
MOVED = 5


def boundary(number: int) -> str:
    """The name of the boundary of a time."""
    return f"\x1fat\x1fwide\x1f{number}"


def position(number: int) -> TablePosition:
    """The position at a time: two places have moved since the time before."""
    offsets = {(p, b): 9 * (b + 1) for p in range(20) for b in range(16)}
    for bucket in range(2):
        offsets[3, bucket] += number * MOVED
    return TablePosition(TABLE, dict(offsets), {}, {p: f"d{p}" for p in range(20)}, 4, 19)


def plan(number: int) -> ScanPlan:
    """The plan of the interval that ends at a time."""
    begins, ends = position(number - 1), position(number)
    ranges = (BucketRange(3, "d3", b, begins.offsets[3, b], ends.offsets[3, b]) for b in range(2))
    name = f"wide/[{number - 1},{number})"
    return ScanPlan(name, f"run-{number}", TABLE, 1, ("id",), (), tuple(ranges))


def main(file: str) -> None:
    store = SqlCheckpointStore(f"sqlite:///{file}")
    for number in range(2):
        store.set_first(boundary(number), position(number), {"at_ms": number, "lost": []})
    store.try_plan(None, plan(1), position(0))
    store.close()


if __name__ == "__main__":
    main(sys.argv[1])
