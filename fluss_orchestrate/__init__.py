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
        LakeStatus,
        TieringWorker,
        covers,
        lake_status,
        read_table,
        tier,
        wait_for_snapshot,
    )
    from fluss_orchestrate.core.loading import load_rows, open_rows
    from fluss_orchestrate.core.metrics import opentelemetry_hook, set_metrics_hook
    from fluss_orchestrate.core.plan import BucketRange, ScanPlan
    from fluss_orchestrate.core.provisioning import (
        ColumnSpec,
        PartitionWindow,
        ProvisionPlan,
        TableSpec,
        apply,
        apply_window,
        load_specs,
        plan,
        plan_window,
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

__getattr__ = lazy_names(
    __name__,
    {
        "core.checkpoints": ("CheckpointStore", "FlussCheckpointStore", "SqlCheckpointStore"),
        "core.identity": ("TableIdentity", "parse_table_uri", "table_uri"),
        "core.incremental": ("IncrementalScan", "IntervalScan", "ScanRun"),
        "core.job": ("JobResult", "run_increment"),
        "core.lake": (
            "LakeStatus",
            "TieringWorker",
            "covers",
            "lake_status",
            "read_table",
            "tier",
            "wait_for_snapshot",
        ),
        "core.loading": ("load_rows", "open_rows"),
        "core.metrics": ("opentelemetry_hook", "set_metrics_hook"),
        "core.plan": ("BucketRange", "ScanPlan"),
        "core.provisioning": (
            "ColumnSpec",
            "PartitionWindow",
            "ProvisionPlan",
            "TableSpec",
            "apply",
            "apply_window",
            "load_specs",
            "plan",
            "plan_window",
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
    },
)

__all__ = [
    "BucketRange",
    "CheckpointStore",
    "ColumnSpec",
    "FlussCheckpointStore",
    "FlussTableSink",
    "FunctionSink",
    "IcebergSink",
    "IncrementalScan",
    "IntervalScan",
    "JobResult",
    "LakeStatus",
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
    "apply",
    "apply_window",
    "covers",
    "lake_status",
    "load_rows",
    "load_specs",
    "open_rows",
    "opentelemetry_hook",
    "parse_table_uri",
    "plan",
    "plan_window",
    "read_table",
    "run_increment",
    "set_metrics_hook",
    "table_uri",
    "tier",
    "wait_for_snapshot",
]
