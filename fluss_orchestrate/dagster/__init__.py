"""Apache Fluss in Dagster: resource, IO manager, incremental assets, sensors, checks, components.

Every name is importable from here and imported when it is first used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from fluss_orchestrate.lazy import lazy_names

if TYPE_CHECKING:
    from fluss_orchestrate.dagster.checks import (
        build_fluss_check_sensor,
        build_fluss_lag_check,
        build_fluss_lake_freshness_check,
        build_fluss_row_count_check,
        build_fluss_schema_check,
    )
    from fluss_orchestrate.dagster.connections import close_connections
    from fluss_orchestrate.dagster.freshness import lake_freshness_policy
    from fluss_orchestrate.dagster.handlers import (
        FlussTypeHandler,
        register_handler,
    )
    from fluss_orchestrate.dagster.incremental import (
        TransformingSink,
        fluss_incremental,
        incremental_fluss_asset,
    )
    from fluss_orchestrate.dagster.io_manager import FlussIOManager
    from fluss_orchestrate.dagster.io_settings import (
        ReadMode,
        WriteMode,
    )
    from fluss_orchestrate.dagster.lake_sensor import (
        build_fluss_lake_snapshot_sensor,
        fluss_lake_asset,
        fluss_lake_freshness_asset,
        lake_asset_key,
        lake_freshness_key,
    )
    from fluss_orchestrate.dagster.offset_sensor import build_fluss_offset_sensor
    from fluss_orchestrate.dagster.partition_sensor import build_fluss_partition_sensor
    from fluss_orchestrate.dagster.partitions import (
        fluss_time_partitions,
        partitions_of_table,
    )
    from fluss_orchestrate.dagster.resource import FlussResource
    from fluss_orchestrate.dagster.spark import PipesFlussSparkClient

__getattr__ = lazy_names(
    __name__,
    {
        "checks": (
            "build_fluss_check_sensor",
            "build_fluss_lag_check",
            "build_fluss_lake_freshness_check",
            "build_fluss_row_count_check",
            "build_fluss_schema_check",
        ),
        "connections": ("close_connections",),
        "freshness": ("lake_freshness_policy",),
        "handlers": ("FlussTypeHandler", "register_handler"),
        "incremental": (
            "TransformingSink",
            "fluss_incremental",
            "incremental_fluss_asset",
        ),
        "io_manager": ("FlussIOManager",),
        "io_settings": ("ReadMode", "WriteMode"),
        "lake_sensor": (
            "build_fluss_lake_snapshot_sensor",
            "fluss_lake_asset",
            "fluss_lake_freshness_asset",
            "lake_asset_key",
            "lake_freshness_key",
        ),
        "offset_sensor": ("build_fluss_offset_sensor",),
        "partition_sensor": ("build_fluss_partition_sensor",),
        "partitions": ("fluss_time_partitions", "partitions_of_table"),
        "resource": ("FlussResource",),
        "spark": ("PipesFlussSparkClient",),
    },
    needs="dagster",
)

__all__ = [
    "FlussIOManager",
    "FlussResource",
    "FlussTypeHandler",
    "PipesFlussSparkClient",
    "ReadMode",
    "TransformingSink",
    "WriteMode",
    "build_fluss_check_sensor",
    "build_fluss_lag_check",
    "build_fluss_lake_freshness_check",
    "build_fluss_lake_snapshot_sensor",
    "build_fluss_offset_sensor",
    "build_fluss_partition_sensor",
    "build_fluss_row_count_check",
    "build_fluss_schema_check",
    "close_connections",
    "fluss_incremental",
    "fluss_lake_asset",
    "fluss_lake_freshness_asset",
    "fluss_time_partitions",
    "incremental_fluss_asset",
    "lake_asset_key",
    "lake_freshness_key",
    "lake_freshness_policy",
    "partitions_of_table",
    "register_handler",
]
