"""Guards against two faults of the coordinator of Fluss 0.9.

A table that was created and that the coordinator missed. It learns of new tables from ZooKeeper and
sometimes loses such a message (about one partitioned table in fifty). The table then exists, but
gets no leader and no partition until the coordinator is restarted, and CreatePartition for it stops
every new table of the cluster. The only remedy is to drop the table and to create it again.

A slow coordinator looks the same for a while, and its tables may hold rows. So no table is dropped
because of time alone. The coordinator handles new tables one after the other, in the order of their
creation: if it knows a table that was created later (the marker), it has handled the message of the
earlier one, and a table that it still does not know is one that it missed.

A table that was dropped too early. Partitions are created in the background after CreatePartition
has answered. If the table is dropped before its newest partition has leaders, the coordinator keeps
a partition without a table and fails: from then on no new table of the cluster gets a leader until
the coordinator is restarted. So a drop waits, for a limited time, until the partitions of the table
have leaders (`await_partition_leaders`).
"""

from __future__ import annotations

import asyncio
import logging
import uuid
from collections.abc import AsyncIterator, Iterable, Mapping
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import pyarrow as pa

from fluss_client.backend.cluster.calls import path_pb
from fluss_client.errors import (
    FlussError,
    TableNotExistError,
    TableNotReadyError,
    UnknownTableOrBucketError,
)
from fluss_client.model.schema import Schema
from fluss_client.model.table import (
    PartitionInfo,
    TableBucket,
    TableDescriptor,
    TableInfo,
    TablePath,
)
from fluss_client.net.connection import Connection
from fluss_client.net.retry import Deadline, retrying
from fluss_client.wire import apis
from fluss_client.wire import fluss_pb2 as pb

if TYPE_CHECKING:
    from fluss_client.backend.cluster.admin import AdminCalls

log = logging.getLogger(__name__)
KNOWN_SOON_MS = 2_000
"""A new table that the coordinator does not know after this time may have been missed."""
KNOWN_WAIT_MS = 10_000
MARKER_WAIT_MS = 10_000
MARKER_PREFIX = "fluss_client_marker_"
LAKE_ENABLED = "table.datalake.enabled"
LEADERS_WAIT_MS = 5_000
TABLES_AT_ONCE = 8


async def check_known(calls: AdminCalls, table: TableInfo) -> None:
    """Raise `TableNotReadyError` unless the coordinator knows the table within some seconds."""
    connection = await calls.coordinator_connection()
    if not await _known(connection, table, KNOWN_WAIT_MS):
        seconds = KNOWN_WAIT_MS / 1000
        raise _not_ready(table, f"the coordinator does not know it after {seconds:g} s")


async def drop_if_missed(calls: AdminCalls, made: TableInfo) -> bool:
    """Drop a new table if the coordinator has surely missed it.

    Args:
        calls: The client.
        made: The table that the caller has created a moment ago.

    Returns:
        Whether it was dropped; False when the coordinator knows it.

    Raises:
        TableNotReadyError: It is not certain yet, or the table cannot be created again. Nothing
            was dropped.
    """
    try:
        # The question and the drop use the same connection. It breaks when the coordinator ends,
        # and a restarted coordinator reads all tables from ZooKeeper, so it has missed none.
        connection = await calls.coordinator_connection()
    except FlussError:
        return False
    if await _known(connection, made, KNOWN_SOON_MS) or await _has_leader(calls, made):
        return False
    if made.properties.get(LAKE_ENABLED, "").lower() == "true":
        raise _not_ready(
            made,
            "the coordinator does not know it; it is not made again here, because the table in the "
            "lake that came with it would stay and be in the way",
        )
    async with _marker(calls, made) as marker:
        if not await _known(connection, marker, MARKER_WAIT_MS):
            raise _not_ready(made, "the coordinator knows neither it nor a table made after it")
    if await _known(connection, made, 0) or await _has_leader(calls, made):
        return False
    if not await _is_at_its_path(calls, made):
        raise _not_ready(made, "it was dropped, or replaced, by another client meanwhile")
    log.warning("the coordinator missed the creation of %s; creating it again", made.table_path)
    await connection.call(apis.DROP_TABLE, _drop_request(made.table_path))
    return True


async def _known(connection: Connection, table: TableInfo, wait_ms: int) -> bool:
    """Return whether the coordinator knows a table; ask again until it does or the time is over.

    Releasing a lease that does not exist changes nothing, and the coordinator answers with error 21
    for a table that it does not know.
    """
    probe = pb.ReleaseKvSnapshotLeaseRequest(lease_id="table-known-to-coordinator")
    probe.buckets_to_release.add(table_id=table.table_id, bucket_id=0)

    async def ask() -> None:
        try:
            await connection.call(apis.RELEASE_KV_SNAPSHOT_LEASE, probe)
        except UnknownTableOrBucketError:
            raise
        except FlussError:
            # Any other error does not prove that the table is unknown.
            return

    try:
        await retrying(ask, Deadline(wait_ms))
    except UnknownTableOrBucketError:
        return False
    return True


async def _has_leader(calls: AdminCalls, table: TableInfo) -> bool:
    """Return whether a bucket has a leader: the coordinator assigned it, so it knows the table."""
    path = table.table_path
    try:
        partitions: list[PartitionInfo | None] = [None]
        if table.is_partitioned():
            partitions = [*await calls.list_partitions(path, None)]
        buckets = _buckets_of(table, partitions)
    except FlussError:
        return False
    leaders = await asyncio.gather(
        *(calls.metadata.find_leader(path, bucket) for bucket in buckets), return_exceptions=True
    )
    return any(isinstance(leader, int) for leader in leaders)


def _buckets_of(table: TableInfo, partitions: Iterable[PartitionInfo | None]) -> list[TableBucket]:
    """Return the buckets of partitions, which have different counts after a rescale."""
    return [
        TableBucket(
            table.table_id, bucket, partition_id=None if info is None else info.partition_id
        )
        for info in partitions
        for bucket in range(table.bucket_count_of(info))
    ]


async def _is_at_its_path(calls: AdminCalls, made: TableInfo) -> bool:
    """Return whether the path still leads to this table; a drop names the path, not the id."""
    try:
        return (await calls.get_table_info(made.table_path)).table_id == made.table_id
    except TableNotExistError:
        return False


@asynccontextmanager
async def _marker(calls: AdminCalls, made: TableInfo) -> AsyncIterator[TableInfo]:
    """Create an empty table in the same database, and drop it at the end of the block."""
    path = TablePath(made.table_path.database_name, f"{MARKER_PREFIX}{uuid.uuid4().hex}")
    # Tables without partitions are hardly ever missed, and every cluster has room for one replica.
    descriptor = TableDescriptor(
        Schema(pa.schema([("marker", pa.int32())])),
        bucket_count=1,
        comment=f"shows whether the coordinator missed {made.table_path}; may be dropped",
        properties={"table.replication.factor": "1"},
    )
    try:
        await calls.send_create_table(path, descriptor, ignore_if_exists=False)
        try:
            yield await calls.get_table_info(path)
        finally:
            await calls.on_coordinator(apis.DROP_TABLE, _drop_request(path))
    except TableNotReadyError:
        raise
    except FlussError as error:
        raise _not_ready(
            made, f"it is not certain whether the coordinator missed it: {error}"
        ) from error


def _drop_request(path: TablePath) -> pb.DropTableRequest:
    return pb.DropTableRequest(table_path=path_pb(path), ignore_if_not_exists=True)


def _not_ready(table: TableInfo, why: str) -> TableNotReadyError:
    return TableNotReadyError(
        f"table {table.table_path} (id {table.table_id}) was created, but {why}. Nothing was "
        "dropped. The coordinator may be slow: wait, then create partitions or write. If servers "
        "find no leader for it for good, Fluss 0.9 has missed its creation: restart the "
        "coordinator, or make sure that it holds no row, drop it and create it again",
        table.table_path,
        table.table_id,
    )


async def await_partition_leaders(
    calls: AdminCalls, path: TablePath, spec: Mapping[str, str] | None = None
) -> None:
    """Wait until the partitions of a table have leaders; on timeout, log it and return.

    Args:
        calls: The client.
        path: The table that is about to be dropped, or of which a partition is.
        spec: Wait only for the partitions with these values.
    """
    try:
        table = await calls.get_table_info(path)
        if not table.is_partitioned():
            return
        buckets = _buckets_of(table, await calls.list_partitions(path, spec))
    except FlussError:
        # The drop that follows raises the error.
        return

    async def ask() -> None:
        await asyncio.gather(*(calls.metadata.find_leader(path, bucket) for bucket in buckets))

    try:
        await retrying(ask, Deadline(LEADERS_WAIT_MS), retriable=lambda error: True)
    except FlussError as error:
        log.debug("%s is dropped although %s", path, error)


async def await_database_leaders(calls: AdminCalls, name: str) -> None:
    """Wait until the partitions of every table of a database have leaders."""
    try:
        tables = await calls.list_tables(name)
    except FlussError:
        return
    limit = asyncio.Semaphore(TABLES_AT_ONCE)

    async def settle(table: str) -> None:
        async with limit:
            await await_partition_leaders(calls, TablePath(name, table))

    await asyncio.gather(*(settle(table) for table in tables))
