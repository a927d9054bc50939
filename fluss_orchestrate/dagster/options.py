"""Arguments that are passed on to Dagster, with their types, for editors and type checkers.

A name that is none of them is refused as the definition is made, with the name that was meant.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from difflib import get_close_matches
from typing import Any, TypedDict

import dagster as dg

from fluss_client.errors import ConfigError
from fluss_orchestrate.dagster import compat as compat  # enters us in Dagster's registry

Key = dg.AssetKey | Sequence[str] | str
"""An asset's key, as Dagster takes one."""
Dep = Key | dg.AssetSpec | dg.AssetsDefinition | dg.AssetDep
Job = Any
"""A job, or what `dg.define_asset_job` returns, whose class Dagster does not export."""
Selection = (
    str | Sequence[str] | Sequence[dg.AssetKey] | Sequence[dg.AssetsDefinition] | dg.AssetSelection
)


class SensorOptions(TypedDict, total=False):
    """What Dagster's sensors take beside their own arguments here."""

    description: str
    minimum_interval_seconds: int
    default_status: dg.DefaultSensorStatus
    tags: Mapping[str, str]
    metadata: Mapping[str, Any]


class CheckOptions(TypedDict, total=False):
    """What Dagster's asset checks take beside their own arguments here."""

    resource_key: str
    """The key of the `FlussResource`; `fluss` if not given."""
    description: str
    blocking: bool
    additional_deps: Iterable[Dep]
    metadata: Mapping[str, Any]
    retry_policy: dg.RetryPolicy
    automation_condition: dg.AutomationCondition[Any]
    pool: str


class SpecOptions(TypedDict, total=False):
    """What Dagster's asset specs take beside their own arguments here."""

    key: Key
    deps: Iterable[Dep]
    description: str
    metadata: Mapping[str, Any]
    group_name: str
    owners: Sequence[str]
    tags: Mapping[str, str]
    kinds: set[str]
    code_version: str
    automation_condition: dg.AutomationCondition[Any]
    partitions_def: dg.PartitionsDefinition[Any]
    freshness_policy: dg.FreshnessPolicy


class AssetOptions(TypedDict, total=False):
    """What Dagster's assets take beside their own arguments here."""

    deps: Iterable[Dep]
    ins: Mapping[str, dg.AssetIn]
    description: str
    metadata: Mapping[str, Any]
    group_name: str
    owners: Sequence[str]
    tags: Mapping[str, str]
    kinds: Collection[str]
    code_version: str
    automation_condition: dg.AutomationCondition[Any]
    partitions_def: dg.PartitionsDefinition[Any]
    freshness_policy: dg.FreshnessPolicy
    backfill_policy: dg.BackfillPolicy
    retry_policy: dg.RetryPolicy
    required_resource_keys: Collection[str]
    check_specs: Sequence[dg.AssetCheckSpec]
    op_tags: Mapping[str, Any]
    hooks: Collection[dg.HookDefinition]
    config_schema: Any


def checked_options(kind: type, given: Mapping[str, Any], what: str) -> dict[str, Any]:
    """Return the options, if they are known.

    Args:
        kind: The `TypedDict` that lists them.
        given: What was passed.
        what: What they were passed to, for the error.

    Raises:
        ConfigError: One is unknown; the message has the one that was meant.
    """
    known = kind.__annotations__
    for name in given:
        if name not in known:
            raise ConfigError(f"{what} has no argument '{name}'{suggestion(name, known)}")
    return dict(given)


def suggestion(name: str, known: Iterable[str]) -> str:
    """Return `: did you mean …?` for a name that is close to a known one, else what is known."""
    names = sorted(known)
    close = get_close_matches(name, names, n=1, cutoff=0.6)
    return f": did you mean '{close[0]}'?" if close else f": it has {', '.join(names)}"
