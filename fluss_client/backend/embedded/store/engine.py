"""The base class of the embedded backend: worker threads, catalog, lake, and the commit watch.

A fetch that finds no rows waits for a commit. This backend's own commits notify it at once. SQLite
cannot notify one process of another's commit, so those are found by polling: `PRAGMA data_version`
takes microseconds and changes with every commit of another connection. One poll serves all waiting
fetches.
"""

from __future__ import annotations

import asyncio
import contextlib
import sqlite3
import weakref
from collections.abc import Awaitable, Callable, Mapping
from typing import TypeVar

from fluss_client.backend.embedded.lake.iceberg import Lake
from fluss_client.backend.embedded.log.retention import has_garbage, reclaim_step
from fluss_client.backend.embedded.store.catalog import Catalog
from fluss_client.backend.embedded.store.database import Database
from fluss_client.backend.embedded.store.threads import WorkerThreads
from fluss_client.errors import ClosedError
from fluss_client.model.table import TableBucket
from fluss_client.net.metrics import TraceHook
from fluss_client.runtime import ProcessBound

T = TypeVar("T")
NODE_ID = 0
"""The id of the one server that an embedded directory has."""
POLL_FIRST_S = 0.002
POLL_LONGEST_S = 0.02
IDLE_POLLS_MAX = 50


def data_version(connection: sqlite3.Connection) -> int:
    """Return a number that changes when another connection commits."""
    (version,) = connection.execute("PRAGMA data_version").fetchone()
    return int(version)


class CommitWatch:
    """Wakes waiting fetches after a commit of any process."""

    def __init__(self, ask: Callable[[], Awaitable[int]]) -> None:
        self._ask = ask
        self._changed = asyncio.Event()
        self._waiting = 0
        self._poll: asyncio.Task[None] | None = None
        self._closed = False

    def changed(self) -> None:
        """Wake all that wait: something was committed."""
        event, self._changed = self._changed, asyncio.Event()
        event.set()

    def mark(self) -> asyncio.Event:
        """Return the event to pass to `wait`. Take it before reading, or a commit is missed."""
        return self._changed

    async def wait(self, mark: asyncio.Event, timeout_s: float) -> None:
        """Wait until something was committed after `mark` was taken, or the timeout passed."""
        if self._closed:
            # A scanner that was left open may still call this; nobody would end a new poll task.
            raise ClosedError("the embedded engine was closed; make a new FlussConnection")
        self._waiting += 1
        if self._poll is None or self._poll.done():
            self._poll = asyncio.create_task(self._polling())
        try:
            async with asyncio.timeout(timeout_s):
                await mark.wait()
        except TimeoutError:
            return
        finally:
            self._waiting -= 1

    async def _polling(self) -> None:
        # The worker threads may have ended: a client was garbage collected without `close`.
        with contextlib.suppress(ClosedError):
            await self._poll_until_idle()

    async def _poll_until_idle(self) -> None:
        seen = await self._ask()
        # A commit between the caller's read and this one would not change the number any more.
        self.changed()
        interval_s, idle = POLL_FIRST_S, 0
        # A fetch that was just woken waits again soon: keep the task for some idle polls.
        while (idle := 0 if self._waiting else idle + 1) < IDLE_POLLS_MAX:
            await asyncio.sleep(interval_s)
            version = await self._ask()
            if version != seen:
                seen = version
                interval_s = POLL_FIRST_S
                self.changed()
            else:
                interval_s = min(interval_s * 1.5, POLL_LONGEST_S)

    async def close(self) -> None:
        """Stop polling and wake all that wait."""
        self._closed = True
        self.changed()
        if self._poll is not None:
            self._poll.cancel()
            await asyncio.gather(self._poll, return_exceptions=True)


class Engine(ProcessBound):
    """One directory, used on one event loop of one process."""

    def __init__(self, database: Database) -> None:
        self._bind_process()
        self.database = database
        self.lake = Lake(database.directory)
        self.catalog = Catalog(self.lake.properties)
        self.known_buckets: set[TableBucket] = set()
        self.bucket_numbers: dict[TableBucket, int] = {}
        """Bucket numbers are never reused, so a cached number of a dropped bucket finds no rows."""
        self._bucket_counts: dict[int | None, int] = {}
        """How many buckets each partition has. Partitions keep their count and ids are not reused,
        so a count in here stays true."""
        self.expiry_seen: dict[TableBucket, float] = {}
        self._counts: dict[str, float] = {"reads": 0, "writes": 0}
        # The threads refer to `threads`, which must not refer to the engine: an engine that
        # nobody uses any more is then garbage collected, and its finalizer ends the threads.
        self._threads = threads = WorkerThreads(database, has_garbage, reclaim_step)
        self._watch = CommitWatch(lambda: threads.watch(data_version))
        threads.on_commit = self._watch.changed
        # At interpreter exit the threads are daemons and end with the process.
        weakref.finalize(self, threads.end).atexit = False

    async def _read(self, run: Callable[[sqlite3.Connection], T], *, snapshot: bool = True) -> T:
        self._check_process()
        self._counts["reads"] += 1
        return await self._threads.read(run, snapshot=snapshot)

    async def _read_briefly(self, run: Callable[[sqlite3.Connection], T]) -> T:
        self._check_process()
        self._counts["reads"] += 1
        return await self._threads.read_briefly(run)

    async def _write(self, run: Callable[[sqlite3.Connection], T], weight: int = 0) -> T:
        self._check_process()
        self._counts["writes"] += 1
        return await self._threads.write(run, weight)

    def metrics(self) -> Mapping[str, float]:
        """Return how many reads, writes and commits this backend has done."""
        return {**self._counts, **self._threads.figures()}

    def set_trace_hook(self, hook: TraceHook | None) -> None:
        """Do nothing: there are no requests to trace."""

    def close_sockets(self) -> None:
        """Do nothing: there are no sockets."""

    async def close(self) -> None:
        """Finish the jobs under way and end the worker threads."""
        self._check_process()
        await self._watch.close()
        await self._threads.close()
