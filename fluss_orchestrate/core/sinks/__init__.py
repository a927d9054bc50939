"""Sinks: where the rows of a plan are written, exactly once.

Each name is imported when it is first used, so that a part of the core that needs only the errors
does not load every sink.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from fluss_orchestrate.lazy import lazy_names

if TYPE_CHECKING:
    from fluss_orchestrate.core.loading.errors import PinExpiredError
    from fluss_orchestrate.core.sinks.base import (
        ReadPlan,
        SchemaPolicy,
        Sink,
        SinkForm,
        SinkResult,
        range_plan,
    )
    from fluss_orchestrate.core.sinks.errors import (
        SinkChangesError,
        SinkContendedError,
        SinkError,
        SinkFormError,
        SinkPositionError,
        SinkSchemaError,
        SinkValueError,
    )
    from fluss_orchestrate.core.sinks.fluss_table import FlussTableSink
    from fluss_orchestrate.core.sinks.function import FunctionSink
    from fluss_orchestrate.core.sinks.iceberg import IcebergSink
    from fluss_orchestrate.core.sinks.parquet import ParquetSink
    from fluss_orchestrate.core.sinks.sql import SqlSink

__getattr__ = lazy_names(
    "fluss_orchestrate.core",
    {
        "loading.errors": ("PinExpiredError",),
        "sinks.base": (
            "ReadPlan",
            "SchemaPolicy",
            "Sink",
            "SinkForm",
            "SinkResult",
            "range_plan",
        ),
        "sinks.errors": (
            "SinkChangesError",
            "SinkContendedError",
            "SinkError",
            "SinkFormError",
            "SinkPositionError",
            "SinkSchemaError",
            "SinkValueError",
        ),
        "sinks.fluss_table": ("FlussTableSink",),
        "sinks.function": ("FunctionSink",),
        "sinks.iceberg": ("IcebergSink",),
        "sinks.parquet": ("ParquetSink",),
        "sinks.sql": ("SqlSink",),
    },
)

__all__ = [
    "FlussTableSink",
    "FunctionSink",
    "IcebergSink",
    "ParquetSink",
    "PinExpiredError",
    "ReadPlan",
    "SchemaPolicy",
    "Sink",
    "SinkChangesError",
    "SinkContendedError",
    "SinkError",
    "SinkForm",
    "SinkFormError",
    "SinkPositionError",
    "SinkResult",
    "SinkSchemaError",
    "SinkValueError",
    "SqlSink",
    "range_plan",
]
