"""The lake operations of the embedded backend, and the storage of lake snapshots.

A lake snapshot is an id and the log offset of each bucket up to which rows are in the lake.
Offsets are prepared first, under a path, and a commit of that path makes them the newest snapshot.
"""

from __future__ import annotations

import sqlite3
import uuid
from collections.abc import Mapping, Sequence

from fluss_client.backend.embedded.lake import producer_offsets
from fluss_client.backend.embedded.lake.producer_offsets import offsets_from_text, offsets_to_text
from fluss_client.backend.embedded.lake.tiering import heartbeat
from fluss_client.backend.embedded.store.catalog import Catalog, find_bucket
from fluss_client.backend.embedded.store.engine import Engine
from fluss_client.errors import (
    LakeSnapshotNotExistError,
    UnknownServerError,
    UnknownTableOrBucketError,
)
from fluss_client.model.cluster import (
    BucketCommit,
    HeartbeatResult,
    LakeSnapshot,
    ProducerOffsets,
    TieringTable,
)
from fluss_client.model.table import TableBucket, TableInfo, TablePath

PATH_PREFIX = "embedded-offsets:"


class LakeOperations(Engine):
    """Lake snapshots, the tiering heartbeat and producer offsets."""

    async def get_lake_snapshot(
        self, path: TablePath, snapshot_id: int | None, readable: bool
    ) -> LakeSnapshot:
        return await self._read(
            lambda c: get_snapshot(c, self.catalog, path, snapshot_id, readable)
        )

    async def prepare_lake_snapshot(
        self, table: TableInfo, offsets: Mapping[TableBucket, int], ignore_previous: bool
    ) -> str:
        return await self._write(lambda c: prepare(c, table, offsets, ignore_previous))

    async def commit_lake_snapshot(
        self,
        table: TableInfo,
        snapshot_id: int,
        offsets_path: str,
        buckets: Sequence[BucketCommit],
        earliest_snapshot_to_keep: int | None,
    ) -> None:
        await self._write(
            lambda c: commit(
                c, table, snapshot_id, offsets_path, buckets, earliest_snapshot_to_keep
            )
        )

    async def lake_tiering_heartbeat(
        self,
        tiering: Sequence[TieringTable],
        finished: Sequence[TieringTable],
        failed: Sequence[TieringTable],
        request_table: bool,
        force_finished: Sequence[int],
    ) -> HeartbeatResult:
        return await self._write(
            lambda c: heartbeat(
                c, self.catalog, tiering, finished, failed, request_table, force_finished
            )
        )

    async def register_producer_offsets(
        self, producer_id: str, offsets: Mapping[TableBucket, int], ttl_ms: int | None
    ) -> bool:
        return await self._write(
            lambda c: producer_offsets.register(c, producer_id, offsets, ttl_ms)
        )

    async def get_producer_offsets(self, producer_id: str) -> ProducerOffsets | None:
        return await self._read(lambda c: producer_offsets.find(c, producer_id))

    async def delete_producer_offsets(self, producer_id: str) -> None:
        await self._write(lambda c: producer_offsets.delete(c, producer_id))


def get_snapshot(
    connection: sqlite3.Connection,
    catalog: Catalog,
    path: TablePath,
    snapshot_id: int | None,
    readable: bool,
) -> LakeSnapshot:
    """Return the newest snapshot, or the one with that id. Every committed one is readable."""
    if snapshot_id is not None and readable:
        raise UnknownServerError("ask for a snapshot by id or for a readable one, not for both")
    table_id = catalog.by_path(connection, path).info.table_id
    chosen, values = "", [table_id]
    if snapshot_id is not None:
        chosen, values = " AND snapshot_id = ?", [table_id, snapshot_id]
    row = connection.execute(
        "SELECT snapshot_id, offsets FROM lake_snapshot JOIN lake_offsets USING (path) "
        f"WHERE lake_snapshot.table_id = ?{chosen} ORDER BY position DESC LIMIT 1",
        values,
    ).fetchone()
    if row is None:
        which = "no lake snapshot" if snapshot_id is None else f"no lake snapshot {snapshot_id}"
        raise LakeSnapshotNotExistError(f"table {path} has {which}")
    return LakeSnapshot(row[0], offsets_from_text(row[1]))


def prepare(
    connection: sqlite3.Connection,
    table: TableInfo,
    offsets: Mapping[TableBucket, int],
    ignore_previous: bool,
) -> str:
    """Store offsets under a new path and return the path.

    Buckets that `offsets` lacks keep the offset of the newest snapshot, unless `ignore_previous`.
    """
    merged: dict[TableBucket, int] = {}
    if not ignore_previous:
        row = connection.execute(
            "SELECT offsets FROM lake_snapshot JOIN lake_offsets USING (path) "
            "WHERE lake_snapshot.table_id = ? ORDER BY position DESC LIMIT 1",
            (table.table_id,),
        ).fetchone()
        if row is not None:
            merged = offsets_from_text(row[0])
    merged.update(offsets)
    path = f"{PATH_PREFIX}{uuid.uuid4()}"
    connection.execute(
        "INSERT INTO lake_offsets VALUES (?, ?, ?)",
        (path, table.table_id, offsets_to_text(merged)),
    )
    return path


def commit(
    connection: sqlite3.Connection,
    table: TableInfo,
    snapshot_id: int,
    offsets_path: str,
    buckets: Sequence[BucketCommit],
    earliest_snapshot_to_keep: int | None,
) -> None:
    """Make prepared offsets the table's newest snapshot and delete older snapshots.

    A path that was never prepared raises error -1; a cluster accepts it and fails when it is read.
    """
    known = connection.execute(
        "SELECT 1 FROM lake_offsets WHERE path = ? AND table_id = ?",
        (offsets_path, table.table_id),
    ).fetchone()
    if known is None:
        raise UnknownServerError(
            f"no offsets of {table.table_path} were prepared as {offsets_path}"
        )
    _drop_older(connection, table.table_id, offsets_path, earliest_snapshot_to_keep)
    connection.execute(
        "INSERT INTO lake_snapshot (table_id, snapshot_id, path) VALUES (?, ?, ?)",
        (table.table_id, snapshot_id, offsets_path),
    )
    for commit_of in buckets:
        _advance(connection, commit_of)


def _drop_older(
    connection: sqlite3.Connection, table_id: int, path: str, earliest_to_keep: int | None
) -> None:
    rows = connection.execute(
        "SELECT position, snapshot_id FROM lake_snapshot WHERE table_id = ? ORDER BY position",
        (table_id,),
    ).fetchall()
    if earliest_to_keep is None:
        dropped = rows
    else:
        ids = [snapshot_id for _, snapshot_id in rows]
        # The server keeps everything if it does not know the id.
        found = ids.index(earliest_to_keep) if earliest_to_keep in ids else 0
        dropped = rows[:found]
    for position, _ in dropped:
        connection.execute(
            "DELETE FROM lake_offsets WHERE path <> ? AND path = "
            "(SELECT path FROM lake_snapshot WHERE position = ?)",
            (path, position),
        )
        connection.execute("DELETE FROM lake_snapshot WHERE position = ?", (position,))


def _advance(connection: sqlite3.Connection, commit_of: BucketCommit) -> None:
    try:
        bucket = find_bucket(connection, commit_of.bucket)
    except UnknownTableOrBucketError:
        # Its partition was dropped meanwhile, so there is no log to retain.
        return
    connection.execute(
        "UPDATE bucket SET lake_end = max(lake_end, ?) WHERE no = ?",
        (commit_of.log_end_offset, bucket.no),
    )
