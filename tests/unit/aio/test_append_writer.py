"""An append writer over a backend in memory: batching, order, waiting, bounds."""

from __future__ import annotations

import asyncio
import concurrent.futures
import gc
import queue
import sys
import threading
import weakref
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

from fluss_client.aio.writing import results
from fluss_client.aio.writing.accumulator import EARLY_SEND_DIVISOR
from fluss_client.aio.writing.writer import AppendWriter
from fluss_client.backend.contract import BucketWrite, WriteRoute
from fluss_client.config import Config
from fluss_client.errors import (
    BufferFullError,
    ClosedError,
    PartitionNotExistError,
    RecordTooLargeError,
    ReentrantCallError,
    RowError,
    UnsupportedError,
    WriteError,
)
from fluss_client.facade.handle import Handle
from fluss_client.model.table import TableBucket
from fluss_client.runtime import runtime
from tests.unit.aio.fake_backend import FakeBackend, Fault, table_of
from tests.waiting import wait_until

SCHEMA = pa.schema([("id", pa.int32()), ("name", pa.string())])
LONG = 3_600_000
INTERRUPT = KeyboardInterrupt()

Make = Callable[..., AppendWriter]


def log_backend(**options: Any) -> FakeBackend:
    return FakeBackend(table_of(SCHEMA, **options))


def batch_of(rows: int, first: int = 0) -> pa.RecordBatch:
    ids = np.arange(first, first + rows)
    return pa.record_batch({"id": pa.array(ids, pa.int32()), "name": [f"n{at}" for at in ids]})


def wait(future: concurrent.futures.Future[Any]) -> Any:
    return future.result()


def test_rows_of_every_form_arrive_in_order(appender: Make) -> None:
    backend = log_backend()
    writer = appender(backend)
    writer.append({"id": 1, "name": "a"})
    writer.append([2, "b"])
    writer.append((3, None))
    wait(writer.flush_future())
    assert backend.rows() == [(1, "a"), (2, "b"), (3, None)]


def test_rows_and_batches_keep_the_order_of_the_calls(appender: Make) -> None:
    backend = log_backend()
    writer = appender(backend)
    writer.append((0, "row"))
    writer.write_arrow_batch(batch_of(3, first=1))
    writer.append((4, "row"))
    writer.write_arrow(pa.Table.from_batches([batch_of(2, first=5), batch_of(2, first=7)]))
    writer.write_pandas(pd.DataFrame({"id": [9], "name": ["df"]}))
    writer.append((10, "row"))
    wait(writer.flush_future())
    assert [row[0] for row in backend.rows()] == list(range(11))


def test_many_rows_fill_many_chunks_and_few_batches(appender: Make) -> None:
    backend = log_backend()
    writer = appender(backend, writer_batch_timeout_ms=LONG)
    for at in range(20_000):
        writer.append((at, "x"))
    wait(writer.flush_future())
    assert [row[0] for row in backend.rows()] == list(range(20_000))
    assert len(backend.sent) <= 5
    assert writer.metrics()["rows"] == 20_000


def test_a_handle_is_shared_by_rows_that_travel_together(appender: Make) -> None:
    writer = appender(log_backend(), writer_batch_timeout_ms=LONG)
    first, second = writer.append((1, "a")), writer.append((2, "b"))
    assert first is second
    assert not first.done()
    wait(first.future())
    assert first.done()
    assert writer.append((3, "c")) is not first


def test_waiting_sends_at_once_whatever_the_linger(appender: Make) -> None:
    backend = log_backend()
    writer = appender(backend, writer_batch_timeout_ms=LONG)

    async def scenario() -> None:
        await writer.append((1, "a")).wait()
        await writer.write_arrow_batch(batch_of(1, first=2)).wait()
        writer.append((3, "c"))
        await writer.flush()

    asyncio.run(scenario())
    assert [row[0] for row in backend.rows()] == [1, 2, 3]


def test_the_linger_sends_what_nobody_waits_for(appender: Make) -> None:
    answered = threading.Event()
    backend = log_backend()
    backend.script = lambda write: answered.set()
    writer = appender(backend, writer_batch_timeout_ms=1)
    writer.append((1, "a"))
    answered.wait()


def test_much_arrow_goes_at_once_and_takes_what_waits_along(appender: Make) -> None:
    answered: queue.Queue[int] = queue.Queue()
    backend = log_backend()
    backend.script = lambda write: answered.put(write.payload.row_count)
    writer = appender(backend, writer_batch_timeout_ms=LONG)
    much = batch_of(40_000)
    batch_bytes = Config().writer_batch_size
    assert batch_bytes // EARLY_SEND_DIVISOR < much.nbytes < batch_bytes
    writer.write_arrow_batch(much)
    assert answered.get() == 40_000
    writer.write_arrow_batch(batch_of(10))
    writer.write_arrow_batch(much)
    assert answered.get() == 40_010


def test_waiting_may_be_given_up_and_the_row_is_written_all_the_same(appender: Make) -> None:
    backend = log_backend()
    writer = appender(backend)
    gate = asyncio.Event()
    backend.script = lambda write: Fault(until=gate)

    async def scenario() -> None:
        handle = writer.append((1, "a"))
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(handle.wait(), 0.01)
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(writer.flush(), 0.01)
        assert not handle.future().cancel()
        runtime().loop.call_soon_threadsafe(gate.set)
        await handle.wait()
        await handle.wait()
        await writer.flush()

    asyncio.run(scenario())
    assert backend.rows() == [(1, "a")]


def test_a_bad_row_is_refused_at_the_call_and_spoils_nothing(appender: Make) -> None:
    backend = log_backend()
    writer = appender(backend)
    with pytest.raises(RowError, match="column 'id'"):
        writer.append({"id": "x", "name": "a"})
    writer.append({"id": 1, "name": "a"})
    with pytest.raises(RowError, match="column 'id'"):
        writer.append({"id": "x", "name": "a"})
    with pytest.raises(RowError, match="no column 'nope'"):
        writer.write_arrow_batch(pa.record_batch({"nope": [1]}))
    table = pa.table({"id": pa.chunked_array([[1], [1 << 40]]), "name": ["a", "b"]})
    with pytest.raises(RowError, match="column 'id'"):
        writer.write_arrow(table)
    wait(writer.flush_future())
    assert backend.rows() == [(1, "a")]


def test_empty_input_is_fine(appender: Make) -> None:
    backend = log_backend()
    writer = appender(backend)
    wait(writer.write_arrow_batch(batch_of(0)).future())
    writer.write_arrow(
        pa.table({"id": pa.array([], pa.int32()), "name": pa.array([], pa.string())})
    )
    wait(writer.flush_future())
    assert backend.sent == []


def test_a_primary_key_table_is_refused(appender: Make) -> None:
    with pytest.raises(UnsupportedError, match="new_upsert"):
        appender(log_backend(primary_keys=["id"]))


def test_a_missing_partition(appender: Make) -> None:
    backend = log_backend(partition_keys=["name"])
    backend.partitions = {"here": 5}
    writer = appender(backend)
    writer.append((1, "here"))
    wait(writer.flush_future())
    with pytest.raises(PartitionNotExistError, match="'gone'"):
        writer.write_arrow_batch(
            pa.record_batch({"id": pa.array([2], pa.int32()), "name": ["gone"]})
        )
    handle = writer.append((3, "gone"))
    with pytest.raises(PartitionNotExistError, match="'gone'"):
        wait(handle.future())
    writer.append((4, "here"))
    wait(writer.flush_future())
    assert backend.logs == {TableBucket(7, 0, partition_id=5): [(1, "here"), (4, "here")]}
    assert backend.partition_questions.count("here") == 1
    assert writer.metrics()["buffered_bytes"] == 0


def test_large_writes_are_cut_into_batches_and_requests(appender: Make) -> None:
    backend = log_backend(buckets=4, bucket_keys=["id"])
    writer = appender(backend, writer_batch_size=2048, writer_request_max_size=4096)
    writer.write_arrow_batch(batch_of(5000))
    wait(writer.flush_future())
    assert sorted(row[0] for row in backend.rows()) == list(range(5000))
    for log in backend.logs.values():
        ids = [row[0] for row in log]
        assert ids == sorted(ids)
    for _, writes in backend.sent:
        assert sum(write.payload.nbytes for write in writes) <= 4096
        assert all(write.payload.nbytes <= 2048 for write in writes)
    assert writer.metrics()["batches"] > 4
    assert writer.metrics()["buffered_bytes"] == 0


def test_buckets_of_one_node_share_requests_when_the_line_is_busy(appender: Make) -> None:
    backend = log_backend(buckets=64, bucket_keys=["id"])
    backend.nodes = 1
    gate = asyncio.Event()
    backend.script = lambda write: Fault(until=gate)
    writer = appender(backend)
    writer.write_arrow_batch(batch_of(5000))
    done = writer.flush_future()
    runtime().loop.call_soon_threadsafe(gate.set)
    wait(done)
    assert sorted(row[0] for row in backend.rows()) == list(range(5000))
    assert len(backend.sent) < 64


def test_buckets_are_spread_over_the_connections_and_each_stays_on_its_own(appender: Make) -> None:
    backend = log_backend(buckets=8, bucket_keys=["id"])
    backend.nodes, backend.connections = 2, 2
    writer = appender(backend, writer_batch_size=1024)
    for _ in range(5):
        writer.write_arrow_batch(batch_of(5000))
    wait(writer.flush_future())
    routes: dict[TableBucket, set[WriteRoute]] = {}
    for route, writes in backend.sent:
        for write in writes:
            routes.setdefault(write.bucket, set()).add(route)
    assert all(len(found) == 1 for found in routes.values())
    shares = Counter(route for found in routes.values() for route in found)
    assert shares == {WriteRoute(node, at): 2 for node in (0, 1) for at in (0, 1)}


def test_a_full_buffer_blocks_and_then_refuses(appender: Make) -> None:
    backend = log_backend()
    gate = asyncio.Event()
    backend.script = lambda write: Fault(until=gate)
    writer = appender(backend, writer_buffer_memory_size=10_000, writer_buffer_wait_timeout_ms=1)
    big = batch_of(2000)
    assert big.nbytes > 10_000
    first = writer.write_arrow_batch(big)
    with pytest.raises(BufferFullError):
        writer.write_arrow_batch(batch_of(1))
    assert writer.metrics()["buffered_bytes"] >= 10_000
    runtime().loop.call_soon_threadsafe(gate.set)
    wait(first.future())
    wait(writer.write_arrow_batch(batch_of(1)).future())
    assert len(backend.rows()) == 2001
    assert writer.metrics()["buffered_bytes"] == 0


def test_rows_are_refused_one_by_one_when_the_buffer_stays_full(appender: Make) -> None:
    backend = log_backend()
    gate = asyncio.Event()
    backend.script = lambda write: Fault(until=gate)
    writer = appender(
        backend,
        writer_buffer_memory_size=1024,
        writer_buffer_wait_timeout_ms=1,
        writer_batch_timeout_ms=LONG,
    )
    taken = 0
    try:
        while taken < 100_000:
            writer.append((taken, "x"))
            taken += 1
    except BufferFullError:
        assert taken < 100_000
    with pytest.raises(BufferFullError):
        writer.append((-1, "x"))
    runtime().loop.call_soon_threadsafe(gate.set)
    wait(writer.flush_future())
    assert [row[0] for row in backend.rows()] == list(range(taken))


def test_a_blocked_writer_goes_on_when_there_is_room(appender: Make) -> None:
    backend = log_backend()
    writer = appender(backend, writer_buffer_memory_size=4096, writer_batch_size=1024)
    for at in range(50):
        writer.write_arrow_batch(batch_of(100, first=at * 100))
    wait(writer.flush_future())
    assert [row[0] for row in backend.rows()] == list(range(5000))


@pytest.fixture
def restless_threads() -> Iterator[None]:
    """Threads change places in the middle of everything."""
    interval_s = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(interval_s)


def test_many_threads_lose_nothing_and_keep_their_own_order(
    appender: Make, restless_threads: None
) -> None:
    backend = log_backend()
    writer = appender(backend, writer_buffer_memory_size=1 << 20)

    def work(thread: int) -> None:
        for at in range(3000):
            if at % 500 == 250:
                writer.write_arrow_batch(
                    pa.record_batch({"id": pa.array([at], pa.int32()), "name": [str(thread)]})
                )
            else:
                writer.append((at, str(thread)))
        wait(writer.flush_future())

    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        for job in [pool.submit(work, thread) for thread in range(8)]:
            job.result()
    for thread in range(8):
        assert [row[0] for row in backend.rows() if row[1] == str(thread)] == list(range(3000))


@pytest.mark.parametrize("missed", [True, False])
def test_a_row_added_while_its_chunk_is_taken_away(appender: Make, missed: bool) -> None:
    backend = log_backend()
    writer = appender(backend, writer_batch_timeout_ms=LONG)
    writer.append((1, "a"))
    chunk = writer._chunk
    if not missed:
        chunk.values.extend((2, "b"))
    with writer._order_lock:
        writer._close_chunk()
    if missed:
        chunk.values.extend((2, "b"))
    handle = writer._add_late(chunk)
    wait(handle.future())
    assert backend.rows() == [(1, "a"), (2, "b")]
    backend.script = lambda write: Fault(RecordTooLargeError("too large"))
    writer.append((3, "c"))
    chunk = writer._chunk
    with writer._order_lock:
        writer._close_chunk()
    with pytest.raises(WriteError, match="too large"):
        wait(writer._add_late(chunk).future())
    wait(writer.flush_future())


def test_on_the_io_thread_a_write_that_could_wait_is_refused(appender: Make) -> None:
    backend = log_backend()
    writer = appender(backend)

    async def scenario() -> None:
        with pytest.raises(ReentrantCallError):
            writer.write_arrow_batch(batch_of(1))
        handle = writer.append((1, "a"))
        await handle.wait()
        writer.append((2, "b"))
        await writer.flush()

    runtime().call(scenario())
    assert [row[0] for row in backend.rows()] == [1, 2]


def test_closing_flushes_and_ends_the_writer(appender: Make) -> None:
    backend = log_backend()
    writer = appender(backend, writer_batch_timeout_ms=LONG)

    async def scenario() -> None:
        async with writer:
            writer.append((1, "a"))
        assert len(backend.rows()) == 1
        writer.append((2, "b"))
        await writer.close()
        with pytest.raises(ClosedError):
            writer.append((3, "c"))
        with pytest.raises(ClosedError):
            writer.write_arrow_batch(batch_of(1))
        await writer.close()

    asyncio.run(scenario())
    assert [row[0] for row in backend.rows()] == [1, 2]


def test_leaving_with_an_exception_still_sends_the_rows(appender: Make) -> None:
    backend = log_backend()
    writer = appender(backend, writer_batch_timeout_ms=LONG)

    async def scenario() -> None:
        async with writer:
            writer.append((1, "a"))
            raise KeyError("mine")

    with pytest.raises(KeyError):
        asyncio.run(scenario())
    wait(writer.flush_future())
    assert len(backend.rows()) == 1


def test_an_encoding_error_fails_its_rows_and_no_others(appender: Make) -> None:
    backend = log_backend()
    writer = appender(backend)
    backend.encode_error = RowError("column 'name': cannot be encoded")
    handle = writer.append((1, "a"))
    with pytest.raises(WriteError, match="cannot be encoded") as caught:
        wait(handle.future())
    assert isinstance(caught.value.__cause__, RowError)
    backend.encode_error = None
    writer.append((2, "b"))
    wait(writer.flush_future())
    assert backend.rows() == [(2, "b")]
    assert writer.metrics()["rows_failed"] == 1


def test_rows_that_an_interrupt_cuts_off_are_told_to_be_lost(
    appender: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    backend = log_backend()
    writer = appender(backend, writer_batch_timeout_ms=LONG)
    handle = writer.append((1, "a"))
    with monkeypatch.context() as patch:
        patch.setattr(writer._router, "split", lambda *a, **k: (_ for _ in ()).throw(INTERRUPT))
        with pytest.raises(KeyboardInterrupt):
            handle.future()
    with pytest.raises(RowError, match="1 rows were not written: KeyboardInterrupt"):
        wait(handle.future())
    writer.append((2, "b"))
    wait(writer.flush_future())
    assert backend.rows() == [(2, "b")]


def test_a_flush_waits_for_what_came_before_it_only(appender: Make) -> None:
    backend = log_backend()
    gate = asyncio.Event()
    writer = appender(backend)
    writer.append((1, "a"))

    def hold_the_second(write: BucketWrite) -> Fault | None:
        return Fault(until=gate) if write.sequence == 1 else None

    backend.script = hold_the_second
    wait(writer.flush_future())
    handle = writer.append((2, "b"))
    late = writer.flush_future()
    assert not late.done()
    assert not handle.done()
    runtime().loop.call_soon_threadsafe(gate.set)
    wait(late)


def test_writers_go_when_nobody_holds_them() -> None:
    backend = log_backend()
    config = Config({"writer.batch-timeout-ms": 1})
    writer = AppendWriter(backend, backend.table, config)  # type: ignore[arg-type]
    writer.append((1, "a"))
    wait(writer.flush_future())
    reference = weakref.ref(writer)
    del writer
    done = threading.Event()
    runtime().loop.call_soon_threadsafe(done.set)
    done.wait()
    wait_until("the writer to go", lambda: gc.collect() >= 0 and reference() is None)


def test_an_error_that_a_handle_told_is_not_told_again(appender: Make) -> None:
    backend = log_backend()
    backend.script = lambda write: Fault(RecordTooLargeError("too large"))
    writer = appender(backend, writer_batch_timeout_ms=LONG)  # both calls share a batch
    first, second = writer.append((1, "a")), writer.write_arrow_batch(batch_of(1))
    with pytest.raises(WriteError, match="too large"):
        wait(first.future())
    wait(writer.flush_future())
    with pytest.raises(WriteError, match="too large"):
        wait(second.future())

    async def scenario() -> None:
        with pytest.raises(WriteError, match="too large"):
            await writer.append((2, "b")).wait()
        await writer.flush()
        await writer.close()

    asyncio.run(scenario())


def test_an_error_that_nobody_waited_for_any_more_is_kept(appender: Make) -> None:
    """A wait that was given up has told nobody, be it for a handle or for a flush."""
    backend = log_backend()
    gate = asyncio.Event()
    backend.script = lambda write: Fault(RecordTooLargeError("too large"), until=gate)
    writer = appender(backend)
    handle = writer.append((1, "a"))

    async def scenario() -> None:
        for given_up in (handle.wait(), writer.flush()):
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(given_up, 0.01)
        runtime().loop.call_soon_threadsafe(gate.set)
        with pytest.raises(WriteError, match="too large"):
            await writer.close()

    asyncio.run(scenario())
    wait(writer.flush_future())


def test_a_flush_that_nobody_looked_at_tells_nothing(
    appender: Make, caplog: pytest.LogCaptureFixture
) -> None:
    backend = log_backend()
    backend.script = lambda write: Fault(RecordTooLargeError("too large"))
    writer = appender(backend)
    writer.append((1, "a"))
    unseen = Handle(writer.flush_future(), "flush")
    concurrent.futures.wait([unseen._future])
    del unseen
    assert "nobody looked" in caplog.text
    with pytest.raises(WriteError, match="too large"):
        wait(writer.flush_future())


def test_errors_that_nobody_asks_for_take_bounded_memory(
    appender: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(results, "FAULTS_KEPT_MAX", 3)
    backend = log_backend()
    backend.script = lambda write: Fault(RecordTooLargeError("too large"))
    writer = appender(backend)
    handles = []
    for number in range(10):
        handles.append(writer.append((number, "a")))
        concurrent.futures.wait([handles[-1].future()])
    assert len(writer._accumulator._flushes._unreported) == 3
    for handle in handles:
        assert handle.future().exception() is not None
    # More failed than could be kept apart: the flush tells of the rest, rather than of nothing.
    assert isinstance(writer.flush_future().exception(), WriteError)
    wait(writer.flush_future())
