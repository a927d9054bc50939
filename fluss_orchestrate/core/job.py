"""The incremental job: plan, sink, commit, with whatever an earlier run left finished first."""

from __future__ import annotations

import threading
from dataclasses import dataclass
from functools import partial

from fluss_orchestrate.core.incremental.intervals import IntervalScan
from fluss_orchestrate.core.incremental.reading import ProgressHook, ScanProgress
from fluss_orchestrate.core.incremental.scan import IncrementalScan
from fluss_orchestrate.core.incremental.settings import Until
from fluss_orchestrate.core.plan import ScanPlan
from fluss_orchestrate.core.receipts import Receipt
from fluss_orchestrate.core.sinks.base import Sink
from fluss_orchestrate.core.times import Time


@dataclass(frozen=True, slots=True)
class JobResult:
    """What a job did: the receipt of its own plan, and those of plans it finished for others."""

    receipt: Receipt
    adopted: tuple[Receipt, ...] = ()

    @property
    def rows(self) -> int:
        """Rows of the plans that this call has committed, without those of earlier calls."""
        receipts = (self.receipt, *self.adopted)
        return sum(r.rows for r in receipts if not r.details.get("already_committed"))


def run_increment(
    scan: IncrementalScan,
    sink: Sink,
    run_key: str,
    until: Until = "latest",
    *,
    max_offsets: int | None = None,
    progress: ProgressHook | None = None,
) -> JobResult:
    """Bring what is new into the sink, exactly once if the sink can.

    Killed at any point and started again under the same run key, it goes on with the same plan.
    Once the plan is committed, another call with the run key writes nothing and gives its receipt.
    """
    receipts: list[Receipt] = []
    for run in scan.runs(run_key, until, max_offsets, progress, sink=sink):
        if run.skipped:
            # Another run's plan is pending: the sink is not touched.
            run.receipt = scan.commit(run.plan)
        else:
            run.receipt = run.finished or _brought(scan, sink, run.plan, progress)
        receipts.append(run.receipt)
    return JobResult(receipts[-1], tuple(receipts[:-1]))


def run_interval(
    scan: IntervalScan,
    sink: Sink,
    run_key: str,
    since: Time,
    until: Time,
    *,
    progress: ProgressHook | None = None,
) -> JobResult:
    """Bring the rows committed in [since, until) into the sink, exactly once if the sink can.

    An interval has one plan for ever, so a second backfill of it adds nothing. `NotYetError`
    until the end of the interval is final.
    """
    run = scan.run(run_key, since, until, progress, sink=sink)
    return JobResult(run.finished or _brought(scan, sink, run.plan, progress))


def _brought(
    scan: IncrementalScan | IntervalScan, sink: Sink, plan: ScanPlan, progress: ProgressHook | None
) -> Receipt:
    """Have the sink take the plan, then commit it."""
    overall = _Overall(plan, progress)
    done = sink.write(plan, lambda part: scan.read(part, overall.part()))
    return scan.commit(
        plan,
        rows=done.rows,
        bytes=done.bytes,
        rows_moved=done.moved,
        details={"sink": dict(done.details), "exactly_once": sink.exactly_once},
    )


class _Overall:
    """How far a whole plan is, whose parts a sink may read at once."""

    def __init__(self, plan: ScanPlan, tell: ProgressHook | None) -> None:
        self._plan = plan
        self._tell = tell
        self._parts: list[ScanProgress] = []
        self._lock = threading.Lock()

    def part(self) -> ProgressHook | None:
        """The hook of one part's reading."""
        if self._tell is None:
            return None
        with self._lock:
            at = len(self._parts)
            self._parts.append(ScanProgress(0, 0, 0, 0))
        return partial(self._told, at)

    def _told(self, at: int, now: ScanProgress) -> None:
        assert self._tell is not None
        with self._lock:
            self._parts[at] = now
            offsets = sum(part.offsets for part in self._parts)
            self._tell(
                ScanProgress(
                    sum(part.rows for part in self._parts),
                    sum(part.bytes for part in self._parts),
                    min(offsets, self._plan.offsets),  # a sink may read a part twice
                    self._plan.offsets,
                )
            )
