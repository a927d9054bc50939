"""`format("fluss")`: the class that Spark asks for schemas, readers and writers.

Filters are not pushed down: Spark 4.2 and 4.3 keep a plan with pushed filters for other queries,
which then get wrong rows. Columns, partitions, ranges, row filters and limits come by options and
`.schema()`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark.sql.types import (
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from fluss_client import FlussConnection, TableInfo
from fluss_client.engine import table_info
from fluss_orchestrate.core.incremental.reading.columns import METADATA_FIELDS
from fluss_orchestrate.core.lake.reader import planned_table
from fluss_orchestrate.spark.compat import (
    PLANS_ONCE,
    DataSource,
    DataSourceReader,
    InputPartition,
    needs_version,
    register_source,
)
from fluss_orchestrate.spark.source.options import SourceOptions
from fluss_orchestrate.spark.source.parts import Part, PartsPartition, parts_of, read_parts
from fluss_orchestrate.spark.source.planning import mode_of, plan_parts
from fluss_orchestrate.spark.source.types import arrow_schema, spark_type

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.datasource import (
        DataSourceStreamReader,
        DataSourceStreamWriter,
        DataSourceWriter,
    )

CHANGELOG_METADATA = ("_change_type", "_offset", "_timestamp")
_METADATA_TYPES = {
    "_change_type": StringType(),
    "_offset": LongType(),
    "_timestamp": TimestampType(),
    "_bucket": IntegerType(),
    "_partition": StringType(),
}


class FlussDataSource(DataSource):
    """Fluss tables for Spark."""

    _groups: Sequence[Sequence[Part]] | None = None
    """What each partition of a frame reads, where Spark itself would plan it again and again."""

    @classmethod
    def name(cls) -> str:
        """Return the name of the format."""
        return "fluss"

    @property
    def _options(self) -> SourceOptions:
        return SourceOptions.of(self.options)

    def schema(self) -> StructType:
        """Return the columns that a read returns by default."""
        options = self._options
        struct = frame_struct(options.cluster.connection(), options)
        if not PLANS_ONCE:
            # Spark pickles this object after it has asked for the schema.
            self._groups = plan_parts(options, struct.names)
        return struct

    def reader(self, schema: StructType) -> DataSourceReader:
        """Return the reader of a batch query for a `schema`."""
        options = self._options
        if self._groups is None and not PLANS_ONCE:
            raise needs_version(
                "4.1",
                "reading with .schema(...)",
                "name the columns by option('columns', ...)",
            )
        return FlussReader(options, schema, self._groups)

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        """Return the writer of a batch query.

        Args:
            schema: The schema of the rows.
            overwrite: Whether Spark's mode is `overwrite`.
        """
        from fluss_orchestrate.spark.source.writing import batch_writer

        return batch_writer(self._options, schema, overwrite)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802
        """Return the reader of a streaming query for a `schema`."""
        from fluss_orchestrate.spark.source.streaming import stream_reader

        return stream_reader(self._options, schema)

    def streamWriter(  # noqa: N802
        self, schema: StructType, overwrite: bool
    ) -> DataSourceStreamWriter:
        """Return the writer of a streaming query.

        Args:
            schema: The schema of the rows.
            overwrite: Whether rows shall be replaced, which a stream cannot do.
        """
        from fluss_orchestrate.spark.source.writing import stream_writer

        return stream_writer(self._options, schema, overwrite)


class FlussReader(DataSourceReader):
    """Reads the parts that were planned when Spark asked for partitions."""

    def __init__(
        self,
        options: SourceOptions,
        schema: StructType,
        groups: Sequence[Sequence[Part]] | None = None,
    ) -> None:
        self._options = options
        self._target: pa.Schema = arrow_schema(schema)
        self._groups = groups

    def partitions(self) -> list[InputPartition]:
        """Return the parts, planned now; a frame that is used again reads the same ones again."""
        groups = self._groups
        if groups is None:
            groups = plan_parts(self._options, self._target.names)
        return [PartsPartition(parts) for parts in groups or [[]]]

    def read(self, partition: InputPartition) -> Iterator[Any]:
        """Return the rows of one Spark partition."""
        asked = self._options
        limit = asked.number("limit")
        parts = parts_of(partition)
        yield from read_parts(asked.cluster, parts, self._target, asked.row_filter, limit)


def register(spark: SparkSession) -> None:
    """Register `format("fluss")` with the session `spark`.

    It is needed where Spark does not find the installed package by itself.
    """
    register_source(spark, FlussDataSource)


def frame_struct(connection: FlussConnection, options: SourceOptions) -> StructType:
    """Return the columns of a read as Spark's types."""
    if (plan := options.plan) is not None:
        return _struct(planned_table(connection, plan), plan.columns, plan.metadata_columns)
    info = table_info(connection, options.table)
    metadata = options.metadata
    if not metadata and mode_of(options, info.has_primary_key()) == "changelog":
        metadata = CHANGELOG_METADATA
    return _struct(info, options.names("columns") or info.get_column_names(), metadata)


def _struct(info: TableInfo, columns: Any, metadata: Any) -> StructType:
    fields = []
    for name in columns:
        column = info.schema.column(name)
        fields.append(StructField(column.name, spark_type(column.type), column.type.nullable))
    struct = StructType(fields)
    for name in metadata:
        struct = struct.add(name, _METADATA_TYPES[name], METADATA_FIELDS[name].nullable)
    return struct
