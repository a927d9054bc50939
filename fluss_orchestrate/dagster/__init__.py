"""Apache Fluss in Dagster: resource, IO manager, incremental assets, sensors, checks, components.

Every name is importable from here and imported when it is first used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from fluss_orchestrate.lazy import lazy_names

if TYPE_CHECKING:
    from fluss_orchestrate.dagster.checks import (
        build_fluss_check_schedule,
        build_fluss_check_sensor,
        build_fluss_checks,
        build_fluss_lag_check,
        build_fluss_lake_freshness_check,
        build_fluss_row_count_check,
        build_fluss_schema_check,
        lake_freshness_policy,
    )
    from fluss_orchestrate.dagster.incremental import (
        TransformingSink,
        fluss_incremental,
        incremental_fluss_asset,
    )
    from fluss_orchestrate.dagster.io.handlers import (
        FlussTypeHandler,
        register_type_handler,
    )
    from fluss_orchestrate.dagster.io.manager import FlussIOManager
    from fluss_orchestrate.dagster.io.settings import (
        ReadMode,
        WriteMode,
    )
    from fluss_orchestrate.dagster.mirrors import build_fluss_mirror_check, fluss_mirror_asset
    from fluss_orchestrate.dagster.partitions import (
        fluss_time_partitions,
        partitions_of_table,
    )
    from fluss_orchestrate.dagster.resource import FlussResource, close_connections
    from fluss_orchestrate.dagster.sensors.lake import (
        build_fluss_lake_snapshot_sensor,
        fluss_lake_asset,
        fluss_lake_freshness_asset,
        lake_asset_key,
        lake_freshness_key,
    )
    from fluss_orchestrate.dagster.sensors.offsets import build_fluss_offset_sensor
    from fluss_orchestrate.dagster.sensors.partitions import build_fluss_partition_sensor
    from fluss_orchestrate.dagster.sensors.tables import build_fluss_table_sensor
    from fluss_orchestrate.dagster.spark import PipesFlussSparkClient
    from fluss_orchestrate.dagster.tables import (
        DagsterFlussTranslator,
        FlussTableProps,
        load_fluss_asset_specs,
    )

__getattr__ = lazy_names(
    __name__,
    {
        "checks": (
            "build_fluss_check_schedule",
            "build_fluss_check_sensor",
            "build_fluss_checks",
            "build_fluss_lag_check",
            "build_fluss_lake_freshness_check",
            "build_fluss_row_count_check",
            "build_fluss_schema_check",
            "lake_freshness_policy",
        ),
        "io.handlers": ("FlussTypeHandler", "register_type_handler"),
        "incremental": (
            "TransformingSink",
            "fluss_incremental",
            "incremental_fluss_asset",
        ),
        "io.manager": ("FlussIOManager",),
        "io.settings": ("ReadMode", "WriteMode"),
        "sensors.lake": (
            "build_fluss_lake_snapshot_sensor",
            "fluss_lake_asset",
            "fluss_lake_freshness_asset",
            "lake_asset_key",
            "lake_freshness_key",
        ),
        "sensors.offsets": ("build_fluss_offset_sensor",),
        "sensors.partitions": ("build_fluss_partition_sensor",),
        "mirrors": ("build_fluss_mirror_check", "fluss_mirror_asset"),
        "partitions": ("fluss_time_partitions", "partitions_of_table"),
        "resource": ("FlussResource", "close_connections"),
        "sensors.tables": ("build_fluss_table_sensor",),
        "spark": ("PipesFlussSparkClient",),
        "tables": ("DagsterFlussTranslator", "FlussTableProps", "load_fluss_asset_specs"),
    },
    needs="dagster",
)

__all__ = [
    "DagsterFlussTranslator",
    "FlussIOManager",
    "FlussResource",
    "FlussTableProps",
    "FlussTypeHandler",
    "PipesFlussSparkClient",
    "ReadMode",
    "TransformingSink",
    "WriteMode",
    "build_fluss_check_schedule",
    "build_fluss_check_sensor",
    "build_fluss_checks",
    "build_fluss_lag_check",
    "build_fluss_lake_freshness_check",
    "build_fluss_lake_snapshot_sensor",
    "build_fluss_mirror_check",
    "build_fluss_offset_sensor",
    "build_fluss_partition_sensor",
    "build_fluss_row_count_check",
    "build_fluss_schema_check",
    "build_fluss_table_sensor",
    "close_connections",
    "fluss_incremental",
    "fluss_lake_asset",
    "fluss_lake_freshness_asset",
    "fluss_mirror_asset",
    "fluss_time_partitions",
    "incremental_fluss_asset",
    "lake_asset_key",
    "lake_freshness_key",
    "lake_freshness_policy",
    "load_fluss_asset_specs",
    "partitions_of_table",
    "register_type_handler",
]
