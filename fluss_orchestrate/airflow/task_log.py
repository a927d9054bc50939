"""Lines of the task log: the plan, what was adopted, progress, and the result."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from fluss_orchestrate.core.incremental.reading.reader import ScanProgress
    from fluss_orchestrate.core.incremental.run import ScanRun
    from fluss_orchestrate.core.job import JobResult
    from fluss_orchestrate.core.plan import BucketRange
    from fluss_orchestrate.core.receipts import Receipt

PROGRESS_FIRST_S = 5.0
PROGRESS_MAX_S = 60.0
RANGES_SHOWN_MAX = 4


class Progress:
    """Logs how far a task is, first after some seconds, then at intervals that double.

    Args:
        log: The log of the task.
        what: What is moved: `read` or `sent`.
    """

    def __init__(self, log: Any, what: str) -> None:
        self._log = log
        self._what = what
        self._began_s = time.monotonic()
        self._gap_s = PROGRESS_FIRST_S
        self._due_s = self._began_s + self._gap_s

    def scanned(self, progress: ScanProgress) -> None:
        """Take the progress of a scan."""
        of = f", {progress.offsets} of {progress.offsets_total} offsets ({progress.fraction:.0%})"
        self._moved(progress.rows, progress.bytes, of)

    def sent(self, rows: int, size: int) -> None:
        """Take the rows and bytes of a load that were sent so far."""
        self._moved(rows, size, "")

    def rate(self, rows: int, size: int) -> str:
        """Return rows, bytes and their rate since the task began."""
        seconds = max(0.001, time.monotonic() - self._began_s)
        return (
            f"{rows} rows and {bytes_text(size)} in {seconds:.1f} s "
            f"({rows / seconds:.0f} rows/s, {bytes_text(size / seconds)}/s)"
        )

    def _moved(self, rows: int, size: int, of: str) -> None:
        now_s = time.monotonic()
        if now_s < self._due_s:
            return
        self._gap_s = min(PROGRESS_MAX_S, self._gap_s * 2)
        self._due_s = now_s + self._gap_s
        self._log.info("%s %s%s", self._what, self.rate(rows, size), of)


def bytes_text(size: float) -> str:
    """Return a number of bytes with a unit that people read."""
    for unit in ("B", "KiB", "MiB"):
        if size < 1024:
            return f"{size:.0f} {unit}" if unit == "B" else f"{size:.1f} {unit}"
        size /= 1024
    return f"{size:.1f} GiB"


def ranges_text(ranges: tuple[BucketRange, ...]) -> str:
    """Return the number of ranges and offsets, and the first ranges."""
    if not ranges:
        return "no offsets"
    shown = ", ".join(
        (f"{r.partition} " if r.partition is not None else "") + f"bucket {r.bucket} "
        f"[{r.start}, {r.stop})"
        for r in ranges[:RANGES_SHOWN_MAX]
    )
    more = len(ranges) - RANGES_SHOWN_MAX
    offsets = sum(r.count for r in ranges)
    return f"{offsets} offsets in {len(ranges)} ranges: {shown}" + (
        f" and {more} more" if more > 0 else ""
    )


def log_plan(log: Any, run: ScanRun) -> None:
    """Log what a run is going to read, and from whom it adopted the plan."""
    plan = run.plan
    if run.skipped:
        log.info("skipped: the plan of another run is pending")
    elif run.finished is not None:
        log.info("plan %s was committed by an earlier try: nothing is read", plan.plan_id)
    elif run.adopted:
        log.info(
            "adopting plan %s, which run %s left unfinished: %s",
            plan.plan_id,
            plan.run_key,
            ranges_text(plan.ranges),
        )
    else:
        log.info("plan %s: %s", plan.plan_id, ranges_text(plan.ranges))


def log_result(log: Any, result: JobResult, progress: Progress, table: str, name: str) -> None:
    """Log what a job has done: for other runs, and for its own."""
    for receipt in result.adopted:
        log.info("finished the plan of run %s: %d rows", receipt.run_key, receipt.rows)
    own = result.receipt
    if own.details.get("already_committed"):
        log.info(
            "%s: nothing was written; an earlier try has written the %d rows of this run",
            table,
            own.rows,
        )
    elif own.details.get("skipped"):
        log.info("%s: nothing was written; the run was skipped", table)
    else:
        log.info(
            "%s: %s under checkpoint '%s'",
            table,
            progress.rate(own.moved, own.bytes if own.moved else 0),
            name,
        )


def log_load(log: Any, receipt: Receipt, progress: Progress, table: str) -> None:
    """Log what a load has sent; nothing, if an earlier try had sent it all."""
    if receipt.details.get("was_done_before"):
        log.info(
            "%s: nothing was sent; an earlier try has sent the %d rows of load %s",
            table,
            receipt.rows,
            receipt.run_key,
        )
    else:
        log.info("%s: sent %s", table, progress.rate(receipt.rows, receipt.bytes))
