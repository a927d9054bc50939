"""The data files of one round of tiering of a log table: the log's rows with their place and time.

One bucket after the other is read and written, so memory is bounded by the scanner's read-ahead
and one row group. A file belongs to one bucket of one partition: its partition tuple is the
partition's values and the Fluss bucket, whatever transform the table declares for it. In a lake
without system columns, the name of a file tells its first offset, and its bucket, which is nowhere
else if the table has no bucket key (`layout.placed_files`).
"""

from __future__ import annotations

import asyncio
import itertools
import logging
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from fluss_client import RecordBatch, TableInfo
from fluss_client.aio import FlussConnection as AsyncConnection
from fluss_client.engine import (
    Projection,
    RangeReader,
    backend_of,
    iceberg_type,
    run_blocking,
    runtime,
)
from fluss_orchestrate.core.lake.data_files import DataFileWriter, delete_files
from fluss_orchestrate.core.lake.errors import TieringVerifyError
from fluss_orchestrate.core.lake.layout.partitioning import partition_of
from fluss_orchestrate.core.lake.layout.placed_files import file_label
from fluss_orchestrate.core.lake.layout.system_columns import (
    BUCKET,
    SYSTEM_FIELDS,
    has_system_columns,
)
from fluss_orchestrate.core.plan import BucketRange, Place

if TYPE_CHECKING:
    from pyiceberg.manifest import DataFile
    from pyiceberg.table import Table

log = logging.getLogger(__name__)
BATCHES_AT_ONCE_MAX = 16

TieringProgressHook = Callable[[int, int], None]
"""Called with the rows written so far and the rows of the round."""


@dataclass
class TieredFiles:
    """The files that one round wrote and did not commit yet."""

    table: Table
    ranges: Sequence[BucketRange]
    files: list[DataFile] = field(default_factory=list)
    rows: int = 0
    """How many rows of the log, or changes of the changelog, were taken."""
    deletes: list[DataFile] = field(default_factory=list)
    """Equality-delete files of a key table."""
    replaced: set[str] = field(default_factory=set)
    """Paths of files of the Iceberg table that these files take the place of."""
    data_rows: int = 0
    """How many rows the data files hold."""
    deleted_keys: int = 0
    newest_ms: dict[Place, int] = field(default_factory=dict)
    """The commit time of the last row of each place."""

    @property
    def bytes(self) -> int:
        """Size of all files."""
        return sum(int(file.file_size_in_bytes) for file in (*self.files, *self.deletes))

    @property
    def paths(self) -> list[str]:
        """Where the files are."""
        return [str(file.file_path) for file in (*self.files, *self.deletes)]


class RangeWriter(Protocol):
    """Who writes the files of a round: this process (`tiering.write_ranges`), or many by Spark."""

    def __call__(
        self,
        core: AsyncConnection,
        info: TableInfo,
        table: Table,
        ranges: Sequence[BucketRange],
        progress: TieringProgressHook,
    ) -> TieredFiles:
        """Write every offset of the ranges once, as files that no snapshot refers to yet.

        The ranges of what is returned may end behind those that were given (key tables).
        """


def write_log_ranges(
    core: AsyncConnection,
    info: TableInfo,
    table: Table,
    ranges: Sequence[BucketRange],
    progress: TieringProgressHook = lambda *_: None,
) -> TieredFiles:
    """Write the rows of some ranges as data files: every offset once and in order, or an error."""
    written = TieredFiles(table, ranges)
    total = sum(part.count for part in ranges)
    try:
        for part in ranges:
            for rows in _write_range(core, info, written, part):
                written.rows += rows
                written.data_rows += rows
                progress(written.rows, total)
    except BaseException:
        delete_files(table, written.paths)
        raise
    return written


def _write_range(
    core: AsyncConnection, info: TableInfo, written: TieredFiles, part: BucketRange
) -> Iterator[int]:
    """Write one range, and yield the number of rows of each batch after it was written."""
    table = written.table
    key = partition_of(table, info, part)
    placed = has_system_columns(table, info.table_path)
    writer: DataFileWriter | None = None
    at = part.start
    try:
        for records in read_batches(core, info, part):
            count = records.batch.num_rows
            if count == 0:
                continue
            if records.base_offset != at:
                raise gap_error(info, part, at, records.base_offset)
            if writer is not None and writer.is_full:
                written.files.append(writer.close())
                writer = None
            if writer is None:
                writer = DataFileWriter(table, key, file_label(part.bucket, at, part.stop))
            rows = records.batch
            if placed:
                offsets = np.arange(at, at + count, dtype=np.int64)
                rows = with_place(rows, offsets, part.bucket, records.timestamp)
            writer.write(rows)
            at += count
            written.newest_ms[part.place] = records.timestamp
            yield count
        if at != part.stop:
            raise gap_error(info, part, at, part.stop)
        if writer is not None:
            written.files.append(writer.close())
            writer = None
    finally:
        if writer is not None:
            writer.abort()


def gap_error(info: TableInfo, part: BucketRange, at: int, found: int) -> TieringVerifyError:
    """The error of a log that does not go on where it ended."""
    return TieringVerifyError(
        info.table_path,
        f"bucket {part.bucket} of partition {part.partition or '-'} goes on with offset {found} "
        f"where {at} was expected; nothing was committed",
    )


def read_batches(
    core: AsyncConnection,
    info: TableInfo,
    part: BucketRange,
    columns: Sequence[int] | None = None,
) -> Iterator[RecordBatch]:
    """The rows of a range with their offsets; batches without rows say how far the log was read."""
    ranges = {part.table_bucket(info.table_id): (part.start, part.stop)}
    projection = Projection.of(info.schema, columns)

    async def opened() -> RangeReader:
        return RangeReader(backend_of(core), info, ranges, projection, core.config, True)

    reader = run_blocking(opened())
    try:
        while batches := run_blocking(reader.read(BATCHES_AT_ONCE_MAX)):
            yield from batches
    finally:
        asyncio.run_coroutine_threadsafe(reader.close(), runtime().loop)


def with_place(
    rows: pa.RecordBatch, offsets: npt.NDArray[np.int64], bucket: int, commit_ms: int
) -> pa.RecordBatch:
    """The rows of a batch with their bucket, offset and time."""
    count = rows.num_rows
    columns = [
        *rows.columns,
        pa.repeat(pa.scalar(bucket, pa.int32()), count),
        pa.array(offsets),
        pa.repeat(pa.scalar(commit_ms * 1000, SYSTEM_FIELDS[2].type), count),
    ]
    return pa.RecordBatch.from_arrays(columns, schema=pa.schema([*rows.schema, *SYSTEM_FIELDS]))


def evolved(table: Table, info: TableInfo) -> Table | None:
    """Return the table if it has every column of the Fluss table; otherwise add them, return None.

    New columns are added before the system columns. The caller must load the table again, because
    it may have changed since the caller loaded it.

    Raises:
        LakeLayoutError: The table has some of the system columns only.
    """
    from pyiceberg.exceptions import CommitFailedException

    placed = has_system_columns(table, info.table_path)
    have = {f.name for f in table.schema().fields}
    missing = [f for f in info.schema.arrow if f.name not in have]
    if not missing:
        return table
    try:
        with table.update_schema() as update:
            for column in missing:
                update.add_column((column.name,), iceberg_type(column.type, itertools.count(1)))
                if placed:
                    update.move_before((column.name,), (BUCKET,))
    except CommitFailedException as error:
        log.info("%s: its Iceberg table was changed meanwhile: %s", info.table_path, error)
    return None
