"""Read the key state of one bucket, exact at an offset of its changelog, in bounded memory.

The base is what the backend can stream in key order: the server's own scan (Fluss 1.0), a KV
snapshot of a cluster, or the rows of an embedded directory. It is exact at an offset of its own.
The changelog between that offset and the wanted one makes it exact there: a base that is too old is
taken forward with the last change of each key, one that is too new is taken back with the old row
of each key's first change.

Without a base, three ways are tried in this order:

1. The changelog from offset 0, if nothing of it was deleted: it contains every row.
2. A limit scan, if the bucket is small (`limit_scan`): the server builds the answer in its memory.
3. `StateUnavailableError`, which says what to change.

A scan that the server ends before its last row is opened again. The new one is exact at a later
offset; the rows behind the last key that was returned are taken back from there to the same offset
as before."""

from __future__ import annotations

import asyncio
import logging
import time
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from types import TracebackType
from typing import Any, TypeVar

import pyarrow as pa
import pyarrow.compute as pc

from fluss_client.aio.connection import FlussConnection
from fluss_client.aio.lookup.keys import KeyMaker
from fluss_client.aio.scanning.ranges import read_ranges
from fluss_client.aio.state.changes import Changes, count_until, lay_over
from fluss_client.aio.state.limit_scan import scan_small_bucket
from fluss_client.backend.contract import Backend, StateCursor
from fluss_client.backend.temporary_folder import TemporaryFolder
from fluss_client.codec.binary.blobs import Blobs
from fluss_client.config import Config
from fluss_client.errors import StateScanLostError, UnsupportedError
from fluss_client.model.cluster import OffsetSpec
from fluss_client.model.table import TableBucket, TableInfo
from fluss_client.runtime import runtime

T = TypeVar("T")
log = logging.getLogger(__name__)
BATCH_ROWS = 1 << 15
PROGRESS_LOG_S = 30.0
"""A read that takes longer than this tells how far it is, as often."""
CHANGELOG_IMAGE = "table.changelog.image"
FULL_IMAGE = "FULL"
SCANS_MAX = 5
"""How often the server's scan of a bucket is opened for one read."""


@dataclass(frozen=True, slots=True)
class StateSource:
    """Where the rows of a state came from, and what it cost.

    Attributes:
        kind: `snapshot`, `scan`, `local`, `log` or `limit-scan`.
        offset: The offset at which the base is exact.
        snapshot_id: The KV snapshot, if the base is one.
        bytes_fetched: Bytes of the snapshot's files.
        changes: How many changes of the changelog were read.
        snapshot_age_ms: How old the KV snapshot was when it was opened, if the base is one.
        rows: How many rows were returned so far.
    """

    kind: str
    offset: int
    snapshot_id: int | None = None
    bytes_fetched: int = 0
    changes: int = 0
    snapshot_age_ms: int | None = None
    rows: int = 0

    def __str__(self) -> str:
        base = self.kind
        if self.snapshot_id is not None:
            age_s = (self.snapshot_age_ms or 0) / 1000
            base = f"KV snapshot {self.snapshot_id} ({self.bytes_fetched} bytes, {age_s:.1f} s old)"
        return f"{base} of offset {self.offset} and {self.changes} changes"


def has_old_rows(table: TableInfo) -> bool:
    """Return whether the changelog of a `table` contains the rows before each update and delete."""
    return table.properties.get(CHANGELOG_IMAGE, FULL_IMAGE).upper() == FULL_IMAGE


def check_old_rows(table: TableInfo) -> None:
    """Raise if the rows of a key `table` at an earlier offset cannot be read.

    Raises:
        UnsupportedError: The changelog does not contain the rows before updates and deletes. A key
            that was changed after the wanted offset would be missing.
    """
    if not has_old_rows(table):
        image = table.properties[CHANGELOG_IMAGE]
        raise UnsupportedError(
            f"{table.table_path} has {CHANGELOG_IMAGE}={image}: its changelog has no old rows, so "
            "the rows at an earlier offset cannot be read. Read the current rows (read_table "
            "without as_of), or the changelog from the earliest offset up to there"
        )


class StateReader:
    """The rows of one bucket of a primary-key table at one offset, in key order.

    Use `open`, then iterate, then `close`. Belongs to the event loop of the backend.

    Attributes:
        stop: The offset of the changelog at which the rows are exact.
        source: Where the rows come from.
    """

    def __init__(
        self,
        backend: Backend,
        table: TableInfo,
        bucket: TableBucket,
        config: Config,
        *,
        stop: int | None = None,
        columns: Sequence[str] | None = None,
        batch_rows: int = BATCH_ROWS,
    ) -> None:
        """Describe a read; nothing is sent yet.

        Args:
            backend: The backend of a connection.
            table: The table; it has a primary key.
            bucket: The bucket.
            config: The configuration of the connection.
            stop: The offset of the changelog at which the rows shall be exact. By default, the
                latest offset when the reader is opened.
            columns: The names of the columns to read. By default, all columns.
            batch_rows: The number of rows that a batch has at most.
        """
        self._backend = backend
        self._table = table
        self._bucket = bucket
        self._config = config
        self._names = list(table.get_column_names() if columns is None else columns)
        index = table.schema.index
        wanted = {index[name] for name in (*self._names, *table.primary_keys)}
        self._columns = tuple(sorted(wanted))
        self._schema = pa.schema([table.schema.arrow.field(at) for at in self._columns])
        self._batch_rows = batch_rows
        self._keys = KeyMaker(table, table.primary_keys, table.physical_primary_keys)
        self._given_stop = stop
        # Each thread that allocates keeps memory for itself, so one does all decoding and merging.
        self._thread = ThreadPoolExecutor(1, "fluss-state")
        self._cursor: StateCursor | None = None
        self._reading: asyncio.Task[Blobs | None] | None = None
        self._base: pa.RecordBatch | None = None
        self._changes: Changes | None = None
        self._folder: TemporaryFolder | None = None
        self.stop = -1 if stop is None else stop
        self.source = StateSource("none", 0)

    async def open(self) -> StateReader:
        """Choose the base, and read the changes that make it exact.

        Raises:
            StateUnavailableError: There is no KV snapshot, the changelog is not complete, and the
                bucket has too many rows for a limit scan.
            UnsupportedError: The state would have to be taken back, and the changelog of the table
                has no old rows.
            LogOffsetOutOfRangeError: A part of the changelog that is needed was deleted.
        """
        try:
            await self._open()
        except BaseException:
            await self.close()
            raise
        return self

    async def _open(self) -> None:
        self._cursor = await self._backend.open_state(self._table, self._bucket)
        if self._cursor is not None:
            await self._set_stop(self._cursor.offset)
            await self._begin_at(self._cursor)
        elif await self._earliest() == 0:
            await self._set_stop(0)
            self.source = StateSource("log", 0)
            await self._read_changes(0)
        else:
            await self._limit_scan()
        log.info(
            "state of %s %s, exact at offset %d: from %s",
            self._table.table_path,
            self._bucket,
            self.stop,
            self.source,
        )

    async def _begin_at(self, cursor: StateCursor) -> None:
        """Read the changes that make the rows of a cursor exact."""
        age_ms = None if cursor.made_ms is None else int(time.time() * 1000) - cursor.made_ms
        self.source = StateSource(
            cursor.kind,
            cursor.offset,
            cursor.snapshot_id,
            cursor.bytes_fetched,
            snapshot_age_ms=age_ms,
            rows=self.source.rows,
        )
        await self._read_changes(cursor.offset)

    async def _begin_again(self, lost: StateScanLostError, last: bytes | None) -> None:
        """Open a new scan for the rows behind the key `last`, which was returned already."""
        log.info("%s; it is opened again", lost)
        await self._release()
        self._cursor = cursor = await self._backend.open_state(self._table, self._bucket)
        if cursor is None:
            raise lost
        if last is None:
            await self._set_stop(cursor.offset)
        elif cursor.offset > self.stop and not has_old_rows(self._table):
            # The changelog cannot take the rest of the rows back to the offset of the first part.
            raise lost
        await self._begin_at(cursor)
        if last is not None and self._changes is not None:
            # The rows up to there were returned with their changes.
            await self._on_thread(deque, self._changes.parts_until(last), 0)

    async def _set_stop(self, base_offset: int) -> None:
        if self._given_stop is None:
            # A server applies rows to the state a moment before it counts them as committed.
            self.stop = max(await self._latest(), base_offset)

    async def _read_changes(self, base_offset: int) -> None:
        """Read what makes a base exact at `self.stop` that is exact at `base_offset`."""
        back = base_offset > self.stop
        if back:
            check_old_rows(self._table)
        await self._gather(min(base_offset, self.stop), max(base_offset, self.stop), back=back)

    async def _gather(self, start: int, stop: int, *, back: bool) -> None:
        if start == stop:
            return
        base = self._config.scanner_state_folder
        self._folder = await asyncio.to_thread(TemporaryFolder, base)
        changes = Changes(self._schema, self._folder.path, back=back)
        ranges = {self._bucket: (start, stop)}
        async for part in read_ranges(
            self._backend, self._table, ranges, self._columns, config=self._config
        ):
            assert part.change_types is not None
            kinds = part.change_types.to_numpy()
            # Sorting and hashing whole batches takes CPU: not on the event loop.
            await self._on_thread(self._add, changes, part.batch, kinds)
        self._changes = changes
        self.source = replace(self.source, changes=changes.count)

    def _add(self, changes: Changes, batch: pa.RecordBatch, kinds: object) -> None:
        rows = pa.RecordBatch.from_arrays(batch.columns, schema=self._schema)
        changes.add(self._keys.encode_many(rows).keys.to_arrow(), kinds, rows)  # type: ignore[arg-type]

    async def _limit_scan(self) -> None:
        before = await self._latest()
        scanned = await scan_small_bucket(
            self._backend, self._table, self._bucket, self._config, self._columns
        )
        after = await self._latest()
        self.source = StateSource("limit-scan", before)
        # The scan saw some offset between `before` and `after`. Going back from `after` with the
        # first change of each key is right wherever that was, and so is going forward to `after`.
        if self._given_stop is None and not has_old_rows(self._table):
            self.stop = after
            await self._gather(before, after, back=False)
        else:
            self.stop = before if self._given_stop is None else self._given_stop
            if self.stop >= after:
                await self._gather(before, self.stop, back=False)
            else:
                check_old_rows(self._table)
                await self._gather(self.stop, after, back=True)
        rows_of = pa.RecordBatch.from_arrays(scanned.columns, schema=self._schema)
        keys = self._keys.encode_many(rows_of).keys.to_arrow()
        self._base = rows_of.take(pc.array_sort_indices(keys))

    async def _earliest(self) -> int:
        return await self._offset(OffsetSpec.earliest())

    async def _latest(self) -> int:
        return await self._offset(OffsetSpec.latest())

    async def _offset(self, spec: OffsetSpec) -> int:
        bucket = self._bucket
        offsets = await self._backend.list_offsets(
            self._table, bucket.partition_id, [bucket.bucket_id], spec
        )
        return offsets[bucket.bucket_id]

    async def batches(self) -> AsyncIterator[pa.RecordBatch]:
        """Return all rows, in ascending order of their encoded keys.

        Raises:
            CorruptDataError: The stored state is damaged.
            StorageError: The KV snapshot may have been deleted while it was read.
        """
        told_s = time.monotonic()
        async for rows in self._merged_rows():
            if not rows.num_rows:
                continue
            self.source = replace(self.source, rows=self.source.rows + rows.num_rows)
            if time.monotonic() - told_s > PROGRESS_LOG_S:
                told_s = time.monotonic()
                self._tell("so far")
            yield rows.select(self._names)
        self._tell("in all")

    def _tell(self, how_far: str) -> None:
        log.info(
            "state of %s %s: %d rows %s",
            self._table.table_path,
            self._bucket,
            self.source.rows,
            how_far,
        )

    async def _merged_rows(self) -> AsyncIterator[pa.RecordBatch]:
        last: bytes | None = None
        for attempt in range(SCANS_MAX):
            try:
                async for rows in self._base_rows():
                    if attempt and last is not None:
                        rows = await self._on_thread(self._behind, last, rows)
                        if not rows.num_rows:
                            continue
                    last = self._keys.encode_many(rows.slice(rows.num_rows - 1)).keys[0]
                    if self._changes is None:
                        yield rows
                        continue
                    async for merged in self._each(self._changed(self._changes, rows, last)):
                        yield merged
                break
            except StateScanLostError as lost:
                if attempt == SCANS_MAX - 1:
                    raise
                await self._begin_again(lost, last)
        async for rows in self._each(self._rest()):
            yield rows

    def _on_thread(self, work: Callable[..., T], *args: Any) -> asyncio.Future[T]:
        return asyncio.get_running_loop().run_in_executor(self._thread, work, *args)

    async def _each(self, batches: Iterator[pa.RecordBatch]) -> AsyncIterator[pa.RecordBatch]:
        # Merging takes CPU: not on the event loop.
        while (batch := await self._on_thread(next, batches, None)) is not None:
            yield batch

    def _behind(self, last: bytes, rows: pa.RecordBatch) -> pa.RecordBatch:
        """Return the rows whose keys are greater than `last`."""
        keys = self._keys.encode_many(rows).keys.to_arrow()
        return rows.filter(pc.greater(keys, pa.scalar(last, keys.type)))

    def _changed(
        self, changes: Changes, rows: pa.RecordBatch, last: bytes
    ) -> Iterator[pa.RecordBatch]:
        """Return rows of the base with the changes of their keys and of the keys between them.

        Where many keys were inserted between two rows, they come in many batches.
        """
        keys = None
        for over in changes.parts_until(last):
            if keys is None:
                keys = self._keys.encode_many(rows).keys.to_arrow()
            count = count_until(keys, over.keys[-1].as_py())
            yield lay_over(keys[:count], rows[:count], over)
            keys, rows = keys[count:], rows[count:]
        yield rows

    def _rest(self) -> Iterator[pa.RecordBatch]:
        """Return the rows of the changes behind the last row of the base."""
        if self._changes is not None:
            for rest in self._changes.parts_until():
                yield rest.rows.filter(rest.present)

    async def _base_rows(self) -> AsyncIterator[pa.RecordBatch]:
        if self._base is not None:
            for start in range(0, self._base.num_rows, self._batch_rows):
                yield self._base.slice(start, self._batch_rows)
        elif self._cursor is not None:
            cursor = self._cursor
            reading = self._read_ahead(cursor)
            # A cancelled reader leaves the thread of the cursor at its work; `close` waits for it.
            while values := await asyncio.shield(reading):
                # The next chunk is read on a thread while this one is decoded.
                reading = self._read_ahead(cursor)
                rows = await self._backend.decode_values(
                    self._table, values, self._columns, self._thread
                )
                yield pa.RecordBatch.from_arrays(rows.columns, schema=self._schema)

    def _read_ahead(self, cursor: StateCursor) -> asyncio.Task[Blobs | None]:
        self._reading = asyncio.create_task(cursor.read(self._batch_rows))
        return self._reading

    async def close(self) -> None:
        """Release the base and delete temporary files. May be called more than once."""
        await self._release()
        self._thread.shutdown(wait=False)

    async def _release(self) -> None:
        reading, self._reading = self._reading, None
        if reading is not None:
            # The files must not be closed under a thread that reads them. Nobody wants the rows.
            await asyncio.wait([reading])
            if not reading.cancelled():
                reading.exception()
        cursor, self._cursor = self._cursor, None
        if cursor is not None:
            await cursor.close()
        # Runs on disk are memory-mapped by the changes that read them.
        self._changes = None
        folder, self._folder = self._folder, None
        if folder is not None:
            await asyncio.to_thread(folder.close)


class BlockingState:
    """The rows of one bucket at one offset, as an iterator of Arrow batches.

    The constructor opens the state. Use the object as a context manager, or call `close`. See
    `StateReader` for the errors.

    Args:
        connection: A connection on the client's I/O thread, such as that of a blocking
            `FlussConnection`.
        table: The key table to read.
        bucket: The bucket to read.
        stop: The offset at which the rows are read; None reads them as they are now.
        columns: The names of the columns to read; None reads all.
        batch_rows: The largest number of rows of a batch.
    """

    def __init__(
        self,
        connection: FlussConnection,
        table: TableInfo,
        bucket: TableBucket,
        *,
        stop: int | None = None,
        columns: Sequence[str] | None = None,
        batch_rows: int = BATCH_ROWS,
    ) -> None:
        """Open the state of a bucket; see `StateReader` for the arguments and errors."""

        async def opened() -> StateReader:
            reader = StateReader(
                connection.backend,
                table,
                bucket,
                connection.config,
                stop=stop,
                columns=columns,
                batch_rows=batch_rows,
            )
            return await reader.open()

        self._reader = runtime().call(opened())
        names = table.get_column_names() if columns is None else columns
        self._schema = pa.schema([table.schema.arrow.field(name) for name in names])

    @property
    def stop(self) -> int:
        """The offset of the changelog at which the rows are exact."""
        return self._reader.stop

    @property
    def source(self) -> StateSource:
        """Where the rows come from."""
        return self._reader.source

    def no_rows(self) -> pa.RecordBatch:
        """Return a batch without rows, in the schema of the others."""
        return pa.RecordBatch.from_pylist([], self._schema)

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        batches: AsyncIterator[pa.RecordBatch] = self._reader.batches()

        async def next_batch() -> pa.RecordBatch | None:
            return await anext(batches, None)

        while (batch := runtime().call(next_batch())) is not None:
            yield batch

    def __enter__(self) -> BlockingState:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """Release the snapshot and delete temporary files."""
        runtime().call(self._reader.close())
