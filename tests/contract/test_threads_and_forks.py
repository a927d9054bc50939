"""Many threads on one connection, children of a fork, calls on the I/O thread itself."""

from __future__ import annotations

import asyncio
import multiprocessing
import os
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pyarrow as pa
import pytest

import fluss_client as fluss
from fluss_client import aio, errors
from fluss_client.runtime import runtime
from tests.contract.tables import Tables, done
from tests.waiting import WAIT_S, scaled

ROW = {"id": pa.int64(), "v": pa.string()}
THREADS = 8


@pytest.mark.supports("Connection.getConfiguration")
def test_a_connection_keeps_its_own_settings(config: fluss.Config) -> None:
    with done(fluss.FlussConnection.create(config)) as connection:
        config.request_timeout_ms = 1
        assert connection.config.request_timeout_ms == 30_000
        assert connection.config.bootstrap_servers == config.bootstrap_servers
        if config.security_sasl_password:
            assert config.security_sasl_password not in repr(connection.config)
        assert done(done(connection.get_admin()).list_databases())


def test_threads_share_a_connection_a_writer_and_a_lookuper(tables: Tables) -> None:
    log = tables.create(ROW, buckets=3)
    keyed = tables.create(ROW, ["id"], buckets=3)
    appends = log.new_append().create_writer()
    upserts = keyed.new_upsert().create_writer()
    lookuper = keyed.new_lookup().create_lookuper()
    rows = 300

    def work(number: int) -> None:
        for i in range(rows):
            key = number * rows + i
            appends.append((key, f"v{key}"))
            upserts.upsert((key, f"v{key}"))
            if i % 50 == 49:
                done(upserts.flush())
                assert done(lookuper.lookup((key,))) == {"id": key, "v": f"v{key}"}
        done(appends.flush())

    with ThreadPoolExecutor(THREADS) as pool:
        for finished in [pool.submit(work, number) for number in range(THREADS)]:
            finished.result()
    upserts.close()
    appends.close()
    assert sorted(tables.log(log)["id"].to_pylist()) == list(range(THREADS * rows))
    keys = pa.table({"id": pa.array(range(THREADS * rows), pa.int64())})
    assert done(lookuper.lookup_many(keys))["v"].null_count == 0


def test_rows_of_one_thread_keep_their_order(tables: Tables) -> None:
    table = tables.create(ROW)
    writer = table.new_append().create_writer()

    def work(number: int) -> None:
        for i in range(500):
            writer.append((number * 1_000 + i, None))

    threads = [threading.Thread(target=work, args=(n,)) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    writer.close()
    found = tables.log(table)["id"].to_pylist()
    for number in range(4):
        own = [key for key in found if key // 1_000 == number]
        assert own == [number * 1_000 + i for i in range(500)]


def test_a_handle_may_be_awaited_from_any_loop_any_number_of_times(tables: Tables) -> None:
    handle = tables.admin.list_databases()

    async def twice() -> list[str]:
        first = await handle
        assert await handle == first
        return first

    results = [asyncio.run(twice()) for _ in range(2)]
    with ThreadPoolExecutor(2) as pool:
        results += pool.map(lambda _: asyncio.run(twice()), range(2))
    assert all(found == handle.result() for found in results)
    assert handle.done()
    assert handle.exception() is None


def test_a_blocking_call_on_the_io_thread_raises(tables: Tables) -> None:
    table = tables.create(ROW)
    scanner = done(table.new_scan().create_log_scanner())
    scanner.subscribe(0, fluss.EARLIEST_OFFSET)
    admin = tables.admin
    blocking: dict[str, Any] = {
        "result": lambda: admin.list_databases().result(),
        "exception": lambda: admin.list_databases().exception(),
        "poll": lambda: scanner.poll(100),
        "to_arrow": lambda: scanner.to_arrow(),
    }

    async def on_the_io_thread(call: Any) -> None:
        with pytest.raises(errors.ReentrantCallError, match="await"):
            call()

    for call in blocking.values():
        runtime().call(on_the_io_thread(call))

    async def awaiting() -> list[str]:
        return await admin.list_databases()

    assert tables.database in runtime().call(awaiting())
    scanner.close()


def test_a_connection_belongs_to_its_loop(config: fluss.Config) -> None:
    loop = asyncio.new_event_loop()
    connection = loop.run_until_complete(aio.FlussConnection.create(config))

    async def use() -> list[str]:
        return await connection.get_admin().list_databases()

    with pytest.raises(errors.ClosedError, match="another event loop"):
        asyncio.run(use())
    assert loop.run_until_complete(connection.get_admin().list_databases())
    loop.run_until_complete(connection.close())
    loop.close()


def test_a_plain_with_leaves_nothing_open(tables: Tables, config: fluss.Config) -> None:
    """Warnings are errors here, and a socket that is left open is one."""
    path = tables.create(ROW).get_table_path()

    async def main() -> None:
        with await aio.FlussConnection.create(config) as connection:
            table = await connection.get_table(path)
            table.new_append().create_writer().append((1, "x"))
        with pytest.raises(errors.ClosedError):
            connection.get_admin()

    asyncio.run(main())
    assert tables.log(tables.open(path))["id"].to_pylist() == [1]


def _in_child(work: Any, *args: Any) -> str:
    """What `work` returns in a forked child, or how the child ended."""
    context = multiprocessing.get_context("fork")
    receiver, sender = context.Pipe(duplex=False)

    def run() -> None:
        try:
            text = str(work(*args))
        except BaseException as error:  # noqa: BLE001 - whatever it is, the parent hears of it
            text = f"{type(error).__name__}: {error}"
        sender.send(text)

    child = context.Process(target=run)
    child.start()
    child.join(scaled(WAIT_S))
    if child.is_alive():
        child.kill()
        child.join()
        return "the child hung"
    return str(receiver.recv()) if receiver.poll() else f"exit code {child.exitcode}"


def _first_poll(table: fluss.FlussTable) -> Any:
    scanner = table.new_scan().create_log_scanner().result()
    scanner.subscribe(0, fluss.EARLIEST_OFFSET)
    return scanner.poll(2_000)


def test_what_was_made_before_a_fork_says_so_in_the_child(tables: Tables) -> None:
    table = tables.create(ROW, ["id"])
    connection, admin = tables.connection, tables.admin
    writer = table.new_upsert().create_writer()
    done(writer.upsert((1, "parent")).wait())
    lookuper = table.new_lookup().create_lookuper()
    scanner = done(table.new_scan().create_log_scanner())
    scanner.subscribe(0, fluss.EARLIEST_OFFSET)
    uses: dict[str, Any] = {
        "get_table": lambda: connection.get_table(table.get_table_path()).result(),
        "get_admin": lambda: connection.get_admin().result(),
        "close": connection.close,
        "admin": lambda: admin.list_databases().result(),
        "lookup": lambda: lookuper.lookup((1,)).result(),
        "lookup_many": lambda: lookuper.lookup_many([(1,)]).result(),
        "upsert": lambda: writer.upsert((2, "child")),
        "flush": lambda: writer.flush().result(),
        "new writer": lambda: table.new_upsert().create_writer().upsert((2, "child")),
        "poll": lambda: scanner.poll(100),
        "new scanner": lambda: _first_poll(table),
    }
    for name, use in uses.items():
        said = _in_child(use)
        assert said.startswith("ForkedError"), (name, said)
        assert "new connection" in said, (name, said)
    # The parent goes on as if nothing had been.
    done(writer.upsert((3, "parent")).wait())
    assert done(lookuper.lookup((3,))) == {"id": 3, "v": "parent"}
    assert done(lookuper.lookup((2,))) is None
    assert not scanner.poll(5_000).is_empty()
    scanner.close()
    writer.close()


def test_a_child_makes_a_connection_of_its_own(tables: Tables, config: fluss.Config) -> None:
    table = tables.create(ROW, ["id"])
    path = table.get_table_path()
    tables.upsert(table, [(1, "parent")])

    def work() -> Any:
        with fluss.FlussConnection.create(config).result() as own:
            mine = own.get_table(path).result()
            with mine.new_upsert().create_writer() as writer:
                writer.upsert((2, f"child {os.getpid() > 0}"))
            return mine.new_lookup().lookup((1,)).result()

    assert _in_child(work) == "{'id': 1, 'v': 'parent'}"
    assert tables.lookup(table, (2,)) == {"id": 2, "v": "child True"}
