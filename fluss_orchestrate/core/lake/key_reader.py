"""Reading the rows of a key table from its lake, alone or together with the changelog after it.

A snapshot of the lake holds the rows of each bucket exactly at an offset, which Fluss knows. The
changelog from there to a later offset makes the rows exact at that one: rows of changed keys are
left out, and the last rows of these keys come instead. This is the union read. It gives the same
rows as the key state at that offset, and needs no KV snapshot and no old rows in the changelog.

Memory is bounded: changed keys beyond a limit are compared in groups (`equality_deletes`), and
changes beyond a limit are spread over temporary files (`last_images`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Self

import pyarrow as pa
import pyarrow.compute as pc

from fluss_client import FlussConnection, TableInfo
from fluss_client.engine import BlockingState, async_connection, backend_of, run_blocking
from fluss_client.errors import LakeSnapshotNotExistError
from fluss_orchestrate.core.incremental.planning.observation import TableView
from fluss_orchestrate.core.lake.catalog import explained_while_read, has_lake, load_lake_table
from fluss_orchestrate.core.lake.data_files import conform
from fluss_orchestrate.core.lake.equality_deletes import (
    LiveFile,
    ReplacedKeys,
    live_files,
    read_live,
)
from fluss_orchestrate.core.lake.errors import LakeRangeError, NoLakeError
from fluss_orchestrate.core.lake.known_lake import reading, tiered_snapshots
from fluss_orchestrate.core.lake.row_delta import key_field_ids
from fluss_orchestrate.core.lake.tiering_files import gap_error, read_batches
from fluss_orchestrate.core.lake.tiering_keys import bucket_files
from fluss_orchestrate.core.last_images import KeyImages, LastImages
from fluss_orchestrate.core.plan import BucketRange, Place

if TYPE_CHECKING:
    from pyiceberg.table import Table

TAIL_BYTES = 48 << 20
"""Changes of a bucket that are kept in memory; more go to a temporary folder."""
KEYS_AT_ONCE_MAX = 1_000_000
"""Changed keys of a bucket that are compared with its lake rows at the same time."""
_CHANGE_TYPE = "\x01change_type"
"""No column of a table begins with this character."""


@dataclass(frozen=True, slots=True)
class KeyPart:
    """The rows of one bucket: those of a lake snapshot, and the changes after it.

    Attributes:
        snapshot_id: The snapshot of the lake; None if the lake does not have the bucket at an
            offset that is early enough. The rows come from the key state then.
        part: It starts at the offset at which the snapshot is exact and ends at the wanted one.
    """

    snapshot_id: int | None
    part: BucketRange


def lake_parts(
    connection: FlussConnection,
    view: TableView,
    ends: Sequence[BucketRange],
    overrides: Mapping[str, str] | None = None,
) -> list[KeyPart]:
    """Return what the newest readable snapshot of the lake has of some buckets.

    Raises:
        NoLakeError: The table has no lake.
        LakeRangeError: Nothing of the table is in the lake yet.
    """
    known = _KnownSnapshots(connection, view.info, overrides)
    newest = known.at(0)
    if newest is None:
        raise LakeRangeError(view.info.table_path, "nothing of it is in the lake yet")
    snapshot_id, offsets = newest
    held = [(end, offsets[end.place]) for end in ends if offsets.get(end.place, 0) > 0]
    return [KeyPart(snapshot_id, view.range_of(end.place, offset, offset)) for end, offset in held]


def union_parts(
    connection: FlussConnection,
    view: TableView,
    ends: Sequence[BucketRange],
    overrides: Mapping[str, str] | None = None,
) -> list[KeyPart]:
    """Return how the rows of each bucket at the stop of its range are read.

    Args:
        connection: The connection.
        view: The table; it has a primary key.
        ends: The buckets with the wanted offsets.
        overrides: Properties of the Iceberg catalog that differ from those of the table.

    Returns:
        For each bucket the newest snapshot of the lake that is not later than the wanted offset.

    Raises:
        NoLakeError: The table has no lake.
    """
    known = _KnownSnapshots(connection, view.info, overrides)
    parts = []
    for end in ends:
        found: KeyPart | None = None
        at = 0
        while found is None and (snapshot := known.at(at)) is not None:
            offset = snapshot[1].get(end.place, 0)
            if offset <= 0:
                break
            if offset <= end.stop:
                found = KeyPart(snapshot[0], view.range_of(end.place, offset, end.stop))
            at += 1
        parts.append(found or KeyPart(None, end))
    return parts


class _KnownSnapshots:
    """The snapshots of a lake that Fluss knows, the newest first, asked for as they are needed."""

    def __init__(
        self,
        connection: FlussConnection,
        info: TableInfo,
        overrides: Mapping[str, str] | None,
    ) -> None:
        if not has_lake(info):
            raise NoLakeError(info.table_path)
        self._connection = connection
        self._info = info
        self._overrides = overrides
        self._known: list[tuple[int, Mapping[Place, int]]] = []
        self._older: Iterator[int] | None = None
        newest = self._ask(None)
        if newest is not None:
            self._known.append(newest)

    def at(self, index: int) -> tuple[int, Mapping[Place, int]] | None:
        """Return the snapshot with this number, counted from the newest, and its offsets."""
        while len(self._known) <= index:
            if not self._known:
                return None
            snapshot_id = next(self._ids(), None)
            found = None if snapshot_id is None else self._ask(snapshot_id)
            if found is None:
                return None
            self._known.append(found)
        return self._known[index]

    def _ids(self) -> Iterator[int]:
        if self._older is None:
            alias = self._connection.config.resolved_alias()
            made = tiered_snapshots(load_lake_table(self._info, alias, self._overrides))
            ids = [snapshot.snapshot_id for snapshot in made]
            newest = self._known[0][0]
            self._older = iter(ids[ids.index(newest) + 1 :] if newest in ids else [])
        return self._older

    def _ask(self, snapshot_id: int | None) -> tuple[int, Mapping[Place, int]] | None:
        backend = backend_of(self._connection)
        path = self._info.table_path
        try:
            # A snapshot is asked for by its id, or as the newest one that is readable.
            found = run_blocking(backend.get_lake_snapshot(path, snapshot_id, snapshot_id is None))
        except LakeSnapshotNotExistError:
            return None
        offsets = {
            (b.partition_id, b.bucket_id): offset
            for b, offset in found.table_buckets_offset.items()
            if b.table_id == self._info.table_id
        }
        return found.snapshot_id, offsets


@dataclass
class KeyReader:
    """Reads parts of a key table.

    Attributes:
        connection: The connection.
        info: The table; it has a primary key.
        columns: The columns to return.
        overrides: Properties of the Iceberg catalog that differ from those of the table.
    """

    connection: FlussConnection
    info: TableInfo
    columns: Sequence[str]
    overrides: Mapping[str, str] | None = None
    _table: Table | None = None
    _files: dict[int, list[LiveFile]] = field(default_factory=dict)

    def batches(self, one: KeyPart) -> Iterator[pa.RecordBatch]:
        """Read the rows of one part. Blocks.

        Raises:
            EqualityDeleteError: Deletes of the lake cannot be applied.
            LakeRangeError: The Iceberg table does not have the snapshot any more; it may have been
                expired while it was read.
            LogOffsetOutOfRangeError: A part of the changelog after the snapshot was deleted.
            StateUnavailableError: The lake does not have the bucket, and its state cannot be read.
        """
        part = one.part
        if one.snapshot_id is None:
            core, bucket = async_connection(self.connection), part.table_bucket(self.info.table_id)
            with BlockingState(
                core, self.info, bucket, stop=part.stop, columns=self.columns
            ) as state:
                yield from state
            return
        table = self._opened(one.snapshot_id)
        found = self._lake_and_tail(table, one.snapshot_id, part)
        yield from explained_while_read(table.location(), table.io.properties, found)

    def _lake_and_tail(
        self, table: Table, snapshot_id: int, part: BucketRange
    ) -> Iterator[pa.RecordBatch]:
        with reading(self.info, table, snapshot_id):
            files = self._files_of(table, snapshot_id, part)
            if part.start == part.stop:
                yield from self._lake_rows(table, files, None)
                return
            with _Tail(partial(self._last_images, part)) as tail:
                yield from self._lake_rows(table, files, _changed_keys(table, self.info, tail))
                for found in tail.images():
                    if found.upserts.num_rows:
                        yield found.upserts.select(list(self.columns))

    def _opened(self, snapshot_id: int) -> Table:
        alias = self.connection.config.resolved_alias()
        if self._table is None:
            self._table = load_lake_table(self.info, alias, self.overrides)
        if self._table.snapshot_by_id(snapshot_id) is None:
            self._table = load_lake_table(self.info, alias, self.overrides)
        if self._table.snapshot_by_id(snapshot_id) is None:
            raise LakeRangeError(
                self.info.table_path,
                f"its Iceberg table has no snapshot {snapshot_id}: it was expired; read again",
            )
        return self._table

    def _files_of(self, table: Table, snapshot_id: int, part: BucketRange) -> list[LiveFile]:
        if snapshot_id not in self._files:
            self._files = {snapshot_id: live_files(table, snapshot_id)}
        return bucket_files(table, self.info, self._files[snapshot_id], part)

    def _lake_rows(
        self, table: Table, files: Sequence[LiveFile], replaced: ReplacedKeys | None
    ) -> Iterator[pa.RecordBatch]:
        arrow = self.info.schema.arrow
        target = pa.schema([arrow.field(name) for name in self.columns])
        there = {f.name for f in table.schema().fields}
        # A column that the lake does not have yet is null in all of its rows.
        names = [name for name in self.columns if name in there] or list(self.info.primary_keys)
        for batch in read_live(table, files, names, replaced=replaced, keys_max=KEYS_AT_ONCE_MAX):
            if batch.num_rows:
                yield conform(batch, target)

    def _last_images(self, part: BucketRange) -> LastImages:
        """Return the last change of each key after the lake's offset."""
        core, info = async_connection(self.connection), self.info
        index = info.schema.index
        columns = tuple(sorted({index[n] for n in (*self.columns, *info.primary_keys)}))
        schema = pa.schema([info.schema.arrow.field(at) for at in columns])
        images = LastImages(info.primary_keys, TAIL_BYTES, change_type=_CHANGE_TYPE)
        try:
            at = part.start
            for records in read_batches(core, info, part, columns):
                if records.batch.num_rows:
                    if records.base_offset < at or records.change_types is None:
                        raise gap_error(info, part, at, records.base_offset)
                    rows = pa.RecordBatch.from_arrays(records.batch.columns, schema=schema)
                    images.add(rows.append_column(_CHANGE_TYPE, records.change_types))
                at = max(at, records.next_offset)
            if at != part.stop:
                raise gap_error(info, part, at, part.stop)
        except BaseException:
            images.close()
            raise
        return images


class _Tail:
    """The last changes of keys after the lake's offset, read when they are asked for."""

    def __init__(self, read: Callable[[], LastImages]) -> None:
        self._read = read
        self._found: LastImages | None = None

    def images(self) -> Iterator[KeyImages]:
        """Return the last images, each time the same."""
        if self._found is None:
            self._found = self._read()
        return self._found.images()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        if self._found is not None:
            self._found.close()


def _changed_keys(table: Table, info: TableInfo, tail: _Tail) -> ReplacedKeys:
    """Return the keys of which the lake may have a row that is not the last one."""
    from pyiceberg.io.pyarrow import schema_to_pyarrow
    from pyiceberg.schema import Schema

    ids = tuple(key_field_ids(table, info.primary_keys))
    fields = [table.schema().find_field(i) for i in ids]
    target = schema_to_pyarrow(Schema(*fields), include_field_ids=False)

    def batches() -> Iterator[pa.RecordBatch]:
        for found in tail.images():
            for rows, was_absent in (
                (found.upserts, found.inserted),
                (found.deletes, found.vanished),
            ):
                keys = rows.select(target.names)
                yield conform(keys.filter(pc.invert(was_absent)), target)

    def count() -> int:
        return sum(
            len(flags) - flags.true_count
            for found in tail.images()
            for flags in (found.inserted, found.vanished)
        )

    return ReplacedKeys(ids, count, batches)
