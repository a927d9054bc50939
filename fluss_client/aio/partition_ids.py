"""The ids of a table's partitions by name, asked for when a name is first met.

A server takes several milliseconds to look one partition up, however many the table has, and a
fraction of one for each when it lists them all. So a few are looked up one by one; who meets more
of them gets the whole list.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from fluss_client.backend.contract import Backend
from fluss_client.model.table import TableInfo

LOOKED_UP_MAX = 16


class PartitionIds:
    """What is known of one table's partitions, until a server contradicts it (`forget`)."""

    def __init__(self, backend: Backend, table: TableInfo) -> None:
        self._backend = backend
        self._table = table
        self._known: dict[str, int] = {}
        self._looked_up = 0

    def known(self, names: Sequence[str]) -> list[int] | None:
        """The ids in the order of the names; None if one has to be asked for. On any thread."""
        known = self._known
        try:
            return [known[name] for name in names]
        except KeyError:
            return None

    async def find(self, names: Sequence[str]) -> list[int]:
        """The ids in the order of the names; PartitionNotExistError names one that is missing."""
        known = self._known
        unknown = [name for name in names if name not in known]
        if self._looked_up + len(unknown) > LOOKED_UP_MAX:
            self._looked_up = 0
            listed = await self._backend.list_partitions(self._table.table_path, None)
            known |= {info.partition_name: info.partition_id for info in listed}
            unknown = [name for name in unknown if name not in known]
        # What the list has not is looked up as well: that raises the error which names it.
        for start in range(0, len(unknown), LOOKED_UP_MAX):
            some = unknown[start : start + LOOKED_UP_MAX]
            look_ups = (self._backend.partition_id(self._table, name) for name in some)
            known |= dict(zip(some, await asyncio.gather(*look_ups), strict=True))
            self._looked_up += len(some)
        return [known[name] for name in names]

    def forget(self) -> None:
        """A partition is gone; names may have new ids now."""
        self._known = {}
