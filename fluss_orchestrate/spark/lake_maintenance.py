"""The files of a compaction, written by Spark tasks.

A group of files that become one is the work of one task: its files share deletes, and rows of a log
table keep their order. The driver plans the groups and commits the files of all tasks; tasks commit
nothing. So a task that is run twice, or a job that fails, leaves only files that no snapshot refers
to, which maintenance deletes as orphans.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa

from fluss_client import TableInfo, TablePath
from fluss_client.engine import table_info
from fluss_orchestrate.core.clusters import ClusterRef
from fluss_orchestrate.core.lake.catalog import catalog_properties, public_properties
from fluss_orchestrate.core.lake.maintenance.compaction import (
    COMMIT_BYTES,
    Compacted,
    Group,
    nothing_compacted,
    write_compacted,
)

if TYPE_CHECKING:
    from pyiceberg.manifest import DataFile
    from pyiceberg.table import Table
    from pyspark.sql import SparkSession

BYTES_PER_TASK = 128 << 20
SPARK_COMMIT_BYTES = 16 * COMMIT_BYTES
"""Every commit waits for its slowest task: more work per commit keeps all executors busy."""
_WRITTEN = "files binary, sequence_numbers binary"


@dataclass(frozen=True)
class SparkGroupWriter:
    """Writes the files of a compaction with Spark tasks, for `maintain_lake`.

    Secrets of the lake's storage are not sent to executors: they find their own.

    Attributes:
        spark: The session.
        cluster: The cluster of the table, as executors reach it.
        tasks: The number of Spark tasks of a commit; by default as the size of the files requires.
            There are no more tasks than groups of files: at most one per bucket in a key table.
        commit_bytes: Data files of about this size are replaced in one commit.
    """

    spark: SparkSession
    cluster: ClusterRef
    tasks: int | None = None
    commit_bytes: int = SPARK_COMMIT_BYTES

    def __call__(
        self, info: TableInfo, table: Table, groups: Sequence[Group], target_bytes: int
    ) -> Compacted:
        """Write all groups with one Spark job."""
        made = nothing_compacted(table)
        made.groups += groups
        parts = self._parts([group for group in groups if group.files])
        if not parts:
            return made
        properties = public_properties(table.io.properties)
        work = _Work(
            self.cluster, str(info.table_path), table.metadata_location, properties, target_bytes
        )
        job = _job(work, [pickle.dumps(part) for part in parts])
        frame = self.spark.range(0, len(parts), 1, len(parts)).mapInArrow(job, _WRITTEN)
        # Only what the last, successful attempt of each task has named becomes part of the table.
        for answer in frame.collect():
            files: list[DataFile] = pickle.loads(answer.files)  # noqa: S301 - by our own tasks
            made.added += files
            made.sequence_numbers |= pickle.loads(answer.sequence_numbers)  # noqa: S301
        return made

    def _parts(self, groups: Sequence[Group]) -> list[list[Group]]:
        """Divide groups between tasks, so that the sizes of the tasks are about equal."""
        wanted = self.tasks or max(1, -(-sum(group.size for group in groups) // BYTES_PER_TASK))
        parts: list[list[Group]] = [[] for _ in range(min(wanted, len(groups)))]
        sizes = [0] * len(parts)
        for group in sorted(groups, key=lambda one: one.size, reverse=True):
            at = sizes.index(min(sizes))
            parts[at].append(group)
            sizes[at] += group.size + 1
        return parts


@dataclass(frozen=True)
class _Work:
    """What every task of a job needs to know."""

    cluster: ClusterRef
    table: str
    metadata_location: str
    properties: Mapping[str, str]
    target_bytes: int


def _job(
    work: _Work, parts: Sequence[bytes]
) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for at in batch.column(0).to_pylist():
                groups: list[Group] = pickle.loads(parts[at])  # noqa: S301 - made by the driver
                made = compact_part(work, groups)
                yield pa.RecordBatch.from_pydict(
                    {
                        "files": [pickle.dumps(made.added)],
                        "sequence_numbers": [pickle.dumps(made.sequence_numbers)],
                    }
                )

    return run


def compact_part(work: _Work, groups: Sequence[Group]) -> Compacted:
    """Write the files of some groups, in one task."""
    from pyiceberg.table import StaticTable

    connection = work.cluster.connection()
    info = table_info(connection, TablePath.parse(work.table))
    # The secrets of this machine, and what the caller of the driver has set.
    properties = catalog_properties(info, connection.config.resolved_alias())
    lake = StaticTable.from_metadata(work.metadata_location, {**properties, **work.properties})
    return write_compacted(lake, groups, work.target_bytes)
