"""Guards against a fault of Fluss 0.9's coordinator when partitions come and go quickly.

Partitions come into being in the background after CreatePartition has answered. A table that is
dropped before its newest partition has leaders leaves the coordinator with a partition of no
table: it fails inside, and from then on no new table of the cluster gets a leader until the
coordinator is restarted. So a drop waits, within a bound, until the partitions it concerns have
come into being.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from typing import TYPE_CHECKING

from fluss_client.errors import FlussError
from fluss_client.model.table import TableBucket, TablePath
from fluss_client.net.retry import Deadline, retrying

if TYPE_CHECKING:
    from fluss_client.backend.cluster.admin import AdminCalls

log = logging.getLogger(__name__)
SETTLE_WAIT_MS = 5_000
TABLES_AT_ONCE = 8


async def settle_partitions(
    calls: AdminCalls, path: TablePath, spec: Mapping[str, str] | None = None
) -> None:
    """Wait until the table's partitions (those of `spec`) have leaders; never raises for that."""
    try:
        table = await calls.get_table_info(path)
        if not table.is_partitioned():
            return
        partitions = await calls.list_partitions(path, spec)
    except FlussError:
        # The drop itself tells what is wrong with the table.
        return
    buckets = [
        TableBucket(table.table_id, bucket, partition_id=info.partition_id)
        for info in partitions
        for bucket in range(table.num_buckets)
    ]

    async def ask() -> None:
        await asyncio.gather(*(calls.metadata.find_leader(path, bucket) for bucket in buckets))

    try:
        await retrying(ask, Deadline(SETTLE_WAIT_MS), retriable=lambda error: True)
    except FlussError as error:
        log.debug("%s is dropped although %s", path, error)


async def settle_database(calls: AdminCalls, name: str) -> None:
    """The same for every table of a database."""
    try:
        tables = await calls.list_tables(name)
    except FlussError:
        return
    limit = asyncio.Semaphore(TABLES_AT_ONCE)

    async def settle(table: str) -> None:
        async with limit:
            await settle_partitions(calls, TablePath(name, table))

    await asyncio.gather(*(settle(table) for table in tables))
