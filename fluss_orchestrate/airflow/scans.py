"""A run of a scan under Airflow: by the checkpoint, or by the run's data interval."""

from __future__ import annotations

import time
from collections.abc import Mapping
from datetime import datetime
from typing import TYPE_CHECKING, Any, NamedTuple

from fluss_orchestrate.airflow.run_keys import is_backfill

if TYPE_CHECKING:
    from airflow.sdk import Context

    from fluss_orchestrate.core.incremental import IncrementalScan, IntervalScan
    from fluss_orchestrate.core.job import JobResult
    from fluss_orchestrate.core.sinks import Sink

PAUSE_MAX_S = 5.0


class Window(NamedTuple):
    """The data interval of a run."""

    since: datetime
    until: datetime


def window_of(mode: str, context: Context) -> Window | None:
    """The data interval when the run reads one; None when it goes on at the checkpoint."""
    from fluss_client.errors import ConfigError

    if mode == "cursor" and not is_backfill(context):
        return None
    since, until = context.get("data_interval_start"), context.get("data_interval_end")
    if since is None or until is None or since >= until:
        raise ConfigError(
            f"run {context['ti'].run_id} has no data interval to read: give the DAG a schedule "
            "with intervals, or use mode='cursor' and no backfill"
        )
    return Window(since, until)


def until_of(value: Any) -> Any:
    """The end of a scan from an operator's argument, which a template may have made text."""
    from fluss_orchestrate.airflow.receipts import receipt_from

    if isinstance(value, Mapping) and "ranges" in value:
        return receipt_from(value)
    if isinstance(value, Mapping):
        return {int(bucket): int(offset) for bucket, offset in value.items()}
    if isinstance(value, str) and value not in ("latest", "lake"):
        if value.lstrip().startswith("{"):
            return receipt_from(value)
        return datetime.fromisoformat(value)
    return value


def scan_into(
    scan: IncrementalScan | IntervalScan,
    sink: Sink,
    key: str,
    window: Window | None,
    *,
    until: Any = "latest",
    max_offsets: int | None = None,
    settle_timeout_s: float = 0.0,
) -> JobResult:
    """Run the core's job, waiting a while for an end in time that is not final yet."""
    from fluss_orchestrate.core.errors import NotYetError
    from fluss_orchestrate.core.incremental import IncrementalScan
    from fluss_orchestrate.core.job import run_increment, run_interval

    deadline = time.monotonic() + settle_timeout_s
    while True:
        try:
            if isinstance(scan, IncrementalScan):
                return run_increment(scan, sink, key, until, max_offsets=max_offsets)
            assert window is not None
            return run_interval(scan, sink, key, window.since, window.until)
        except NotYetError as error:
            pause_s = min(PAUSE_MAX_S, error.retry_after_ms / 1000)
            if time.monotonic() + pause_s > deadline:
                raise
            time.sleep(pause_s)
