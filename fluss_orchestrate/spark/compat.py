"""What differs between versions of PySpark, as capabilities; nothing else asks for a version.

| | 3.5 | 4.0 | 4.1 | 4.2 and later |
|---|---|---|---|---|
| loads, and plans read by Python workers | yes | yes | yes | yes |
| `format("fluss")`: data sources in Python | no | yes | yes | yes |
| the partitions of a frame are planned once, by Spark | | no | yes | yes |
| `writeStream.format("fluss")`, which takes Arrow batches | no | no | yes | yes |
| limits of a micro-batch, `max.rows.per.trigger` | | no | no | yes |
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pyspark import __version__
from pyspark.errors import PySparkException

from fluss_orchestrate.core.errors import SparkSetupError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

try:
    from pyspark.sql import datasource
    from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition

    HAS_DATA_SOURCES = True
    """Whether Spark takes data sources in Python."""
except ImportError:
    HAS_DATA_SOURCES = False
    datasource = None  # type: ignore[assignment]

    # Modules that name these types are imported for the plans that they read; this Spark never asks
    # for a source.
    class DataSource:  # type: ignore[no-redef]
        """Stands for the class of Spark 4.0."""

    DataSourceReader = InputPartition = DataSource  # type: ignore[assignment,misc]

try:
    from pyspark.sql.streaming.datasource import (
        ReadAllAvailable,
        ReadLimit,
        ReadMaxBytes,
        ReadMaxRows,
        SupportsTriggerAvailableNow,
    )

    HAS_READ_LIMITS = True
    """Whether Spark asks a stream for an end within a limit."""
except ImportError:
    HAS_READ_LIMITS = False

    # The reader names these types; this Spark never asks for them.
    class SupportsTriggerAvailableNow:  # type: ignore[no-redef]
        """Stands for the class of Spark 4.2."""

    class ReadLimit:  # type: ignore[no-redef]
        """Stands for the class of Spark 4.2."""

    ReadAllAvailable = ReadMaxBytes = ReadMaxRows = ReadLimit  # type: ignore[assignment,misc]

_VERSION = tuple(int(part) for part in __version__.split(".")[:2])
PLANS_ONCE = _VERSION >= (4, 1)
"""Whether Spark plans the partitions of a frame once; otherwise it does so for every action."""
HAS_STREAM_WRITER = hasattr(datasource, "DataSourceStreamArrowWriter")
"""Whether a stream can be written as Arrow batches. Rows one by one would be far too slow."""
StreamArrowWriter: Any = getattr(
    datasource,
    "DataSourceStreamArrowWriter",
    getattr(datasource, "DataSourceStreamWriter", DataSource),
)


def needs_version(wanted: str, what: str, instead: str) -> SparkSetupError:
    """Return the error for what this PySpark cannot do."""
    return SparkSetupError(
        f"{what} needs PySpark {wanted} or later, and this is {__version__}: {instead}"
    )


def register_source(spark: SparkSession, source: type[DataSource]) -> None:
    """Register a data source, also where Spark has found the same one by itself.

    Spark 4.0 refuses the name of a source that it found (`pyspark_fluss`); later versions replace
    it. Only Python sources are refused so, hence it is this one.

    Raises:
        SparkSetupError: This Spark takes no data sources in Python.
    """
    if not HAS_DATA_SOURCES:
        raise needs_version(
            "4.0",
            'format("fluss")',
            "read plans by read_plan, load files by load_files, and give write() a load_id",
        )
    try:
        spark.dataSource.register(source)
    except PySparkException as error:
        if error.getCondition() != "DATA_SOURCE_ALREADY_EXISTS":
            raise


__all__ = [
    "HAS_DATA_SOURCES",
    "HAS_READ_LIMITS",
    "HAS_STREAM_WRITER",
    "PLANS_ONCE",
    "DataSource",
    "DataSourceReader",
    "InputPartition",
    "ReadAllAvailable",
    "ReadLimit",
    "ReadMaxBytes",
    "ReadMaxRows",
    "StreamArrowWriter",
    "SupportsTriggerAvailableNow",
    "needs_version",
    "register_source",
]
