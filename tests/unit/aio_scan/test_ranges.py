"""Range reads: exactly [start, stop), ended by offsets only, or an error."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from fluss_client.aio.scanning import ranges
from fluss_client.aio.scanning.errors import OffsetUnavailableError, SubscriptionError
from fluss_client.aio.scanning.ranges import read_ranges
from fluss_client.config import Config
from fluss_client.errors import (
    FlussError,
    LogStorageError,
    NetworkError,
    SchemaError,
    TimedOutError,
    UnknownTableOrBucketError,
)
from fluss_client.model.records import RecordBatch
from fluss_client.model.table import TableBucket
from fluss_client.net.retry import Backoff
from tests.unit.aio_scan.fake_backend import KEY_SCHEMA, FakeBackend, make_table, on_loop, until
from tests.waiting import let_pass_async

Range = tuple[int, int]


def config(**keys: Any) -> Config:
    return Config({key.replace("__", "."): value for key, value in keys.items()})


async def read(
    backend: FakeBackend, wanted: Mapping[TableBucket, Range], **options: Any
) -> list[RecordBatch]:
    options.setdefault("config", Config())
    stream = read_ranges(backend, backend.table, wanted, **options)  # type: ignore[arg-type]
    return [batch async for batch in stream]


def offsets_of(batches: list[RecordBatch]) -> list[tuple[int | None, int, int]]:
    found = []
    for batch in batches:
        assert batch.last_offset == batch.base_offset + batch.batch.num_rows - 1
        ids = batch.batch["id"].to_pylist()
        assert ids == list(range(batch.base_offset, batch.last_offset + 1))
        place = batch.bucket
        found += [(place.partition_id, place.bucket_id, offset) for offset in ids]
    return found


@on_loop
async def test_exactly_the_rows_between_start_and_stop() -> None:
    backend = FakeBackend(make_table(buckets=2))
    for _ in range(4):
        backend.append(0, 10)
        backend.append(1, 7)
    wanted = {backend.bucket(1): (5, 16), backend.bucket(0): (13, 14)}
    found = offsets_of(await read(backend, wanted))
    assert found == [(None, 0, 13)] + [(None, 1, o) for o in range(5, 16)]


@on_loop
async def test_empty_ranges_and_no_range_ask_for_nothing() -> None:
    backend = FakeBackend(make_table(buckets=2))
    backend.append(0, 3)
    assert await read(backend, {}) == []
    assert await read(backend, {backend.bucket(0): (2, 2), backend.bucket(1): (0, 0)}) == []
    assert backend.requests == []


@on_loop
async def test_batches_without_rows_are_passed_and_count_as_read() -> None:
    backend = FakeBackend(make_table(schema=KEY_SCHEMA, buckets=1))
    backend.append(0, 2, changes=[1, 1])
    backend.append(0, 0)
    backend.append(0, 1, changes=[4], extra_offsets=3)
    backend.append(0, 0)
    bucket = backend.bucket(0)
    steps: list[int] = []
    for stop in range(9):
        backend.requests.clear()
        batches = await read(
            backend, {bucket: (0, stop)}, progress=lambda _, offset: steps.append(offset)
        )
        assert [o for _, _, o in offsets_of(batches)] == [o for o in (0, 1, 3) if o < stop]
        if stop:
            assert steps[-1] == stop
    assert (await read(backend, {bucket: (2, 3)})) == []
    assert (await read(backend, {bucket: (4, 8)})) == []
    (batch,) = await read(backend, {bucket: (3, 7)})
    assert batch.change_types.to_pylist() == [4]


@on_loop
async def test_a_range_never_ends_by_silence() -> None:
    backend = FakeBackend(make_table(buckets=1))
    backend.append(0, 3)
    bucket = backend.bucket(0)
    reading = asyncio.create_task(
        read(backend, {bucket: (0, 5)}, config=config(scanner__log__fetch__wait_max_time_ms="1ms"))
    )
    await until(lambda: len(backend.requests) > 5)
    assert not reading.done()
    backend.append(0, 4)
    assert len(offsets_of(await reading)) == 5


@on_loop
async def test_no_progress_is_an_error_that_says_how_far_it_came() -> None:
    backend = FakeBackend(make_table(buckets=1))
    backend.append(0, 3)
    seen: list[RecordBatch] = []

    async def follow() -> None:
        stream = read_ranges(
            backend,  # type: ignore[arg-type]
            backend.table,
            {backend.bucket(0): (0, 5)},
            config=config(scanner__log__fetch__wait_max_time_ms="5ms"),
            idle_timeout_ms=50,
        )
        async for batch in stream:
            seen.append(batch)  # noqa: PERF401 (what came before the error counts)

    with pytest.raises(TimedOutError, match=r"bucket=0\) made no progress .*offset 3, not to 5"):
        await follow()
    assert len(offsets_of(seen)) == 3


@on_loop
async def test_a_slow_caller_is_not_taken_for_a_silent_server() -> None:
    backend = FakeBackend(make_table(buckets=1))
    for _ in range(3):
        backend.append(0, 2)
    stream = read_ranges(
        backend,  # type: ignore[arg-type]
        backend.table,
        {backend.bucket(0): (0, 6)},
        config=Config(),
        idle_timeout_ms=400,
    )
    count = 0
    async for batch in stream:
        count += batch.batch.num_rows
        await let_pass_async(0.5, "a silent server would be given less")
    assert count == 6


@on_loop
async def test_a_start_below_what_is_there() -> None:
    backend = FakeBackend(make_table(buckets=1))
    backend.append(0, 5)
    backend.append(0, 5)
    backend.logs[backend.bucket(0)].earliest = 5
    with pytest.raises(OffsetUnavailableError, match=r"no offset 4: it holds \[5, 10\)"):
        await read(backend, {backend.bucket(0): (4, 8)})


@on_loop
async def test_any_error_ends_the_whole_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Backoff, "delay_ms", lambda self, attempt: 1.0)
    backend = FakeBackend(make_table(buckets=2))
    backend.append(0, 5)
    backend.append(1, 5)
    backend.errors[backend.bucket(1)].extend(LogStorageError("disk") for _ in range(9999))
    wanted = {backend.bucket(b): (0, 5) for b in range(2)}
    for ordered in (True, False):
        with pytest.raises(LogStorageError, match="bucket=1"):
            await read(backend, wanted, ordered=ordered, config=config(retry_timeout="30ms"))


@on_loop
async def test_order_over_partitions_with_a_window(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ranges, "WINDOW_BUCKETS_MAX", 3)
    table = make_table(buckets=3, partitioned=True)
    backend = FakeBackend(table, nodes=lambda b: (b.bucket_id + (b.partition_id or 0)) % 2)
    wanted = {}
    for partition in (40, 7, 23):
        for bucket in range(3):
            place = backend.bucket(bucket, partition)
            for _ in range(5):
                backend.append(place, 4, size=2000)
            wanted[place] = (1, 20)
    batches = await read(backend, wanted, config=config(scanner__log__fetch__max_bytes=8192))
    found = offsets_of(batches)
    assert found == [(p, b, o) for p in (7, 23, 40) for b in range(3) for o in range(1, 20)]


@on_loop
async def test_the_head_is_read_although_others_fill_the_bound() -> None:
    """Ordered, all on one node: the last buckets must not hold up the first."""
    backend = FakeBackend(make_table(buckets=8))
    # The first bucket has many batches, each beyond every share; the others fill up at once.
    for bucket in range(8):
        for _ in range(30 if bucket == 0 else 10):
            backend.append(bucket, 2, size=3 << 20)
    wanted = {backend.bucket(b): (0, backend.logs[backend.bucket(b)].end) for b in range(8)}
    peak = 0

    def watch(*_: object) -> None:
        nonlocal peak
        peak = max(peak, len(backend.requests))

    found = offsets_of(await read(backend, wanted, progress=watch))
    assert found == [(None, b, o) for b in range(8) for o in range(60 if b == 0 else 20)]


@on_loop
async def test_projection_in_any_order() -> None:
    backend = FakeBackend(make_table(buckets=1))
    backend.append(0, 3)
    (batch,) = await read(backend, {backend.bucket(0): (1, 3)}, columns=[2, 0])
    assert batch.batch.schema.names == ["score", "id"]
    assert batch.batch.to_pylist() == [{"score": 0.5, "id": 1}, {"score": 1.0, "id": 2}]


@on_loop
async def test_progress_never_runs_ahead_of_the_caller() -> None:
    backend = FakeBackend(make_table(buckets=1))
    for _ in range(3):
        backend.append(0, 2)
    bucket = backend.bucket(0)
    told: list[tuple[TableBucket, int]] = []
    stream = read_ranges(
        backend,  # type: ignore[arg-type]
        backend.table,
        {bucket: (0, 6)},
        config=Config(),
        progress=lambda b, o: told.append((b, o)),
    )
    await anext(stream)
    assert told == []
    await anext(stream)
    assert told == [(bucket, 2)]
    await anext(stream)
    with pytest.raises(StopAsyncIteration):
        await anext(stream)
    assert told == [(bucket, 2), (bucket, 4), (bucket, 6)]


@on_loop
async def test_leaving_early_leaves_nothing_behind() -> None:
    backend = FakeBackend(make_table(buckets=1))
    for _ in range(50):
        backend.append(0, 2, size=1 << 20)
    stream = read_ranges(
        backend,  # type: ignore[arg-type]
        backend.table,
        {backend.bucket(0): (0, 100)},
        config=Config(),
    )
    await anext(stream)
    await stream.aclose()  # type: ignore[attr-defined]
    others = asyncio.all_tasks() - {asyncio.current_task()}
    assert not others
    assert sum(backend.in_flight.values()) == 0


def test_ranges_that_cannot_be_are_refused_at_the_call() -> None:
    table = make_table(buckets=2)

    async def main() -> None:
        backend = FakeBackend(table)

        def ask(bucket: TableBucket, start: int, stop: int, **options: Any) -> None:
            read_ranges(
                backend,  # type: ignore[arg-type]
                table,
                {bucket: (start, stop)},
                config=Config(),
                **options,
            )

        for start, stop in ((3, 2), (-1, 4), (-2, -1)):
            with pytest.raises(SubscriptionError, match="is not a range"):
                ask(backend.bucket(0), start, stop)
        with pytest.raises(SubscriptionError, match="no bucket 2"):
            ask(backend.bucket(2), 0, 1)
        with pytest.raises(SubscriptionError, match="is not of table"):
            ask(TableBucket(1, 0), 0, 1)
        with pytest.raises(SubscriptionError, match="does not have partitions"):
            ask(backend.bucket(0, 5), 0, 1)
        with pytest.raises(SchemaError, match="no column 9"):
            ask(backend.bucket(0), 0, 1, columns=[9])

    asyncio.run(main())


ERRORS: list[type[FlussError]] = [NetworkError, LogStorageError, UnknownTableOrBucketError]


@st.composite
def logs(draw: st.DrawFn) -> dict[str, Any]:
    buckets = draw(st.integers(1, 5))
    batches = st.lists(st.tuples(st.integers(0, 6), st.integers(0, 3)), max_size=12)
    contents = [draw(batches) for _ in range(buckets)]
    sizes = [sum(max(1, rows) + extra for rows, extra in content) for content in contents]
    wanted = []
    for size in sizes:
        start = draw(st.integers(0, size))
        wanted.append((start, draw(st.integers(start, size))))
    return {
        "contents": contents,
        "wanted": wanted,
        "nodes": draw(st.integers(1, 3)),
        "batch_bytes": draw(st.sampled_from([10, 2000, 100_000])),
        "fetch_bytes": draw(st.sampled_from([1024, 50_000, 16 << 20])),
        "ordered": draw(st.booleans()),
        "window": draw(st.integers(1, 4)),
        "errors": draw(st.lists(st.tuples(st.integers(0, 4), st.sampled_from(ERRORS)), max_size=6)),
        "broken": draw(st.integers(0, 2)),
    }


@settings(
    max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(case=logs())
def test_whatever_the_log_and_the_faults_every_row_comes_once(
    case: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Backoff, "delay_ms", lambda self, attempt: 0.1)
    monkeypatch.setattr(ranges, "WINDOW_BUCKETS_MAX", case["window"])

    @on_loop
    async def main() -> None:
        contents = case["contents"]
        backend = FakeBackend(
            make_table(buckets=len(contents)), nodes=lambda b: b.bucket_id % case["nodes"]
        )
        rows: list[list[int]] = []
        for bucket, content in enumerate(contents):
            rows.append([])
            log = backend.logs[backend.bucket(bucket)]
            for count, extra in content:
                rows[-1] += range(log.end, log.end + count)
                backend.append(bucket, count, size=case["batch_bytes"], extra_offsets=extra)
        for bucket, error in case["errors"]:
            backend.errors[backend.bucket(bucket)].append(error("try again"))
        backend.fetch_errors.extend(NetworkError("cut") for _ in range(case["broken"]))
        wanted = {backend.bucket(b): span for b, span in enumerate(case["wanted"])}
        batches = await read(
            backend,
            wanted,
            ordered=case["ordered"],
            config=config(scanner__log__fetch__max_bytes=case["fetch_bytes"]),
        )
        found = offsets_of(batches)
        expected = [
            (None, b, o)
            for b, (start, stop) in enumerate(case["wanted"])
            for o in rows[b]
            if start <= o < stop
        ]
        if not case["ordered"]:
            # Within a bucket the order holds all the same.
            for b in range(len(contents)):
                mine = [o for _, bucket, o in found if bucket == b]
                assert mine == sorted(mine)
            found.sort(key=lambda place: place[1:])
        assert found == expected
        assert backend.in_flight_max <= 1

    main()
