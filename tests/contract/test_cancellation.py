"""Giving up the waiting, in a loop over every kind of call: nothing hangs, nothing is lost."""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextlib
import random
from collections.abc import Awaitable, Callable
from typing import Any

import pyarrow as pa
import pytest

import fluss_client as fluss
from fluss_client import aio, errors
from tests.contract.tables import Tables, done

ROW = {"id": pa.int64(), "v": pa.string()}
ROUNDS = 60


async def _give_up_often(call: Callable[[], Awaitable[Any]], seed: int) -> int:
    """Wait for moments too short, many times; how often the waiting was given up."""
    chance = random.Random(seed)
    given_up = 0
    for _ in range(ROUNDS):
        try:
            await asyncio.wait_for(_as_task(call), chance.choice((0, 0.0005, 0.002, 0.01)))
        except TimeoutError:
            given_up += 1
    return given_up


async def _as_task(call: Callable[[], Awaitable[Any]]) -> Any:
    return await call()


def test_on_the_own_loop(tables: Tables, config: fluss.Config) -> None:
    table = tables.create(ROW, ["id"], buckets=2)
    path = table.get_table_path()

    async def main() -> None:
        async with await aio.FlussConnection.create(config) as connection:
            admin = connection.get_admin()
            mine = await connection.get_table(path)
            lookuper = mine.new_lookup().create_lookuper()
            writer = mine.new_upsert().create_writer()
            scanner = await mine.new_scan().create_log_scanner()
            scanner.subscribe_buckets({0: -2, 1: -2})
            written = 0

            async def write() -> None:
                nonlocal written
                written += 1
                await writer.upsert((written, "x")).wait()

            calls: list[Callable[[], Awaitable[Any]]] = [
                admin.list_databases,
                lambda: admin.get_table_info(path),
                lambda: admin.list_offsets(path, [0, 1], fluss.OffsetSpec.latest()),
                lambda: connection.get_table(path),
                lambda: lookuper.lookup((1,)),
                lambda: lookuper.lookup_many([(1,), (2,)]),
                write,
                writer.flush,
            ]
            for seed, call in enumerate(calls):
                assert await _give_up_often(call, seed) > 0
            await asyncio.gather(*(_give_up_often(call, 9) for call in calls))
            await writer.flush()
            # Whoever gave up waiting has not taken a row back.
            assert (await lookuper.lookup((written,))) == {"id": written, "v": "x"}
            seen: set[int] = set()
            while len(seen) < written:
                try:
                    polled = await asyncio.wait_for(scanner.poll(1_000), 0.01)
                except TimeoutError:
                    continue
                seen |= {record.row["id"] for record in polled}
            assert seen == set(range(1, written + 1))
            await scanner.close()

    asyncio.run(main())


def test_behind_handles(tables: Tables) -> None:
    table = tables.create(ROW)
    admin, path = tables.admin, table.get_table_path()
    writer = table.new_append().create_writer()
    written = 0

    def write() -> fluss.Handle[None]:
        nonlocal written
        written += 1
        return writer.append((written, None)).wait()

    async def main() -> None:
        calls: list[Callable[[], Awaitable[Any]]] = [
            admin.list_databases,
            lambda: admin.get_table_info(path),
            write,
            writer.flush,
        ]
        for seed, call in enumerate(calls):
            await _give_up_often(call, seed)

    asyncio.run(main())
    done(writer.flush())
    assert tables.log(table)["id"].to_pylist() == list(range(1, written + 1))
    writer.close()


def test_a_blocking_wait_that_is_too_short_stops_the_waiting_only(tables: Tables) -> None:
    table = tables.create(ROW)
    writer = table.new_append().create_writer()
    handle = writer.append((1, None)).wait()
    with contextlib.suppress(errors.TimedOutError):  # it may be done already
        handle.result(timeout=0)
    done(handle)
    assert tables.log(table)["id"].to_pylist() == [1]
    writer.close()


def test_a_cancelled_task_is_cancelled() -> None:
    call: concurrent.futures.Future[None] = concurrent.futures.Future()

    async def main() -> None:
        task = asyncio.ensure_future(_as_task(lambda: fluss.Handle(call)))
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert not call.done()

    asyncio.run(main())
