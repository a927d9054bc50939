"""Sending the splits of a load as Spark tasks, a wave at a time, with reports of the progress."""

from __future__ import annotations

import concurrent.futures
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import islice
from typing import TYPE_CHECKING

import pyarrow as pa

from fluss_client.errors import (
    AuthorizationError,
    ConfigError,
    FlussError,
    PartitionNotExistError,
    RowError,
    SchemaError,
    TableNotExistError,
)
from fluss_orchestrate.core.loading.errors import LoadError
from fluss_orchestrate.core.loading.sources import SourceError
from fluss_orchestrate.spark.loading.splits import PinnedSplit, Split, SplitLedger, SplitResult
from fluss_orchestrate.spark.loading.task import LoadTask, result_schema

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

LINE_EVERY_S = 10.0
BAR_EVERY_S = 0.5
BAR_WIDTH = 30

Say = Callable[[str], None]


def say(line: str) -> None:
    """Print a line of the job's log."""
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
        """Return the progress in a few words."""
        done = self.done_rows + running_rows
        seconds = max(1e-6, time.monotonic() - self.started)
        rate = (self.sent_rows + running_rows) / seconds
        left = f", {(self.rows - done) / rate:.0f} s left" if rate > 0 and done < self.rows else ""
        share = done / self.rows if self.rows else 1.0
        return f"{share:.0%}: {done:,} of {self.rows:,} rows, {rate:,.0f} rows/s{left}"


@contextmanager
def watched(spark: SparkSession, group: str, progress: Progress, rows: int) -> Iterator[None]:
    """Report the progress of a job of `rows` rows that runs in the block, by its finished tasks."""
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
    """Return the part of the finished tasks of the group's newest job, from 0 to 1."""
    jobs = tracker.getJobIdsForGroup(group)
    info = tracker.getJobInfo(max(jobs)) if jobs else None
    stages = [tracker.getStageInfo(stage) for stage in info.stageIds] if info else []
    known = [stage for stage in stages if stage is not None and stage.numTasks]
    total = sum(stage.numTasks for stage in known)
    return sum(stage.numCompletedTasks for stage in known) / total if total else 0.0


FINAL_ERRORS: tuple[type[FlussError], ...] = (
    AuthorizationError,
    ConfigError,
    LoadError,
    PartitionNotExistError,
    RowError,
    SchemaError,
    SourceError,
    TableNotExistError,
)
"""Errors that remain when the task is run again. After any other one, Spark may retry it."""
WAVE_SPLITS = 512
"""Splits of one Spark job; the next ones are pinned while it runs."""


def send_splits(
    spark: SparkSession,
    ledger: SplitLedger,
    task: LoadTask,
    splits: Sequence[Split],
    on_line: Say,
) -> tuple[dict[int, SplitResult], int, int]:
    """Send all splits, and return their results, the retries, and how many were done before."""
    results = ledger.done_splits(len(splits))
    resumed = len(results)
    todo = [split for split in splits if split.number not in results]
    progress = Progress(
        len(splits), sum(len(s.unit_rows) for s in splits), sum(s.rows for s in splits)
    )
    progress.done_rows = sum(result.rows for result in results.values())
    on_line(
        f"load {task.load_id} into {task.table}: {progress.units:,} units in {len(splits):,} "
        f"splits, {resumed:,} of them loaded before"
    )
    retries = 0
    group = f"fluss-load-{task.load_id}"
    for wave in _pinned_waves(ledger, todo):
        rows = sum(pinned.split.rows for pinned in wave)
        with watched(spark, group, progress, rows):
            answers = _run_wave(spark, task, wave)
        for number, result, attempt in answers:
            results[number] = result
            retries += attempt
        progress.done_rows += rows
        progress.sent_rows += rows
        on_line(progress.line())
    return results, retries, resumed


def _pinned_waves(ledger: SplitLedger, todo: Iterable[Split]) -> Iterator[list[PinnedSplit]]:
    """Yield splits with their pins, one job at a time, and prepare the next one meanwhile."""
    pinned = ledger.pin(todo)
    with concurrent.futures.ThreadPoolExecutor(1, "pins") as pool:
        coming = pool.submit(lambda: list(islice(pinned, WAVE_SPLITS)))
        while wave := coming.result():
            coming = pool.submit(lambda: list(islice(pinned, WAVE_SPLITS)))
            yield wave


def _run_wave(
    spark: SparkSession, task: LoadTask, wave: Sequence[PinnedSplit]
) -> list[tuple[int, SplitResult, int]]:
    frame = spark.range(0, len(wave), 1, len(wave)).mapInArrow(
        _runner(task, list(wave)), _RESULT_DDL
    )
    answers = []
    for row in frame.collect():
        if row.error is not None:
            # Not raised in the task: Spark would run it three more times and get the same error.
            raise LoadError(task.table, task.load_id, row.error)
        answers.append((row.split, SplitResult(row.rows, row.bytes, row.rejected), row.attempt))
    return answers


_RESULT_DDL = "split long, rows long, bytes long, rejected long, attempt long, error string"


def _runner(
    task: LoadTask, wave: list[PinnedSplit]
) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        from pyspark import TaskContext

        context = TaskContext.get()
        attempt = context.attemptNumber() if context is not None else 0
        for batch in batches:
            for at in batch.column(0).to_pylist():
                yield _answer(task, wave[at], attempt)

    return run


def _answer(task: LoadTask, pinned: PinnedSplit, attempt: int) -> pa.RecordBatch:
    result, error = SplitResult(0, 0), None
    try:
        result = task.run(pinned)
    except FINAL_ERRORS as failure:
        error = failure.message
    values = [pinned.split.number, result.rows, result.bytes, result.rejected, attempt, error]
    columns = [[value] for value in values]
    return pa.RecordBatch.from_arrays(
        [pa.array(c, f.type) for c, f in zip(columns, result_schema(), strict=True)],
        schema=result_schema(),
    )
