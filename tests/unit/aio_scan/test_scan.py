"""Building scans, limit scans, and reading to the latest offsets."""

from __future__ import annotations

import asyncio
import builtins
import gc
from typing import Any

import pyarrow as pa
import pytest

from fluss_client.aio.scanning.errors import SubscriptionError
from fluss_client.aio.scanning.scan import TableScan
from fluss_client.config import Config
from fluss_client.errors import (
    FlussError,
    LogStorageError,
    MissingExtraError,
    ReentrantCallError,
    SchemaError,
    UnsupportedError,
)
from fluss_client.model.cluster import EARLIEST_OFFSET, LATEST_OFFSET
from fluss_client.model.table import TableBucket
from fluss_client.runtime import runtime
from tests.unit.aio_scan.fake_backend import KEY_SCHEMA, FakeBackend, make_table, on_loop, until
from tests.unit.aio_scan.test_polling import LONG_MS, scanner
from tests.waiting import wait_until


def scan_of(backend: FakeBackend, **keys: Any) -> TableScan:
    return TableScan(backend, backend.table, Config(keys))  # type: ignore[arg-type]


@on_loop
async def test_a_limit_scan_is_read_once() -> None:
    backend = FakeBackend(make_table(buckets=1))
    backend.append(0, 10)
    bucket = backend.bucket(0)
    scan = scan_of(backend).project_by_name(["name", "id"]).limit(3)
    reader = scan.create_bucket_batch_scanner(bucket)
    assert reader.bucket == bucket
    batch = await reader.next_batch()
    assert batch is not None
    assert batch.bucket == bucket
    assert batch.batch.to_pydict() == {"name": ["0-0", "0-1", "0-2"], "id": [0, 1, 2]}
    assert await reader.next_batch() is None
    assert await reader.collect_all_batches() == []
    spent = await reader.to_arrow()
    assert spent.num_rows == 0
    assert spent.schema.names == ["name", "id"]
    fresh = scan.create_bucket_batch_scanner(bucket)
    assert (await fresh.to_pandas())["id"].tolist() == [0, 1, 2]
    assert "limit=3" in repr(fresh)


@on_loop
async def test_what_a_builder_refuses() -> None:
    backend = FakeBackend(make_table(buckets=1))
    for bad in (0, -1, True, 1.5, 1 << 31):
        with pytest.raises(SchemaError, match="a limit lies between"):
            scan_of(backend).limit(bad)  # type: ignore[arg-type]
    with pytest.raises(UnsupportedError, match="needs limit"):
        scan_of(backend).create_bucket_batch_scanner(backend.bucket(0))
    with pytest.raises(SubscriptionError, match="is not of table"):
        scan_of(backend).limit(1).create_bucket_batch_scanner(TableBucket(1, 0))
    with pytest.raises(UnsupportedError, match="takes no limit"):
        await scan_of(backend).limit(1).create_log_scanner()
    with pytest.raises(UnsupportedError, match="takes no limit"):
        await scan_of(backend).limit(1).create_record_batch_log_scanner()
    with pytest.raises(UnsupportedError, match="not offered"):
        scan_of(backend).with_fixed_schema(False)
    assert isinstance(scan_of(backend).with_fixed_schema(True), TableScan)
    with pytest.raises(SchemaError, match="no column 'nope'"):
        scan_of(backend).project_by_name(["nope"])
    with pytest.raises(SchemaError, match="more than once"):
        scan_of(backend).project([0, 0])


@on_loop
async def test_to_arrow_reads_to_the_latest_and_polls_go_on_from_there() -> None:
    backend = FakeBackend(make_table(buckets=3), nodes=lambda b: b.bucket_id % 2)
    for _ in range(5):
        for bucket in range(3):
            backend.append(bucket, 4)
    async with scanner(backend, batches=True, columns=["id", "name"]) as scan:
        scan.subscribe_buckets({2: 7, 0: EARLIEST_OFFSET, 1: LATEST_OFFSET})
        table = await scan.to_arrow()
        expected = [(i, f"0-{i}") for i in range(20)] + [(i, f"2-{i}") for i in range(7, 20)]
        assert list(zip(*(c.to_pylist() for c in table.columns), strict=True)) == expected
        assert await scan.to_arrow() == table
        backend.append(1, 2)
        (batch,) = await scan.poll_record_batch(LONG_MS)
        assert (batch.bucket.bucket_id, batch.base_offset) == (1, 20)


@on_loop
async def test_to_arrow_sorts_by_partition_bucket_and_offset() -> None:
    backend = FakeBackend(make_table(buckets=2, partitioned=True))
    for partition in (30, 4):
        for bucket in range(2):
            backend.append(backend.bucket(bucket, partition), 2)
            backend.append(backend.bucket(bucket, partition), 1)
    async with scanner(backend, batches=True) as scan:
        places = [(p, b) for p in (30, 4) for b in (1, 0)]
        scan.subscribe_partition_buckets({(p, b): p // 30 for p, b in places})
        found = (await scan.to_arrow()).select(["id", "name"]).to_pylist()
    names = [row["name"] for row in found]
    assert names == ["0-0", "0-1", "0-2", "1-0", "1-1", "1-2", "0-1", "0-2", "1-1", "1-2"]


@on_loop
async def test_to_arrow_takes_over_what_polls_have_fetched_ahead() -> None:
    backend = FakeBackend(make_table(buckets=1))
    for _ in range(6):
        backend.append(0, 4)
    async with scanner(backend, batches=True) as scan:
        scan.subscribe(0, 0)
        first = await anext(scan)
        rest = await scan.to_arrow()
        assert rest["id"].to_pylist() == list(range(first.last_offset + 1, 24))  # type: ignore[union-attr]


@on_loop
async def test_to_arrow_of_a_changelog() -> None:
    backend = FakeBackend(make_table(schema=KEY_SCHEMA, buckets=1))
    backend.append(0, 2, changes=[1, 1])
    backend.append(0, 0)
    backend.append(0, 1, changes=[4])
    backend.append(0, 0)
    async with scanner(backend, batches=True) as scan:
        scan.subscribe(0, EARLIEST_OFFSET)
        table = await scan.to_arrow()
    assert table.select(["id", "_change_type"]).to_pylist() == [
        {"id": 0, "_change_type": "+I"},
        {"id": 1, "_change_type": "+I"},
        {"id": 3, "_change_type": "-D"},
    ]


@on_loop
async def test_to_arrow_that_fails_moves_nothing() -> None:
    backend = FakeBackend(make_table(buckets=2))
    backend.append(0, 4)
    backend.append(1, 4)
    async with scanner(backend, batches=True, retry_timeout="1ms") as scan:
        scan.subscribe_buckets({0: 1, 1: EARLIEST_OFFSET})
        backend.errors[backend.bucket(1)].extend(LogStorageError("disk") for _ in range(99))
        with pytest.raises(LogStorageError):
            await scan.to_arrow()
        backend.errors.clear()
        assert (await scan.to_arrow())["id"].to_pylist() == [1, 2, 3, 0, 1, 2, 3]


@on_loop
async def test_a_cancelled_to_arrow_moves_nothing() -> None:
    backend = FakeBackend(make_table(buckets=1))
    backend.append(0, 4)
    async with scanner(backend, batches=True) as scan:
        scan.subscribe(0, 0)
        backend.gate.clear()
        reading = asyncio.create_task(scan.to_arrow())
        await until(lambda: bool(backend.requests))
        reading.cancel()
        with pytest.raises(asyncio.CancelledError):
            await reading
        backend.gate.set()
        assert (await scan.to_arrow())["id"].to_pylist() == [0, 1, 2, 3]


@on_loop
async def test_to_pandas_and_without_pandas(monkeypatch: pytest.MonkeyPatch) -> None:
    backend = FakeBackend(make_table(buckets=1))
    backend.append(0, 3)
    async with scanner(backend, batches=True) as scan:
        scan.subscribe(0, 1)
        frame = await scan.to_pandas()
        assert frame["name"].tolist() == ["0-1", "0-2"]
        original = builtins.__import__

        def without_pandas(name: str, *args: Any, **kwargs: Any) -> Any:
            if name.split(".")[0] == "pandas":
                raise ImportError(name)
            return original(name, *args, **kwargs)

        monkeypatch.setattr(builtins, "__import__", without_pandas)
        with pytest.raises(MissingExtraError, match=r"\[pandas\]"):
            await scan.to_pandas()


# The blocking reader


def on_runtime(table: Any = None) -> FakeBackend:
    async def make() -> FakeBackend:
        return FakeBackend(table or make_table(buckets=2))

    return runtime().call(make())


@on_loop
async def test_a_reader_on_the_loops_own_thread_reads_over_the_background() -> None:
    backend = on_runtime()
    for _ in range(30):
        backend.append(0, 5)
        backend.append(1, 5)
    config = Config()
    scan = TableScan(backend, backend.table, config, lambda: backend)  # type: ignore[arg-type,return-value]
    made = await scan.project_by_name(["id"]).create_record_batch_log_scanner()
    made.subscribe_buckets({0: 3, 1: EARLIEST_OFFSET})
    reader = made.to_arrow_batch_reader()
    assert isinstance(reader, pa.RecordBatchReader)
    backend.append(0, 5)
    table = reader.read_all()
    assert table["id"].to_pylist() == [*range(3, 150), *range(150)]
    # The scanner itself goes on behind what the reader covers.
    assert made._fetcher.positions() == {backend.bucket(0): 150, backend.bucket(1): 150}
    await made.close()


@on_loop
async def test_a_reader_without_a_background_works_from_other_threads_only() -> None:
    backend = FakeBackend(make_table(buckets=1))
    backend.append(0, 5)
    async with scanner(backend, batches=True) as scan:
        scan.subscribe(0, 0)
        with pytest.raises(ReentrantCallError, match="to_thread"):
            scan.to_arrow_batch_reader().read_all()
        with pytest.raises(SubscriptionError, match="a batch reader was dropped or failed"):
            await scan.to_arrow()
        scan.subscribe(0, 0)

        def read() -> list[int]:
            ids: list[int] = scan.to_arrow_batch_reader().read_all()["id"].to_pylist()
            return ids

        assert await asyncio.to_thread(read) == [0, 1, 2, 3, 4]


def test_a_reader_of_a_scanner_on_the_background_loop() -> None:
    backend = on_runtime()
    for _ in range(3):
        backend.append(1, 5)

    async def make() -> Any:
        scan = TableScan(backend, backend.table, Config())  # type: ignore[arg-type]
        return await scan.create_record_batch_log_scanner()

    async def ask() -> pa.RecordBatchReader:
        return made.to_arrow_batch_reader()

    made = runtime().call(make())
    made.subscribe(1, EARLIEST_OFFSET)
    batches = list(made.to_arrow_batch_reader())
    assert [batch.num_rows for batch in batches] == [5, 5, 5]
    # Asked for on the loop itself, which must not wait: then reading waits.
    made.subscribe(1, 7)
    assert [batch.num_rows for batch in runtime().call(ask())] == [3, 5]
    runtime().call(made.close())


def test_an_error_reaches_the_reader_with_its_type_named() -> None:
    backend = on_runtime()
    backend.append(0, 5)
    backend.errors[backend.bucket(0)].append(FlussError("broken for good"))

    async def make() -> Any:
        scan = TableScan(backend, backend.table, Config())  # type: ignore[arg-type]
        return await scan.create_record_batch_log_scanner()

    made = runtime().call(make())
    made.subscribe(0, 0)
    reader = made.to_arrow_batch_reader()
    for _ in range(2):
        # Again: an end of the rows would look as if everything had been read.
        with pytest.raises(FlussError, match="broken for good"):
            reader.read_next_batch()
    with pytest.raises(SubscriptionError, match="a batch reader was dropped or failed"):
        runtime().call(made.to_arrow())
    runtime().call(made.close())


def test_a_dropped_reader_stops_reading() -> None:
    backend = on_runtime()
    for _ in range(100):
        backend.append(0, 5, size=1 << 20)

    async def tasks() -> int:
        await asyncio.sleep(0)
        return len(asyncio.all_tasks())

    async def make() -> Any:
        scan = TableScan(backend, backend.table, Config())  # type: ignore[arg-type]
        return await scan.create_record_batch_log_scanner()

    others = runtime().call(tasks())  # of tests that ran before in this process
    made = runtime().call(make())
    made.subscribe(0, 0)
    reader = made.to_arrow_batch_reader()
    assert reader.read_next_batch().num_rows == 5
    asked = len(backend.requests)
    assert asked < 20
    del reader
    gc.collect()
    wait_until("the reader to end", lambda: runtime().call(tasks()) <= others, pause_s=0.001)
    runtime().call(made.close())
