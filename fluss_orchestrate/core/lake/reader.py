"""Reading exact ranges of offsets of a log table from Iceberg, in order.

In a lake with system columns, every row has its `__bucket`, `__offset` and `__timestamp`. In one
without them, the offsets follow from those of the snapshots (`layout.placed_files`), and there are
no commit times. The result has the types of the Fluss table; only digits below a microsecond are
lost, which Iceberg's timestamps do not have.
Offsets that retention deleted can be read in this way. Changelogs cannot: the lake has only their
result.

One file at a time is in memory, or those that overlap after a compaction.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from fluss_client import ChangeType, FlussConnection, TableInfo, TablePath
from fluss_client.engine import backend_of, parse_partition_name, run_blocking, table_info
from fluss_client.errors import LakeSnapshotNotExistError
from fluss_orchestrate.core.errors import TableIdentityChangedError
from fluss_orchestrate.core.identity import TableIdentity
from fluss_orchestrate.core.incremental.planning.settings import LakeReader
from fluss_orchestrate.core.incremental.reading.columns import METADATA_FIELDS
from fluss_orchestrate.core.lake.catalog import explained_while_read, load_lake_table
from fluss_orchestrate.core.lake.data_files import conform
from fluss_orchestrate.core.lake.errors import LakeRangeError, LakeTimesUnknownError
from fluss_orchestrate.core.lake.file_scan import read_file, read_tasks
from fluss_orchestrate.core.lake.known_lake import KnownLake, reading
from fluss_orchestrate.core.lake.layout.placed_files import PlacedFile, PlacedFiles
from fluss_orchestrate.core.lake.layout.system_columns import (
    BUCKET,
    OFFSET,
    TIMESTAMP,
    has_system_columns,
)
from fluss_orchestrate.core.plan import BucketRange, ScanPlan

if TYPE_CHECKING:
    from pyiceberg.expressions import BooleanExpression
    from pyiceberg.manifest import DataFile
    from pyiceberg.table import FileScanTask, Table

FROM_THE_FIRST = -1
"""As the start of a range: the first offset of the lake."""


@dataclass(frozen=True)
class LakeRead:
    """A lake at one snapshot, and the columns to read of it.

    Attributes:
        lake: What Fluss knows of the lake.
        table: The Iceberg table.
        snapshot_id: The snapshot.
        columns: The columns of the Fluss table to read.
        metadata_columns: The metadata columns to add.
    """

    lake: KnownLake
    table: Table
    snapshot_id: int
    columns: Sequence[str]
    metadata_columns: Sequence[str] = ()

    @property
    def info(self) -> TableInfo:
        """The Fluss table."""
        return self.lake.info

    @property
    def schema(self) -> pa.Schema:
        """The schema of every batch."""
        arrow = self.info.schema.arrow
        fields = [arrow.field(name) for name in self.columns]
        return pa.schema(fields + [METADATA_FIELDS[name] for name in self.metadata_columns])

    def batches(self, part: BucketRange) -> Iterator[pa.RecordBatch]:
        """Return the rows of [start, stop), complete and in order.

        With `FROM_THE_FIRST` as start: from the first offset that the lake has.

        Raises:
            LakeRangeError: The lake does not have all of them, or its snapshot was expired while it
                was read.
            LakeOffsetsUnknownError: The lake does not tell the offsets of its rows.
            LakeTimesUnknownError: `_timestamp` was asked for, which the lake does not have.
        """
        with reading(self.info, self.table, self.snapshot_id):
            yield from self._batches(part)

    def _batches(self, part: BucketRange) -> Iterator[pa.RecordBatch]:
        at = part.start
        placed = self._has_system_columns
        if "_timestamp" in self.metadata_columns and not placed:
            raise LakeTimesUnknownError(self.info.table_path)
        found = self._with_offsets(part) if placed else self._without_offsets(part)
        io = self.table.io
        for batch in explained_while_read(self.table.location(), io.properties, found):
            offsets = batch.column(OFFSET).to_numpy()
            if at == FROM_THE_FIRST:
                at = int(offsets[0])
            if not np.array_equal(offsets, np.arange(at, at + len(offsets))):
                raise self._not_there(part, at, int(offsets[0]))
            at += len(offsets)
            yield self._shaped(batch, part)
        if at != part.stop and not (part.start == at == FROM_THE_FIRST):
            raise self._not_there(part, at, at)

    @cached_property
    def _has_system_columns(self) -> bool:
        return has_system_columns(self.table, self.info.table_path)

    @cached_property
    def _placed_files(self) -> PlacedFiles:
        return PlacedFiles(self.lake, self.table, self.snapshot_id)

    def _with_offsets(self, part: BucketRange) -> Iterator[pa.RecordBatch]:
        """The rows of a lake with system columns."""
        for group in _groups(self._tasks(part), self._offset_id()):
            yield from self._in_order(group, part)

    def _without_offsets(self, part: BucketRange) -> Iterator[pa.RecordBatch]:
        """The rows of a lake without system columns; the offsets follow from its files."""
        for one in self._placed_files.of(part):
            if max(part.start, one.start) < min(part.stop, one.stop):
                yield from self._rows_of(one, part)

    def _rows_of(self, one: PlacedFile, part: BucketRange) -> Iterator[pa.RecordBatch]:
        from pyiceberg.expressions import AlwaysTrue
        from pyiceberg.table import FileScanTask

        schema = self.table.schema()
        there = {f.name for f in schema.fields}
        # Any column counts the rows if the lake has none of the requested ones yet.
        names = [c for c in self.columns if c in there] or [schema.fields[0].name]
        at = one.start
        task: FileScanTask = FileScanTask(one.file, set())
        for batch in read_file(self.table, schema.select(*names), AlwaysTrue(), task):
            first, end = max(at, part.start), min(at + batch.num_rows, part.stop)
            if first < end:
                rows = batch.slice(first - at, end - first)
                offsets = pa.array(np.arange(first, end, dtype=np.int64))
                yield rows.append_column(OFFSET, offsets)
            at += batch.num_rows
        if at != one.stop:
            raise self._not_there(part, one.stop, at)

    def _tasks(self, part: BucketRange) -> list[FileScanTask]:
        scan = self.table.scan(row_filter=_filter(self.info, part), snapshot_id=self.snapshot_id)
        return list(scan.plan_files())

    def _in_order(
        self, tasks: Sequence[FileScanTask], part: BucketRange
    ) -> Iterator[pa.RecordBatch]:
        schema = self.table.schema()
        present = [c for c in self.columns if c in {f.name for f in schema.fields}]
        projected = schema.select(*present, OFFSET, TIMESTAMP)
        found = read_tasks(self.table, projected, _filter(self.info, part), tasks)
        batches = [b for b in found if b.num_rows]
        if len(tasks) > 1 or not all(_is_sorted(b) for b in batches):
            whole = pa.Table.from_batches(batches).sort_by(OFFSET)
            batches = whole.to_batches()
        yield from batches

    def _shaped(self, batch: pa.RecordBatch, part: BucketRange) -> pa.RecordBatch:
        count = batch.num_rows
        extra: dict[str, Any] = {
            "_change_type": lambda: pa.repeat(pa.scalar(ChangeType.AppendOnly.sign), count),
            "_offset": lambda: batch.column(OFFSET),
            "_timestamp": lambda: batch.column(TIMESTAMP),
            "_bucket": lambda: pa.repeat(pa.scalar(part.bucket, pa.int32()), count),
            "_partition": lambda: pa.repeat(pa.scalar(part.partition, pa.string()), count),
        }
        names = [*batch.schema.names, *self.metadata_columns]
        columns = [*batch.columns, *(extra[name]() for name in self.metadata_columns)]
        return conform(pa.RecordBatch.from_arrays(columns, names=names), self.schema)

    def _offset_id(self) -> int:
        found: int = self.table.schema().find_field(OFFSET).field_id
        return found

    def _not_there(self, part: BucketRange, expected: int, found: int) -> LakeRangeError:
        return LakeRangeError(
            self.info.table_path,
            f"the lake does not hold exactly [{part.start}, {part.stop}) of bucket {part.bucket}"
            f"{f' of partition {part.partition}' if part.partition else ''}: offset {expected} "
            f"was expected, {found} came; a partition that was dropped and created again, or a "
            "lake that was changed by hand, looks like this",
            expected,
            found,
        )


def _filter(info: TableInfo, part: BucketRange) -> BooleanExpression:
    from pyiceberg import expressions

    made: Any = expressions  # its own annotations do not know its short forms
    terms = [made.EqualTo(BUCKET, part.bucket), made.LessThan(OFFSET, part.stop)]
    if part.start != FROM_THE_FIRST:
        terms.append(made.GreaterThanOrEqual(OFFSET, part.start))
    if part.partition is not None:
        values = parse_partition_name(part.partition, info.partition_keys)
        terms += [made.EqualTo(name, value) for name, value in values.items()]
    return made.And(*terms)  # type: ignore[no-any-return]


def _groups(tasks: Sequence[FileScanTask], offset_id: int) -> Iterator[list[FileScanTask]]:
    """Files by their offsets; those that overlap come together."""
    group: list[FileScanTask] = []
    end = -1
    found = ((offset_bounds(task.file, offset_id), task) for task in tasks)
    for (low, high), task in sorted(found, key=lambda pair: pair[0]):
        if group and low > end:
            yield group
            group = []
        group.append(task)
        end = max(end, high)
    if group:
        yield group


def offset_bounds(file: DataFile, offset_id: int) -> tuple[int, int]:
    """The lowest and the highest offset in a data file; `offset_id` is the column's field id."""
    from pyiceberg.conversions import from_bytes
    from pyiceberg.types import LongType

    low = from_bytes(LongType(), file.lower_bounds[offset_id])
    return int(low), int(from_bytes(LongType(), file.upper_bounds[offset_id]))


def _is_sorted(batch: pa.RecordBatch) -> bool:
    offsets = batch.column(OFFSET).to_numpy()
    return bool((np.diff(offsets) > 0).all())


def open_lake(
    connection: FlussConnection,
    info: TableInfo,
    columns: Sequence[str],
    metadata_columns: Sequence[str] = (),
    overrides: Mapping[str, str] | None = None,
) -> tuple[LakeRead, Mapping[tuple[int | None, int], int]] | None:
    """Return the newest readable snapshot with its offsets; None before the first."""
    backend = backend_of(connection)
    try:
        snapshot = run_blocking(backend.get_lake_snapshot(info.table_path, None, True))
    except LakeSnapshotNotExistError:
        return None
    alias = connection.config.resolved_alias()
    lake = KnownLake(connection, info)
    offsets = {
        (b.partition_id, b.bucket_id): offset
        for b, offset in snapshot.table_buckets_offset.items()
        if b.table_id == info.table_id
    }
    table = load_lake_table(info, alias, overrides)
    return LakeRead(lake, table, snapshot.snapshot_id, columns, metadata_columns), offsets


def lake_reader(
    connection: FlussConnection, overrides: Mapping[str, str] | None = None
) -> LakeReader:
    """Return a `lake_reader` for `IncrementalScan`: it reads ranges of a plan from the lake."""

    def read(plan: ScanPlan) -> Iterator[pa.RecordBatch]:
        info = planned_table(connection, plan)
        opened = open_lake(connection, info, plan.columns, plan.metadata_columns, overrides)
        for part in plan.ranges:
            if opened is None or opened[1].get(part.place, 0) < part.stop:
                raise LakeRangeError(
                    info.table_path,
                    f"the lake does not hold bucket {part.bucket} up to offset {part.stop} yet",
                )
            yield from opened[0].batches(part)

    return read


def planned_table(connection: FlussConnection, plan: ScanPlan) -> TableInfo:
    """Return the table of a plan with the schema of the plan."""
    backend = backend_of(connection)
    info = run_blocking(backend.get_table_info(plan.table.path))
    found = TableIdentity.of(connection.config.resolved_alias(), info)
    if found != plan.table:
        raise TableIdentityChangedError(plan.table, found)
    if info.schema_id == plan.schema_id:
        return info
    schema_id, schema = run_blocking(backend.get_schema(info.table_path, plan.schema_id))
    return replace(info, schema_id=schema_id, schema=schema)


def read_lake_offsets(
    connection: FlussConnection,
    table: TablePath | str,
    place: tuple[str | None, int],
    start: int,
    stop: int,
    *,
    columns: Sequence[str] | None = None,
    metadata_columns: Sequence[str] = (),
    overrides: Mapping[str, str] | None = None,
) -> pa.RecordBatchReader:
    """Return exactly the rows with start ≤ offset < stop of one bucket from the lake, in order.

    `place` is the name of the partition (None without partitions) and the bucket.

    Raises:
        LakeRangeError: The lake does not have all of them; some rows may have been returned by
            then.
        LakeOffsetsUnknownError: The lake does not tell the offsets of its rows.
        LakeTimesUnknownError: `_timestamp` was asked for, which the lake does not have.
    """
    path = TablePath.parse(table) if isinstance(table, str) else table
    info = table_info(connection, path)
    names = info.get_column_names() if columns is None else list(columns)
    opened = open_lake(connection, info, names, metadata_columns, overrides)
    if opened is None:
        raise LakeRangeError(path, "nothing of it is in the lake yet")
    read = opened[0]
    part = BucketRange(None, place[0], place[1], start, stop)
    return pa.RecordBatchReader.from_batches(read.schema, read.batches(part))
