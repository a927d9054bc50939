"""A run of a scan under Airflow: by the checkpoint, or by the run's data interval."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from datetime import datetime
from typing import TYPE_CHECKING, Any

from fluss_orchestrate.airflow.receipts import EXTRA_KEY, parsed_text, receipt_from
from fluss_orchestrate.airflow.run_context import Window, is_backfill, window_of_run

if TYPE_CHECKING:
    from airflow.sdk import Context

    from fluss_client import FlussConnection
    from fluss_orchestrate.core.incremental import IncrementalScan, IntervalScan
    from fluss_orchestrate.core.incremental.reading.reader import ProgressHook
    from fluss_orchestrate.core.incremental.run import ScanRun
    from fluss_orchestrate.core.job import JobResult
    from fluss_orchestrate.core.sinks import Sink

PAUSE_MAX_S = 5.0
ENDS = ("latest", "lake")


def window_of(mode: str, context: Context) -> Window | None:
    """Return the interval that the run reads; None when it goes on at the checkpoint."""
    if mode == "cursor" and not is_backfill(context):
        return None
    return window_of_run(context)


def until_of(value: Any, client: FlussConnection | None = None) -> Any:
    """Return the end of a scan from an operator's argument, which a template may have made text.

    Args:
        value: `latest`, `lake`, a time, offsets by bucket, or a receipt.
        client: The cluster, for a receipt whose ranges were summarised.

    Raises:
        ConfigError: If it is a text that means nothing.
    """
    from fluss_orchestrate.core.times import time_ms

    if isinstance(value, str) and value.lstrip().startswith("{"):
        value = parsed_text(value)
    if isinstance(value, Mapping) and ("ranges" in value or EXTRA_KEY in value):
        return receipt_from(value, client)
    if isinstance(value, Mapping):
        return {int(bucket): int(offset) for bucket, offset in value.items()}
    if isinstance(value, datetime) or (isinstance(value, str) and value not in ENDS):
        return time_ms(value)
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
    progress: ProgressHook | None = None,
    planned: Callable[[ScanRun], None] | None = None,
) -> JobResult:
    """Run the core's job; wait a while for an end in time that is not final yet.

    Args:
        scan: The scan.
        sink: Where the rows go.
        key: The run key.
        window: The interval, if the run reads one.
        until: Where a run by the checkpoint ends.
        max_offsets: The most offsets that one plan takes.
        settle_timeout_s: How long to wait for an end in time that is not final yet.
        progress: Called with the progress of each plan.
        planned: Called with each plan's run before its rows are read.
    """
    from fluss_orchestrate.core.errors import NotYetError
    from fluss_orchestrate.core.incremental import IncrementalScan
    from fluss_orchestrate.core.job import run_increment, run_interval

    deadline = time.monotonic() + settle_timeout_s
    while True:
        try:
            if isinstance(scan, IncrementalScan):
                return run_increment(
                    scan,
                    sink,
                    key,
                    until,
                    max_offsets=max_offsets,
                    progress=progress,
                    planned=planned,
                )
            assert window is not None
            return run_interval(
                scan,
                sink,
                key,
                window.since,
                window.until,
                progress=progress,
                planned=planned,
            )
        except NotYetError as error:
            pause_s = min(PAUSE_MAX_S, error.retry_after_ms / 1000)
            if time.monotonic() + pause_s > deadline:
                raise
            time.sleep(pause_s)
