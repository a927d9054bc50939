"""The incremental job: finish pending plans of earlier runs, then plan, write and commit."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from fluss_orchestrate.core.errors import CheckpointConflictError, PartitionGoneError
from fluss_orchestrate.core.incremental.planning.settings import Until
from fluss_orchestrate.core.incremental.reading.reader import ProgressHook
from fluss_orchestrate.core.incremental.run import ScanRun
from fluss_orchestrate.core.incremental.scan import IncrementalScan
from fluss_orchestrate.core.incremental.time.intervals import IntervalScan
from fluss_orchestrate.core.receipts import Receipt
from fluss_orchestrate.core.sinks.base import Sink
from fluss_orchestrate.core.times import Time

log = logging.getLogger(__name__)
REPLANS_MAX = 5
"""How often a plan is made anew because a partition was dropped before it was read."""


@dataclass(frozen=True, slots=True)
class JobResult:
    """The result of a job.

    Attributes:
        receipt: The receipt of the job's own plan.
        adopted: The receipts of plans that other runs left pending and this job finished.
    """

    receipt: Receipt
    adopted: tuple[Receipt, ...] = ()

    @property
    def rows(self) -> int:
        """The number of rows that this call has committed, without those of earlier calls."""
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
    planned: Callable[[ScanRun], None] | None = None,
) -> JobResult:
    """Write the new rows of a table into a sink, exactly once if the sink can.

    A call that was killed continues with the same plan when it is made again under the same run
    key. After the plan was committed, another call with the run key writes nothing and returns its
    receipt.

    If a partition was dropped after it was planned and before it was read, the plan can never be
    read again. With `on_partition_gone="delete"` (mirrors and histories) it is abandoned, and
    another plan takes its place, which deletes the rows of the partition.

    Args:
        scan: The scan, which has the table and the checkpoint.
        sink: Where the rows go.
        run_key: Names this run, for example by the scheduler's run id.
        until: Where the plan ends: at the latest offsets, or at a time.
        max_offsets: The most offsets that one plan takes.
        progress: Called with the progress of each plan.
        planned: Called with each plan's run before its rows are read.

    Returns:
        The receipt of this run's plan, and those of pending plans that it finished first.
    """
    receipts: list[Receipt] = []
    for attempt in range(REPLANS_MAX + 1):
        runs = scan.runs(run_key, until, max_offsets, progress, sink=sink)
        run: ScanRun | None = None
        try:
            for run in _announced(runs, planned):
                receipts.append(run.write_to(sink))
            break
        except PartitionGoneError:
            if attempt == REPLANS_MAX or run is None or not _gives_up(scan, run):
                raise
    return JobResult(receipts[-1], tuple(receipts[:-1]))


def _gives_up(scan: IncrementalScan, run: ScanRun) -> bool:
    """Abandon a plan that reads dropped partitions, if their rows are to leave the sink anyway.

    The sink does not hold the plan, or it would not have read it. The next plan begins at the same
    position without these partitions, and deletes what the sink has of them.
    """
    if scan.settings.on_partition_gone != "delete" or run.plan.sequence < 0:
        return False
    try:
        scan.store.abandon(scan.name, run.plan.plan_id, "partitions that it reads were dropped")
    except CheckpointConflictError:
        log.info("%s: another run has abandoned or committed %s", scan.name, run.plan.plan_id)
    return True


def run_interval(
    scan: IntervalScan,
    sink: Sink,
    run_key: str,
    since: Time,
    until: Time,
    *,
    progress: ProgressHook | None = None,
    planned: Callable[[ScanRun], None] | None = None,
) -> JobResult:
    """Write the rows committed in [since, until) into a sink, exactly once if the sink can.

    An interval always has the same plan, so a second backfill of it adds nothing.

    Args:
        scan: The scan, which has the table and the checkpoint.
        sink: Where the rows go.
        run_key: Names this run.
        since: The first time of the interval.
        until: The end of the interval, which is not part of it.
        progress: Called with the progress of the plan.
        planned: Called with the plan's run before its rows are read.

    Returns:
        The receipt of the interval's plan.

    Raises:
        NotYetError: If rows may still be committed before `until`.
    """
    run = scan.run(run_key, since, until, progress, sink=sink)
    (run,) = _announced(iter((run,)), planned)
    return JobResult(run.write_to(sink))


def _announced(
    runs: Iterator[ScanRun], planned: Callable[[ScanRun], None] | None
) -> Iterator[ScanRun]:
    for run in runs:
        if planned is not None:
            planned(run)
        yield run
