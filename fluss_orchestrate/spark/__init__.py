"""Fluss from Spark: `format("fluss")`, exactly-once bulk loads, and the spark-submit step.

Names are imported when they are first used; those of the submit step need no pyspark.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from fluss_orchestrate.lazy import lazy_names

if TYPE_CHECKING:
    from fluss_orchestrate.core.clusters import ClusterRef
    from fluss_orchestrate.core.errors import SparkSetupError, SubmitError
    from fluss_orchestrate.core.spark_submit.job import submit_load
    from fluss_orchestrate.core.spark_submit.load_spec import BulkLoadSpec, LoadSource
    from fluss_orchestrate.core.spark_submit.submit import RunningSubmit, SparkSubmit, SubmitResult
    from fluss_orchestrate.spark.errors import FrameChangedError
    from fluss_orchestrate.spark.fast import (
        exactly_once_batches,
        load_files,
        read,
        read_plan,
        write,
    )
    from fluss_orchestrate.spark.iceberg import SparkIcebergSink, SparkRangeWriter
    from fluss_orchestrate.spark.lake_maintenance import SparkGroupWriter
    from fluss_orchestrate.spark.loading.load import run_load
    from fluss_orchestrate.spark.setup import make_session
    from fluss_orchestrate.spark.source.datasource import FlussDataSource, register

__getattr__ = lazy_names(
    __name__,
    {
        "fluss_orchestrate.core.clusters": ("ClusterRef",),
        "fluss_orchestrate.core.errors": ("SparkSetupError", "SubmitError"),
        "fluss_orchestrate.core.spark_submit.job": ("submit_load",),
        "fluss_orchestrate.core.spark_submit.load_spec": ("BulkLoadSpec", "LoadSource"),
        "fluss_orchestrate.core.spark_submit.submit": (
            "RunningSubmit",
            "SparkSubmit",
            "SubmitResult",
        ),
        "errors": ("FrameChangedError",),
        "fast": ("exactly_once_batches", "load_files", "read", "read_plan", "write"),
        "iceberg": ("SparkIcebergSink", "SparkRangeWriter"),
        "lake_maintenance": ("SparkGroupWriter",),
        "loading.load": ("run_load",),
        "setup": ("make_session",),
        "source.datasource": ("FlussDataSource", "register"),
    },
)

__all__ = [
    "BulkLoadSpec",
    "ClusterRef",
    "FlussDataSource",
    "FrameChangedError",
    "LoadSource",
    "RunningSubmit",
    "SparkGroupWriter",
    "SparkIcebergSink",
    "SparkRangeWriter",
    "SparkSetupError",
    "SparkSubmit",
    "SubmitError",
    "SubmitResult",
    "exactly_once_batches",
    "load_files",
    "make_session",
    "read",
    "read_plan",
    "register",
    "run_load",
    "submit_load",
    "write",
]
