"""Found by Spark, which looks for modules named `pyspark_*`: `format("fluss")` without a call."""

from fluss_orchestrate.spark.source.datasource import FlussDataSource as DefaultSource

__all__ = ["DefaultSource"]
