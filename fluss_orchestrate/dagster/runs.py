"""The names under which plans and loads are pinned, and what a run logs.

A step retry, a run retry and a re-execution all belong to one root run. So they get the same name,
and with it the same plan and the same load, whatever became of earlier attempts. An asset or op
that a test calls as a function belongs to no run, so each such call is work of its own.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime

import dagster as dg

from fluss_orchestrate.core.errors import NotYetError
from fluss_orchestrate.core.incremental.reading.reader import ScanProgress
from fluss_orchestrate.core.incremental.run import ScanRun
from fluss_orchestrate.core.loading import RowsDifferError
from fluss_orchestrate.core.receipts import Receipt

PREFIX = "dagster"
TAG_KEY_LENGTH_MAX = 63
UNFINISHED = [
    dg.DagsterRunStatus.NOT_STARTED,
    dg.DagsterRunStatus.QUEUED,
    dg.DagsterRunStatus.STARTING,
    dg.DagsterRunStatus.STARTED,
    dg.DagsterRunStatus.CANCELING,
]

StepContext = dg.AssetExecutionContext | dg.OpExecutionContext
"""What an asset, an op of a graph asset, or an op of a job is given."""


def root_run_id(run: dg.DagsterRun) -> str:
    """The run that all retries and re-executions of this one come from."""
    return run.root_run_id or run.run_id


def is_direct(context: StepContext) -> bool:
    """Whether an asset or op was called as a function, as tests do, without a run."""
    try:
        return context.run is None
    except dg.DagsterError:  # a subclass that Dagster does not export
        return True


def work_name(context: StepContext, asset_key: dg.AssetKey | None = None) -> str:
    """Who works, in every run: the asset, the op of a graph asset, or the op of a job.

    The ops of a graph asset all have its key, so the op's own path tells them apart.
    """
    if is_direct(context):
        if asset_key is None and not context.has_assets_def:
            return "direct"
        return (asset_key or context.asset_key).to_user_string()
    op = context.op_execution_context if isinstance(context, dg.AssetExecutionContext) else context
    handle = op.op_handle
    mapped = op.get_mapping_key()
    path = f"{handle}[{mapped}]" if mapped else str(handle)
    if asset_key is None and not op.has_assets_def:
        return f"job:{op.job_name}/{path}"
    key = (asset_key or op.asset_key).to_user_string()
    return key if handle.parent is None else f"{key}:{path}"


def run_key_of(context: StepContext, asset_key: dg.AssetKey | None = None) -> str:
    """Root run, asset or op, and partitions: the same for every attempt at the same work."""
    keys = context.partition_keys if is_partitioned(context) else ()
    root = uuid.uuid4().hex if is_direct(context) else root_run_id(context.run)
    return work_id(root, work_name(context, asset_key), keys)


def work_id(root_run: str, name: str, partition_keys: Sequence[str]) -> str:
    """The name of one root run's work on some partitions."""
    name = f"{PREFIX}/{root_run}/{name}"
    if not partition_keys:
        return name
    first, last = partition_keys[0], partition_keys[-1]
    return f"{name}/{first}" if len(partition_keys) == 1 else f"{name}/{first}...{last}"


def is_partitioned(context: StepContext) -> bool:
    """Whether this run is about partitions: one, or a range of them."""
    return bool(context.has_partition_key or context.has_partition_key_range)


def mirror_tag(context: StepContext, what: str, name: str, value: str) -> None:
    """Show people in the run's tags what was pinned. The store decides, never the tag."""
    if is_direct(context):
        return
    key = f"fluss/{what}/{name.replace('/', '.').replace(':', '.')}"[:TAG_KEY_LENGTH_MAX]
    context.instance.add_run_tags(context.run.run_id, {key: value})


def set_data_version(asset_key: dg.AssetKey, version: dg.DataVersion) -> None:
    """Give what the running step materialises a data version, from within an IO manager.

    One that the asset itself returns stands. Without a step, as in a test of an IO manager by
    itself, there is nothing to set.
    """
    try:
        step = dg.AssetExecutionContext.get()
    except dg.DagsterInvariantViolationError:
        return
    step.set_data_version(asset_key, version)


@contextmanager
def other_rows_are_final() -> Iterator[None]:
    """Other rows than an earlier attempt's fail the step for good: a retry could not mend it."""
    try:
        yield
    except RowsDifferError as error:
        raise dg.Failure(
            f"{error.message}. This step's retries and re-executions must give the same rows. A "
            "new run has an id of its own and writes all its rows, also those that are there",
            allow_retries=False,
        ) from error


PROGRESS_INTERVAL_S = 10.0
PROGRESS_LINES_MAX = 100


class RunLog:
    """What an increment says in the log of its run: the plan, its progress, the end."""

    def __init__(self, context: StepContext, sink: str) -> None:
        self._log = context.log
        self._sink = sink
        self._said_s = time.monotonic()
        self._lines = 0

    def planned(self, run: ScanRun) -> None:
        """Before the rows of a plan are read."""
        plan = run.plan
        text = (
            f"plan {plan.plan_id} of checkpoint '{plan.name}': {plan.offsets} offsets in "
            f"{len(plan.ranges)} bucket(s) of {plan.table.path}"
        )
        if run.skipped:
            text = f"nothing to do: another run's plan of checkpoint '{plan.name}' is pending"
        elif run.already_committed:
            text += ", which an earlier attempt has committed: nothing is written again"
        elif run.adopted:
            text += f", left unfinished by run '{plan.run_key}': it is finished first"
        self._log.info(text)

    def progress(self, at: ScanProgress) -> None:
        """While rows are read; says something every few seconds."""
        now = time.monotonic()
        if now - self._said_s < PROGRESS_INTERVAL_S or self._lines >= PROGRESS_LINES_MAX:
            return
        self._said_s = now
        self._lines += 1
        self._log.info(f"{at.rows} rows, {at.bytes >> 20} MB, {at.fraction:.0%} of the plan")

    def done(self, receipt: Receipt, partition: str = "") -> None:
        """After the commit."""
        of = f" of partition {partition}" if partition else ""
        self._log.info(
            f"{receipt.moved} of {receipt.rows} rows{of} written into {self._sink} by this run; "
            "the checkpoint is committed"
        )


RETRIES_MAX = 20
RETRY_WAIT_MAX_S = 600.0
RETRY_WAIT_MIN_S = 1.0


@contextmanager
def unfinished_asks_for_a_retry(partition: str, window: dg.TimeWindow) -> Iterator[None]:
    """Ask Dagster for a retry when the window of a partition has not ended, or not settled.

    Raises:
        RetryRequested: It ends soon; the step is tried again after that.
        Failure: It ends later than a step may wait for.
    """
    try:
        yield
    except NotYetError as error:
        left_s = (window.end - datetime.now(UTC)).total_seconds()
        end = window.end.strftime("%Y-%m-%d %H:%M:%S %Z")
        if left_s > RETRY_WAIT_MAX_S:
            raise dg.Failure(
                f"partition {partition} has not ended: rows may be committed in it until {end}, in "
                f"{duration_text(left_s)}. Materialise it after that",
                allow_retries=False,
            ) from error
        wait_s = max(left_s, error.retry_after_ms / 1000, RETRY_WAIT_MIN_S)
        what = f"ends at {end}" if left_s > 0 else f"ended at {end}, and its last rows may not show"
        raise dg.RetryRequested(max_retries=RETRIES_MAX, seconds_to_wait=wait_s) from NotYetError(
            f"partition {partition} {what}; the step is tried again in {duration_text(wait_s)}",
            error.retry_after_ms,
        )


def duration_text(seconds: float) -> str:
    """A duration as people write it, such as `3 h 20 min`."""
    whole = max(1, round(seconds))
    days, hours, minutes = whole // 86_400, whole // 3_600 % 24, whole // 60 % 60
    if days:
        return f"{days} d {hours} h"
    if hours:
        return f"{hours} h {minutes} min"
    return f"{minutes} min {whole % 60} s" if minutes else f"{whole} s"
