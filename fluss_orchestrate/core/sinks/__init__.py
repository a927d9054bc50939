"""Where the rows of a plan go, exactly once under its id."""

from fluss_orchestrate.core.loading.errors import PinExpiredError
from fluss_orchestrate.core.schema_policy import SchemaPolicy
from fluss_orchestrate.core.sink_errors import (
    SinkChangesError,
    SinkContendedError,
    SinkError,
    SinkPositionError,
    SinkSchemaError,
    SinkValueError,
)
from fluss_orchestrate.core.sinks.base import ReadPlan, Sink, SinkResult, range_plan
from fluss_orchestrate.core.sinks.fluss_table import FlussTableSink
from fluss_orchestrate.core.sinks.function import FunctionSink
from fluss_orchestrate.core.sinks.iceberg import IcebergSink
from fluss_orchestrate.core.sinks.parquet import ParquetSink
from fluss_orchestrate.core.sinks.sql import SqlSink

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
    "SinkPositionError",
    "SinkResult",
    "SinkSchemaError",
    "SinkValueError",
    "SqlSink",
    "range_plan",
]
