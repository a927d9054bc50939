"""What every part of the backend stands on: the lanes, the catalog, the lake and the watch."""

from __future__ import annotations

import sqlite3
import weakref
from collections.abc import Callable, Mapping
from typing import TypeVar

from fluss_client.backend.embedded.catalog import Catalog
from fluss_client.backend.embedded.database import Database
from fluss_client.backend.embedded.iceberg import Lake
from fluss_client.backend.embedded.lanes import Lanes
from fluss_client.backend.embedded.retention import has_garbage, reclaim_step
from fluss_client.backend.embedded.watching import Watch, data_version
from fluss_client.model.table import TableBucket
from fluss_client.runtime import ProcessBound

T = TypeVar("T")
NODE_ID = 0


class Engine(ProcessBound):
    """One directory, used on one event loop of one process."""

    def __init__(self, database: Database) -> None:
        self._bind_process()
        self.database = database
        self.lake = Lake(database.directory)
        self.catalog = Catalog(self.lake.properties)
        self.known_buckets: set[TableBucket] = set()
        self.bucket_numbers: dict[TableBucket, int] = {}
        """Numbers are never given twice, so one that was dropped is found to be gone."""
        self.expiry_seen: dict[TableBucket, float] = {}
        self._counts: dict[str, float] = {"reads": 0, "writes": 0}
        # Threads hold the lanes, and these must not hold the engine: it goes when nobody uses it.
        self._lanes = lanes = Lanes(database, has_garbage, reclaim_step)
        self._watch = Watch(lambda: lanes.watch(data_version))
        lanes.on_commit = self._watch.changed
        # At interpreter exit the threads end with the process.
        weakref.finalize(self, lanes.end).atexit = False

    async def _read(self, run: Callable[[sqlite3.Connection], T], *, snapshot: bool = True) -> T:
        self._check_process()
        self._counts["reads"] += 1
        return await self._lanes.read(run, snapshot=snapshot)

    async def _read_briefly(self, run: Callable[[sqlite3.Connection], T]) -> T:
        self._check_process()
        self._counts["reads"] += 1
        return await self._lanes.read_briefly(run)

    async def _write(self, run: Callable[[sqlite3.Connection], T], weight: int = 0) -> T:
        self._check_process()
        self._counts["writes"] += 1
        return await self._lanes.write(run, weight)

    def metrics(self) -> Mapping[str, float]:
        """What this backend has done so far."""
        return {**self._counts, **self._lanes.figures()}

    async def close(self) -> None:
        """End the lanes after what they were given."""
        self._check_process()
        await self._watch.close()
        await self._lanes.close()
