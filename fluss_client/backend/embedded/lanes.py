"""The threads that talk to SQLite, so that the event loop need not wait for a disk or a lock.

One lane writes. It takes all waiting jobs at once and commits them in one transaction: the wait
for the disk is shared, each job still succeeds or fails by itself (savepoints). A few lanes read,
each with a connection of its own; in WAL mode they never wait for the writer.

Brief reads, such as one key, are done on the loop itself: they take 20 us where the way to a
thread and back takes 150. They wait for no lock, and a slow one sends those of the next second to
the lanes.

A fork must not copy an open connection, nor SQLite's memory of the locks it holds: before one,
every lane finishes its job and closes its connection. The parent's lanes open new ones.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import queue
import sqlite3
import threading
import time
import weakref
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar

from fluss_client.backend.embedded.catalog import all_or_nothing
from fluss_client.backend.embedded.database import Database
from fluss_client.backend.embedded.turns import Turns
from fluss_client.errors import ClosedError, FlussError

T = TypeVar("T")

READERS_MAX = 4
GROUP_JOBS_MAX = 64
GROUP_BYTES_MAX = 32 << 20
BRIEF_S = 0.002
SLOW_PAUSE_S = 1.0


@dataclass(slots=True)
class _Job:
    run: Callable[[sqlite3.Connection], Any]
    future: asyncio.Future[Any]
    weight: int
    snapshot: bool


_Outcome = tuple[asyncio.Future[Any], Any, BaseException | None]


class Seat:
    """One connection, opened when first needed; `busy` is held while it is used."""

    def __init__(self, open_connection: Callable[[], sqlite3.Connection]) -> None:
        self._open = open_connection
        self._connection: sqlite3.Connection | None = None
        self.busy = threading.Lock()

    @property
    def is_open(self) -> bool:
        """Whether the connection is there."""
        return self._connection is not None

    def connected(self) -> sqlite3.Connection:
        """The connection."""
        if self._connection is None:
            self._connection = self._open()
        return self._connection

    def close_connection(self) -> None:
        """Close the connection; the next use opens a new one."""
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()


class Lane(Seat):
    """One thread with one connection."""

    def __init__(self, lanes: Lanes, jobs: queue.SimpleQueue[_Job | None], *, writer: bool) -> None:
        super().__init__(lambda: lanes.database.connect(writer=writer))
        self._lanes = lanes
        self._jobs = jobs
        self._writer = writer
        self._turns = Turns(lanes.database.file)
        name = "fluss-embedded-write" if writer else "fluss-embedded-read"
        self.thread = threading.Thread(target=self._main, name=name, daemon=True)
        self.thread.start()

    def _main(self) -> None:
        run = self._write_until_closed if self._writer else self._read_until_closed
        run()
        with self.busy:
            self.close_connection()
        self._lanes.close_here()

    def _read_until_closed(self) -> None:
        while (job := self._jobs.get()) is not None:
            with self.busy:
                outcome = self._read(job)
            self._lanes.settle([outcome], wrote=False)
            # Idle lanes keep nothing alive.
            del job, outcome

    def _write_until_closed(self) -> None:
        untidy = False
        while True:
            if untidy and self._jobs.empty():
                untidy = self._tidy()
                continue
            job = self._jobs.get()
            if job is None:
                return
            group, stop = self._group(job)
            with self.busy:
                outcomes = self._write(group)
            self._lanes.settle(outcomes, wrote=True)
            del job, group, outcomes
            if stop:
                return
            untidy = True

    def _tidy(self) -> bool:
        """One small step of cleaning while nobody waits; whether another one may be needed."""
        with self.busy:
            try:
                connection = self.connected()
                if not self._lanes.untidy(connection):
                    return False
                self._lanes.database.begin(connection, self._turns, wait=False)
                try:
                    return self._lanes.tidy(connection)
                finally:
                    if connection.in_transaction:
                        connection.execute("COMMIT")
            except (sqlite3.Error, FlussError):
                # Others are writing, or the directory is in trouble: the next writer will see.
                return False

    def _group(self, first: _Job) -> tuple[list[_Job], bool]:
        group, weight = [first], first.weight
        while len(group) < GROUP_JOBS_MAX and weight < GROUP_BYTES_MAX:
            try:
                job = self._jobs.get_nowait()
            except queue.Empty:
                break
            if job is None:
                return group, True
            group.append(job)
            weight += job.weight
        return group, False

    def close_connection(self) -> None:
        """Close the connection; the next job opens a new one."""
        self._turns.close()
        super().close_connection()

    def _read(self, job: _Job) -> _Outcome:
        try:
            connection = self.connected()
            if not job.snapshot:
                return job.future, job.run(connection), None
            connection.execute("BEGIN")
            try:
                return job.future, job.run(connection), None
            finally:
                connection.execute("COMMIT")
        except BaseException as error:  # noqa: BLE001 -- it belongs to whoever waits
            return job.future, None, self._lanes.typed(error)

    def _write(self, group: list[_Job]) -> list[_Outcome]:
        try:
            connection = self.connected()
            self._lanes.database.begin(connection, self._turns)
            try:
                alone = len(group) == 1
                outcomes = [self._step(connection, job, alone=alone) for job in group]
                connection.execute("COMMIT")
                self._lanes.commits += 1
            except BaseException:
                if connection.in_transaction:
                    connection.execute("ROLLBACK")
                raise
        except BaseException as error:  # noqa: BLE001 -- it belongs to whoever waits
            typed = self._lanes.typed(error)
            return [(job.future, None, typed) for job in group]
        return outcomes

    def _step(self, connection: sqlite3.Connection, job: _Job, *, alone: bool) -> _Outcome:
        if alone:
            return job.future, job.run(connection), None
        try:
            with all_or_nothing(connection):
                return job.future, job.run(connection), None
        except Exception as error:
            if not connection.in_transaction:
                # Nothing of the group is kept.
                raise
            return job.future, None, self._lanes.typed(error)


class Lanes:
    """All lanes of one backend on one event loop."""

    def __init__(
        self,
        database: Database,
        untidy: Callable[[sqlite3.Connection], bool],
        tidy: Callable[[sqlite3.Connection], bool],
    ) -> None:
        self.database = database
        self.untidy = untidy
        self.tidy = tidy
        self.commits = 0
        self._loop = asyncio.get_running_loop()
        self.on_commit: Callable[[], None] = lambda: None
        self._reads: queue.SimpleQueue[_Job | None] = queue.SimpleQueue()
        self._writes: queue.SimpleQueue[_Job | None] = queue.SimpleQueue()
        self._watches: queue.SimpleQueue[_Job | None] = queue.SimpleQueue()
        self._here = Seat(lambda: database.connect(writer=False, wait=False))
        self._slow_until = 0.0
        self._readers: list[Lane] = []
        self._writer: Lane | None = None
        self._watcher: Lane | None = None
        self._reading = 0
        self.closed = False
        _all_lanes.add(self)

    async def read(self, run: Callable[[sqlite3.Connection], T], *, snapshot: bool = True) -> T:
        """Run a job on a reading lane; all its statements see the same state if `snapshot`."""
        future = self._future()
        self._reading += 1
        try:
            if self._reading > len(self._readers) < min(READERS_MAX, os.cpu_count() or 1):
                self._readers.append(Lane(self, self._reads, writer=False))
            self._reads.put(_Job(run, future, 0, snapshot))
            result: T = await future
            return result
        finally:
            self._reading -= 1

    async def read_briefly(self, run: Callable[[sqlite3.Connection], T]) -> T:
        """Run a job that looks at a few pages, here if that may be expected to be quick."""
        begun = time.monotonic()
        if self.closed or begun < self._slow_until or not self._here.is_open:
            return await self.read(lambda connection: self._open_here(run, connection))
        try:
            with self._here.busy:
                return run(self._here.connected())
        except sqlite3.Error:
            # Locked for a moment, or in trouble: a lane waits, or says what it is.
            return await self.read(run)
        finally:
            ended = time.monotonic()
            if ended - begun > BRIEF_S:
                self._slow_until = ended + SLOW_PAUSE_S

    def _open_here(
        self, run: Callable[[sqlite3.Connection], T], connection: sqlite3.Connection
    ) -> T:
        with self._here.busy, contextlib.suppress(sqlite3.Error):
            self._here.connected()
        return run(connection)

    async def write(self, run: Callable[[sqlite3.Connection], T], weight: int = 0) -> T:
        """Run a job in a transaction on the writing lane; back only when it is committed.

        Giving up the waiting does not stop the job.
        """
        future = self._future()
        if self._writer is None:
            self._writer = Lane(self, self._writes, writer=True)
        self._writes.put(_Job(run, future, weight, True))
        result: T = await future
        return result

    async def watch(self, run: Callable[[sqlite3.Connection], T]) -> T:
        """Run a job on a lane that keeps its connection for questions about changes."""
        future = self._future()
        if self._watcher is None:
            self._watcher = Lane(self, self._watches, writer=False)
        self._watches.put(_Job(run, future, 0, False))
        result: T = await future
        return result

    def _future(self) -> asyncio.Future[Any]:
        if self.closed:
            raise ClosedError(f"the embedded engine in {self.database.directory} was closed")
        return self._loop.create_future()

    def typed(self, error: BaseException) -> BaseException:
        """SQLite's errors as the project's own; others as they are."""
        if not isinstance(error, sqlite3.Error):
            return error
        typed = self.database.wrap(error)
        typed.__cause__ = error
        return typed

    def settle(self, outcomes: list[_Outcome], *, wrote: bool) -> None:
        """Hand results to the loop; called on the lanes' threads."""
        # The loop may be gone: then nobody waits any more.
        with contextlib.suppress(RuntimeError):
            self._loop.call_soon_threadsafe(self._settle, outcomes, wrote)

    def _settle(self, outcomes: list[_Outcome], wrote: bool) -> None:
        for future, result, error in outcomes:
            if future.done():
                continue
            if error is None:
                future.set_result(result)
            else:
                future.set_exception(error)
        if wrote:
            self.on_commit()

    def figures(self) -> dict[str, float]:
        """Counts for the metrics: several writes may share one commit."""
        return {"commits": self.commits}

    async def close(self) -> None:
        """Let the lanes finish what was given to them, then end them."""
        if self.closed:
            return
        self.end()
        for lane in self.all():
            await self._loop.run_in_executor(None, lane.thread.join)
        _all_lanes.discard(self)

    def end(self) -> None:
        """Tell the lanes to end after what was given to them; returns at once, on any thread."""
        self.closed = True
        for _ in self._readers:
            self._reads.put(None)
        self._writes.put(None)
        self._watches.put(None)

    def close_here(self) -> None:
        """Close the connection of brief reads; a lane calls it when it ends."""
        with self._here.busy:
            self._here.close_connection()

    def all(self) -> list[Lane]:
        """Every lane that was started."""
        single = (self._writer, self._watcher)
        return [*self._readers, *(lane for lane in single if lane is not None)]

    def seats(self) -> list[Seat]:
        """Everything that may hold a connection."""
        return [self._here, *self.all()]


_all_lanes: weakref.WeakSet[Lanes] = weakref.WeakSet()
_held: list[Seat] = []


def _before_fork() -> None:
    for lanes in list(_all_lanes):
        for seat in lanes.seats():
            seat.busy.acquire()
            _held.append(seat)
            seat.close_connection()


def _after_fork() -> None:
    for seat in _held:
        seat.busy.release()
    _held.clear()


os.register_at_fork(before=_before_fork, after_in_parent=_after_fork, after_in_child=_after_fork)
