"""The tasks of a load: splits pinned and sent one Spark job's worth at a time."""

from __future__ import annotations

import concurrent.futures
from collections.abc import Callable, Iterable, Iterator, Sequence
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
from fluss_orchestrate.spark.loading.ledger import BulkLedger
from fluss_orchestrate.spark.loading.progress import Progress, Say, watched
from fluss_orchestrate.spark.loading.split import PinnedSplit, Split, SplitResult
from fluss_orchestrate.spark.loading.task import LoadTask, result_schema

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

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
"""What a task cannot mend by being run again. Anything else Spark may try once more."""
WAVE_SPLITS = 512
"""Splits of one Spark job; the next ones are pinned while it runs."""


def send_splits(
    spark: SparkSession,
    ledger: BulkLedger,
    task: LoadTask,
    splits: Sequence[Split],
    on_line: Say,
) -> tuple[dict[int, SplitResult], int, int]:
    """What became of every split, with the retries that it took and how many were there before."""
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


def _pinned_waves(ledger: BulkLedger, todo: Iterable[Split]) -> Iterator[list[PinnedSplit]]:
    """Splits with their pins, one job's worth at a time, the next made ready meanwhile."""
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
            # Not raised in the task: Spark would run it three times more to hear the same.
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
