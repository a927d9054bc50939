"""Increments of any size into Iceberg: executors write the files, the driver commits them once.

No Iceberg jar is needed, and none exists for the newest Spark. The commit is the core's own: the
plan's id and end are table properties in the transaction of the data, so a plan that was begun by
a job that died is in the table once, or not yet.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from fluss_orchestrate.core.clusters import ClusterRef
from fluss_orchestrate.core.incremental.reading import PlanReading, ReadOptions
from fluss_orchestrate.core.lake.catalog import REDACTED, redacted
from fluss_orchestrate.core.lake.data_files import PartitionedWriter
from fluss_orchestrate.core.lake.reader import lake_reader
from fluss_orchestrate.core.plan import ScanPlan
from fluss_orchestrate.core.sinks.base import ReadPlan, SinkResult
from fluss_orchestrate.core.sinks.iceberg import IcebergSink

if TYPE_CHECKING:
    from pyiceberg.manifest import DataFile
    from pyiceberg.table import Table
    from pyspark.sql import SparkSession

OFFSETS_PER_TASK = 1_000_000
_RESULT_DDL = "rows long, files binary"


class SparkIcebergSink(IcebergSink):
    """An `IcebergSink` whose files are written by Spark; use it with `run_increment` alike.

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
        done = self.already_done(plan)
        if done is not None:
            return done
        table = self._table_for(read(plan).schema)
        parts = plan.split(self._tasks or max(1, -(-plan.offsets // OFFSETS_PER_TASK)))
        job = _writer_of(self._cluster, table, parts, self._read_lake)
        frame = self._spark.range(0, len(parts), 1, len(parts)).mapInArrow(job, _RESULT_DDL)
        answers = frame.collect()
        # Only what the last, successful attempt of each task has named becomes part of the table.
        files: list[DataFile] = []
        for answer in answers:
            files += pickle.loads(answer.files)  # noqa: S301 - made by our own tasks
        return self._commit(plan, table, files, sum(answer.rows for answer in answers))


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
