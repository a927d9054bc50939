"""The worker threads that run SQLite statements, so that the event loop never waits for a disk.

One thread writes. It takes all waiting jobs at once and commits them in one transaction, so that
they share one wait for the disk; a savepoint per job lets one fail without the others. A few
threads read, each with a connection of its own; in WAL mode they never wait for the writer.

Brief reads, such as one key, run on the event loop itself: they take 20 us, and a worker thread
would add 150 us. Their connection waits for no lock. After a slow one, all reads of the next
second go to the worker threads.

A fork must not copy an open connection, nor SQLite's record of the locks that the process holds.
So before a fork every thread finishes its job and closes its connection. In the parent the
threads open new ones; in the child no thread exists.

A statement that was not read to its end keeps the connection at the state that the statement began
with, also after COMMIT. Statements end when their cursor is freed, and the traceback of an error
keeps the cursors of the frames that it left. So the frames of every error that leaves a job are
cleared (`end_statements`), and what the connection reads next is never an old state.
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

from fluss_client.backend.embedded.store.catalog import all_or_nothing, end_statements
from fluss_client.backend.embedded.store.database import Database, WriteLock
from fluss_client.errors import ClosedError, FlussError

T = TypeVar("T")

READERS_MAX = 4
GROUP_JOBS_MAX = 64
GROUP_BYTES_MAX = 32 << 20
"""Bounds of one transaction of the writing thread."""
BRIEF_S = 0.002
"""A read on the event loop that takes longer is slow ..."""
SLOW_PAUSE_S = 1.0
"""... and sends the reads of this time to the worker threads."""


@dataclass(slots=True)
class _Job:
    run: Callable[[sqlite3.Connection], Any]
    future: asyncio.Future[Any]
    weight: int
    snapshot: bool


_Outcome = tuple[asyncio.Future[Any], Any, BaseException | None]


class ConnectionSlot:
    """One connection, opened when first needed. Hold `busy` while the connection is used."""

    def __init__(self, open_connection: Callable[[], sqlite3.Connection]) -> None:
        self._open = open_connection
        self._connection: sqlite3.Connection | None = None
        # A fork takes this lock of every slot, so that no connection is in use while it happens.
        self.busy = threading.Lock()

    @property
    def is_open(self) -> bool:
        """Whether the connection is open."""
        return self._connection is not None

    def connected(self) -> sqlite3.Connection:
        """Return the connection; open it if it is closed."""
        if self._connection is None:
            self._connection = self._open()
        return self._connection

    def close_connection(self) -> None:
        """Close the connection; the next use opens a new one."""
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()


class WorkerThread(ConnectionSlot):
    """One thread with one connection, which runs the jobs of one queue; None ends it."""

    def __init__(
        self, owner: WorkerThreads, jobs: queue.SimpleQueue[_Job | None], *, writer: bool
    ) -> None:
        super().__init__(lambda: owner.database.connect(writer=writer))
        self._owner = owner
        self._jobs = jobs
        self._writer = writer
        self._write_lock = WriteLock(owner.database.file)
        name = "fluss-embedded-write" if writer else "fluss-embedded-read"
        self.thread = threading.Thread(target=self._main, name=name, daemon=True)
        self.thread.start()

    def _main(self) -> None:
        run = self._write_until_closed if self._writer else self._read_until_closed
        run()
        with self.busy:
            self.close_connection()
        self._owner.close_inline()

    def _read_until_closed(self) -> None:
        while (job := self._jobs.get()) is not None:
            with self.busy:
                outcome = self._read(job)
            self._owner.settle([outcome], wrote=False)
            # An idle thread must not keep results alive.
            del job, outcome

    def _write_until_closed(self) -> None:
        cleanup_due = False
        while True:
            if cleanup_due and self._jobs.empty():
                cleanup_due = self._clean_up()
                continue
            job = self._jobs.get()
            if job is None:
                return
            group, stop = self._group(job)
            with self.busy:
                outcomes = self._write(group)
            self._owner.settle(outcomes, wrote=True)
            del job, group, outcomes
            if stop:
                return
            cleanup_due = True

    def _clean_up(self) -> bool:
        """Run one small step of cleaning; return whether another one may be needed."""
        with self.busy:
            try:
                connection = self.connected()
                if not self._owner.has_garbage(connection):
                    return False
                self._owner.database.begin(connection, self._write_lock, wait=False)
                try:
                    return self._owner.reclaim(connection)
                finally:
                    if connection.in_transaction:
                        connection.execute("COMMIT")
            except (sqlite3.Error, FlussError):
                # Another process writes, or the disk failed. Cleaning can wait, and the next write
                # raises the error to its caller.
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
        self._write_lock.close()
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
        except BaseException as error:  # noqa: BLE001 -- raised to the job's caller
            end_statements(error)
            return job.future, None, self._owner.typed(error)

    def _write(self, group: list[_Job]) -> list[_Outcome]:
        try:
            connection = self.connected()
            self._owner.database.begin(connection, self._write_lock)
            try:
                alone = len(group) == 1
                outcomes = [self._step(connection, job, alone=alone) for job in group]
                connection.execute("COMMIT")
                self._owner.commits += 1
            except BaseException:
                if connection.in_transaction:
                    connection.execute("ROLLBACK")
                raise
        except BaseException as error:  # noqa: BLE001 -- raised to the job's caller
            end_statements(error)
            typed = self._owner.typed(error)
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
                # SQLite rolled the whole transaction back: every job of the group has failed.
                raise
            end_statements(error)
            return job.future, None, self._owner.typed(error)


class WorkerThreads:
    """The worker threads of one backend on one event loop."""

    def __init__(
        self,
        database: Database,
        has_garbage: Callable[[sqlite3.Connection], bool],
        reclaim: Callable[[sqlite3.Connection], bool],
    ) -> None:
        self.database = database
        self.has_garbage = has_garbage
        self.reclaim = reclaim
        self.commits = 0
        self._loop = asyncio.get_running_loop()
        self.on_commit: Callable[[], None] = lambda: None
        self._reads: queue.SimpleQueue[_Job | None] = queue.SimpleQueue()
        self._writes: queue.SimpleQueue[_Job | None] = queue.SimpleQueue()
        self._watches: queue.SimpleQueue[_Job | None] = queue.SimpleQueue()
        self._inline = ConnectionSlot(lambda: database.connect(writer=False, wait=False))
        self._slow_until = 0.0
        self._readers: list[WorkerThread] = []
        self._writer: WorkerThread | None = None
        self._watcher: WorkerThread | None = None
        self._reading = 0
        self.closed = False
        _all_owners.add(self)

    async def read(self, run: Callable[[sqlite3.Connection], T], *, snapshot: bool = True) -> T:
        """Run a job on a reading thread; with `snapshot` all its statements see the same state."""
        future = self._future()
        self._reading += 1
        try:
            if self._reading > len(self._readers) < min(READERS_MAX, os.cpu_count() or 1):
                self._readers.append(WorkerThread(self, self._reads, writer=False))
            self._reads.put(_Job(run, future, 0, snapshot))
            result: T = await future
            return result
        finally:
            self._reading -= 1

    async def read_briefly(self, run: Callable[[sqlite3.Connection], T]) -> T:
        """Run a job that reads a few pages, on the event loop if the last ones were fast there."""
        begun = time.monotonic()
        if self.closed or begun < self._slow_until or not self._inline.is_open:
            return await self.read(lambda connection: self._open_inline(run, connection))
        try:
            with self._inline.busy:
                return run(self._inline.connected())
        except sqlite3.Error as error:
            end_statements(error)
            # The database is locked for a moment, or failed. A worker thread waits for the lock,
            # or raises the typed error.
            return await self.read(run)
        except FlussError as error:
            end_statements(error)
            raise
        finally:
            ended = time.monotonic()
            if ended - begun > BRIEF_S:
                self._slow_until = ended + SLOW_PAUSE_S

    def _open_inline(
        self, run: Callable[[sqlite3.Connection], T], connection: sqlite3.Connection
    ) -> T:
        with self._inline.busy, contextlib.suppress(sqlite3.Error):
            self._inline.connected()
        return run(connection)

    async def write(self, run: Callable[[sqlite3.Connection], T], weight: int = 0) -> T:
        """Run a job in a transaction on the writing thread; return after the commit.

        Cancelling stops the waiting only: the job still runs.
        """
        future = self._future()
        if self._writer is None:
            self._writer = WorkerThread(self, self._writes, writer=True)
        self._writes.put(_Job(run, future, weight, True))
        result: T = await future
        return result

    async def watch(self, run: Callable[[sqlite3.Connection], T]) -> T:
        """Run a job on the thread that polls for commits of other processes.

        `PRAGMA data_version` compares with the last call on the same connection, so these calls
        need a connection that nobody else uses.
        """
        future = self._future()
        if self._watcher is None:
            self._watcher = WorkerThread(self, self._watches, writer=False)
        self._watches.put(_Job(run, future, 0, False))
        result: T = await future
        return result

    def _future(self) -> asyncio.Future[Any]:
        if self.closed:
            raise ClosedError(
                f"the embedded engine in {self.database.directory} was closed; make a new "
                "FlussConnection"
            )
        return self._loop.create_future()

    def typed(self, error: BaseException) -> BaseException:
        """Return the typed error for one of SQLite's errors; return other errors unchanged."""
        if not isinstance(error, sqlite3.Error):
            return error
        typed = self.database.wrap(error)
        typed.__cause__ = error
        return typed

    def settle(self, outcomes: list[_Outcome], *, wrote: bool) -> None:
        """Hand results to the event loop; called on the worker threads."""
        # A closed loop raises RuntimeError; then no caller waits any more.
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
        """Return counts for the metrics; several writes may share one commit."""
        return {"commits": self.commits}

    async def close(self) -> None:
        """End the threads after the jobs that were given to them."""
        if self.closed:
            return
        self.end()
        for worker in self.workers():
            await self._loop.run_in_executor(None, worker.thread.join)
        _all_owners.discard(self)

    def end(self) -> None:
        """Ask the threads to end after their jobs; return at once. Any thread may call this."""
        self.closed = True
        for _ in self._readers:
            self._reads.put(None)
        self._writes.put(None)
        self._watches.put(None)

    def close_inline(self) -> None:
        """Close the connection of brief reads; a worker thread calls this when it ends."""
        with self._inline.busy:
            self._inline.close_connection()

    def workers(self) -> list[WorkerThread]:
        """Return every thread that was started."""
        single = (self._writer, self._watcher)
        return [*self._readers, *(worker for worker in single if worker is not None)]

    def slots(self) -> list[ConnectionSlot]:
        """Return everything that may hold a connection."""
        return [self._inline, *self.workers()]


_all_owners: weakref.WeakSet[WorkerThreads] = weakref.WeakSet()
_held: list[ConnectionSlot] = []


def _before_fork() -> None:
    for owner in list(_all_owners):
        for slot in owner.slots():
            slot.busy.acquire()
            _held.append(slot)
            slot.close_connection()


def _after_fork() -> None:
    for slot in _held:
        slot.busy.release()
    _held.clear()


os.register_at_fork(before=_before_fork, after_in_parent=_after_fork, after_in_child=_after_fork)
