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
        self._asked_at = float("-inf")
        self._table_error: FlussError | None = None
        self._partitions: set[int] = set()

    async def find_dropped(self, bucket: TableBucket) -> FlussError | None:
        """The error for a table or partition that is gone; None when both are there."""
        loop = asyncio.get_running_loop()
        async with self._asking:
            if loop.time() - self._asked_at > FRESH_S:
                await self._look()
                self._asked_at = loop.time()
        if self._table_error is not None:
            return self._table_error
        if bucket.partition_id is None or bucket.partition_id in self._partitions:
            return None
        path = self._table.table_path
        return PartitionNotExistError(f"partition {bucket.partition_id} of {path} was dropped")

    async def _look(self) -> None:
        path = self._table.table_path
        try:
            now = await self._backend.get_table_info(path)
        except TableNotExistError:
            self._table_error = TableNotExistError(f"table {path} was dropped")
            return
        if now.table_id != self._table.table_id:
            self._table_error = TableNotExistError(
                f"table {path} was dropped and made anew with id {now.table_id}; open it again"
            )
        elif now.is_partitioned():
            partitions = await self._backend.list_partitions(path, None)
            self._partitions = {partition.partition_id for partition in partitions}
