"""Tiering of large log tables: executors write the files of a round, the driver commits them.

    tier(connection, table, allow_tiering=True, write=SparkRangeWriter(spark, cluster))

Everything else is the core's own tiering, its two commits and its recovery included. Files of
attempts that were lost belong to no snapshot; Iceberg's orphan file removal takes them.
"""

from __future__ import annotations

import json
import pickle
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa

from fluss_client.aio.connection import FlussConnection as AsyncConnection
from fluss_client.model.table import TableInfo, TablePath
from fluss_client.runtime import runtime
from fluss_orchestrate.core.clusters import ClusterRef
from fluss_orchestrate.core.lake.catalog import catalog_properties
from fluss_orchestrate.core.lake.errors import TieringFencedError
from fluss_orchestrate.core.lake.tiering_files import (
    TieredFiles,
    TieringProgressHook,
    write_ranges,
)
from fluss_orchestrate.core.plan import BucketRange, split_ranges
from fluss_orchestrate.spark.iceberg import OFFSETS_PER_TASK

if TYPE_CHECKING:
    from pyiceberg.table import Table
    from pyspark.sql import SparkSession

_RESULT_DDL = "rows long, files binary, newest string"


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
        frame = self.spark.range(0, len(parts), 1, len(parts)).mapInArrow(job, _RESULT_DDL)
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
                files = write_part(cluster, name, table_id, metadata_location, ranges)
                newest = [[*place, ms] for place, ms in files.newest_ms.items()]
                yield pa.RecordBatch.from_pydict(
                    {
                        "rows": pa.array([files.rows], pa.int64()),
                        "files": [pickle.dumps(files.files)],
                        "newest": [json.dumps(newest)],
                    }
                )

    return run


def write_part(
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
    info = runtime().call(connection.core.backend.get_table_info(path))
    if info.table_id != table_id:
        raise TieringFencedError(path, "it was dropped and created again")
    properties = catalog_properties(info, connection.config.resolved_alias())
    lake = StaticTable.from_metadata(metadata_location, properties)
    return write_ranges(connection.core, info, lake, ranges)
