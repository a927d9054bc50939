"""The fast paths: frames written in good batches, plans read without the JVM in between, files
loaded by Python workers alone.

Spark measures every row of an Arrow batch unless its byte limit is the greatest there is, and then
a batch of wide rows could grow too large. So the rows of a batch are chosen by a sample.

Rows that go to the same bucket, brought into the same task before they are written.

A frame whose rows lie in any order makes every task write a little to every bucket of every
partition. Where those are many, batches become so small that a shuffle costs less than they do: a
million rows from 8 tasks into 400 partitions took 10 s with it and 13 s without, into 100
partitions 11 s and 8 s.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from fluss_client import Config, FlussConnection, TableInfo, TablePath
from fluss_client.engine import all_buckets, backend_of, run_blocking
from fluss_client.errors import ConfigError
from fluss_orchestrate.core.clusters import ClusterRef
from fluss_orchestrate.core.loading.units import Placer, listed_counts
from fluss_orchestrate.core.plan import ScanPlan
from fluss_orchestrate.core.receipts import Receipt
from fluss_orchestrate.core.spark_submit.load_spec import BulkLoadSpec, LoadSource
from fluss_orchestrate.spark.loading.load import run_load
from fluss_orchestrate.spark.loading.staging import check_order
from fluss_orchestrate.spark.loading.waves import Say, say
from fluss_orchestrate.spark.setup import parallelism, session_conf
from fluss_orchestrate.spark.source.types import written

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

    from fluss_orchestrate.spark.source.options import SourceOptions

PLACE = "_fluss_place"
PLACES_MIN = 256
"""Buckets of all partitions from which on it pays."""


def gathered(
    frame: DataFrame,
    connection: FlussConnection,
    table: str,
    *,
    always: bool,
    changes: str | None = None,
) -> DataFrame:
    """Return the frame with the rows of each bucket in one task, `always` or if that is faster.

    The frame is unchanged if the rows do not decide their bucket, or if a column with `changes`
    makes their order count, which a shuffle does not keep.
    """
    if changes is not None:
        if always:
            raise ConfigError(
                f"gather=True shuffles rows, and those with the operation column '{changes}' must "
                "keep their order: add order_by, such as order_by='_offset'"
            )
        return frame
    info = connection.get_table(TablePath.parse(table)).result().get_table_info()
    columns = _deciding(info)
    if not columns or not set(columns) <= set(frame.columns):
        return frame
    if not always and _places(connection, info) < PLACES_MIN:
        return frame
    marked = _marked(frame, info, columns, listed_counts(connection, info))
    return marked.repartition(PLACE).drop(PLACE)


def ordered(frame: DataFrame, connection: FlussConnection, table: str, order_by: str) -> DataFrame:
    """Return the frame with the rows of each bucket in one task, in the order of a column."""
    info = connection.get_table(TablePath.parse(table)).result().get_table_info()
    check_order(info, order_by, info.primary_keys, frame.columns)
    counts = listed_counts(connection, info)
    placed = _marked(frame, info, _deciding(info), counts).repartition(PLACE)
    placed = placed.sortWithinPartitions(order_by).drop(PLACE)
    return placed if order_by in info.get_column_names() else placed.drop(order_by)


def _deciding(info: TableInfo) -> list[str]:
    """Return the columns that decide the place of a row."""
    keys = info.bucket_keys or info.physical_primary_keys
    return list(dict.fromkeys([*info.partition_keys, *keys]))


def _places(connection: FlussConnection, info: TableInfo) -> int:
    return len(run_blocking(all_buckets(backend_of(connection), info)))


def _marked(
    frame: DataFrame, info: TableInfo, columns: list[str], counts: Mapping[str | None, int]
) -> DataFrame:
    """Return the frame with the number of each row's place.

    `counts` has the bucket counts of partitions by name; later ones have that of None.
    """
    from pyspark.sql.types import IntegerType, StructField, StructType

    wire = info.schema.wire

    def mark(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        placer = Placer(info, lambda name: counts.get(name, counts[None]))
        for batch in batches:
            places = placer.numbers(written(batch.select(columns), wire))
            yield batch.append_column(PLACE, pa.array(places))

    marked = StructType([*frame.schema.fields, StructField(PLACE, IntegerType(), False)])
    return frame.mapInArrow(mark, marked)


BATCH_BYTES = 32 << 20
BATCH_ROWS_MIN = 32
BATCH_ROWS_MAX = 1 << 16
SAMPLE_ROWS = 256
UNMEASURED = str((1 << 31) - 1)
ROWS_CONF = "spark.sql.execution.arrow.maxRecordsPerBatch"
BYTES_CONF = "spark.sql.execution.arrow.maxBytesPerBatch"

Cluster = ClusterRef | Config | str


def cluster_ref(cluster: Cluster) -> ClusterRef:
    """Return a reference to a cluster from a reference, a config or an address."""
    if isinstance(cluster, str):
        return ClusterRef(properties={"bootstrap.servers": cluster})
    return ClusterRef.of(cluster) if isinstance(cluster, Config) else cluster


def write(
    frame: DataFrame,
    table: str,
    cluster: Cluster,
    *,
    mode: str = "append",
    options: Mapping[str, str] | None = None,
    gather: bool | None = None,
    order_by: str | None = None,
    load_id: str | None = None,
    **load: Any,
) -> Receipt | None:
    """Write a DataFrame into a table.

    With a `load_id`, each row is written once, whatever fails and however often this is called: the
    frame is staged as Parquet and loaded under that id. Without one, this is `format("fluss")` with
    tuned batches; a task that Spark repeats may then write rows of a log table twice.

    Args:
        frame: The rows.
        table: The table, as `database.table`.
        cluster: The cluster.
        mode: The write mode of `format("fluss")`, without a `load_id`.
        options: Further options of `format("fluss")`, without a `load_id`.
        gather: Bring the rows of each bucket into one task first, by a shuffle. By default if the
            table has so many buckets in all its partitions that this is faster.
        order_by: For key tables: of rows with the same key, the one with the greatest value in this
            column is written last. It also brings the rows of each bucket together. A changelog
            that was shuffled needs `order_by="_offset"`. If the table does not have the column, it
            is left out afterwards.
        load_id: The name of the load.
        **load: Further fields of `BulkLoadSpec`, such as `staging`.

    Returns:
        The receipt of the load; None without a `load_id`.
    """
    spark = frame.sparkSession
    ref = cluster_ref(cluster)
    if load_id is not None:
        source = LoadSource("query", query="frame")
        spec = BulkLoadSpec(source, table, load_id, order_by=order_by, **load)
        return run_load(spark, spec, ref, frame=frame)
    from fluss_orchestrate.spark.source.datasource import register

    register(spark)
    if order_by is not None:
        frame = ordered(frame, ref.connection(), table, order_by)
    elif gather is not False:
        changes = (options or {}).get("operation.column")
        frame = gathered(frame, ref.connection(), table, always=gather is True, changes=changes)
    with session_conf(spark, {ROWS_CONF: str(batch_rows(frame)), BYTES_CONF: UNMEASURED}):
        given = {**source_options(ref), "table": table, **(options or {})}
        frame.write.format("fluss").options(**given).mode(mode).save()
    return None


def batch_rows(frame: DataFrame) -> int:
    """Return the rows of an Arrow batch of about 32 MiB, estimated from the first rows."""
    sample = frame.limit(SAMPLE_ROWS).toArrow()
    if not sample.num_rows:
        return BATCH_ROWS_MAX
    width = max(1, sample.nbytes // sample.num_rows)
    return int(max(BATCH_ROWS_MIN, min(BATCH_ROWS_MAX, BATCH_BYTES // width)))


def source_options(ref: ClusterRef) -> dict[str, str]:
    """Return the options of `format("fluss")` for this cluster."""
    return {
        "cluster": ref.alias,
        **{f"client.{key}": str(value) for key, value in ref.properties.items()},
    }


def read(
    spark: SparkSession,
    table: str,
    cluster: Cluster,
    *,
    columns: Sequence[str] | None = None,
    options: Mapping[str, str] | None = None,
) -> DataFrame:
    """Return rows of a table as a DataFrame that Python workers read in parallel.

    The rows are those of `format("fluss")` with the same options, as of this call: every action
    returns the same ones. It costs less, because Spark converts each row once, and it knows how
    many tasks run at once. It needs no data source, so PySpark 3.5 has it, too.

    Args:
        spark: The session.
        table: The table, as `database.table`.
        cluster: The cluster.
        columns: The columns to read; all by default. Spark does not tell which columns a query
            needs, so name them. An empty list gives rows without columns, to be counted.
        options: Options of `format("fluss")`, such as `read`, `start`, `filter` or `split.count`.

    Raises:
        ConfigError: An option or a column does not fit the table.
    """
    from fluss_orchestrate.spark.source.datasource import frame_struct
    from fluss_orchestrate.spark.source.options import SourceOptions

    given = dict(options or {})
    if columns is not None and "columns" in {key.lower() for key in given}:
        raise ConfigError("read takes the columns once: by columns= or by the option 'columns'")
    ref = cluster_ref(cluster)
    asked = SourceOptions.of({**source_options(ref), **given, "table": table})
    struct = frame_struct(ref.connection(), asked)
    if columns is None:
        return _mapped(spark, ref, asked, struct)
    unknown = [name for name in columns if name not in struct.names]
    if unknown:
        raise ConfigError(f"{table} has no column '{unknown[0]}'; it has {struct.names}")
    frame = _mapped(spark, ref, asked, _only(struct, columns))
    return frame if columns else frame.select()


def read_plan(
    spark: SparkSession,
    plan: ScanPlan,
    cluster: Cluster,
    parts: int | None = None,
    row_filter: str | None = None,
) -> DataFrame:
    """Return the rows of a plan as a DataFrame that Python workers read in parallel.

    The ranges of a plan do not change, so every action returns the same rows.

    Args:
        spark: The session.
        plan: The plan.
        cluster: The cluster.
        parts: The number of tasks; by default as the size of the plan requires.
        row_filter: A condition, as the option `filter` of `format("fluss")`.
    """
    options = {"plan": json.dumps(plan.to_json())}
    options |= {} if parts is None else {"split.count": str(parts)}
    options |= {} if row_filter is None else {"filter": row_filter}
    return read(spark, str(plan.table.path), cluster, options=options)


def _only(struct: StructType, columns: Sequence[str]) -> StructType:
    """Return these columns of a frame, or one that is cheap to read if there are none."""
    from pyspark.sql.types import AtomicType, BinaryType, StringType, StructType

    if columns:
        return StructType([struct[name] for name in columns])
    cheap = [
        field
        for field in struct.fields
        if isinstance(field.dataType, AtomicType)
        and not isinstance(field.dataType, StringType | BinaryType)
    ]
    return StructType((cheap or struct.fields)[:1])


def _mapped(
    spark: SparkSession, ref: ClusterRef, asked: SourceOptions, struct: StructType
) -> DataFrame:
    """Return the frame whose rows are read by tasks over the numbers of its partitions."""
    from fluss_orchestrate.spark.source.parts import Part, read_parts
    from fluss_orchestrate.spark.source.planning import plan_parts
    from fluss_orchestrate.spark.source.types import arrow_schema

    target = arrow_schema(struct)
    groups = plan_parts(asked, target.names, parallelism(spark))
    encoded = [[part.to_json() for part in parts] for parts in groups]
    limit = asked.number("limit")

    def work(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for at in batch.column(0).to_pylist():
                parts = [Part.from_json(value) for value in encoded[at]]
                yield from read_parts(ref, parts, target, asked.row_filter, limit)

    count = len(encoded)
    return spark.range(0, count, 1, max(1, count)).mapInArrow(work, struct)


def load_files(
    spark: SparkSession,
    paths: Sequence[str] | str,
    table: str,
    cluster: Cluster,
    load_id: str,
    *,
    kind: str = "parquet",
    on_line: Say = say,
    **load: Any,
) -> Receipt:
    """Load files into a table, each row once.

    Python workers decode Parquet files; the JVM only moves the list of splits. Files of other kinds
    are staged as Parquet first.

    Args:
        spark: The session.
        paths: The files or folders.
        table: The table, as `database.table`.
        cluster: The cluster.
        load_id: The name of the load.
        kind: The format of the files.
        on_line: Called with each line of the report.
        **load: Further fields of `BulkLoadSpec`.
    """
    listed = (paths,) if isinstance(paths, str) else tuple(paths)
    spec = BulkLoadSpec(LoadSource(kind, listed), table, load_id, **load)
    return run_load(spark, spec, cluster_ref(cluster), on_line=on_line)


def exactly_once_batches(
    table: str, cluster: Cluster, name: str, **load: Any
) -> Callable[[DataFrame, int], None]:
    """Return a function for `writeStream.foreachBatch` that loads each micro-batch exactly once.

    Every micro-batch is a load of its own, with the load id `name/batch id`. A batch that Spark
    repeats finds its load finished, or continues with the rows that were staged. A stream of
    changes into a key table needs the metadata columns `_change_type` and `_offset`, and
    `order_by="_offset"` here.

    Args:
        table: The table, as `database.table`.
        cluster: The cluster.
        name: The name of the query. It must always be used with the same checkpoint folder.
        **load: Further fields of `BulkLoadSpec`.
    """
    ref = cluster_ref(cluster)

    def take(frame: DataFrame, batch_id: int) -> None:
        spec = BulkLoadSpec(LoadSource("query", query="frame"), table, f"{name}/{batch_id}", **load)
        run_load(frame.sparkSession, spec, ref, frame=frame)

    return take
