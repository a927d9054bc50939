"""The state that a scan keeps of its plans, so that reading a plan part by part costs no more.

A sink may read thousands of ranges one by one, several at a time. They share one check of the
plan, the position from which it began, and the commit times that the reads have seen.
"""

from __future__ import annotations

import threading
import time
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, field

from fluss_orchestrate.core.checkpoints.position import TablePosition
from fluss_orchestrate.core.incremental.reading.reader import Prepared, Tally
from fluss_orchestrate.core.plan import BucketRange, Place, ScanPlan, without

PLANS_MAX = 16
UNKNOWN_ROWS = -1
PREPARED_FRESH_S = 5.0
"""How long one check of a plan is valid for reads of its parts."""


@dataclass
class PlanMemory:
    """The state that the reads of one recorded plan share."""

    begin: TablePosition | None = None
    commit_ms: dict[tuple[Place, int], int] = field(default_factory=dict)
    _plan: ScanPlan | None = None
    _ranges: frozenset[BucketRange] = frozenset()
    _reads: dict[str, list[tuple[ScanPlan, Tally]]] = field(default_factory=dict)
    _prepared: Prepared | None = None
    _prepared_at: float = float("-inf")
    _preparing: threading.Lock = field(default_factory=threading.Lock)

    def remember(self, plan: ScanPlan) -> None:
        """Store the whole plan, and forget what an earlier attempt has read of it."""
        with self._preparing:
            self._plan, self._ranges = plan, frozenset(plan.ranges)
            self._reads.clear()

    def new_tally(self, plan: ScanPlan) -> Tally:
        """Return the counts for a read of the plan or of a part of it."""
        made = Tally(commit_ms=self.commit_ms)
        with self._preparing:
            # Only finished reads count; a read that was dropped before its end says nothing.
            done = [read for read in self._reads.get(plan.plan_id, ()) if read[1].complete]
            self._reads[plan.plan_id] = [*done[:1], (plan, made)]
        return made

    def whole_tally(self, plan: ScanPlan) -> Tally | None:
        """Return the counts of all reads together; None unless they have read the whole plan."""
        with self._preparing:
            reads = [read for found in self._reads.values() for read in found if read[1].complete]
        for part, tally in reads:
            if part.plan_id == plan.plan_id:
                return tally
        given = [r for part, _ in reads for r in part.ranges]
        if without(plan.ranges, given):
            return None
        if sum(r.count for r in given) == plan.offsets:
            rows, size = sum(t.rows for _, t in reads), sum(t.bytes for _, t in reads)
        else:
            # Some rows were read twice. A log has one row per offset, of others it is not known.
            rows, size = plan.offsets if plan.kind == "log" else UNKNOWN_ROWS, 0
        return Tally(rows, size, plan.offsets, True, True, self.commit_ms)

    def prepared(self, plan: ScanPlan, prepare: Callable[[ScanPlan], Prepared]) -> Prepared:
        """Return the checked plan; for a part of it, that of the whole plan."""
        whole = self._plan
        if whole is None or plan == whole or not self._ranges.issuperset(plan.ranges):
            return prepare(plan)
        with self._preparing:
            if self._prepared is None or time.monotonic() - self._prepared_at > PREPARED_FRESH_S:
                self._prepared = prepare(whole)
                self._prepared_at = time.monotonic()
            return self._prepared


class PlanMemories:
    """The state of the last few plans of a scan. Threads may share it."""

    def __init__(self) -> None:
        self._kept: OrderedDict[tuple[str, int, int], PlanMemory] = OrderedDict()
        self._lock = threading.Lock()

    def of(self, plan: ScanPlan) -> PlanMemory:
        """Return the state of a plan; the parts of a plan have the same."""
        key = (plan.run_key, plan.sequence, plan.created_ms)
        with self._lock:
            memory = self._kept.get(key)
            if memory is None:
                memory = self._kept[key] = PlanMemory()
                while len(self._kept) > PLANS_MAX:
                    self._kept.popitem(last=False)
            return memory
