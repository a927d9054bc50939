"""Writes the checkpoint of a large table as an earlier release records it, into a SQL store.

Run it with the code of that release on the path:

    PYTHONPATH=<checkout of the release> python make_wide_checkpoint.py FILE

The checkpoint has 320 places: two commits, a reset, a commit in the new generation and a plan that
is pending. The test unpacks the file from `wide_checkpoint.db.gz`.
"""

from __future__ import annotations

import sys

from fluss_client import TablePath
from fluss_orchestrate.core.checkpoints import CheckpointStore, SqlCheckpointStore, TablePosition
from fluss_orchestrate.core.identity import TableIdentity
from fluss_orchestrate.core.plan import BucketRange, ScanPlan
from fluss_orchestrate.core.receipts import Receipt

NAME = "wide"
TABLE = TableIdentity("shop", TablePath("db", "events"), 7, 1_700_000_000_000)
MOVED = 5
TIME = 1_700_000_000_123


def position(at: int, commits: int = 0) -> TablePosition:
    """The position that was set to `at`, after some commits."""
    offsets = {(p, b): at * (b + 1) for p in range(20) for b in range(16)}
    times = {(3, 1): 1_700_000_000_000 + at}
    if commits:
        times = {(3, 0): TIME}
    for bucket in range(2):
        offsets[3, bucket] += commits * MOVED
    return TablePosition(TABLE, dict(offsets), dict(times), {p: f"d{p}" for p in range(20)}, 4, 19)


def plan(store: CheckpointStore, run_key: str) -> ScanPlan:
    head = store.head(NAME)
    begins = position(1) if head is None or head.state.position is None else head.state.position
    starts = [begins.offsets[3, b] for b in range(2)]
    ranges = tuple(BucketRange(3, "d3", b, at, at + MOVED) for b, at in enumerate(starts))
    made = store.try_plan(head, ScanPlan(NAME, run_key, TABLE, 1, ("id",), (), ranges), begins)
    assert made is not None
    return made


def commit(store: CheckpointStore, made: ScanPlan) -> None:
    receipt = Receipt("increment", TABLE, made.run_key, made.ranges, 10, plan_id=made.plan_id)
    store.commit(made, receipt, {(3, 0): TIME})


def main(file: str) -> None:
    store = SqlCheckpointStore(f"sqlite:///{file}")
    for number in range(2):
        commit(store, plan(store, f"run-{number}"))
    store.reset(NAME, position(9), "by the earlier release")
    commit(store, plan(store, "run-2"))
    plan(store, "run-3")
    store.close()


if __name__ == "__main__":
    main(sys.argv[1])
