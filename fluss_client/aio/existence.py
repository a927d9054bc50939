"""Whether a table and its partitions still exist, and the ids of partitions by name.

After a table or partition was dropped, servers keep answering that they do not know its buckets,
as they do while a bucket moves. Writers and scans use `Existence` to distinguish the two cases.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Sequence

from fluss_client.backend.contract import Backend
from fluss_client.errors import (
    FlussError,
    InvalidBucketRoutingError,
    PartitionNotExistError,
    TableNotExistError,
    UnsupportedByServerError,
)
from fluss_client.model.table import PartitionInfo, TableBucket, TableInfo

FRESH_S = 0.5
"""How long the answer to one request is used for all buckets of the table."""
LOOKED_UP_MAX = 16
"""How many partitions are looked up one by one before all of them are listed. A server takes
several milliseconds for one look-up, and a fraction of one for each partition of a list."""


async def existing_partitions(backend: Backend, table: TableInfo) -> list[PartitionInfo]:
    """Return the partitions of a table, with the system partition if it takes late rows.

    Args:
        backend: The backend of the table.
        table: The table; it has partitions.
    """
    found = await backend.list_partitions(table.table_path, None)
    if table.takes_late_rows:
        # Servers before 1.0 have none.
        with contextlib.suppress(UnsupportedByServerError):
            found += await backend.system_partitions(table.table_path)
    return found


class Existence:
    """Checks whether a table and its partitions still exist.

    Thousands of buckets may check at the same time. They share one request to the server.

    Args:
        backend: The backend of the table.
        table: The table, as it was when it was opened.
    """

    def __init__(self, backend: Backend, table: TableInfo) -> None:
        self._backend = backend
        self._table = table
        self._lock = asyncio.Lock()
        self._requested_at = float("-inf")
        self._table_is_gone = ""
        self._partitions: set[int] = set()

    async def find_dropped(self, bucket: TableBucket) -> FlussError | None:
        """Return the error for a bucket whose table or partition was dropped.

        Args:
            bucket: The bucket whose table and partition are checked.

        Returns:
            `TableNotExistError`, `PartitionNotExistError`, or None if both exist.
        """
        clock = asyncio.get_running_loop().time
        called_at = clock()
        # One request at a time. Callers that waited for the lock find its answer.
        async with self._lock:
            # A partition may be newer than the last answer. Only an answer that was requested
            # after this call began can say that the partition does not exist.
            fresh = clock() - self._requested_at <= FRESH_S
            if not fresh or (self._gone(bucket) and self._requested_at < called_at):
                self._requested_at = clock()
                await self._request()
        return self._gone(bucket)

    def _gone(self, bucket: TableBucket) -> FlussError | None:
        if self._table_is_gone:
            return TableNotExistError(self._table_is_gone)
        if bucket.partition_id is None or bucket.partition_id in self._partitions:
            return None
        path = self._table.table_path
        return PartitionNotExistError(f"partition {bucket.partition_id} of {path} was dropped")

    async def _request(self) -> None:
        path = self._table.table_path
        try:
            now = await self._backend.get_table_info(path)
        except TableNotExistError:
            self._table_is_gone = f"table {path} was dropped"
            return
        if now.table_id != self._table.table_id:
            self._table_is_gone = (
                f"table {path} was dropped and made anew with id {now.table_id}; open it again"
            )
        elif now.is_partitioned():
            partitions = await existing_partitions(self._backend, now)
            self._partitions = {partition.partition_id for partition in partitions}


class PartitionIds:
    """The ids of the partitions of one table, kept until `forget` is called.

    `find` also learns the bucket counts of the partitions, so that `bucket_count` knows them.
    """

    def __init__(self, backend: Backend, table: TableInfo) -> None:
        self._backend = backend
        self._table = table
        self._known: dict[str, int] = {}
        self._looked_up = 0

    def known(self, names: Sequence[str]) -> list[int] | None:
        """Return the ids in the order of the names, or None if one of them is not known.

        Any thread may call it.
        """
        # `forget` replaces the dict, so this thread reads one consistent state.
        known = self._known
        try:
            found = [known[name] for name in names]
        except KeyError:
            return None
        count_of = self._backend.known_bucket_count
        return None if any(count_of(self._table, part) is None for part in found) else found

    async def find(self, names: Sequence[str]) -> list[int]:
        """Return the ids in the order of the names, and ask the server for unknown ones.

        Raises:
            PartitionNotExistError: There is no partition of that name.
        """
        known = self._known
        unknown = [name for name in names if name not in known]
        if self._looked_up + len(unknown) > LOOKED_UP_MAX:
            self._looked_up = 0
            listed = await self._backend.list_partitions(self._table.table_path, None)
            known |= {info.partition_name: info.partition_id for info in listed}
            unknown = [name for name in unknown if name not in known]
        # A name that is not in the list is looked up too: this raises the error with its name.
        for start in range(0, len(unknown), LOOKED_UP_MAX):
            some = unknown[start : start + LOOKED_UP_MAX]
            look_ups = (self._backend.partition_id(self._table, name) for name in some)
            known |= dict(zip(some, await asyncio.gather(*look_ups), strict=True))
            self._looked_up += len(some)
        found = [known[name] for name in names]
        for partition in found:
            if self._backend.known_bucket_count(self._table, partition) is None:
                await self._backend.bucket_count(self._table, partition)
        return found

    def bucket_count(self, partition_id: int | None) -> int:
        """Return the bucket count of a partition that `known` or `find` has returned.

        Any thread may call it.

        Raises:
            InvalidBucketRoutingError: The count was forgotten meanwhile; find the partition again.
        """
        count = self._backend.known_bucket_count(self._table, partition_id)
        if count is None:
            raise InvalidBucketRoutingError(
                f"the bucket count of partition {partition_id} of {self._table.table_path} was "
                "dropped from the cache; find the partition again"
            )
        return count

    def forget(self) -> None:
        """Drop all ids, because a partition was dropped: its name may have a new id."""
        self._known = {}
