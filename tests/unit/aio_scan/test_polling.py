"""Polling a log scanner: order, limits, turns, waiting, cancelling."""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from fluss_client.aio.scanning.errors import SubscriptionError
from fluss_client.aio.scanning.log_scanner import LogScanner
from fluss_client.aio.scanning.scan import TableScan
from fluss_client.config import Config
from fluss_client.errors import (
    ClosedError,
    ForkedError,
    RowError,
    TableNotPartitionedError,
    UnsupportedError,
)
from fluss_client.model.cluster import EARLIEST_OFFSET, LATEST_OFFSET, ChangeType
from fluss_client.model.records import RecordBatch, ScanRecord
from tests.unit.aio_scan.fake_backend import KEY_SCHEMA, FakeBackend, make_table, on_loop, until

LONG_MS = 20_000


@asynccontextmanager
async def scanner(
    backend: FakeBackend, *, batches: bool = False, columns: list[str] | None = None, **keys: Any
) -> AsyncIterator[LogScanner]:
    config = Config({key.replace("__", "."): value for key, value in keys.items()})
    scan = TableScan(backend, backend.table, config)  # type: ignore[arg-type]
    if columns:
        scan.project_by_name(columns)
    made = await (scan.create_record_batch_log_scanner() if batches else scan.create_log_scanner())
    async with made:
        yield made


async def poll_offsets(scan: LogScanner, count: int) -> list[int]:
    found: list[int] = []
    while len(found) < count:
        found += [record.offset for record in await scan.poll(LONG_MS)]
    return found


@on_loop
async def test_polls_of_many_threads_share_what_is_staged() -> None:
    backend = FakeBackend(make_table(buckets=1))
    backend.append(0, 1_050)
    async with scanner(backend, scanner__log__max_poll_records=100) as scan:
        scan.subscribe(0, 0)
        assert scan.poll_staged() is None
        found = [record.offset for record in await scan.poll(LONG_MS)]

        def polls() -> list[int]:
            mine: list[int] = []
            while (records := scan.poll_staged()) is not None:
                mine += [record.offset for record in records]
            return mine

        parts = await asyncio.gather(*(asyncio.to_thread(polls) for _ in range(4)))
        found += [offset for part in parts for offset in part]
        assert len(found) == 1_000, "the rest is less than a poll"
        found += [record.offset for record in await scan.poll(LONG_MS)]
        assert sorted(found) == list(range(1_050))
    with pytest.raises(ClosedError):
        scan.poll_staged()


@on_loop
async def test_records_come_in_order_with_their_place() -> None:
    backend = FakeBackend(make_table(buckets=1))
    backend.append(0, 3)
    backend.append(0, 2)
    async with scanner(backend) as scan:
        scan.subscribe(0, EARLIEST_OFFSET)
        records = await scan.poll(LONG_MS)
        while len(records) < 5:
            records = await scan.poll(LONG_MS)
        record = records[3]
    assert [r.offset for r in records] == [0, 1, 2, 3, 4]
    expected = {"id": 3, "name": "0-3", "score": 1.5}
    assert record == ScanRecord(3, 1003, ChangeType.AppendOnly, expected)


@on_loop
async def test_an_offset_inside_a_batch() -> None:
    backend = FakeBackend(make_table(buckets=1))
    backend.append(0, 10)
    async with scanner(backend) as scan:
        scan.subscribe(0, 7)
        assert await poll_offsets(scan, 3) == [7, 8, 9]


@on_loop
async def test_a_poll_gives_at_most_max_poll_records() -> None:
    backend = FakeBackend(make_table(buckets=1))
    backend.append(0, 25)
    async with scanner(backend, scanner__log__max_poll_records=10) as scan:
        scan.subscribe(0, 0)
        sizes = [len(await scan.poll(LONG_MS)) for _ in range(3)]
        assert sizes == [10, 10, 5]
        assert (await scan.poll(0)).is_empty()


@on_loop
async def test_more_records_than_one_step_builds() -> None:
    backend = FakeBackend(make_table(buckets=1))
    backend.append(0, 9000)
    async with scanner(backend, scanner__log__max_poll_records=100_000) as scan:
        scan.subscribe(0, 0)
        assert await poll_offsets(scan, 9000) == list(range(9000))


@on_loop
async def test_an_empty_poll_ends_with_its_time() -> None:
    backend = FakeBackend(make_table(buckets=1))
    async with scanner(backend) as scan:
        scan.subscribe(0, 0)
        assert (await scan.poll(0)).is_empty()
        assert (await scan.poll(1)).is_empty()
        waiting = asyncio.create_task(scan.poll(LONG_MS))
        await asyncio.sleep(0)
        backend.append(0, 1)
        await backend.announce()
        assert len(await waiting) == 1


@on_loop
async def test_polls_without_time_get_the_rows_in_the_end() -> None:
    backend = FakeBackend(make_table(buckets=1))
    backend.append(0, 3)
    async with scanner(backend) as scan:
        scan.subscribe(0, 0)
        found = 0
        while not found:
            found += len(await scan.poll(0))
        assert found == 3


@on_loop
async def test_buckets_take_turns() -> None:
    backend = FakeBackend(make_table(buckets=3))
    for bucket in range(3):
        for _ in range(4):
            backend.append(bucket, 10)
    async with scanner(backend, scanner__log__max_poll_records=10) as scan:
        scan.subscribe_buckets(dict.fromkeys(range(3), 0))
        await scan.poll(LONG_MS)
        # Once everything is decoded no bucket is served twice before the others.
        await until(lambda: len(scan._fetcher._ready) == 3)
        served = [(await scan.poll(LONG_MS)).buckets()[0].bucket_id for _ in range(9)]
    for start in range(0, 9, 3):
        assert sorted(served[start : start + 3]) == [0, 1, 2]


@on_loop
async def test_each_bucket_stays_in_order_over_several_nodes() -> None:
    backend = FakeBackend(make_table(buckets=6), nodes=lambda b: b.bucket_id % 3)
    for _ in range(20):
        for bucket in range(6):
            backend.append(bucket, 7, size=3000)
    async with scanner(backend, scanner__log__fetch__max_bytes=4096) as scan:
        scan.subscribe_buckets(dict.fromkeys(range(6), EARLIEST_OFFSET))
        seen: dict[int, list[int]] = {b: [] for b in range(6)}
        while sum(map(len, seen.values())) < 6 * 140:
            for bucket, records in (await scan.poll(LONG_MS)).items():
                seen[bucket.bucket_id] += [r.offset for r in records]
    assert all(offsets == list(range(140)) for offsets in seen.values())
    assert backend.in_flight_max == 1


@on_loop
async def test_latest_means_latest_when_it_was_subscribed() -> None:
    backend = FakeBackend(make_table(buckets=1))
    backend.append(0, 5)
    async with scanner(backend) as scan:
        scan.subscribe(0, LATEST_OFFSET)
        await until(lambda: scan._fetcher.positions()[backend.bucket(0)] >= 0)
        backend.append(0, 2)
        assert await poll_offsets(scan, 2) == [5, 6]


@on_loop
async def test_a_changelog_has_change_types_and_its_empty_batches_do_not_show() -> None:
    backend = FakeBackend(make_table(schema=KEY_SCHEMA, buckets=1))
    backend.append(0, 2, changes=[1, 1])
    backend.append(0, 0)
    backend.append(0, 0)
    backend.append(0, 2, changes=[2, 3])
    backend.append(0, 0)
    async with scanner(backend) as scan:
        scan.subscribe(0, 0)
        records: list[ScanRecord] = []
        while len(records) < 4:
            records += await scan.poll(LONG_MS)
        assert [r.offset for r in records] == [0, 1, 4, 5]
        assert [r.change_type.short_string() for r in records] == ["+I", "+I", "-U", "+U"]
        assert (await scan.poll(0)).is_empty()
        backend.append(0, 1, changes=[4])
        await backend.announce()
        assert await poll_offsets(scan, 1) == [7]
        assert scan.metrics()["offsets_without_rows"] == 3


@on_loop
async def test_a_cancelled_poll_loses_nothing() -> None:
    backend = FakeBackend(make_table(buckets=2))
    for _ in range(50):
        backend.append(0, 40)
        backend.append(1, 40)
    seen: dict[int, list[int]] = {0: [], 1: []}
    async with scanner(backend, scanner__log__max_poll_records=4000) as scan:
        scan.subscribe_buckets({0: 0, 1: 0})
        turns = 0
        while sum(map(len, seen.values())) < 4000:
            task = asyncio.create_task(scan.poll(LONG_MS))
            # Cancelled ever later: while waiting, between building steps, and not at all.
            for _ in range(turns % 7):
                await asyncio.sleep(0)
            turns += 1
            task.cancel()
            try:
                records = await task
            except asyncio.CancelledError:
                continue
            for bucket, items in records.items():
                seen[bucket.bucket_id] += [r.offset for r in items]
    assert seen == {0: list(range(2000)), 1: list(range(2000))}


@on_loop
async def test_two_polls_at_once_share_the_rows() -> None:
    backend = FakeBackend(make_table(buckets=2))
    backend.append(0, 500)
    backend.append(1, 500)
    async with scanner(backend, scanner__log__max_poll_records=100) as scan:
        scan.subscribe_buckets({0: 0, 1: 0})
        found: list[tuple[int, int]] = []

        async def follow() -> None:
            while len(found) < 1000:
                for bucket, records in (await scan.poll(50)).items():
                    found.extend((bucket.bucket_id, r.offset) for r in records)

        await asyncio.gather(follow(), follow())
    assert sorted(found) == [(b, o) for b in (0, 1) for o in range(500)]


@on_loop
async def test_iterating_gives_records_and_leaving_early_loses_none() -> None:
    backend = FakeBackend(make_table(buckets=1))
    backend.append(0, 10)
    async with scanner(backend) as scan:
        scan.subscribe(0, 0)
        offsets: list[int] = []
        async for record in scan:
            assert isinstance(record, ScanRecord)
            offsets.append(record.offset)
            if record.offset == 3:
                break
        async for record in scan:
            assert isinstance(record, ScanRecord)
            offsets.append(record.offset)
            if record.offset == 6:
                break
        offsets += await poll_offsets(scan, 3)
    assert offsets == list(range(10))


@on_loop
async def test_iterating_a_batch_scanner_gives_batches_until_it_is_closed() -> None:
    backend = FakeBackend(make_table(buckets=1))
    backend.append(0, 4)
    backend.append(0, 5)
    async with scanner(backend, batches=True) as scan:
        scan.subscribe(0, 1)
        found: list[RecordBatch] = []

        async def follow() -> None:
            async for batch in scan:
                assert isinstance(batch, RecordBatch)
                found.append(batch)

        following = asyncio.create_task(follow())
        await until(lambda: len(found) == 2)
        await scan.close()
        await following
    assert [(b.base_offset, b.last_offset, b.batch.num_rows) for b in found] == [
        (1, 3, 3),
        (4, 8, 5),
    ]


@on_loop
async def test_batches_carry_bucket_offsets_time_and_change_types() -> None:
    backend = FakeBackend(make_table(schema=KEY_SCHEMA, buckets=1))
    backend.append(0, 3, changes=[1, 2, 3])
    async with scanner(backend, batches=True) as scan:
        scan.subscribe(0, 0)
        (batch,) = await scan.poll_record_batch(LONG_MS)
        assert batch.bucket == backend.bucket(0)
        assert (batch.base_offset, batch.last_offset, batch.timestamp) == (0, 2, 1000)
        assert batch.change_types.to_pylist() == [1, 2, 3]
        assert batch.batch.schema == KEY_SCHEMA.arrow
        assert await scan.poll_record_batch(0) == []


@on_loop
async def test_poll_arrow_merges_batches_and_keeps_the_schema_when_empty() -> None:
    backend = FakeBackend(make_table(buckets=1))
    for _ in range(3):
        backend.append(0, 4)
    async with scanner(backend, batches=True, columns=["score", "id"]) as scan:
        scan.subscribe(0, 0)
        rows = 0
        while rows < 12:
            table = await scan.poll_arrow(LONG_MS)
            assert table.column_names == ["score", "id"]
            rows += table.num_rows
        empty = await scan.poll_arrow(0)
        assert empty.num_rows == 0
        assert empty.schema == table.schema
    assert all(request.columns == (0, 2) for _, request in backend.requests)


@on_loop
async def test_poll_arrow_of_a_changelog_tells_what_happened() -> None:
    backend = FakeBackend(make_table(schema=KEY_SCHEMA, buckets=1))
    backend.append(0, 4, changes=[1, 2, 3, 4])
    async with scanner(backend, batches=True) as scan:
        scan.subscribe(0, 0)
        table = await scan.poll_arrow(LONG_MS)
    assert table.column_names == ["id", "name", "_change_type"]
    signs = ["+I", "-U", "+U", "-D"]
    assert table["_change_type"].to_pylist() == signs


@on_loop
async def test_unsubscribing_drops_what_was_fetched_and_subscribing_again_starts_anew() -> None:
    backend = FakeBackend(make_table(buckets=2))
    backend.append(0, 100)
    backend.append(1, 100)
    async with scanner(backend, scanner__log__max_poll_records=10) as scan:
        scan.subscribe_buckets({0: 0, 1: 0})
        await scan.poll(LONG_MS)
        scan.unsubscribe(0)
        for _ in range(9):
            assert [b.bucket_id for b in (await scan.poll(LONG_MS)).buckets()] == [1]
        scan.unsubscribe(0)
        scan.subscribe(0, 95)
        while (records := await scan.poll(LONG_MS)).buckets() != [backend.bucket(0)]:
            pass
        assert [r.offset for r in records] == [95, 96, 97, 98, 99]


@on_loop
async def test_a_value_that_python_cannot_hold_is_not_skipped() -> None:
    backend = FakeBackend(make_table(buckets=1))
    backend.append(0, 2)
    far = pa.array([1 << 60], pa.int64()).cast(pa.timestamp("us"))
    backend.logs[backend.bucket(0)].batches[0].rows = pa.record_batch({"at": far}).slice(0, 1)
    backend.logs[backend.bucket(0)].batches[0].offsets = 1
    async with scanner(backend) as scan:
        scan.subscribe(0, 0)
        for _ in range(2):
            with pytest.raises(RowError, match="batch scanner"):
                await scan.poll(LONG_MS)


@on_loop
async def test_methods_of_the_other_kind_say_which_scanner_has_them() -> None:
    backend = FakeBackend(make_table(buckets=1))
    async with scanner(backend) as records, scanner(backend, batches=True) as batches:
        records.subscribe(0, 0)
        batches.subscribe(0, 0)
        with pytest.raises(UnsupportedError, match=r"create_log_scanner\(\)"):
            await batches.poll(0)
        for call in (records.poll_arrow, records.poll_record_batch):
            with pytest.raises(UnsupportedError, match=r"create_record_batch_log_scanner\(\)"):
                await call(0)
        for read in (records.to_arrow, records.to_pandas):
            with pytest.raises(UnsupportedError, match=r"create_record_batch_log_scanner\(\)"):
                await read()
        with pytest.raises(UnsupportedError, match=r"create_record_batch_log_scanner\(\)"):
            records.to_arrow_batch_reader()


@on_loop
async def test_subscriptions_that_do_not_fit_are_refused_at_the_call() -> None:
    plain = FakeBackend(make_table(buckets=2))
    async with scanner(plain) as scan:
        with pytest.raises(SubscriptionError, match="no bucket 2: its buckets are 0 to 1"):
            scan.subscribe(2, 0)
        with pytest.raises(SubscriptionError, match="no bucket -1"):
            scan.unsubscribe(-1)
        with pytest.raises(SubscriptionError, match="offset -3"):
            scan.subscribe(0, -3)
        with pytest.raises(SubscriptionError, match="whole number"):
            scan.subscribe(0, 1.5)  # type: ignore[arg-type]
        with pytest.raises(SubscriptionError, match="no bucket 9"):
            scan.subscribe_buckets({0: 0, 9: 0})
        with pytest.raises(TableNotPartitionedError, match="subscribe"):
            scan.subscribe_partition(1, 0, 0)
        with pytest.raises(SubscriptionError, match="No buckets subscribed"):
            await scan.poll(0)
        scan.subscribe(np.int32(1), np.int64(0))  # type: ignore[arg-type]
    parts = FakeBackend(make_table(buckets=2, partitioned=True))
    async with scanner(parts) as scan:
        with pytest.raises(SubscriptionError, match="subscribe_partition"):
            scan.subscribe(0, 0)
        with pytest.raises(SubscriptionError, match="no bucket 5"):
            scan.subscribe_partition(3, 5, 0)


@on_loop
async def test_partitions_are_read_by_their_ids() -> None:
    backend = FakeBackend(make_table(buckets=2, partitioned=True))
    for partition in (11, 12):
        for bucket in range(2):
            backend.append(backend.bucket(bucket, partition), 3)
    async with scanner(backend) as scan:
        scan.subscribe_partition_buckets({(11, 0): 0, (11, 1): 1, (12, 1): EARLIEST_OFFSET})
        scan.subscribe_partition(12, 0, 2)
        scan.unsubscribe_partition(11, 0)
        seen = []
        while len(seen) < 6:
            for bucket, records in (await scan.poll(LONG_MS)).items():
                seen += [(bucket.partition_id, bucket.bucket_id, r.offset) for r in records]
    assert sorted(seen) == [
        (11, 1, 1),
        (11, 1, 2),
        (12, 0, 2),
        (12, 1, 0),
        (12, 1, 1),
        (12, 1, 2),
    ]


@on_loop
async def test_subscribing_from_another_thread_is_done_on_the_loop() -> None:
    backend = FakeBackend(make_table(buckets=1))
    backend.append(0, 3)
    async with scanner(backend) as scan:
        await asyncio.to_thread(scan.subscribe, 0, 0)
        assert await poll_offsets(scan, 3) == [0, 1, 2]
        await asyncio.to_thread(scan.unsubscribe, 0)


@on_loop
async def test_a_closed_scanner_says_so_and_ends_a_waiting_poll() -> None:
    backend = FakeBackend(make_table(buckets=1))
    async with scanner(backend) as scan:
        scan.subscribe(0, 0)
        waiting = asyncio.create_task(scan.poll(LONG_MS))
        await until(lambda: backend.in_flight[1] > 0)
        await scan.close()
        with pytest.raises(ClosedError):
            await waiting
        with pytest.raises(ClosedError):
            await scan.poll(0)
        with pytest.raises(ClosedError):
            scan.subscribe(0, 0)
        await scan.close()


@on_loop
async def test_a_scanner_made_before_a_fork_says_so() -> None:
    backend = FakeBackend(make_table(buckets=1))
    async with scanner(backend) as scan:
        scan.subscribe(0, 0)
        scan._pid = os.getpid() + 1
        with pytest.raises(ForkedError):
            await scan.poll(0)
        with pytest.raises(ForkedError):
            scan.subscribe(0, 0)
        scan._pid = os.getpid()


@on_loop
async def test_decoding_never_runs_on_the_loop() -> None:
    backend = FakeBackend(make_table(buckets=1))
    threads: set[int] = set()
    backend.decode_hook = lambda: threads.add(threading.get_ident())
    for _ in range(20):
        backend.append(0, 5)
    async with scanner(backend) as scan:
        scan.subscribe(0, 0)
        await poll_offsets(scan, 100)
    assert threads
    assert threading.get_ident() not in threads
