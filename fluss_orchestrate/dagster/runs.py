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


def root_run_id(run: dg.DagsterRun) -> str:
    """The run that all retries and re-executions of this one come from."""
    return run.root_run_id or run.run_id


def run_key_of(context: dg.AssetExecutionContext, asset_key: dg.AssetKey | None = None) -> str:
    """Root run, asset and partitions: the same for every attempt at the same work."""
    keys = context.partition_keys if is_partitioned(context) else ()
    return work_id(root_run_id(context.run), asset_key or context.asset_key, keys)


def work_id(root_run: str, asset_key: dg.AssetKey, partition_keys: Sequence[str]) -> str:
    """The name of one root run's work on some partitions of one asset."""
    name = f"{PREFIX}/{root_run}/{asset_key.to_user_string()}"
    if not partition_keys:
        return name
    first, last = partition_keys[0], partition_keys[-1]
    return f"{name}/{first}" if len(partition_keys) == 1 else f"{name}/{first}...{last}"


def is_partitioned(context: dg.AssetExecutionContext) -> bool:
    """Whether this run is about partitions: one, or a range of them."""
    return bool(context.has_partition_key or context.has_partition_key_range)


def mirror_tag(
    context: dg.AssetExecutionContext, what: str, asset_key: dg.AssetKey, value: str
) -> None:
    """Show people in the run's tags what was pinned. The store decides, never the tag."""
    key = f"fluss/{what}/{asset_key.to_user_string().replace('/', '.')}"[:TAG_KEY_LENGTH_MAX]
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
