"""Writers on the caller's own event loop: awaited, cancelled, from any loop."""

from __future__ import annotations

import asyncio

import pyarrow as pa
import pytest

import fluss_client
from fluss_client import aio, errors
from tests.contract.tables import Tables


def test_append_and_upsert_on_my_own_loop(tables: Tables, config: fluss_client.Config) -> None:
    log = tables.create({"id": pa.int64(), "name": pa.string()})
    keyed = tables.create({"id": pa.int32(), "name": pa.string()}, ["id"])

    async def scenario() -> None:
        async with await aio.FlussConnection.create(config) as connection:
            table = await connection.get_table(log.get_table_path())
            async with table.new_append().create_writer() as writer:
                handle = writer.append({"id": 1, "name": "a"})
                await handle.wait()
                handles = [writer.append((at, "b")) for at in range(2, 50)]
                await asyncio.gather(*(handle.wait() for handle in handles))
                writer.append((50, "c"))
            with pytest.raises(errors.RowError):
                writer.append((None, 1))
            other = await connection.get_table(keyed.get_table_path())
            upsert = other.new_upsert().create_writer()
            upsert.upsert({"id": 1, "name": "a"})
            upsert.upsert({"id": 2, "name": "b"})
            upsert.delete({"id": 1})
            await upsert.flush()
            await upsert.close()

    asyncio.run(scenario())
    assert tables.log(log)["id"].to_pylist() == list(range(1, 51))
    assert tables.lookup(keyed, {"id": 1}) is None
    assert tables.lookup(keyed, {"id": 2}) == {"id": 2, "name": "b"}


def test_waiting_that_is_given_up_takes_nothing_back(
    tables: Tables, config: fluss_client.Config
) -> None:
    log = tables.create({"id": pa.int64()})

    async def scenario() -> None:
        async with await aio.FlussConnection.create(config) as connection:
            table = await connection.get_table(log.get_table_path())
            writer = table.new_append().create_writer()
            for at in range(20):
                handle = writer.append((at,))
                try:
                    await asyncio.wait_for(handle.wait(), 0)
                except TimeoutError:
                    continue
            await writer.flush()

    asyncio.run(scenario())
    assert tables.log(log)["id"].to_pylist() == list(range(20))


def test_one_writer_used_from_two_loops(tables: Tables) -> None:
    table = tables.create({"id": pa.int64()})
    writer = table.new_append().create_writer()

    async def scenario(value: int) -> None:
        await writer.append((value,)).wait()
        await writer.flush()

    asyncio.run(scenario(1))
    asyncio.run(scenario(2))
    assert tables.log(table)["id"].to_pylist() == [1, 2]
