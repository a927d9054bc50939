"""The threads: shared commits, errors that stay with their job, a loop that never waits."""

from __future__ import annotations

import asyncio
import os
import sqlite3
import threading
import time
import weakref
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from fluss_client.backend.contract import FetchPosition, FetchRequest
from fluss_client.backend.embedded.backend import EmbeddedBackend
from fluss_client.backend.embedded.store import threads
from fluss_client.backend.embedded.store.errors import EmbeddedLockedError
from fluss_client.errors import ClosedError, DatabaseAlreadyExistError, FlussError, ForkedError
from fluss_client.model.cluster import OffsetSpec
from fluss_client.model.table import TableBucket, TablePath
from tests.embedded.helpers import append, end_of, make_table, on_loop, opened, read_rows
from tests.waiting import WAIT_S, scaled, wait_until_async


async def blocked_write(backend: EmbeddedBackend) -> tuple[asyncio.Task[bool], threading.Event]:
    """A write that the thread of the backend is in, and what lets it end."""
    begun, release = threading.Event(), threading.Event()

    def write(_: sqlite3.Connection) -> bool:
        begun.set()
        return release.wait(scaled(WAIT_S))

    task = asyncio.create_task(backend._write(write))
    await asyncio.to_thread(begun.wait)
    return task, release


async def asked_for(backend: EmbeddedBackend, writes: int) -> None:
    """Wait until so many writes were asked for since the backend was opened."""

    async def are_there() -> bool:
        return backend.metrics()["writes"] >= writes

    await wait_until_async("the writes", are_there, pause_s=0.005)


def test_writes_that_wait_together_share_a_commit(tmp_path: Path) -> None:
    async def run() -> None:
        async with opened(tmp_path) as backend:
            table = await make_table(backend)
            blocked, release = await blocked_write(backend)
            asked = backend.metrics()["writes"]
            writes = [
                asyncio.create_task(append(backend, table, [{"id": n, "name": ""}]))
                for n in range(20)
            ]
            await asked_for(backend, asked + 20)
            before = backend.metrics()["commits"]
            release.set()
            await blocked
            offsets = sorted([(await write).offset for write in writes])
            assert offsets == list(range(20))
            assert backend.metrics()["commits"] - before < 5

    on_loop(run())


def test_a_failing_job_fails_alone(tmp_path: Path) -> None:
    async def run() -> None:
        async with opened(tmp_path) as backend:
            blocked, release = await blocked_write(backend)
            asked = backend.metrics()["writes"]
            names = ["a", "fluss", "b", "fluss", "c"]
            jobs = [asyncio.create_task(backend.create_database(n, None, False)) for n in names]
            await asked_for(backend, asked + len(names))
            release.set()
            await blocked
            outcomes = await asyncio.gather(*jobs, return_exceptions=True)
            failed = [isinstance(o, DatabaseAlreadyExistError) for o in outcomes]
            assert failed == [False, True, False, True, False]
            assert await backend.list_databases() == ["a", "b", "c", "fluss"]

    on_loop(run())


def test_what_is_read_after_an_error_is_no_old_state(tmp_path: Path) -> None:
    """The traceback of an error keeps a cursor in the middle of its rows; the snapshot must go."""

    def half_read(connection: sqlite3.Connection) -> None:
        rows = connection.execute("SELECT 1 UNION SELECT count(*) + 2 FROM tbl")
        next(rows)
        raise DatabaseAlreadyExistError("in the middle of the rows")

    async def failed(job: Any) -> BaseException:
        with pytest.raises(DatabaseAlreadyExistError) as raised:
            await job
        return raised.value

    async def run() -> None:
        async with opened(tmp_path) as backend, opened(tmp_path) as other:
            jobs = [
                backend._read(half_read),
                backend._read(half_read, snapshot=False),
                backend._read_briefly(half_read),
                backend._read_briefly(half_read),
                backend._write(half_read),
            ]
            errors = []
            for number, job in enumerate(jobs):
                errors.append(await failed(job))
                names = [f"d{n}" for n in range(number + 1)]
                await other.create_database(names[-1], None, False)
                assert await backend.list_databases() == [*names, "fluss"]
                found = await backend._read_briefly(
                    lambda c: c.execute("SELECT count(*) FROM database").fetchone()
                )
                assert found == (number + 2,)
            await backend.create_database("e", None, False)
            assert len(errors) == len(jobs)

    on_loop(run())


def test_no_statement_outlives_its_job(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever is asked, with whatever outcome: no cursor is left, so no snapshot is."""
    cursors: weakref.WeakSet[sqlite3.Cursor] = weakref.WeakSet()
    left: list[int] = []

    class Cursor(sqlite3.Cursor):
        pass

    class Connection(sqlite3.Connection):
        def cursor(self, factory: Any = Cursor) -> Any:
            made = super().cursor(factory)
            cursors.add(made)
            return made

    monkeypatch.setattr(sqlite3, "connect", partial(sqlite3.connect, factory=Connection))
    for name in ("_read", "_write"):
        work = getattr(threads.WorkerThread, name)

        def counted(self: Any, jobs: Any, work: Any = work) -> Any:
            outcome = work(self, jobs)
            left.append(sum(one.connection is self.connected() for one in cursors))
            return outcome

        monkeypatch.setattr(threads.WorkerThread, name, counted)

    async def run() -> None:
        async with opened(tmp_path) as backend:
            log = await make_table(backend)
            for number in range(4):
                await append(backend, log, [{"id": number, "name": "x" * number}])
            assert len(await read_rows(backend, log, columns=(0,))) == 4
            end = await end_of(backend, log)
            places = [TableBucket(log.table_id, 0), TableBucket(log.table_id, 9)]
            for offset in (0, 2, end, end + 5, -7):
                positions = [FetchPosition(place, offset, 1) for place in places]
                await backend.fetch(0, FetchRequest(log, positions, (0,), wait_ms=0))
            specs = [OffsetSpec.latest(), *(OffsetSpec.timestamp(t) for t in (1, 1 << 50))]
            asked = [
                *(backend.list_offsets(log, None, [0], spec) for spec in specs),
                *(backend.list_offsets(log, None, [0, 9], spec) for spec in specs),
                backend.get_table_info(TablePath("fluss", "absent")),
                backend.list_partitions(log.table_path, None),
                *(backend.limit_scan(log, place, 3, None) for place in places),
            ]
            outcomes = await asyncio.gather(*asked, return_exceptions=True)
            assert sum(isinstance(one, FlussError) for one in outcomes) >= 4

    on_loop(run())
    assert len(left) > 15
    assert left == [0] * len(left)


def test_the_loop_goes_on_while_sqlite_works(tmp_path: Path) -> None:
    async def run() -> None:
        async with opened(tmp_path) as backend:
            busy, release = await blocked_write(backend)
            # Reading is not held up either.
            assert await backend.list_databases() == ["fluss"]
            assert not busy.done()
            release.set()
            await busy

    on_loop(run())


def test_brief_reads_stay_on_the_loop_until_one_is_slow(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # What is slow is said here, for a busy machine may make anything slow.
    monkeypatch.setattr(threads, "BRIEF_S", 60.0)

    async def run() -> None:
        here = threading.current_thread().name
        worker = "fluss-embedded-read"

        def where(connection: sqlite3.Connection) -> str:
            assert connection.execute("SELECT 1").fetchone() == (1,)
            return threading.current_thread().name

        def slow(connection: sqlite3.Connection) -> str:
            monkeypatch.setattr(threads, "BRIEF_S", 0.0)
            return where(connection)

        def locked_here(connection: sqlite3.Connection) -> str:
            if where(connection) == here:
                raise sqlite3.OperationalError("database is locked")
            return where(connection)

        async with opened(tmp_path) as backend:
            asked = (where, where, locked_here, where, slow, where)
            answered = [await backend._read_briefly(ask) for ask in asked]
            # The first one opens the connection.
            assert answered == [worker, here, worker, here, here, worker]
            monkeypatch.setattr(threads, "BRIEF_S", 60.0)
            backend._threads._slow_until = 0.0
            assert await backend._read_briefly(where) == here
            child = os.fork()
            if child == 0:
                os._exit(0)
            await asyncio.to_thread(os.waitpid, child, 0)
            assert [await backend._read_briefly(where) for _ in range(2)] == [worker, here]

    on_loop(run())


def test_giving_up_the_waiting_does_not_undo_the_write(tmp_path: Path) -> None:
    async def run() -> None:
        async with opened(tmp_path) as backend:
            blocked, release = await blocked_write(backend)
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(backend.create_database("late", None, False), 0.05)
            release.set()
            await blocked
            await backend.create_database("after", None, False)
            assert await backend.database_exists("late")

    on_loop(run())


def test_a_writer_that_waits_too_long_is_told_in_our_words(tmp_path: Path) -> None:
    async def run() -> None:
        async with (
            opened(tmp_path) as holder,
            opened(tmp_path, **{"embedded__lock-timeout": "200ms"}) as backend,
        ):
            held, release = await blocked_write(holder)
            started = time.monotonic()
            with pytest.raises(EmbeddedLockedError, match="lock-timeout") as caught:
                await backend.create_database("d", None, False)
            assert time.monotonic() - started > 0.1
            assert not held.done()
            assert caught.value.retriable
            assert "database is locked" not in str(caught.value)
            release.set()
            await held
            await backend.create_database("d", None, False)

    on_loop(run())


def test_a_closed_backend_says_so(tmp_path: Path) -> None:
    async def run() -> None:
        async with opened(tmp_path) as backend:
            await backend.create_database("d", None, False)
        with pytest.raises(ClosedError):
            await backend.list_databases()
        await backend.close()

    on_loop(run())


def test_closing_finishes_what_was_given(tmp_path: Path) -> None:
    async def run() -> None:
        async with opened(tmp_path) as backend:
            table = await make_table(backend)
            writes = [
                asyncio.create_task(append(backend, table, [{"id": n, "name": ""}]))
                for n in range(50)
            ]
            await asyncio.sleep(0)
        done = await asyncio.gather(*writes, return_exceptions=True)
        acknowledged = sum(not isinstance(outcome, BaseException) for outcome in done)
        async with opened(tmp_path) as backend:
            assert await end_of(backend, table) == acknowledged

    on_loop(run())


def test_no_read_is_held_open_between_calls(tmp_path: Path) -> None:
    """A reader that kept its moment would keep the log from being folded back into the file."""

    async def run() -> None:
        async with opened(tmp_path) as backend:
            table = await make_table(backend)
            await append(backend, table, [{"id": 1, "name": "x"}])
            assert len(await read_rows(backend, table)) == 1
            other = sqlite3.connect(tmp_path / "fluss.db")
            busy, _, _ = other.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
            other.close()
            assert busy == 0

    on_loop(run())


def test_a_fork_leaves_both_sides_whole(tmp_path: Path) -> None:
    async def run() -> None:
        async with opened(tmp_path) as backend:
            table = await make_table(backend)
            await append(backend, table, [{"id": 0, "name": "parent"}])
            await read_rows(backend, table)
            child = os.fork()
            if child == 0:
                _in_child(tmp_path, backend)
            await append(backend, table, [{"id": 1, "name": "parent"}])
            _, status = await asyncio.to_thread(os.waitpid, child, 0)
            assert os.waitstatus_to_exitcode(status) == 0
            rows = await read_rows(backend, table)
            assert sorted(row["name"] for row in rows) == ["child", "parent", "parent"]

    on_loop(run())


def _in_child(path: Path, inherited: object) -> None:
    """What a forked child does; never returns."""
    code = 1
    try:
        thread = threading.Thread(target=lambda: asyncio.run(_child(path, inherited)))
        thread.start()
        thread.join(scaled(WAIT_S))
        code = 0 if _child.__dict__.get("done") else 2
    finally:
        os._exit(code)


async def _child(path: Path, inherited: object) -> None:
    with pytest.raises(ForkedError):
        await inherited.list_databases()  # type: ignore[attr-defined]
    async with opened(path) as own:
        table = await own.get_table_info(TablePath("fluss", "t"))
        await append(own, table, [{"id": 2, "name": "child"}])
    _child.__dict__["done"] = True
