"""Fluss from Spark: `format("fluss")`, exactly-once bulk loads, and the spark-submit step.

Names are imported when they are first used; those of the submit step need no pyspark.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from fluss_orchestrate.lazy import lazy_names

if TYPE_CHECKING:
    from fluss_orchestrate.core.clusters import ClusterRef
    from fluss_orchestrate.spark.errors import FrameChangedError, SparkSetupError, SubmitError
    from fluss_orchestrate.spark.fast import (
        exactly_once_batches,
        load_files,
        read_plan,
        write,
    )
    from fluss_orchestrate.spark.iceberg import SparkIcebergSink
    from fluss_orchestrate.spark.job import submit_load
    from fluss_orchestrate.spark.load_spec import BulkLoadSpec, LoadSource
    from fluss_orchestrate.spark.loading.load import run_load
    from fluss_orchestrate.spark.setup import make_session
    from fluss_orchestrate.spark.source.datasource import FlussDataSource, register
    from fluss_orchestrate.spark.submit import RunningSubmit, SparkSubmit, SubmitResult
    from fluss_orchestrate.spark.tiering import SparkRangeWriter

__getattr__ = lazy_names(
    __name__,
    {
        "errors": ("FrameChangedError", "SparkSetupError", "SubmitError"),
        "fast": ("exactly_once_batches", "load_files", "read_plan", "write"),
        "iceberg": ("SparkIcebergSink",),
        "job": ("ClusterRef", "submit_load"),
        "load_spec": ("BulkLoadSpec", "LoadSource"),
        "loading.load": ("run_load",),
        "setup": ("make_session",),
        "source.datasource": ("FlussDataSource", "register"),
        "submit": ("RunningSubmit", "SparkSubmit", "SubmitResult"),
        "tiering": ("SparkRangeWriter",),
    },
)

__all__ = [
    "BulkLoadSpec",
    "ClusterRef",
    "FlussDataSource",
    "FrameChangedError",
    "LoadSource",
    "RunningSubmit",
    "SparkIcebergSink",
    "SparkRangeWriter",
    "SparkSetupError",
    "SparkSubmit",
    "SubmitError",
    "SubmitResult",
    "exactly_once_batches",
    "load_files",
    "make_session",
    "read_plan",
    "register",
    "run_load",
    "submit_load",
    "write",
]
