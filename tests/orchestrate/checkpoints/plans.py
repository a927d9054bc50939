"""Plans and positions that no table stands behind: stores do not look at tables."""

from __future__ import annotations

from fluss_client.model.table import TablePath
from fluss_orchestrate.core.checkpoints import CheckpointStore, TablePosition
from fluss_orchestrate.core.identity import TableIdentity
from fluss_orchestrate.core.plan import BucketRange, Place, ScanPlan
from fluss_orchestrate.core.receipts import Receipt

TABLE = TableIdentity("default", TablePath("shop", "orders"), 7, 1_700_000_000_000)


STILL: dict[Place, int] = {(None, bucket): bucket * 7919 for bucket in range(1000, 1400)}
"""Places that no plan moves, as many as make a store record changes of a position."""


def position(offset: int = 0, buckets: int = 2, *, wide: bool = False) -> TablePosition:
    moving: dict[Place, int] = {(None, b): offset for b in range(buckets)}
    return TablePosition(TABLE, {**moving, **STILL} if wide else moving)


def plan(name: str, run_key: str, start: int, stop: int, buckets: int = 2) -> ScanPlan:
    ranges = tuple(BucketRange(None, None, b, start, stop) for b in range(buckets))
    return ScanPlan(name, run_key, TABLE, 1, ("id",), (), ranges if stop > start else ())


def receipt(of: ScanPlan) -> Receipt:
    return Receipt("increment", TABLE, of.run_key, of.ranges, of.offsets, plan_id=of.plan_id)


def take(
    store: CheckpointStore, name: str, run_key: str, size: int = 5, *, wide: bool = False
) -> ScanPlan:
    """Plan the next `size` offsets of each bucket upon the head as it is."""
    head = store.head(name)
    begins = (
        position(wide=wide) if head is None or head.state.position is None else head.state.position
    )
    start = begins.offsets[None, 0]
    made = store.try_plan(head, plan(name, run_key, start, start + size), begins)
    assert made is not None
    return made


def step(
    store: CheckpointStore, name: str, run_key: str, size: int = 5, *, wide: bool = False
) -> ScanPlan:
    """Plan and commit."""
    made = take(store, name, run_key, size, wide=wide)
    store.commit(made, receipt(made))
    return made
