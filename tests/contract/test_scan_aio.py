"""Scans on the caller's own event loop, and range reads."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Awaitable, Callable
from typing import Any

import pyarrow as pa
import pytest

import fluss_client as fluss
from fluss_client import aio, errors
from fluss_client.aio.scanning.ranges import read_ranges
from fluss_client.config import Config
from tests.contract.tables import POLL_MS, Tables

EVENTS = {"id": pa.int64(), "name": pa.string()}
Job = Callable[[aio.FlussConnection, aio.FlussTable], Awaitable[None]]


def _rows(start: int, stop: int) -> pa.Table:
    ids = list(range(start, stop))
    return pa.table({"id": ids, "name": [f"n{i}" for i in ids]})


def _run(config: Config, path: fluss.TablePath, job: Job) -> None:
    async def main() -> None:
        async with await aio.FlussConnection.create(config) as connection:
            await job(connection, await connection.get_table(path))

    asyncio.run(main())


def test_iterating_and_waiting_with_a_deadline(tables: Tables, config: Config) -> None:
    table = tables.create(EVENTS)
    tables.append(table, _rows(0, 1000))

    async def job(connection: aio.FlussConnection, table: aio.FlussTable) -> None:
        scanner = await table.new_scan().create_log_scanner()
        scanner.subscribe(0, aio.EARLIEST_OFFSET)
        seen = []
        async for record in scanner:
            seen.append(record.offset)  # type: ignore[union-attr]
            if len(seen) == 700:
                break
        seen += [record.offset for record in await scanner.poll(POLL_MS)]
        while len(seen) < 1000:
            seen += [record.offset for record in await scanner.poll(POLL_MS)]
        assert seen == list(range(1000))
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(anext(scanner), 0.05)
        writer = table.new_append().create_writer()
        writer.append({"id": 1000, "name": "last"})
        await writer.flush()
        assert (await anext(scanner)).offset == 1000  # type: ignore[union-attr]
        assert scanner.metrics()["rows"] == 1001
        await scanner.close()
        with pytest.raises(errors.ClosedError):
            await scanner.poll(0)

    _run(config, table.get_table_path(), job)


def test_cancelled_polls_lose_nothing(tables: Tables, config: Config) -> None:
    table = tables.create(EVENTS, buckets=2, bucket_keys=["id"])
    tables.append(table, _rows(0, 20_000))

    async def job(connection: aio.FlussConnection, table: aio.FlussTable) -> None:
        scanner = await table.new_scan().create_log_scanner()
        scanner.subscribe_buckets({0: aio.EARLIEST_OFFSET, 1: aio.EARLIEST_OFFSET})
        ids: list[int] = []
        attempt = 0
        while len(ids) < 20_000:
            attempt += 1
            try:
                records = await asyncio.wait_for(scanner.poll(POLL_MS), (attempt % 5) / 5000)
            except TimeoutError:
                continue
            ids += [record.row["id"] for record in records]
        assert sorted(ids) == list(range(20_000))
        await scanner.close()

    _run(config, table.get_table_path(), job)


def test_batches_on_the_own_loop(tables: Tables, config: Config) -> None:
    table = tables.create(EVENTS)
    tables.append(table, _rows(0, 500))

    async def job(connection: aio.FlussConnection, table: aio.FlussTable) -> None:
        scanner = await table.new_scan().project([1]).create_record_batch_log_scanner()
        scanner.subscribe(0, 100)
        found = await scanner.to_arrow()
        assert found == _rows(100, 500).select(["name"])
        frame = await scanner.to_pandas()
        assert frame["name"].tolist() == found["name"].to_pylist()
        bucket = aio.TableBucket(table.get_table_info().table_id, 0)
        limited = table.new_scan().limit(3).create_bucket_batch_scanner(bucket)
        assert (await limited.to_arrow())["id"].to_pylist() == [497, 498, 499]
        scanner.subscribe(0, 490)
        reader = await asyncio.to_thread(scanner.to_arrow_batch_reader)
        read = await asyncio.to_thread(reader.read_all)
        assert read["name"].to_pylist() == [f"n{i}" for i in range(490, 500)]
        await scanner.close()

    _run(config, table.get_table_path(), job)


def test_a_blocking_reader_on_the_thread_of_the_loop(tables: Tables, config: Config) -> None:
    table = tables.create(EVENTS)
    tables.append(table, _rows(0, 500))

    async def job(connection: aio.FlussConnection, table: aio.FlussTable) -> None:
        info = table.get_table_info()
        scan = aio.TableScan(connection.backend, info, config, connection.writer_backend)
        async with await scan.create_record_batch_log_scanner() as scanner:
            scanner.subscribe(0, 100)
            assert scanner.to_arrow_batch_reader().read_all() == _rows(100, 500)
            tables.append(tables.open(info.table_path), _rows(500, 501))
            (batch,) = await scanner.poll_record_batch(POLL_MS)
            assert batch.base_offset == 500

    _run(config, table.get_table_path(), job)


def test_a_range_read_gives_exactly_its_offsets(tables: Tables, config: Config) -> None:
    table = tables.create(EVENTS, buckets=4, bucket_keys=["id"])
    for start in range(0, 4000, 1000):
        tables.append(table, _rows(start, start + 1000))

    async def job(connection: aio.FlussConnection, table: aio.FlussTable) -> None:
        info = table.get_table_info()
        admin = connection.get_admin()
        ends = await admin.list_offsets(info.table_path, [0, 1, 2, 3], aio.OffsetSpec.latest())
        assert sum(ends.values()) == 4000
        ranges = {
            aio.TableBucket(info.table_id, bucket): (bucket * 7, end - bucket * 3)
            for bucket, end in ends.items()
        }
        steps: dict[Any, int] = {}
        for ordered in (True, False):
            seen = []
            async for batch in read_ranges(
                connection.backend,
                info,
                ranges,
                [1],
                config=config,
                ordered=ordered,
                progress=steps.__setitem__,
            ):
                assert batch.batch.schema.names == ["name"]
                place = batch.bucket
                seen += [(place, o) for o in range(batch.base_offset, batch.last_offset + 1)]
            expected = [(b, o) for b, (start, stop) in ranges.items() for o in range(start, stop)]
            assert sorted(seen) == expected
            if ordered:
                assert seen == expected
            assert steps == {bucket: stop for bucket, (_, stop) in ranges.items()}

    _run(config, table.get_table_path(), job)


def test_a_range_of_a_changelog_with_empty_batches(tables: Tables, config: Config) -> None:
    table = tables.create(EVENTS, ["id"])
    for i in range(5):
        tables.upsert(table, [{"id": i, "name": "x"}])
        tables.delete(table, [{"id": 100 + i}])

    async def job(connection: aio.FlussConnection, table: aio.FlussTable) -> None:
        info = table.get_table_info()
        bucket = aio.TableBucket(info.table_id, 0)
        ends = await connection.get_admin().list_offsets(
            info.table_path, [0], aio.OffsetSpec.latest()
        )
        offsets: list[int] = []
        for start in range(ends[0]):
            ranges = {bucket: (start, start + 1)}
            async for batch in read_ranges(connection.backend, info, ranges, config=config):
                assert batch.change_types is not None
                offsets += range(batch.base_offset, batch.last_offset + 1)
        assert len(offsets) == 5
        assert offsets == sorted(offsets)

    _run(config, table.get_table_path(), job)


def test_a_range_beyond_the_end_times_out_with_how_far_it_came(
    tables: Tables, config: Config
) -> None:
    table = tables.create(EVENTS)
    tables.append(table, _rows(0, 10))

    async def job(connection: aio.FlussConnection, table: aio.FlussTable) -> None:
        info = table.get_table_info()
        bucket = aio.TableBucket(info.table_id, 0)
        stream = read_ranges(
            connection.backend, info, {bucket: (0, 11)}, config=config, idle_timeout_ms=200
        )
        assert (await anext(stream)).last_offset == 9
        with pytest.raises(errors.TimedOutError, match="offset 10, not to 11"):
            await anext(stream)

    _run(config, table.get_table_path(), job)


def test_a_scanner_left_open_ends_with_its_connection(tables: Tables, config: Config) -> None:
    table = tables.create(EVENTS, buckets=2, bucket_keys=["id"])
    tables.append(table, _rows(0, 10))
    complaints: list[Any] = []

    async def job(connection: aio.FlussConnection, table: aio.FlussTable) -> None:
        loop = asyncio.get_running_loop()
        loop.set_exception_handler(lambda _, context: complaints.append(context["message"]))
        scanner = await table.new_scan().create_log_scanner()
        scanner.subscribe_buckets({0: aio.EARLIEST_OFFSET, 1: aio.EARLIEST_OFFSET})
        seen = 0
        async for _ in scanner:
            seen += 1
            if seen == 10:
                break
        await connection.close()
        with pytest.raises(errors.ClosedError):
            await anext(scanner)
        left = asyncio.all_tasks() - {asyncio.current_task()}
        if left:
            await asyncio.wait(left)
        gc.collect()

    _run(config, table.get_table_path(), job)
    assert complaints == []
