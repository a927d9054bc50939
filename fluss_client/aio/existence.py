"""Whether a table and its partitions are still there.

Servers answer for ever that they do not know the buckets of what was dropped, so who gets such
answers asks here. Thousands of buckets may ask at a time; they share one look.
"""

from __future__ import annotations

import asyncio

from fluss_client.backend.contract import Backend
from fluss_client.errors import FlussError, PartitionNotExistError, TableNotExistError
from fluss_client.model.table import TableBucket, TableInfo

FRESH_S = 0.5
"""How long one look at the table answers for all of its buckets."""


class Existence:
    """What there is of one table."""

    def __init__(self, backend: Backend, table: TableInfo) -> None:
        self._backend = backend
        self._table = table
        self._asking = asyncio.Lock()
        self._looked_at = float("-inf")
        self._table_is_gone = ""
        self._partitions: set[int] = set()

    async def find_dropped(self, bucket: TableBucket) -> FlussError | None:
        """The error for a table or partition that is gone; None when both are there."""
        clock = asyncio.get_running_loop().time
        asked_at = clock()
        async with self._asking:
            # A partition may be younger than the last look: what it did not see is looked for.
            fresh = clock() - self._looked_at <= FRESH_S
            if not fresh or (self._gone(bucket) and self._looked_at < asked_at):
                self._looked_at = clock()
                await self._look()
        return self._gone(bucket)

    def _gone(self, bucket: TableBucket) -> FlussError | None:
        if self._table_is_gone:
            return TableNotExistError(self._table_is_gone)
        if bucket.partition_id is None or bucket.partition_id in self._partitions:
            return None
        path = self._table.table_path
        return PartitionNotExistError(f"partition {bucket.partition_id} of {path} was dropped")

    async def _look(self) -> None:
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
            partitions = await self._backend.list_partitions(path, None)
            self._partitions = {partition.partition_id for partition in partitions}
