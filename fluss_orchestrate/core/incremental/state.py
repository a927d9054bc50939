"""The rows of a key table as they were at exact offsets of its changelog, readable again and again.

A server can only be asked for its rows as they are now. What has changed since the wanted offset
is in the changelog, with the old rows: of every key that was touched, the first change after the
offset tells what stood there. So the state at an offset is what is there now, without the touched
keys, and with the old rows of those that had one. It is the same however often and however late
it is read, as long as the changelog from the offset on is there.

Each bucket is exact at its own offset; the buckets together are not one snapshot. A whole bucket
is held in memory, because servers send it in one piece; one that is too large for that is refused
(`ScanTooLargeError`).
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from fluss_client.aio.connection import FlussConnection as AsyncConnection
from fluss_client.aio.lookup_keys import KeyMaker
from fluss_client.aio.ranges import read_ranges
from fluss_client.errors import LogOffsetOutOfRangeError, ScanTooLargeError, UnsupportedError
from fluss_client.model.cluster import ChangeType, OffsetSpec
from fluss_client.model.table import TableInfo
from fluss_client.runtime import runtime
from fluss_orchestrate.core.errors import RetentionPassedError
from fluss_orchestrate.core.incremental.guards import UNKNOWN_END
from fluss_orchestrate.core.incremental.planning import CHANGELOG_IMAGE, has_old_rows
from fluss_orchestrate.core.incremental.shaping import STATE_OFFSET, Rows
from fluss_orchestrate.core.plan import BucketRange, ScanPlan

ALL_ROWS = (1 << 31) - 1
ROWS_PER_BATCH = 1 << 16
_HAD_A_ROW = (ChangeType.UpdateBefore, ChangeType.Delete)


def read_state(
    core: AsyncConnection, plan: ScanPlan, table: TableInfo
) -> Iterator[tuple[Rows, BucketRange]]:
    """The state of every range's bucket at the range's stop, by key, one bucket at a time.

    Blocks; the caller's thread does the merging. The last piece of a bucket has the whole range,
    those before it an empty one, so that progress adds up.
    """
    check_old_rows(table)
    reader = _StateReader(core, plan, table)
    for where in plan.ranges:
        batch = reader.read(where)
        pieces = range(0, max(1, batch.num_rows), ROWS_PER_BATCH)
        for start in pieces:
            rows = Rows(batch.slice(start, ROWS_PER_BATCH), None, STATE_OFFSET, STATE_OFFSET)
            done = start == pieces[-1]
            yield rows, where if done else _nothing_of(where)


def check_old_rows(table: TableInfo) -> None:
    """`UnsupportedError` for a table whose changelog does not tell what stood there before.

    A key that was changed after the wanted offset would be missing from the state at that offset.
    """
    if not has_old_rows(table):
        image = table.properties[CHANGELOG_IMAGE]
        raise UnsupportedError(
            f"{table.table_path} has {CHANGELOG_IMAGE}={image}: its changelog does not tell the "
            "old rows, so the rows at an earlier offset cannot be had. Read the rows as they are "
            "now (read_table without as_of), or the changelog from the earliest offset up to there"
        )


class _StateReader:
    def __init__(self, core: AsyncConnection, plan: ScanPlan, table: TableInfo) -> None:
        self._core = core
        self._plan = plan
        self._table = table
        self._keys = KeyMaker(table, table.primary_keys, table.physical_primary_keys)
        index = table.schema.index
        wanted = {index[name] for name in (*plan.columns, *table.primary_keys)}
        self._columns = tuple(sorted(wanted))

    def read(self, where: BucketRange) -> pa.RecordBatch:
        """The plan's columns of one bucket's state, in the order of encoded keys."""
        now, changes, kinds = runtime().call(self._fetch(where))
        keys = self._keys_of(now)
        if changes is not None and changes.num_rows:
            touched = self._keys_of(changes)
            untouched = pc.invert(pc.is_in(keys, value_set=touched))
            old = _first_changes(touched, kinds)
            now = pa.concat_batches([now.filter(untouched), changes.take(old)])
            keys = pa.concat_arrays([keys.filter(untouched), touched.take(old)])
        ordered = now.take(pc.sort_indices(keys))
        return ordered.select(list(self._plan.columns))

    async def _fetch(
        self, where: BucketRange
    ) -> tuple[pa.RecordBatch, pa.RecordBatch | None, np.ndarray]:
        """The rows as they are, and all changes from the wanted offset until after that."""
        backend, table = self._core.backend, self._table
        bucket = where.table_bucket(table.table_id)
        try:
            now = await backend.limit_scan(table, bucket, ALL_ROWS, self._columns)
        except ScanTooLargeError as error:
            if self._plan.sequence >= 0:
                error.message += (
                    f". The plan of '{self._plan.name}' stays pending: `abandon` it, and begin "
                    "with start='earliest'"
                )
            raise
        ends = await backend.list_offsets(
            table, where.partition_id, [where.bucket], OffsetSpec.latest()
        )
        stop = ends[where.bucket]
        if stop <= where.stop:
            return now, None, np.zeros(0, np.uint8)
        batches, kinds = [], []
        try:
            async for part in read_ranges(
                backend,
                table,
                {bucket: (where.stop, stop)},
                self._columns,
                config=self._core.config,
            ):
                assert part.change_types is not None
                batches.append(part.batch)
                kinds.append(part.change_types.to_numpy())
        except LogOffsetOutOfRangeError as error:
            lost = BucketRange(
                where.partition_id, where.partition, where.bucket, where.stop, UNKNOWN_END
            )
            hint = "the state at that offset cannot be had any more; `abandon` the plan"
            raise RetentionPassedError(self._plan.table, [lost], hint) from error
        if not batches:
            return now, None, np.zeros(0, np.uint8)
        return now, pa.concat_batches(batches), np.concatenate(kinds)

    def _keys_of(self, batch: pa.RecordBatch) -> pa.Array:
        return self._keys.encode_many(batch).keys.to_arrow()


def _first_changes(keys: pa.Array, kinds: np.ndarray) -> pa.Array:
    """The positions of the first change of each key, of those that tell an old row."""
    seen: set[bytes] = set()
    found = []
    for at, key in enumerate(keys.to_pylist()):
        if key not in seen:
            seen.add(key)
            if kinds[at] in _HAD_A_ROW:
                found.append(at)
    return pa.array(found, pa.int64())


def _nothing_of(where: BucketRange) -> BucketRange:
    return BucketRange(where.partition_id, where.partition, where.bucket, where.start, where.start)
