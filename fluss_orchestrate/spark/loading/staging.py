"""Any source as a DataFrame, and a DataFrame as Parquet files that stay as they are.

A load is cut at rows, so its input must give the same rows in the same order every time. Files
that are Parquet already are read as they are. Everything else is written to a staging folder once;
the first attempt whose folder is recorded wins, and later ones read that folder.
"""

from __future__ import annotations

import hashlib
import os
import uuid
from collections.abc import Sequence
from typing import TYPE_CHECKING

import pyarrow as pa

from fluss_client import TableInfo
from fluss_client.errors import ConfigError, RowError
from fluss_client.testing import state_dir
from fluss_orchestrate.core.loading.sources import SourceError
from fluss_orchestrate.core.spark_submit.load_spec import FILE_KINDS, BulkLoadSpec, LoadSource
from fluss_orchestrate.spark.errors import sentence
from fluss_orchestrate.spark.loading.fitting import SOURCE_BLOCK, SOURCE_FILE
from fluss_orchestrate.spark.loading.places import filesystem_of, list_files
from fluss_orchestrate.spark.setup import session_conf

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

SOURCE_VIEW = "source"
STAGING_CONF = {"spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS"}
_RANK = "__fluss_rank"


def direct_files(spec: BulkLoadSpec) -> Sequence[str] | None:
    """Return the Parquet files that can be read as they are; None if the input must be staged."""
    source = spec.source
    if spec.transform_sql or spec.order_by:
        return None
    if source.kind == "iceberg":
        return _iceberg_files(source)
    if source.kind != "parquet" or source.options:
        return None
    paths = [file.path for file in list_files(source.paths)]
    # Folders such as day=2026-01-01 hold a column that is not in the files.
    return None if any("=" in path.rpartition("/")[0] for path in paths) else paths


def _iceberg_files(source: LoadSource) -> list[str] | None:
    """Return an Iceberg table's own files, if they alone are its rows under their own names."""
    table = _iceberg_table(source)
    tasks = list(table.scan().plan_files())
    if len(table.metadata.schemas) > 1 or any(task.delete_files for task in tasks):
        return None
    return [task.file.file_path for task in tasks] or None


def _iceberg_table(source: LoadSource):  # type: ignore[no-untyped-def]
    from fluss_orchestrate.core.lake.catalog import open_catalog

    assert source.table is not None
    return open_catalog({**source.options, **_secrets(source)}).load_table(source.table)


def source_frame(
    spark: SparkSession, spec: BulkLoadSpec, info: TableInfo, given: DataFrame | None = None
) -> DataFrame:
    """Return the rows to load, transformed as the spec says; `given` replaces the source."""
    frame = _read(spark, spec.source) if given is None else given
    if spec.transform_sql:
        frame.createOrReplaceTempView(SOURCE_VIEW)
        frame = spark.sql(spec.transform_sql)
    elif given is None and spec.source.kind in FILE_KINDS:
        from pyspark.sql import functions as f

        frame = frame.withColumn(SOURCE_FILE, f.col("_metadata.file_path"))
        if not spec.order_by:
            # Rows stay in the order of their file, so that the number of a row identifies it.
            frame = frame.withColumn(SOURCE_BLOCK, f.col("_metadata.file_block_start"))
    return _last_of_each_key(frame, spec, info) if spec.order_by else frame


def _read(spark: SparkSession, source: LoadSource) -> DataFrame:
    options = {**source.options, **_secrets(source)}
    if source.kind == "query":
        return spark.sql(source.query or "")
    if source.kind == "table":
        return spark.table(source.table or "")
    if source.kind == "iceberg":
        from fluss_orchestrate.core.lake.file_scan import read_scan

        table = _iceberg_table(source)
        return spark.createDataFrame(read_scan(table.scan(), table).read_all())
    reader = spark.read.format(source.kind)
    if "schema" in options:
        reader = reader.schema(options.pop("schema"))
    if source.kind in ("csv", "json"):
        reader = reader.option("mode", "FAILFAST")
    if source.kind == "csv":
        reader = reader.option("header", "true")
    if source.kind == "jdbc":
        name = "dbtable" if source.table else "query"
        return reader.options(**options).option(name, source.table or source.query).load()
    return reader.options(**options).load(list(source.paths))


def _secrets(source: LoadSource) -> dict[str, str]:
    found = {}
    for key, variable in source.secret_options.items():
        if variable not in os.environ:
            raise ConfigError(
                f"the source's option {key} is to come from the variable {variable}, which the "
                "driver does not have"
            )
        found[key] = os.environ[variable]
    return found


def _last_of_each_key(frame: DataFrame, spec: BulkLoadSpec, info: TableInfo) -> DataFrame:
    assert spec.order_by is not None
    keys = [spec.columns.get(name, name) for name in info.primary_keys]
    check_order(info, spec.order_by, keys, frame.columns)
    # As text: objects such as Window belong to either kind of session, Connect's or the other.
    window = f"PARTITION BY {', '.join(map(_quoted, keys))} ORDER BY {_quoted(spec.order_by)} DESC"
    ranked = frame.selectExpr("*", f"row_number() OVER ({window}) AS {_RANK}")
    kept = ranked.where(f"{_RANK} = 1").drop(_RANK)
    return kept if spec.order_by in _wanted(info, spec) else kept.drop(spec.order_by)


def _quoted(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"


def check_order(
    info: TableInfo, order_by: str, keys: Sequence[str], columns: Sequence[str]
) -> None:
    """Raise unless rows with these columns can be ordered within their keys."""
    if not info.has_primary_key():
        raise ConfigError(f"order_by is for tables with a primary key; {info.table_path} has none")
    missing = [name for name in (*keys, order_by) if name not in columns]
    if missing:
        raise RowError(f"the input has no column {missing[0]}; it has {list(columns)}")


def _wanted(info: TableInfo, spec: BulkLoadSpec) -> set[str]:
    return {spec.columns.get(name, name) for name in info.get_column_names()}


def staging_folder(spec: BulkLoadSpec, info: TableInfo, is_local: bool) -> str:
    """Return the folder of this load's staged input."""
    base = spec.staging
    if base is None:
        if not is_local:
            raise ConfigError(
                "this source must be staged as Parquet: set staging to a folder that driver and "
                "executors share"
            )
        base = str(state_dir() / "spark-staging")
    key = hashlib.sha256(f"{info.table_id}/{spec.load_id}".encode()).hexdigest()[:16]
    return f"{base.rstrip('/')}/{info.table_path.table_name}-{key}"


def stage(spark: SparkSession, frame: DataFrame, folder: str) -> str:
    """Write a frame into a new folder below `folder`, and return its path.

    A failure leaves no files.
    """
    from py4j.protocol import Py4JError  # type: ignore[import-untyped]
    from pyspark.errors import PySparkException

    target = f"{folder}/{uuid.uuid4().hex}"
    try:
        with session_conf(spark, STAGING_CONF):
            frame.write.mode("error").parquet(target)  # the name that Spark Connect knows, too
    except (PySparkException, Py4JError) as error:
        remove_staging(target)
        raise SourceError(target, f"rows cannot be staged here: {sentence(error)}") from error
    return target


def remove_staging(folder: str) -> None:
    """Delete what this load has staged, in all its attempts."""
    system, path = filesystem_of(folder)
    try:
        system.delete_dir(path)
    except FileNotFoundError:
        return
    except (OSError, pa.ArrowException) as error:
        raise SourceError(
            folder, f"is not needed any more and cannot be deleted: {error}"
        ) from error
