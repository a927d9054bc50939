"""The files of a mirror in Iceberg, written by Spark tasks.

A changelog is divided between buckets only, and all changes of a key are in one bucket. So each
task finds the last change of its keys by itself, and writes data files and delete files. The driver
commits the files of all tasks as one row delta.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from fluss_orchestrate.core.clusters import ClusterRef
from fluss_orchestrate.core.incremental.reading.reader import PlanReading
from fluss_orchestrate.core.lake.row_delta import RowDelta
from fluss_orchestrate.core.plan import ScanPlan
from fluss_orchestrate.core.sinks.errors import SinkFormError
from fluss_orchestrate.core.sinks.iceberg_mirror import (
    MirrorBase,
    MirrorFiles,
    WriteMode,
    write_files,
)

if TYPE_CHECKING:
    from pyiceberg.table import Table
    from pyspark.sql import SparkSession

_WRITTEN = "delta binary, changes long"


def write_on_spark(
    spark: SparkSession,
    cluster: ClusterRef,
    base: MirrorBase,
    parts: list[ScanPlan],
    properties: Mapping[str, str],
) -> MirrorFiles:
    """Write the files of a plan by one Spark task per part; nothing is committed.

    Args:
        spark: The session.
        cluster: How executors reach the cluster.
        base: The table.
        parts: The parts of the plan; each has all changes of its keys.
        properties: Properties of the file system that executors may see.

    Raises:
        SinkFormError: The mirror is written by copy-on-write, which reads the whole table.
    """
    if base.mode is not WriteMode.EQUALITY:
        raise SinkFormError(
            ".".join(base.table.name()),
            "executors write equality deletes: use write_mode='equality', or IcebergSink for "
            "copy_on_write",
        )
    job = _job(cluster, _Shipped.of(base, properties), [part.to_json() for part in parts])
    frame = spark.range(0, len(parts), 1, len(parts)).mapInArrow(job, _WRITTEN)
    # Only what the last, successful attempt of each task has named becomes part of the table.
    answers = frame.collect() if parts else []
    deltas = [pickle.loads(answer.delta) for answer in answers]  # noqa: S301 - by our own tasks
    return MirrorFiles(
        RowDelta(
            [file for delta in deltas for file in delta.data],
            [file for delta in deltas for file in delta.deletes],
            sum(delta.rows for delta in deltas),
            sum(delta.deleted_keys for delta in deltas),
        ),
        sum(answer.changes for answer in answers),
    )


@dataclass(frozen=True)
class _Shipped:
    """What a task needs to know of the table.

    The metadata travels as text, because the columns of the table may not be committed yet.
    """

    identifier: tuple[str, ...]
    metadata: str
    location: str
    properties: Mapping[str, str]
    base: MirrorBase

    @classmethod
    def of(cls, base: MirrorBase, properties: Mapping[str, str]) -> _Shipped:
        # Tasks write files and read none: they do not need the snapshots, of which are many.
        metadata = base.table.metadata.model_copy(
            update={
                "snapshots": [],
                "refs": {},
                "current_snapshot_id": None,
                "snapshot_log": [],
                "metadata_log": [],
                "statistics": [],
                "partition_statistics": [],
            }
        )
        nothing: Any = None
        return cls(
            base.table.name(),
            metadata.model_dump_json(),
            base.table.metadata_location,
            dict(properties),
            replace(base, loaded=nothing, table=nothing),
        )

    def opened(self) -> MirrorBase:
        from pyiceberg.catalog.noop import NoopCatalog
        from pyiceberg.io import load_file_io
        from pyiceberg.table import StaticTable
        from pyiceberg.table.metadata import TableMetadataUtil

        table: Table = StaticTable(
            identifier=self.identifier,
            metadata=TableMetadataUtil.parse_raw(self.metadata),
            metadata_location=self.location,
            io=load_file_io(dict(self.properties), self.location),
            catalog=NoopCatalog("static-table"),
        )
        return replace(self.base, loaded=table, table=table)


def _job(
    cluster: ClusterRef, shipped: _Shipped, texts: list[dict[str, Any]]
) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for at in batch.column(0).to_pylist():
                plan = ScanPlan.from_json(texts[at])
                files = write_part(cluster, shipped.opened(), plan)
                yield pa.RecordBatch.from_pydict(
                    {
                        "delta": [pickle.dumps(files.delta)],
                        "changes": pa.array([files.changes], pa.int64()),
                    }
                )

    return run


def write_part(cluster: ClusterRef, base: MirrorBase, plan: ScanPlan) -> MirrorFiles:
    """Write the files of a part of a plan, as one task does."""
    connection = cluster.connection()
    return write_files(base, plan, PlanReading(connection, plan).batches())
