"""Who asks, for good: the names under which plans and loads are pinned.

A step retry, a run retry and a re-execution all belong to one root run. So they get the same name,
and with it the same plan and the same load, whatever became of earlier attempts.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import dagster as dg

from fluss_orchestrate.core.loading import RowsDifferError

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


def work_name(context: StepContext, asset_key: dg.AssetKey | None = None) -> str:
    """Who works, in every run: the asset, the op of a graph asset, or the op of a job.

    The ops of a graph asset all have its key, so the op's own path tells them apart.
    """
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
    return work_id(root_run_id(context.run), work_name(context, asset_key), keys)


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
