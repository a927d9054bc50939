"""Iceberg files written by Spark: a sink for plans, and the range writer of lake tiering."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from fluss_client import TableInfo, TablePath
from fluss_client.aio import FlussConnection as AsyncConnection
from fluss_client.engine import async_connection, table_info
from fluss_orchestrate.core.clusters import ClusterRef
from fluss_orchestrate.core.incremental.reading.reader import PlanReading, ReadOptions
from fluss_orchestrate.core.lake.catalog import catalog_properties, public_properties
from fluss_orchestrate.core.lake.data_files import PartitionedWriter
from fluss_orchestrate.core.lake.errors import TieringFencedError
from fluss_orchestrate.core.lake.reader import lake_reader
from fluss_orchestrate.core.lake.tiering import write_ranges
from fluss_orchestrate.core.lake.tiering_files import TieredFiles, TieringProgressHook
from fluss_orchestrate.core.plan import BucketRange, Place, ScanPlan, split_ranges
from fluss_orchestrate.core.sinks.base import ReadPlan, SinkForm, SinkResult
from fluss_orchestrate.core.sinks.iceberg import IcebergSink
from fluss_orchestrate.core.sinks.iceberg_mirror import MirrorBase, MirrorFiles
from fluss_orchestrate.spark.iceberg_mirror import write_on_spark

if TYPE_CHECKING:
    from pyiceberg.manifest import DataFile
    from pyiceberg.table import Table
    from pyspark.sql import SparkSession

OFFSETS_PER_TASK = 1_000_000
_WRITTEN = "rows long, files binary"


class SparkIcebergSink(IcebergSink):
    """An `IcebergSink` whose files Spark writes. Use it with `run_increment` as any other sink.

    With `form="mirror"`, each task writes the data files and equality-delete files of some buckets,
    and the driver commits them as one row delta; `write_mode` must be `equality`.

    Secrets of the file system are not sent to executors: they find their own, in their environment
    or by the role of their machine.
    """

    reads_itself = True
    """Executors read the plan: what a caller leaves out of its rows would be written."""

    def __init__(
        self,
        spark: SparkSession,
        cluster: ClusterRef,
        catalog: Any,
        identifier: str,
        *,
        tasks: int | None = None,
        read_lake: bool = False,
        **more: Any,
    ) -> None:
        """Prepare the sink; nothing is opened yet.

        Args:
            spark: The session.
            cluster: The cluster to read from.
            catalog: The Iceberg catalog, as for `IcebergSink`.
            identifier: The Iceberg table, as `namespace.table`.
            tasks: The number of Spark tasks; by default as the number of offsets requires.
            read_lake: Read rows that Fluss has deleted from the lake, as `on_retention="lake"`
                does.
            **more: The other arguments of `IcebergSink`.
        """
        super().__init__(catalog, identifier, **more)
        self._spark = spark
        self._cluster = cluster
        self._tasks = tasks
        self._read_lake = read_lake

    def write(self, plan: ScanPlan, read: ReadPlan) -> SinkResult:
        """Write the files with Spark, then commit them with the id and the end of the plan.

        Args:
            plan: The plan.
            read: Not used: the executors read the rows themselves.
        """
        if self.form is SinkForm.MIRROR:
            return super().write(plan, read)
        done = self.already_done(plan)
        if done is not None:
            return done
        table = self._table_for(read(plan).schema)
        parts = self._parts(plan)
        job = _writer_of(self._cluster, table, parts, self._read_lake)
        frame = self._spark.range(0, len(parts), 1, len(parts)).mapInArrow(job, _WRITTEN)
        answers = frame.collect()
        # Only what the last, successful attempt of each task has named becomes part of the table.
        files: list[DataFile] = []
        for answer in answers:
            files += pickle.loads(answer.files)  # noqa: S301 - made by our own tasks
        return self._commit(plan, table, files, sum(answer.rows for answer in answers))

    def _write_mirror_files(self, base: MirrorBase, plan: ScanPlan, read: ReadPlan) -> MirrorFiles:
        properties = public_properties(base.table.io.properties)
        return write_on_spark(self._spark, self._cluster, base, self._parts(plan), properties)

    def _parts(self, plan: ScanPlan) -> list[ScanPlan]:
        return plan.split(self._tasks or max(1, -(-plan.offsets // OFFSETS_PER_TASK)))


def _writer_of(
    cluster: ClusterRef, table: Table, parts: list[ScanPlan], read_lake: bool
) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    location = table.metadata_location
    properties = public_properties(table.io.properties)
    texts = [part.to_json() for part in parts]

    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for at in batch.column(0).to_pylist():
                plan = ScanPlan.from_json(texts[at])
                files, rows = write_part(cluster, location, properties, plan, read_lake)
                yield pa.RecordBatch.from_pydict(
                    {"rows": pa.array([rows], pa.int64()), "files": [pickle.dumps(files)]}
                )

    return run


def write_part(
    cluster: ClusterRef,
    metadata_location: str,
    properties: Mapping[str, str],
    plan: ScanPlan,
    read_lake: bool,
) -> tuple[list[DataFile], int]:
    """Write the rows of a part of a plan as data files of a table; nothing is committed."""
    from pyiceberg.table import StaticTable

    table = StaticTable.from_metadata(metadata_location, dict(properties))
    connection = cluster.connection()
    options = ReadOptions(lake_reader=lake_reader(connection) if read_lake else None)
    writer = PartitionedWriter(table, plan.plan_id[:12])
    try:
        for batch in PlanReading(connection, plan, options).batches():
            writer.write(batch)
        return writer.close(), writer.rows
    except BaseException:
        writer.abort()
        raise


_TIERED = "files binary"


@dataclass(frozen=True)
class SparkRangeWriter:
    """Writes the files of tiering with Spark tasks, for `tier_table` and `TieringWorker`.

    Secrets of the lake's storage are not sent to executors: they find their own.

    Attributes:
        spark: The session.
        cluster: The cluster to read from.
        tasks: The number of Spark tasks; by default as the number of offsets requires.
    """

    spark: SparkSession
    cluster: ClusterRef
    tasks: int | None = None

    def __call__(
        self,
        core: AsyncConnection,
        info: TableInfo,
        table: Table,
        ranges: Sequence[BucketRange],
        progress: TieringProgressHook,
    ) -> TieredFiles:
        """Write all ranges with one Spark job.

        A bucket of a key table is never cut: its changes belong to one task, in their order.
        """
        total = sum(r.count for r in ranges)
        count = self.tasks or max(1, -(-total // OFFSETS_PER_TASK))
        parts = split_ranges(ranges, count, whole=info.has_primary_key())
        job = _job(self.cluster, info, table.metadata_location, parts)
        frame = self.spark.range(0, len(parts), 1, len(parts)).mapInArrow(job, _TIERED)
        written = TieredFiles(table, ranges if not info.has_primary_key() else [])
        for answer in frame.collect():
            task: _TaskFiles = pickle.loads(answer.files)  # noqa: S301 - made by our own tasks
            task.add_to(written, ends=info.has_primary_key())
        progress(min(written.rows, total), total)
        return written


@dataclass(frozen=True)
class _TaskFiles:
    """What a task has written, in a form that travels."""

    files: Sequence[DataFile]
    deletes: Sequence[DataFile]
    replaced: Collection[str]
    ranges: Sequence[BucketRange]
    rows: int
    data_rows: int
    deleted_keys: int
    newest_ms: Mapping[Place, int]

    @classmethod
    def of(cls, made: TieredFiles) -> _TaskFiles:
        return cls(
            made.files,
            made.deletes,
            made.replaced,
            made.ranges,
            made.rows,
            made.data_rows,
            made.deleted_keys,
            made.newest_ms,
        )

    def add_to(self, written: TieredFiles, *, ends: bool) -> None:
        """Add it to the whole; with `ends`, its ranges too, which say where they ended."""
        written.files += self.files
        written.deletes += self.deletes
        written.replaced |= set(self.replaced)
        written.rows += self.rows
        written.data_rows += self.data_rows
        written.deleted_keys += self.deleted_keys
        for place, newest_ms in self.newest_ms.items():
            written.newest_ms[place] = max(written.newest_ms.get(place, newest_ms), newest_ms)
        if ends:
            written.ranges = [*written.ranges, *self.ranges]


def _job(
    cluster: ClusterRef,
    info: TableInfo,
    metadata_location: str,
    parts: Sequence[Sequence[BucketRange]],
) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    name, table_id = str(info.table_path), info.table_id
    texts = [[r.to_json() for r in part] for part in parts]

    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for at in batch.column(0).to_pylist():
                ranges = [BucketRange.from_json(text) for text in texts[at]]
                files = tier_part(cluster, name, table_id, metadata_location, ranges)
                yield pa.RecordBatch.from_pydict({"files": [pickle.dumps(_TaskFiles.of(files))]})

    return run


def tier_part(
    cluster: ClusterRef,
    table: str,
    table_id: int,
    metadata_location: str,
    ranges: Sequence[BucketRange],
) -> TieredFiles:
    """Write the rows of some ranges as files of the Iceberg table, in one task."""
    from pyiceberg.table import StaticTable

    connection = cluster.connection()
    path = TablePath.parse(table)
    info = table_info(connection, path)
    if info.table_id != table_id:
        raise TieringFencedError(path, "it was dropped and created again")
    properties = catalog_properties(info, connection.config.resolved_alias())
    lake = StaticTable.from_metadata(metadata_location, properties)
    return write_ranges(async_connection(connection), info, lake, ranges)
