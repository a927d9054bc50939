"""Run Apache Fluss from Airflow, Dagster and Spark.

The core's public names are importable from here; each is imported when it is first used, so that
importing this package costs nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from fluss_orchestrate.lazy import lazy_names

if TYPE_CHECKING:
    from fluss_orchestrate.core.checkpoints import (
        CheckpointStore,
        FlussCheckpointStore,
        SqlCheckpointStore,
    )
    from fluss_orchestrate.core.identity import TableIdentity, parse_table_uri, table_uri
    from fluss_orchestrate.core.incremental import IncrementalScan, IntervalScan, ScanRun
    from fluss_orchestrate.core.job import JobResult, run_increment
    from fluss_orchestrate.core.lake import (
        LakeMaintenance,
        LakeStatus,
        MaintenanceSettings,
        TieringWorker,
        lake_covers,
        lake_status,
        maintain_lake,
        pin_lake,
        read_table,
        tier_table,
        wait_for_snapshot,
    )
    from fluss_orchestrate.core.loading import load_rows, open_rows
    from fluss_orchestrate.core.metrics import opentelemetry_hook, set_metrics_hook
    from fluss_orchestrate.core.mirror.comparison import MirrorComparison
    from fluss_orchestrate.core.mirror.databases import DatabaseSummary, mirror_database
    from fluss_orchestrate.core.mirror.table import mirror_table
    from fluss_orchestrate.core.mirror.verification import verify_mirror
    from fluss_orchestrate.core.plan import BucketRange, ScanPlan
    from fluss_orchestrate.core.provisioning import (
        ColumnSpec,
        PartitionWindow,
        ProvisionPlan,
        TableSpec,
        apply_partition_window,
        apply_tables,
        load_table_specs,
        plan_partition_window,
        plan_tables,
    )
    from fluss_orchestrate.core.receipts import Receipt
    from fluss_orchestrate.core.sinks import (
        FlussTableSink,
        FunctionSink,
        IcebergSink,
        ParquetSink,
        Sink,
        SqlSink,
    )
    from fluss_orchestrate.core.sinks.contract import ContractSink

__getattr__ = lazy_names(
    __name__,
    {
        "core.checkpoints": ("CheckpointStore", "FlussCheckpointStore", "SqlCheckpointStore"),
        "core.identity": ("TableIdentity", "parse_table_uri", "table_uri"),
        "core.incremental": ("IncrementalScan", "IntervalScan", "ScanRun"),
        "core.job": ("JobResult", "run_increment"),
        "core.lake": (
            "LakeMaintenance",
            "LakeStatus",
            "MaintenanceSettings",
            "TieringWorker",
            "lake_covers",
            "lake_status",
            "maintain_lake",
            "pin_lake",
            "read_table",
            "tier_table",
            "wait_for_snapshot",
        ),
        "core.loading": ("load_rows", "open_rows"),
        "core.metrics": ("opentelemetry_hook", "set_metrics_hook"),
        "core.mirror.comparison": ("MirrorComparison",),
        "core.mirror.databases": ("DatabaseSummary", "mirror_database"),
        "core.mirror.table": ("mirror_table",),
        "core.mirror.verification": ("verify_mirror",),
        "core.plan": ("BucketRange", "ScanPlan"),
        "core.provisioning": (
            "ColumnSpec",
            "PartitionWindow",
            "ProvisionPlan",
            "TableSpec",
            "apply_tables",
            "apply_partition_window",
            "load_table_specs",
            "plan_tables",
            "plan_partition_window",
        ),
        "core.receipts": ("Receipt",),
        "core.sinks": (
            "FlussTableSink",
            "FunctionSink",
            "IcebergSink",
            "ParquetSink",
            "Sink",
            "SqlSink",
        ),
        "core.sinks.contract": ("ContractSink",),
    },
)

__all__ = [
    "BucketRange",
    "CheckpointStore",
    "ColumnSpec",
    "ContractSink",
    "DatabaseSummary",
    "FlussCheckpointStore",
    "FlussTableSink",
    "FunctionSink",
    "IcebergSink",
    "IncrementalScan",
    "IntervalScan",
    "JobResult",
    "LakeMaintenance",
    "LakeStatus",
    "MaintenanceSettings",
    "MirrorComparison",
    "ParquetSink",
    "PartitionWindow",
    "ProvisionPlan",
    "Receipt",
    "ScanPlan",
    "ScanRun",
    "Sink",
    "SqlCheckpointStore",
    "SqlSink",
    "TableIdentity",
    "TableSpec",
    "TieringWorker",
    "apply_partition_window",
    "apply_tables",
    "lake_covers",
    "lake_status",
    "load_rows",
    "load_table_specs",
    "maintain_lake",
    "mirror_database",
    "mirror_table",
    "open_rows",
    "opentelemetry_hook",
    "parse_table_uri",
    "pin_lake",
    "plan_partition_window",
    "plan_tables",
    "read_table",
    "run_increment",
    "set_metrics_hook",
    "table_uri",
    "tier_table",
    "verify_mirror",
    "wait_for_snapshot",
]
