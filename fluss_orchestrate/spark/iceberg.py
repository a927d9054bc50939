"""Iceberg files written by Spark: a sink for plans, and the range writer of lake tiering."""

from __future__ import annotations

import json
import pickle
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from fluss_client import TableInfo, TablePath
from fluss_client.aio import FlussConnection as AsyncConnection
from fluss_client.engine import async_connection, table_info
from fluss_orchestrate.core.clusters import ClusterRef
from fluss_orchestrate.core.incremental.reading.reader import PlanReading, ReadOptions
from fluss_orchestrate.core.lake.catalog import REDACTED, catalog_properties, redacted
from fluss_orchestrate.core.lake.data_files import PartitionedWriter
from fluss_orchestrate.core.lake.errors import TieringFencedError
from fluss_orchestrate.core.lake.reader import lake_reader
from fluss_orchestrate.core.lake.tiering_files import (
    TieredFiles,
    TieringProgressHook,
    write_ranges,
)
from fluss_orchestrate.core.plan import BucketRange, ScanPlan, split_ranges
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
    """An `IcebergSink` whose files are written by Spark; use it with `run_increment` alike.

    With `form="mirror"`, each task writes the data files and equality-delete files of some buckets,
    and the driver commits them as one row delta; `write_mode` must be `equality`.

    Secrets of the file system do not travel: executors find their own, from their environment or
    their machine's role.
    """

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
        """`more` are the settings of `IcebergSink`; `read_lake` as `on_retention="lake"`."""
        super().__init__(catalog, identifier, **more)
        self._spark = spark
        self._cluster = cluster
        self._tasks = tasks
        self._read_lake = read_lake

    def write(self, plan: ScanPlan, read: ReadPlan) -> SinkResult:
        """Have the files written, then commit them with the plan's id and end."""
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
        properties = _harmless(base.table.io.properties)
        return write_on_spark(self._spark, self._cluster, base, self._parts(plan), properties)

    def _parts(self, plan: ScanPlan) -> list[ScanPlan]:
        return plan.split(self._tasks or max(1, -(-plan.offsets // OFFSETS_PER_TASK)))


def _writer_of(
    cluster: ClusterRef, table: Table, parts: list[ScanPlan], read_lake: bool
) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    location = table.metadata_location
    properties = _harmless(table.io.properties)
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


def _harmless(properties: Mapping[str, Any]) -> dict[str, str]:
    """The properties that may be seen by anybody who sees a Spark plan."""
    shown = redacted({key: str(value) for key, value in properties.items()})
    return {key: value for key, value in shown.items() if REDACTED not in value}


_TIERED = "rows long, files binary, newest string"


@dataclass(frozen=True)
class SparkRangeWriter:
    """Writes the files of tiering by Spark tasks; for `tier` and `TieringWorker`.

    Secrets of the lake's store do not travel: executors find their own.
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
        """One Spark job for all ranges."""
        total = sum(r.count for r in ranges)
        parts = split_ranges(ranges, self.tasks or max(1, -(-total // OFFSETS_PER_TASK)))
        job = _job(self.cluster, info, table.metadata_location, parts)
        frame = self.spark.range(0, len(parts), 1, len(parts)).mapInArrow(job, _TIERED)
        written = TieredFiles(table, ranges)
        for answer in frame.collect():
            written.files += pickle.loads(answer.files)  # noqa: S301 - made by our own tasks
            written.rows += answer.rows
            for partition_id, bucket, newest_ms in json.loads(answer.newest):
                place = (partition_id, bucket)
                known = written.newest_ms.get(place, newest_ms)
                written.newest_ms[place] = max(known, newest_ms)
        progress(written.rows, total)
        return written


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
                newest = [[*place, ms] for place, ms in files.newest_ms.items()]
                yield pa.RecordBatch.from_pydict(
                    {
                        "rows": pa.array([files.rows], pa.int64()),
                        "files": [pickle.dumps(files.files)],
                        "newest": [json.dumps(newest)],
                    }
                )

    return run


def tier_part(
    cluster: ClusterRef,
    table: str,
    table_id: int,
    metadata_location: str,
    ranges: Sequence[BucketRange],
) -> TieredFiles:
    """What one task does: the rows of its ranges as files of the Iceberg table as it was."""
    from pyiceberg.table import StaticTable

    connection = cluster.connection()
    path = TablePath.parse(table)
    info = table_info(connection, path)
    if info.table_id != table_id:
        raise TieringFencedError(path, "it was dropped and created again")
    properties = catalog_properties(info, connection.config.resolved_alias())
    lake = StaticTable.from_metadata(metadata_location, properties)
    return write_ranges(async_connection(connection), info, lake, ranges)
