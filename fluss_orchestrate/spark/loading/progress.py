"""How far a load is: lines for a log, a bar for a terminal."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

LINE_EVERY_S = 10.0
BAR_EVERY_S = 0.5
BAR_WIDTH = 30

Say = Callable[[str], None]


def say(line: str) -> None:
    """A line of the job's log."""
    print(f"fluss-orchestrate: {line}", flush=True)


@dataclass
class Progress:
    """Counts splits and rows; `rate` and time left by what this attempt has sent."""

    splits: int
    units: int
    rows: int
    done_splits: int = 0
    done_rows: int = 0
    sent_rows: int = 0
    started: float = field(default_factory=time.monotonic)

    def line(self, running_rows: int = 0) -> str:
        """The figures in a few words."""
        done = self.done_rows + running_rows
        seconds = max(1e-6, time.monotonic() - self.started)
        rate = (self.sent_rows + running_rows) / seconds
        left = f", {(self.rows - done) / rate:.0f} s left" if rate > 0 and done < self.rows else ""
        share = done / self.rows if self.rows else 1.0
        return f"{share:.0%}: {done:,} of {self.rows:,} rows, {rate:,.0f} rows/s{left}"


@contextmanager
def watched(spark: SparkSession, group: str, progress: Progress, rows: int) -> Iterator[None]:
    """Reports, while a job of `rows` rows runs in the block, by the tasks that have ended."""
    context = getattr(spark, "_sc", None)
    if context is None:
        yield
        return
    context.setJobGroup(group, group)
    stop = threading.Event()
    terminal = sys.stderr.isatty()
    every_s = BAR_EVERY_S if terminal else LINE_EVERY_S

    def report() -> None:
        while not stop.wait(every_s):
            line = progress.line(int(rows * _fraction(context.statusTracker(), group)))
            if terminal:
                filled = int(line.partition("%")[0]) * BAR_WIDTH // 100
                bar = "█" * filled + "░" * (BAR_WIDTH - filled)
                print(f"\r{bar} {line}", end="", file=sys.stderr, flush=True)
            else:
                say(line)

    reporter = threading.Thread(target=report, name="load-progress", daemon=True)
    reporter.start()
    try:
        yield
    finally:
        stop.set()
        reporter.join()
        if terminal:
            print(file=sys.stderr)


def _fraction(tracker, group: str) -> float:  # type: ignore[no-untyped-def]
    """Ended tasks of the group's newest job, from 0 to 1."""
    jobs = tracker.getJobIdsForGroup(group)
    info = tracker.getJobInfo(max(jobs)) if jobs else None
    stages = [tracker.getStageInfo(stage) for stage in info.stageIds] if info else []
    known = [stage for stage in stages if stage is not None and stage.numTasks]
    total = sum(stage.numTasks for stage in known)
    return sum(stage.numCompletedTasks for stage in known) / total if total else 0.0
