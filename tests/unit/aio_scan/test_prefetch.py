"""How far a scan reads ahead: at once, within bounds, and not for nobody."""

from __future__ import annotations

import asyncio
import itertools
import threading
from typing import Any

import pytest

from fluss_client.aio.projection import Projection
from fluss_client.aio.scanning import log_fetcher
from fluss_client.aio.scanning.bucket_state import DECODE_JOBS_MAX, BucketState
from fluss_client.aio.scanning.fetch_plan import (
    FIRST_FETCH_BYTES,
    PREFETCH_FACTOR,
    PROCESS_BYTES_MAX,
    fetch_bytes_max,
    make_request,
    plan_fetch,
)
from fluss_client.aio.scanning.ranges import RangeReader
from fluss_client.backend.contract import FetchedBucket
from fluss_client.config import Config
from fluss_client.model.table import TableBucket
from tests.unit.aio_scan.fake_backend import FakeBackend, make_table, on_loop, until
from tests.unit.aio_scan.test_polling import LONG_MS, poll_offsets, scanner
from tests.waiting import WAIT_S, let_pass_async, scaled

KB = 1024
FETCH = 256 * KB
BATCH = 32 * KB
GROWTH = 8


def fill(backend: FakeBackend, bucket: int, batches: int, *, encoded: int = BATCH) -> None:
    for _ in range(batches):
        backend.append(bucket, 1, size=encoded, pad=BATCH)


@on_loop
async def test_the_next_fetch_leaves_while_the_last_is_being_decoded() -> None:
    backend = FakeBackend(make_table(buckets=1))
    fill(backend, 0, 100)
    go_on = threading.Event()
    backend.decode_hook = lambda: go_on.wait(scaled(WAIT_S)) and None
    async with scanner(backend, scanner__log__fetch__max_bytes=FETCH) as scan:
        scan.subscribe(0, 0)
        waiting = asyncio.create_task(scan.poll(LONG_MS))
        await until(lambda: len(backend.requests) == 2)
        assert not waiting.done()
        first, second = (request for _, request in backend.requests)
        assert second.positions[0].offset == first.positions[0].offset + FETCH // BATCH
        go_on.set()
        await waiting


@on_loop
async def test_what_is_read_ahead_is_bounded_and_fetched_without_a_poll() -> None:
    backend = FakeBackend(make_table(buckets=1))
    fill(backend, 0, 200)
    async with scanner(
        backend, scanner__log__fetch__max_bytes=FETCH, scanner__log__max_poll_records=1
    ) as scan:
        scan.subscribe(0, 0)
        await scan.poll(LONG_MS)
        await until(lambda: scan.metrics()["bytes_buffered"] >= 2 * FETCH - 2 * BATCH)
        peak = 0.0
        for expected in range(1, 200):
            assert await poll_offsets(scan, 1) == [expected]
            peak = max(peak, scan.metrics()["bytes_buffered"])
    assert peak <= 2 * FETCH + 4 * BATCH


@on_loop
async def test_well_compressed_data_is_decoded_only_a_little_ahead() -> None:
    backend = FakeBackend(make_table(buckets=1))
    fill(backend, 0, 400, encoded=BATCH // GROWTH)
    async with scanner(
        backend, scanner__log__fetch__max_bytes=FETCH, scanner__log__max_poll_records=1
    ) as scan:
        scan.subscribe(0, 0)
        decoder = scan._fetcher._decoder
        job = decoder.chunk_bytes * GROWTH
        peak = 0
        for expected in range(400):
            assert await poll_offsets(scan, 1) == [expected]
            peak = max(peak, decoder.bytes_held)
        # The first jobs leave before it is known how much they grow.
        assert peak <= FETCH + DECODE_JOBS_MAX * job


@pytest.mark.parametrize("ordered", [True, False])
@on_loop
async def test_a_range_read_of_many_buckets_holds_a_bounded_amount(ordered: bool) -> None:
    backend = FakeBackend(make_table(buckets=8), nodes=lambda b: b.bucket_id % 2)
    for bucket in range(8):
        fill(backend, bucket, 40)
    wanted = {backend.bucket(b): (0, 40) for b in range(8)}
    table = backend.table
    reader = RangeReader(
        backend,  # type: ignore[arg-type]
        table,
        wanted,
        Projection.of(table.schema, None),
        Config({"scanner.log.fetch.max-bytes": FETCH}),
        ordered,
    )
    peak = 0.0
    rows = 0
    while pieces := await reader.read(1):
        rows += pieces[0].batch.num_rows
        peak = max(peak, reader.metrics()["bytes_buffered"])
        # A slow caller: everything that may be read ahead is read ahead.
        for _ in range(20):
            await asyncio.sleep(0)
    await reader.close()
    assert rows == 320
    bound = 4 * FETCH if ordered else 2 * FETCH
    assert peak <= bound + 8 * BATCH


@on_loop
async def test_an_ordered_read_decodes_a_bounded_amount_while_its_first_rows_take_long() -> None:
    backend = FakeBackend(make_table(buckets=1))
    fill(backend, 0, 400, encoded=BATCH // GROWTH)
    go_on = threading.Event()
    calls = itertools.count()
    backend.decode_hook = lambda: next(calls) == 0 and go_on.wait(scaled(WAIT_S)) and None
    table = backend.table
    reader = RangeReader(
        backend,  # type: ignore[arg-type]
        table,
        {backend.bucket(0): (0, 400)},
        Projection.of(table.schema, None),
        Config({"scanner.log.fetch.max-bytes": FETCH}),
        True,
    )
    reading = asyncio.create_task(reader.read(1))
    decoder = reader._fetcher._decoder
    # All but the first rows that may be decoded are, and those come last.
    await until(lambda: decoder.bytes_held >= FETCH and len(decoder._jobs) == 1)
    assert not reading.done()
    assert decoder.bytes_held <= FETCH + DECODE_JOBS_MAX * decoder.chunk_bytes * GROWTH
    go_on.set()
    rows = sum(part.batch.num_rows for part in await reading)
    while found := await reader.read(8):
        rows += sum(part.batch.num_rows for part in found)
    await reader.close()
    assert rows == 400


@on_loop
async def test_a_range_is_fetched_up_to_its_end_and_not_far_beyond() -> None:
    backend = FakeBackend(make_table(buckets=1))
    fill(backend, 0, 200)
    first = FIRST_FETCH_BYTES // BATCH
    table = backend.table
    reader = RangeReader(
        backend,  # type: ignore[arg-type]
        table,
        {backend.bucket(0): (0, first + 8)},
        Projection.of(table.schema, None),
        Config({"scanner.log.fetch.max-bytes": 16 * FIRST_FETCH_BYTES}),
        True,
    )
    rows = 0
    while found := await reader.read(8):
        rows += sum(part.batch.num_rows for part in found)
    await reader.close()
    assert rows == first + 8
    asked = [request.positions[0].bytes_max for _, request in backend.requests]
    assert len(asked) == 2
    assert 8 * BATCH <= asked[1] <= 10 * BATCH


def test_an_answer_without_rows_lifts_the_bound_of_a_range() -> None:
    state = BucketState(TableBucket(1, 0), 0, 100)
    assert state.bytes_left is None
    state.offset_bytes, state.batch_bytes = 10.0, 50
    assert state.bytes_left == 1050
    state.accept(FetchedBucket(state.bucket, [], 0, 100), 1 << 20)
    assert state.bytes_left is None


@on_loop
async def test_nothing_is_asked_for_nobody_at_the_end_of_the_log() -> None:
    backend = FakeBackend(make_table(buckets=1))
    backend.append(0, 3)
    async with scanner(backend, scanner__log__fetch__wait_max_time_ms=1) as scan:
        scan.subscribe(0, 0)
        await poll_offsets(scan, 3)
        await until(lambda: not backend.in_flight[1])
        asked = len(backend.requests)
        await let_pass_async(0.05, "a request would leave in it")
        assert len(backend.requests) <= asked + 1
        asked = len(backend.requests)
        await scan.poll(5)
        assert len(backend.requests) > asked


@on_loop
async def test_a_server_that_answers_at_once_with_nothing_is_not_stormed() -> None:
    backend = FakeBackend(make_table(buckets=1))
    async with scanner(backend, scanner__log__fetch__wait_max_time_ms=0) as scan:
        scan.subscribe(0, 0)
        polls = 0
        while len(backend.requests) < 2:
            await scan.poll(100)
            polls += 1
    assert len(backend.requests) <= 11 * polls


@on_loop
async def test_an_idle_bucket_does_not_hold_up_a_busy_one() -> None:
    """A fetch that waits for the idle bucket would keep the node from the busy one."""
    backend = FakeBackend(make_table(buckets=2))
    fill(backend, 0, 60)
    async with scanner(
        backend,
        scanner__log__fetch__max_bytes=FETCH,
        scanner__log__fetch__wait_max_time_ms="20s",
        scanner__log__max_poll_records=1,
    ) as scan:
        scan.subscribe_buckets({0: 0, 1: 0})
        assert await poll_offsets(scan, 60) == list(range(60))


# The plan itself


def states(count: int) -> list[BucketState]:
    return [BucketState(TableBucket(1, i), 0) for i in range(count)]


def plan(
    buckets: list[BucketState], config: Config | None = None, scans: int = 1, **options: Any
) -> Any:
    options = {"nodes": 1, "now": 0.0, "wanted": True, "urgent": None, **options}
    return plan_fetch(buckets, fetch_bytes_max(config or Config(), scans), **options)


def bucket_bytes(config: Config, buckets: list[BucketState]) -> set[int]:
    made = plan(buckets, config)
    request = make_request(made, make_table(), None, config)
    return {position.bytes_max for position in request.positions}


def test_a_fetch_may_be_bounded_further_than_the_config_says() -> None:
    assert plan(states(1), bytes_max=2 << 20).bytes_max == 2 << 20
    assert plan(states(1), bytes_max=64 << 20).bytes_max == 16 << 20


def test_few_buckets_may_give_more_each_unless_the_user_says_how_much() -> None:
    config = Config()
    assert bucket_bytes(config, states(1)) == {16 << 20}
    assert bucket_bytes(config, states(4)) == {4 << 20}
    assert bucket_bytes(config, states(64)) == {1 << 20}
    chosen = Config({"scanner.log.fetch.max-bytes-for-bucket": "1mb"})
    assert bucket_bytes(chosen, states(1)) == {1 << 20}


def test_idle_buckets_take_nothing_from_the_busy_ones() -> None:
    buckets = states(16)
    for state in buckets[1:]:
        state.at_end = True
    assert bucket_bytes(Config(), buckets) == {16 << 20}


def test_the_scans_of_a_process_share_a_bound() -> None:
    sizes = {scans: plan(states(1), scans=scans).bytes_max for scans in (1, 8, 64, 100_000)}
    assert sizes == {1: 16 << 20, 8: 16 << 20, 64: 2 << 20, 100_000: 64 << 10}
    assert 64 * PREFETCH_FACTOR * sizes[64] == PROCESS_BYTES_MAX
    small = Config({"scanner.log.fetch.max-bytes": "16kb"})
    assert fetch_bytes_max(small, 1) == fetch_bytes_max(small, 100_000) == 16 << 10


@on_loop
async def test_a_scan_counts_while_it_is_under_way() -> None:
    backend = FakeBackend(make_table(buckets=1))
    fill(backend, 0, 3)
    before = len(log_fetcher._under_way)
    async with scanner(backend) as scan:
        assert len(log_fetcher._under_way) == before
        scan.subscribe(0, 0)
        await scan.poll(LONG_MS)
        assert len(log_fetcher._under_way) == before + 1
    assert len(log_fetcher._under_way) == before


def test_nodes_share_the_bound() -> None:
    sizes = {nodes: plan(states(1), nodes=nodes).bytes_max for nodes in (1, 2, 4, 1000)}
    assert sizes == {1: 16 << 20, 2: 8 << 20, 4: 4 << 20, 1000: 64 << 10}


def test_a_bucket_with_its_share_is_left_out_and_nobody_waits_for_idle_ones() -> None:
    full, idle, behind = states(3)
    idle.at_end = True
    full.buffered = 15 << 20
    assert plan([full, idle, behind]).chosen == [full, idle, behind]
    full.buffered = 16 << 20
    made = plan([full, idle, behind])
    assert made.chosen == [behind]
    assert not made.waits


def test_a_full_node_is_not_asked_but_for_what_is_urgent() -> None:
    full, other = states(2)
    full.buffered = 20 << 20
    assert plan([full, other]).chosen == []
    made = plan([full, other], urgent=other)
    assert made.chosen == [other]
    assert made.waits
    other.at_end = True
    assert plan([full, other], urgent=other).chosen == [other]
    other.buffered = 17 << 20
    assert plan([full, other], urgent=other).chosen == []


def test_busy_failed_and_finished_buckets_are_not_asked_for() -> None:
    busy, failed, done, later, fine = states(5)
    busy.busy = 1
    failed.error = ValueError()
    done.stop = 0
    later.retry_at = 5.0
    made = plan([busy, failed, done, later, fine], now=1.0)
    assert made.chosen == [fine]
    assert made.look_again_at == 5.0
