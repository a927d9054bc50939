"""Freshness policies of lakes that follow the settings of their tables."""

from __future__ import annotations

from datetime import timedelta

import dagster as dg

from fluss_client import TableInfo
from fluss_client.options import duration_ms
from fluss_orchestrate.core.provisioning.spec import LAKE_FRESHNESS

FRESHNESS_DEFAULT = "3 min"
FRESHNESS_LEAST_S = 60.0
"""Dagster takes no shorter window."""


def lake_freshness_policy(freshness: str | TableInfo, *, factor: float = 3.0) -> dg.FreshnessPolicy:
    """A policy from `table.datalake.freshness`: warn after it, fail at `factor` times it.

    It is for the asset of `fluss_lake_freshness_asset`, which has one already. On an asset that is
    materialised for snapshots alone it would fail while nothing is written.

    Args:
        freshness: that option's text, such as `3min`, or the table itself.
        factor: when it fails.
    """
    warn = timedelta(seconds=freshness_window_s(freshness))
    return dg.FreshnessPolicy.time_window(fail_window=warn * max(factor, 1.01), warn_window=warn)


def freshness_window_s(freshness: str | TableInfo) -> float:
    """The time after which a lake is not fresh, as Dagster can take it."""
    if isinstance(freshness, TableInfo):
        freshness = freshness.properties.get(LAKE_FRESHNESS, FRESHNESS_DEFAULT)
    return max(duration_ms(1)(LAKE_FRESHNESS, freshness) / 1000, FRESHNESS_LEAST_S)
