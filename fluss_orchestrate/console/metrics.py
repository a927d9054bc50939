"""The figures of an overview as metrics, the same for Prometheus and OpenTelemetry.

Times are seconds until, or since, the moment of asking. A figure that is not known has no metric.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from fluss_orchestrate.core.checkpoints.events import now_ms
from fluss_orchestrate.core.overview.figures import (
    CheckpointFigures,
    IntervalScanFigures,
    Overview,
    TableFigures,
)


@dataclass(frozen=True, slots=True)
class Metric:
    """One metric."""

    prometheus: str
    name: str
    """Its name in OpenTelemetry; where `core.metrics` has the same figure, it is the same name."""
    unit: str
    help: str


UP = Metric("fluss_up", "fluss.up", "1", "Whether the last pass over the cluster succeeded.")
OBSERVED_AGE = Metric(
    "fluss_observed_age_seconds",
    "fluss.observed.age",
    "s",
    "The time since the figures were observed.",
)
PASS = Metric("fluss_pass_seconds", "fluss.pass.duration", "s", "How long the last pass took.")
TABLE_OFFSETS = Metric(
    "fluss_table_offsets",
    "fluss.table.offsets",
    "{offset}",
    "The sum of the end offsets of all buckets.",
)
TABLE_ROWS = Metric(
    "fluss_table_rows", "fluss.table.rows", "{row}", "Rows of the log, or keys of a key table."
)
TABLE_BYTES = Metric("fluss_table_bytes", "fluss.table.size", "By", "The size by a sample of rows.")
TABLE_PROBLEM = Metric(
    "fluss_table_problem", "fluss.table.problem", "1", "1 if the table could not be looked at."
)
LAKE_LAG = Metric(
    "fluss_lake_lag_offsets",
    "fluss.lake.lag",
    "{offset}",
    "Offsets of the log that are not in the lake.",
)
LAKE_AGE = Metric(
    "fluss_lake_age_seconds",
    "fluss.lake.age",
    "s",
    "The age of the oldest row that is not in the lake.",
)
LAG = Metric("fluss_checkpoint_lag_offsets", "fluss.checkpoint.lag", "{offset}", "Unread offsets.")
LOST = Metric(
    "fluss_checkpoint_lost_offsets",
    "fluss.checkpoint.lost",
    "{offset}",
    "Offsets that retention deleted before they were read.",
)
AGE = Metric(
    "fluss_checkpoint_age_seconds",
    "fluss.checkpoint.age",
    "s",
    "The age of the oldest unread row.",
)
RETENTION = Metric(
    "fluss_checkpoint_retention_seconds",
    "fluss.checkpoint.retention",
    "s",
    "The time until retention may delete an unread row; absent while nothing is unread, nothing "
    "expires, or no time is known.",
)
RETENTION_UNKNOWN = Metric(
    "fluss_checkpoint_retention_unknown_buckets",
    "fluss.checkpoint.retention_unknown",
    "{bucket}",
    "Buckets with unread rows of unknown age, which fluss_checkpoint_retention_seconds does not "
    "take account of.",
)
PENDING_AGE = Metric(
    "fluss_checkpoint_pending_age_seconds",
    "fluss.checkpoint.pending_age",
    "s",
    "The age of the pending plan.",
)
CHECKPOINT_PROBLEM = Metric(
    "fluss_checkpoint_problem",
    "fluss.checkpoint.problem",
    "1",
    "1 if the checkpoint could not be compared with its table.",
)
INTERVALS_AGE = Metric(
    "fluss_intervals_age_seconds",
    "fluss.intervals.age",
    "s",
    "The time since the end of the latest interval that a scan has read.",
)
INTERVALS_PENDING = Metric(
    "fluss_intervals_pending",
    "fluss.intervals.pending",
    "{interval}",
    "Intervals of a scan that have a pending plan.",
)
INTERVALS_MISSING = Metric(
    "fluss_intervals_missing",
    "fluss.intervals.missing",
    "{interval}",
    "Times between the intervals of a scan that no interval has read.",
)
METRICS = (
    *(UP, OBSERVED_AGE, PASS, TABLE_OFFSETS, TABLE_ROWS, TABLE_BYTES, TABLE_PROBLEM),
    *(LAKE_LAG, LAKE_AGE, LAG, LOST, AGE, RETENTION, RETENTION_UNKNOWN, PENDING_AGE),
    *(CHECKPOINT_PROBLEM, INTERVALS_AGE, INTERVALS_PENDING, INTERVALS_MISSING),
)
Labels = Mapping[str, str]
Maybe = tuple[Metric, Labels, float | None]


def measured(
    overview: Overview | None, problem: str = ""
) -> Iterator[tuple[Metric, Labels, float]]:
    """Return every figure that is known, with its labels.

    Args:
        overview: The newest overview; None before the first.
        problem: Why the last pass failed; empty if it did not.
    """
    yield UP, {}, 1.0 if overview is not None and not problem else 0.0
    for metric, labels, value in () if overview is None else _figures(overview):
        if value is not None:
            yield metric, labels, float(value)


def _figures(overview: Overview) -> Iterator[Maybe]:
    now = now_ms()
    yield OBSERVED_AGE, {}, _since(overview.observed_ms, now)
    yield PASS, {}, overview.took_ms / 1000
    for table in overview.tables:
        yield from _of_table(table, {"cluster": overview.alias, "table": table.table}, now)
    for one in overview.checkpoints:
        if not one.retired:
            at = {"cluster": overview.alias, "checkpoint": one.name, "table": one.table}
            yield from _of_checkpoint(one, at, now)
    for scan in overview.intervals:
        at = {"cluster": overview.alias, "checkpoint": scan.name, "table": scan.table}
        yield from _of_intervals(scan, at, now)


def _of_table(table: TableFigures, at: Labels, now: int) -> Iterator[Maybe]:
    yield TABLE_PROBLEM, at, float(bool(table.problem))
    if table.problem:
        return
    yield TABLE_OFFSETS, at, table.offsets
    yield TABLE_ROWS, at, table.rows
    yield TABLE_BYTES, at, table.bytes
    if table.lake is not None:
        yield LAKE_LAG, at, table.lake.behind
        # Nothing behind is an age of 0; something behind of unknown age has none.
        yield LAKE_AGE, at, _since(table.lake.oldest_ms, now) if table.lake.behind else 0.0


def _of_checkpoint(one: CheckpointFigures, at: Labels, now: int) -> Iterator[Maybe]:
    yield CHECKPOINT_PROBLEM, at, float(bool(one.problem))
    yield LAG, at, one.unread
    if one.unread is not None:
        yield LOST, at, one.lost
        yield AGE, at, _since(one.oldest_ms, now) if one.unread else 0.0
        yield RETENTION_UNKNOWN, at, one.buckets_unknown
    yield RETENTION, at, None if one.expires_ms is None else (one.expires_ms - now) / 1000
    if one.pending is not None:
        yield PENDING_AGE, at, _since(one.pending.created_ms, now)


def _of_intervals(scan: IntervalScanFigures, at: Labels, now: int) -> Iterator[Maybe]:
    yield INTERVALS_AGE, at, _since(scan.until_ms, now)
    yield INTERVALS_PENDING, at, scan.pending
    yield INTERVALS_MISSING, at, scan.missing


def _since(at_ms: int | None, now: int) -> float | None:
    return None if at_ms is None else max(0.0, (now - at_ms) / 1000)
