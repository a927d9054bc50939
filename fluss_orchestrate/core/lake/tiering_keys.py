"""The files of one round of tiering of a key table: rows that replace those of the same keys.

A bucket that was never tiered comes from its key state: its KV snapshot with the changelog after
it. Such rows have the offset -1 and the time -1 ms, as those of the official tiering service have.
Later rounds take the last change of each key: the rows that stay become a data file, and the keys
that had a row before become an equality-delete file. A key whose first change is an insert had
none.

Memory is bounded by `LastImages`, the scanner's read-ahead and one row group per open file.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from fluss_client import ChangeType, RecordBatch, TableInfo
from fluss_client.aio import FlussConnection as AsyncConnection
from fluss_client.engine import BlockingState
from fluss_orchestrate.core.lake.data_files import (
    DataFileWriter,
    delete_files,
    has_nanoseconds,
)
from fluss_orchestrate.core.lake.equality_deletes import LiveFile, live_files, scope_of
from fluss_orchestrate.core.lake.errors import LakeRangeError, RowDeltaError
from fluss_orchestrate.core.lake.layout.partitioning import partition_of
from fluss_orchestrate.core.lake.layout.system_columns import (
    BUCKET,
    OFFSET,
    SYSTEM_FIELDS,
    TIMESTAMP,
)
from fluss_orchestrate.core.lake.row_delta import EqualityDeleteWriter, key_field_ids
from fluss_orchestrate.core.lake.tiering_files import (
    TieredFiles,
    TieringProgressHook,
    gap_error,
    read_batches,
    with_place,
)
from fluss_orchestrate.core.last_images import LastImages
from fluss_orchestrate.core.plan import BucketRange
from fluss_orchestrate.core.read_ahead import read_ahead

if TYPE_CHECKING:
    from pyiceberg.partitioning import PartitionKey
    from pyiceberg.table import Table

CHANGES_BYTES = 96 << 20
"""Changes of a bucket that are kept in memory; more go to a temporary folder."""
WRITES_BEHIND_MAX = 8
"""So many batches of deleted keys may wait for the thread that writes them."""
STATE_OFFSET, STATE_TIME_US = -1, -1000
"""The offset and the time of rows that come from the key state, as the official service has."""
_CHANGE_TYPE = "\x01change_type"
"""No column of a table begins with this character."""


def write_key_ranges(
    core: AsyncConnection,
    info: TableInfo,
    table: Table,
    ranges: Sequence[BucketRange],
    progress: TieringProgressHook = lambda *_: None,
) -> TieredFiles:
    """Write what brings a key table's lake from the start of each range to its end.

    Args:
        core: The connection.
        info: The table; it has a primary key.
        table: Its Iceberg table.
        ranges: A range that starts at 0 belongs to a bucket of which the lake has nothing. It is
            read from the key state and ends where that is exact, at or behind its planned end.
        progress: Called with the changes taken so far and those of the round.

    Returns:
        The files; `ranges` of it tells where each range really ended.

    Raises:
        RowDeltaError: The Iceberg table cannot take rows that replace others by this key.
        TieringVerifyError: A part of the changelog did not come.
        StateUnavailableError: The state of a bucket cannot be read.
    """
    written = _KeyFiles(core, info, table)
    total = sum(part.count for part in ranges)
    try:
        for part in ranges:
            write = written.state if part.start <= 0 else written.changes
            for count in write(part):
                written.files.rows += count
                progress(min(written.files.rows, total), total)
    except BaseException:
        delete_files(table, written.files.paths)
        raise
    return written.files


def check_key(info: TableInfo) -> None:
    """Raise if two keys of a table could be the same key in Iceberg.

    Raises:
        RowDeltaError: A column of the key has digits below a microsecond.
    """
    for name in info.primary_keys:
        if has_nanoseconds(info.schema.arrow.field(name).type):
            raise RowDeltaError(
                str(info.table_path),
                f"column '{name}' of the key has digits below a microsecond, which Iceberg cuts: "
                "different keys would become one. Use a key without it, or a precision of 6",
            )


class _KeyFiles:
    """The files of a round, as they are written."""

    def __init__(self, core: AsyncConnection, info: TableInfo, table: Table) -> None:
        from pyiceberg.schema import Schema

        self._core = core
        self._info = info
        self._table = table
        check_key(info)
        self._ids = key_field_ids(table, info.primary_keys)
        self._key_schema = Schema(*(table.schema().find_field(i) for i in self._ids))
        self._live: list[LiveFile] | None = None
        self.files = TieredFiles(table, [])

    def state(self, part: BucketRange) -> Iterator[int]:
        """Write all rows that a bucket has now."""
        bucket = part.table_bucket(self._info.table_id)
        with BlockingState(self._core, self._info, bucket) as state:
            part = replace(part, stop=state.stop)
            with self._rows(part) as rows:
                for batch in state:
                    rows.write(_without_place(batch, part.bucket))
                    yield batch.num_rows
        self._replace_earlier(part)
        self._done(part, -1)

    def _replace_earlier(self, part: BucketRange) -> None:
        """Have the files removed that the lake has of the bucket, which Fluss does not know of.

        They belong to a partition of the same name that was dropped. Its rows would come back.
        """
        if self._live is None:
            self._live = live_files(self._table)
        for live in bucket_files(self._table, self._info, self._live, part):
            named = [live.file, *live.positions, *(d.file for d in live.equalities)]
            self.files.replaced.update(file.file_path for file in named)

    def changes(self, part: BucketRange) -> Iterator[int]:
        """Write the last change of each key of a range of the changelog."""
        newest_ms = -1
        at = part.start
        with LastImages(self._info.primary_keys, CHANGES_BYTES, change_type=_CHANGE_TYPE) as images:
            for records in read_batches(self._core, self._info, part):
                count = records.batch.num_rows
                if count:
                    if records.base_offset < at or records.change_types is None:
                        raise gap_error(self._info, part, at, records.base_offset)
                    images.add(_changed_rows(records, part.bucket))
                    newest_ms = records.timestamp
                    yield count
                at = max(at, records.next_offset)
            if at != part.stop:
                raise gap_error(self._info, part, at, part.stop)
            self._write_images(part, images)
        self._done(part, newest_ms)

    def _write_images(self, part: BucketRange, images: LastImages) -> None:
        with (
            self._rows(part) as rows_file,
            self._deletes(part) as deletes_file,
            # Rows and keys go to different files, each of which is compressed on one core.
            ThreadPoolExecutor(1, "fluss-lake-deletes") as pool,
            read_ahead(images.images()) as last,
        ):
            writing: deque[Future[None]] = deque()
            for found in last:
                for rows, was_absent in (
                    (found.upserts, found.inserted),
                    (found.deletes, found.vanished),
                ):
                    keys = rows.select(self._info.primary_keys).filter(pc.invert(was_absent))
                    writing.append(pool.submit(deletes_file.write, keys))
                rows_file.write(found.upserts)
                while len(writing) > WRITES_BEHIND_MAX:
                    writing.popleft().result()
            writing.append(pool.submit(deletes_file.finish))
            rows_file.finish()
            for written in writing:
                written.result()

    def _done(self, part: BucketRange, newest_ms: int) -> None:
        self.files.ranges = [*self.files.ranges, part]
        self.files.newest_ms[part.place] = newest_ms

    def _rows(self, part: BucketRange) -> _Files:
        return _Files(self, part, deletes=False)

    def _deletes(self, part: BucketRange) -> _Files:
        return _Files(self, part, deletes=True)

    def new_file(self, key: PartitionKey | None, label: str, deletes: bool) -> DataFileWriter:
        """Begin a data file or an equality-delete file."""
        if deletes:
            return EqualityDeleteWriter(self._table, key, label, self._key_schema)
        return DataFileWriter(self._table, key, label)

    def key_of(self, part: BucketRange) -> PartitionKey | None:
        """The partition of the Iceberg table that a range belongs to."""
        return partition_of(self._table, self._info, part)


class _Files:
    """Files of one bucket and one kind: a new one begins where the last one is full."""

    def __init__(self, files: _KeyFiles, part: BucketRange, *, deletes: bool) -> None:
        self._files = files
        self._key = files.key_of(part)
        self._label = f"{part.bucket:05d}-{part.start}-{part.stop}"
        self._deletes = deletes
        self._open: DataFileWriter | None = None

    def write(self, rows: pa.RecordBatch) -> None:
        if not rows.num_rows:
            return
        if self._open is not None and self._open.is_full:
            self.finish()
        if self._open is None:
            self._open = self._files.new_file(self._key, self._label, self._deletes)
        self._open.write(rows)

    def finish(self) -> None:
        """Close the file that is open."""
        if self._open is not None:
            file, rows = self._open.close(), self._open.rows
            self._open = None
            found = self._files.files
            if self._deletes:
                found.deletes.append(file)
                found.deleted_keys += rows
            else:
                found.files.append(file)
                found.data_rows += rows

    def __enter__(self) -> _Files:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is None:
            self.finish()
        elif self._open is not None:
            self._open.abort()
            self._open = None


def _changed_rows(records: RecordBatch, bucket: int) -> pa.RecordBatch:
    """The changes of a batch with their place and time, without old rows (`-U`)."""
    codes = ChangeType.codes_of(records.change_types)
    counts = codes != ChangeType.UpdateBefore
    numbers = np.flatnonzero(counts)
    rows = records.batch if len(numbers) == len(codes) else records.batch.filter(pa.array(counts))
    placed = with_place(rows, numbers + records.base_offset, bucket, records.timestamp)
    return placed.append_column(_CHANGE_TYPE, pa.array(codes[counts]))


def _without_place(rows: pa.RecordBatch, bucket: int) -> pa.RecordBatch:
    """Return rows of the key state with the columns that every row of the lake has."""
    count = rows.num_rows
    values = {BUCKET: bucket, OFFSET: STATE_OFFSET, TIMESTAMP: STATE_TIME_US}
    columns = [pa.repeat(pa.scalar(values[f.name], f.type), count) for f in SYSTEM_FIELDS]
    return pa.RecordBatch.from_arrays(
        [*rows.columns, *columns], schema=pa.schema([*rows.schema, *SYSTEM_FIELDS])
    )


def bucket_files(
    table: Table, info: TableInfo, files: Sequence[LiveFile], part: BucketRange
) -> list[LiveFile]:
    """Return the data files of one bucket.

    Raises:
        LakeRangeError: The partitioning of the Iceberg table was changed, so that files do not
            tell their bucket.
    """
    spec_id = table.metadata.default_spec_id
    key = partition_of(table, info, part)
    assert key is not None  # a key table has a bucket key, and so a partition
    values = key.partition
    wanted = (spec_id, *(values[at] for at in range(len(values))))
    found = []
    for live in files:
        if live.file.spec_id != spec_id:
            raise LakeRangeError(
                info.table_path,
                f"{live.file.file_path} has another partitioning than the Iceberg table has now: "
                "which bucket it belongs to is not known; write its data files again",
            )
        if scope_of(table, live.file) == wanted:
            found.append(live)
    return found
