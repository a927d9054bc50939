"""The figures of an overview as Prometheus text. Times are seconds until, or since, the scrape."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from fluss_orchestrate.core.checkpoints.events import now_ms
from fluss_orchestrate.core.overview.figures import Overview

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
Row = tuple[str, Mapping[str, str], float | None]
HELP = {
    "fluss_up": "Whether the last pass over the cluster succeeded.",
    "fluss_observed_age_seconds": "The time since the figures were observed.",
    "fluss_pass_seconds": "How long the last pass took.",
    "fluss_table_offsets": "The sum of the end offsets of all buckets.",
    "fluss_table_rows": "Rows of the log, or keys of a key table.",
    "fluss_table_bytes": "The size by a sample of rows.",
    "fluss_table_problem": "1 if the table could not be looked at.",
    "fluss_lake_lag_offsets": "Offsets of the log that are not in the lake.",
    "fluss_lake_age_seconds": "The age of the oldest row that is not in the lake.",
    "fluss_checkpoint_lag_offsets": "Unread offsets.",
    "fluss_checkpoint_lost_offsets": "Offsets that retention deleted before they were read.",
    "fluss_checkpoint_age_seconds": "The age of the oldest unread row.",
    "fluss_checkpoint_retention_seconds": "The time until retention may delete an unread row; "
    "absent while nothing is unread, nothing expires, or no time is known.",
    "fluss_checkpoint_retention_unknown_buckets": "Buckets with unread rows of unknown age, which "
    "fluss_checkpoint_retention_seconds does not take account of.",
    "fluss_checkpoint_pending_age_seconds": "The age of the pending plan.",
    "fluss_checkpoint_problem": "1 if the checkpoint could not be compared with its table.",
}


def exposition(overview: Overview | None, problem: str = "") -> str:
    """Return the figures in Prometheus' text format.

    Args:
        overview: The newest overview; None before the first.
        problem: Why the last pass failed; empty if it did not.
    """
    rows: dict[str, list[Row]] = {name: [] for name in HELP}
    up = 1.0 if overview is not None and not problem else 0.0
    rows["fluss_up"].append(("fluss_up", {}, up))
    for row in () if overview is None else _rows(overview):
        rows[row[0]].append(row)
    parts = []
    for name, found in rows.items():
        known = [row for row in found if row[2] is not None]
        if known:
            parts.append(f"# HELP {name} {HELP[name]}\n# TYPE {name} gauge\n")
            parts += [f"{name}{_labels(labels)} {value:.10g}\n" for _, labels, value in known]
    return "".join(parts)


def _rows(overview: Overview) -> Iterable[Row]:
    now = now_ms()

    def since(at_ms: int | None) -> float | None:
        return None if at_ms is None else max(0.0, (now - at_ms) / 1000)

    yield "fluss_observed_age_seconds", {}, since(overview.observed_ms)
    yield "fluss_pass_seconds", {}, overview.took_ms / 1000
    for table in overview.tables:
        at = {"cluster": overview.alias, "table": table.table}
        yield "fluss_table_problem", at, float(bool(table.problem))
        if table.problem:
            continue
        yield "fluss_table_offsets", at, table.offsets
        yield "fluss_table_rows", at, table.rows
        yield "fluss_table_bytes", at, table.bytes
        if table.lake is not None:
            yield "fluss_lake_lag_offsets", at, table.lake.behind
            # Nothing behind is an age of 0; something behind of unknown age has none.
            age = 0.0 if not table.lake.behind else since(table.lake.oldest_ms)
            yield "fluss_lake_age_seconds", at, age
    for one in overview.checkpoints:
        if one.retired:
            continue
        at = {"cluster": overview.alias, "checkpoint": one.name, "table": one.table}
        yield "fluss_checkpoint_problem", at, float(bool(one.problem))
        yield "fluss_checkpoint_lag_offsets", at, one.unread
        if one.unread is not None:
            yield "fluss_checkpoint_lost_offsets", at, one.lost
            age = 0.0 if not one.unread else since(one.oldest_ms)
            yield "fluss_checkpoint_age_seconds", at, age
            yield "fluss_checkpoint_retention_unknown_buckets", at, one.buckets_unknown
        left = None if one.expires_ms is None else (one.expires_ms - now) / 1000
        yield "fluss_checkpoint_retention_seconds", at, left
        if one.pending is not None:
            yield "fluss_checkpoint_pending_age_seconds", at, since(one.pending.created_ms)


def _labels(labels: Mapping[str, str]) -> str:
    if not labels:
        return ""
    return "{" + ",".join(f'{key}="{_escaped(value)}"' for key, value in labels.items()) + "}"


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
