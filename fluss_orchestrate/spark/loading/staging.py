"""Any source as a DataFrame, and a DataFrame as Parquet files that stay as they are.

A load is cut at rows, so its input must give the same rows in the same order every time. Files
that are Parquet already are read as they are. Everything else is written to a staging folder once;
the first attempt whose folder is recorded wins, and later ones read that folder.

Parquet files on object stores are read, and staging folders there are written, by Arrow in Python,
with the credentials that every other file has. Spark needs no file system of Hadoop for them, and
writes and reads only files on local disks and those of other formats by itself. Object stores have
no rename, so tasks write files with names of their own, and a manifest says which of them count.
"""

from __future__ import annotations

import hashlib
import itertools
import json
import os
import re
import uuid
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq

from fluss_client import TableInfo
from fluss_client.engine import FAILURES, explain, parse_location
from fluss_client.errors import ConfigError, RowError
from fluss_client.testing import state_dir
from fluss_orchestrate.core.loading.sources import SourceError
from fluss_orchestrate.core.sinks.parquet import write_parquet
from fluss_orchestrate.core.spark_submit.load_spec import FILE_KINDS, BulkLoadSpec, LoadSource
from fluss_orchestrate.spark.errors import sentence
from fluss_orchestrate.spark.loading.fitting import SOURCE_BLOCK, SOURCE_FILE
from fluss_orchestrate.spark.loading.places import MANIFEST, filesystem_of, list_files
from fluss_orchestrate.spark.loading.splits import read_footers
from fluss_orchestrate.spark.setup import session_conf
from fluss_orchestrate.spark.source.types import arrow_schema, shown, spark_schema

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, DataFrameReader, SparkSession

SOURCE_VIEW = "source"
STAGING_CONF = {"spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS"}
STAGING_CODEC = "zstd"
READ_BATCH_ROWS = 1 << 16
_NO_FILE_SYSTEM = re.compile(r"No FileSystem for scheme|Class \S+FileSystem not found")
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
    from fluss_orchestrate.core.lake.catalog import explained_by_catalog, open_catalog

    assert source.table is not None
    catalog = open_catalog({**source.options, **_secrets(source)})
    with explained_by_catalog(catalog):
        return catalog.load_table(source.table)


def source_frame(
    spark: SparkSession, spec: BulkLoadSpec, info: TableInfo, given: DataFrame | None = None
) -> DataFrame:
    """Return the rows to load, transformed as the spec says; `given` replaces the source."""
    source = spec.source
    plain = source.kind == "parquet" and not (source.options or spec.transform_sql)
    if given is None and plain:
        stored = _stored_frame(spark, source.paths, with_file=True)
        if stored is not None:
            return _last_of_each_key(stored, spec, info) if spec.order_by else stored
    frame = _read(spark, source) if given is None else given
    if spec.transform_sql:
        frame.createOrReplaceTempView(SOURCE_VIEW)
        frame = spark.sql(spec.transform_sql)
    elif given is None and source.kind in FILE_KINDS:
        from pyspark.sql import functions as f

        frame = frame.withColumn(SOURCE_FILE, f.col("_metadata.file_path"))
        if not spec.order_by:
            # Rows stay in the order of their file, so that the number of a row identifies it.
            frame = frame.withColumn(SOURCE_BLOCK, f.col("_metadata.file_block_start"))
    return _last_of_each_key(frame, spec, info) if spec.order_by else frame


def _stored_frame(
    spark: SparkSession, paths: Sequence[str], with_file: bool = False
) -> DataFrame | None:
    """Return the rows of Parquet files on object stores; None if there are others among them.

    `with_file` adds the column with the file that a row comes from.
    """
    if any(parse_location(path).is_local for path in paths):
        return None
    files = list_files(paths)
    if any("=" in file.path.rpartition("/")[0] for file in files):
        # Folders such as day=2026-01-01 hold a column that is not in the files.
        return None
    footers = read_footers(files)
    schema = footers[0].schema
    if with_file:
        schema = schema.append(pa.field(SOURCE_FILE, pa.string(), nullable=False))
    shown = spark_schema(schema)
    groups = [(f.file.path, n) for f in footers for n in range(len(f.groups))]
    frame = spark.createDataFrame(groups, "path string, row_group int")
    parts = frame.repartition(max(1, len(groups)))
    return parts.mapInArrow(_RowGroups(arrow_schema(shown)), shown)


@dataclass(frozen=True)
class _RowGroups:
    """Reads row groups of files on object stores, on an executor."""

    schema: pa.Schema

    def __call__(self, asked: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for some in asked:
            for one in some.to_pylist():
                yield from self._rows(one["path"], one["row_group"])

    def _rows(self, path: str, row_group: int) -> Iterator[pa.RecordBatch]:
        system, inner = filesystem_of(path)
        try:
            with pq.ParquetFile(inner, filesystem=system, pre_buffer=True) as opened:
                for batch in opened.iter_batches(READ_BATCH_ROWS, row_groups=[row_group]):
                    if SOURCE_FILE in self.schema.names:
                        names = pa.array([path] * batch.num_rows, pa.string())
                        batch = batch.append_column(SOURCE_FILE, names)
                    yield shown(batch, self.schema)
        except FAILURES as error:
            why = explain(error, parse_location(path), system)
            raise SourceError(path, f"cannot be read: {why}") from error


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
    if source.kind == "parquet" and not options:
        stored = _stored_frame(spark, source.paths)
        if stored is not None:
            return stored
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
    return _loaded(reader.options(**options), source)


def _loaded(reader: DataFrameReader, source: LoadSource) -> DataFrame:
    from py4j.protocol import Py4JError  # type: ignore[import-untyped]
    from pyspark.errors import PySparkException

    try:
        return reader.load(list(source.paths))
    except (PySparkException, Py4JError) as error:
        place = parse_location(source.paths[0])
        if place.is_local or not _NO_FILE_SYSTEM.search(str(error)):
            raise
        raise SourceError(
            place.text,
            f"Spark itself reads {source.kind} files and folders of partitions, and has no file "
            f"system for {place.scheme}://: give it one (such as hadoop-aws for s3a://, by "
            "spark.jars.packages), or load Parquet files, which need none",
        ) from error


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
    from py4j.protocol import Py4JError
    from pyspark.errors import PySparkException

    target = f"{folder}/{uuid.uuid4().hex}"
    try:
        if not parse_location(folder).is_local:
            _stage_in_store(frame, target)
            return target
        with session_conf(spark, STAGING_CONF):
            frame.write.mode("error").parquet(target)  # the name that Spark Connect knows, too
    except (PySparkException, Py4JError) as error:
        remove_staging(target)
        raise SourceError(target, f"rows cannot be staged here: {sentence(error)}") from error
    return target


def _stage_in_store(frame: DataFrame, target: str) -> None:
    """Write a frame as files in a folder of an object store, then the manifest."""
    schema = arrow_schema(frame.schema)
    writer = _StoredParts(target, schema)
    written = frame.mapInArrow(writer, "part int, name string").collect()
    names = [row["name"] for row in sorted(written, key=lambda row: row["part"])]
    if not names:
        names = [writer.write(0, schema.empty_table().to_reader())]
    system, path = filesystem_of(target)
    try:
        with system.open_output_stream(f"{path}/{MANIFEST}") as file:
            file.write(json.dumps(names).encode())
    except FAILURES as error:
        why = explain(error, parse_location(target), system)
        raise SourceError(target, f"rows cannot be staged here: {why}") from error


@dataclass(frozen=True)
class _StoredParts:
    """Writes the rows of a partition as a file of an object store, on an executor.

    Each attempt has a file of its own. The one whose name reaches the driver counts.
    """

    folder: str
    schema: pa.Schema

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        from pyspark import TaskContext

        context = TaskContext.get()
        assert context is not None
        part = context.partitionId()
        rows = (shown(batch, self.schema) for batch in batches if batch.num_rows)
        first = next(rows, None)
        if first is None:
            return
        reader = pa.RecordBatchReader.from_batches(self.schema, itertools.chain([first], rows))
        yield pa.RecordBatch.from_pylist(
            [{"part": part, "name": self.write(part, reader)}],
            pa.schema([("part", pa.int32()), ("name", pa.string())]),
        )

    def write(self, part: int, reader: pa.RecordBatchReader) -> str:
        """Write a file and return its name."""
        name = f"part-{part:05}-{uuid.uuid4().hex}.parquet"
        system, path = filesystem_of(self.folder)
        try:
            with system.open_output_stream(f"{path}/{name}") as file:
                write_parquet(file, reader, STAGING_CODEC)
        except FAILURES as error:
            why = explain(error, parse_location(self.folder), system)
            raise SourceError(self.folder, f"rows cannot be staged here: {why}") from error
        return name


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
