"""Faults between a writer and its servers: every row once, in order, or an error that says so."""

from __future__ import annotations

import asyncio
import concurrent.futures
import random
from collections import Counter
from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from fluss_client.aio.writing import sender
from fluss_client.aio.writing.writer import AppendWriter
from fluss_client.backend.contract import BucketWrite
from fluss_client.config import Config
from fluss_client.errors import (
    AuthorizationError,
    ConnectError,
    DuplicateSequenceError,
    FlussError,
    LeaderNotAvailableError,
    NetworkError,
    NotEnoughReplicasAfterAppendError,
    NotLeaderOrFollowerError,
    OutOfOrderSequenceError,
    PartitionNotExistError,
    RecordTooLargeError,
    RequestTimeOutError,
    StorageBackpressureError,
    TableNotExistError,
    TimedOutError,
    UnknownTableOrBucketError,
    UnknownWriterIdError,
    WriteError,
)
from fluss_client.model.table import TableBucket, TableInfo, TablePath
from fluss_client.net.retry import Backoff
from fluss_client.runtime import runtime
from tests.unit.aio.fake_backend import FakeBackend, Fault, table_of

SCHEMA = pa.schema([("id", pa.int32())])
BUCKET = TableBucket(7, 0)

Make = Callable[..., AppendWriter]


def log_backend(**options: Any) -> FakeBackend:
    return FakeBackend(table_of(SCHEMA, **options))


def wait(future: concurrent.futures.Future[Any]) -> Any:
    return future.result()


def one_batch_each(writer: AppendWriter, count: int, first: int = 0) -> list[Any]:
    """So many batches in flight or queued, each with one row that carries its number."""
    return [
        writer.write_arrow_batch(pa.record_batch({"id": pa.array([at] * 250, pa.int32())}))
        for at in range(first, first + count)
    ]


def ids(backend: FakeBackend, bucket: TableBucket = BUCKET) -> list[int]:
    """The numbers of the batches in a bucket's log, each checked to be whole."""
    rows = [row[0] for row in backend.logs.get(bucket, [])]
    assert len(rows) % 250 == 0
    return rows[::250]


def connections_of(backend: FakeBackend, bucket: TableBucket) -> set[int]:
    """The connections that ever carried a batch of a bucket."""
    return {
        route.connection
        for route, writes in backend.sent
        if any(write.bucket == bucket for write in writes)
    }


class Once:
    """Faults for the first so many attempts of some sequences."""

    def __init__(self, faults: dict[int, list[Fault]]) -> None:
        self.faults = {sequence: list(listed) for sequence, listed in faults.items()}

    def __call__(self, write: BucketWrite) -> Fault | None:
        waiting = self.faults.get(write.sequence)
        return waiting.pop(0) if waiting else None


BEFORE = [
    NetworkError("line broke"),
    TimedOutError("no answer"),
    NotLeaderOrFollowerError("moved"),
    LeaderNotAvailableError("none"),
    UnknownTableOrBucketError("unknown"),
    StorageBackpressureError("slower"),
]
AFTER = [
    NetworkError("line broke"),
    TimedOutError("no answer"),
    RequestTimeOutError("slow followers"),
    NotEnoughReplicasAfterAppendError("too few"),
]


@pytest.mark.parametrize("error", BEFORE, ids=lambda error: type(error).__name__)
@pytest.mark.parametrize("sequence", [0, 2])
def test_an_error_before_the_rows_were_taken(
    appender: Make, error: FlussError, sequence: int
) -> None:
    backend = log_backend()
    backend.script = Once({sequence: [Fault(error), Fault(error)]})
    writer = appender(backend, writer_batch_size=1024)
    one_batch_each(writer, 12)
    wait(writer.flush_future())
    assert ids(backend) == list(range(12))
    assert writer.metrics()["retries"] >= 2
    assert bool(backend.forgotten) == error.stale_metadata
    assert backend.writer_ids == 1


@pytest.mark.parametrize("error", AFTER, ids=lambda error: type(error).__name__)
@pytest.mark.parametrize("sequence", [0, 3])
def test_an_error_after_the_rows_were_taken(
    appender: Make, error: FlussError, sequence: int
) -> None:
    backend = log_backend()
    backend.script = Once({sequence: [Fault(error, taken=True), Fault(error, taken=True)]})
    writer = appender(backend, writer_batch_size=1024)
    one_batch_each(writer, 12)
    wait(writer.flush_future())
    assert ids(backend) == list(range(12)), "a batch that was there already is not written twice"


def test_a_whole_request_that_fails_is_sent_again(appender: Make) -> None:
    backend = log_backend(buckets=4, bucket_keys=["id"])
    backend.nodes = 1
    send, broken = backend.append, []

    async def append(*args: Any) -> Any:
        if len(broken) < 3:
            broken.append(args)
            raise ConnectionResetError("reset") if len(broken) == 2 else NetworkError("broke")
        return await send(*args)

    backend.append = append  # type: ignore[method-assign]
    writer = appender(backend)
    writer.write_arrow(pa.table({"id": pa.array(range(1000), pa.int32())}))
    wait(writer.flush_future())
    assert sorted(row[0] for row in backend.rows()) == list(range(1000))


def test_a_bucket_that_moves_is_found_again(appender: Make) -> None:
    backend = log_backend()
    writer = appender(backend)
    wait(one_batch_each(writer, 1)[0].future())
    backend.leaders[BUCKET] = 1
    one_batch_each(writer, 3, first=1)
    wait(writer.flush_future())
    assert ids(backend) == [0, 1, 2, 3]
    assert backend.forgotten == [BUCKET]


def test_a_duplicate_is_a_success(appender: Make) -> None:
    backend = log_backend()
    backend.script = Once({1: [Fault(DuplicateSequenceError("known"), taken=True)]})
    writer = appender(backend, writer_batch_size=1024)
    one_batch_each(writer, 5)
    wait(writer.flush_future())
    assert ids(backend) == list(range(5))
    assert writer.metrics()["retries"] == 0


def test_a_batch_that_fails_for_good_takes_no_other_with_it(appender: Make) -> None:
    backend = log_backend()
    backend.script = Once({2: [Fault(RecordTooLargeError("too large"))]})
    writer = appender(backend, writer_batch_size=1024)
    handles = one_batch_each(writer, 9)
    with pytest.raises(WriteError, match="too large") as caught:
        wait(writer.flush_future())
    assert ids(backend) == [0, 1, 3, 4, 5, 6, 7, 8]
    assert caught.value.bucket == BUCKET
    assert caught.value.row_count == 250
    assert caught.value.error_code == RecordTooLargeError.code
    assert isinstance(caught.value.__cause__, RecordTooLargeError)
    failed = [at for at, handle in enumerate(handles) if handle.future().exception() is not None]
    assert failed == [2]
    assert backend.writer_ids == 2, "the later ones went under a fresh writer id"
    wait(writer.flush_future())


def test_other_buckets_keep_their_writer(appender: Make) -> None:
    backend = log_backend(buckets=2, bucket_keys=["id"])
    failing = {TableBucket(7, 1)}

    def script(write: BucketWrite) -> Fault | None:
        bad = write.bucket in failing and write.sequence == 0
        failing.discard(write.bucket)
        return Fault(RecordTooLargeError("too large")) if bad else None

    backend.script = script
    writer = appender(backend)
    for _ in range(3):
        writer.write_arrow(pa.table({"id": pa.array(range(100), pa.int32())}))
        writer.flush_future().exception()
    used: dict[int, set[int]] = {}
    for _, writes in backend.sent:
        for write in writes:
            used.setdefault(write.bucket.bucket_id, set()).add(write.writer_id)
    assert used[0] == {1}
    assert used[1] == {1, 2}


def test_an_out_of_order_answer_with_nothing_before_it_fails_the_batch(appender: Make) -> None:
    backend = log_backend()
    writer = appender(backend)
    wait(one_batch_each(writer, 1)[0].future())
    backend.script = Once({1: [Fault(OutOfOrderSequenceError("lost the writer"))]})
    (handle,) = one_batch_each(writer, 1, first=1)
    with pytest.raises(WriteError, match="lost the writer"):
        wait(handle.future())
    wait(one_batch_each(writer, 1, first=2)[0].future())
    wait(writer.flush_future())
    assert ids(backend) == [0, 2]
    assert backend.writer_ids == 2


def test_a_forgotten_writer_gets_a_new_id_and_loses_nothing_that_was_surely_not_written(
    appender: Make,
) -> None:
    backend = log_backend()
    writer = appender(backend, writer_batch_size=1024)
    wait(one_batch_each(writer, 1)[0].future())
    gone = Fault(UnknownWriterIdError("who?"))
    backend.script = lambda write: gone if write.writer_id == 1 else None
    one_batch_each(writer, 8, first=1)
    wait(writer.flush_future())
    assert ids(backend) == list(range(9))
    assert backend.writer_ids == 2


def test_retries_end(appender: Make) -> None:
    backend = log_backend()
    backend.script = lambda write: Fault(RequestTimeOutError("slow"), taken=False)
    writer = appender(backend, writer_retries=2)
    (handle,) = one_batch_each(writer, 1)
    with pytest.raises(WriteError, match="they may be there nevertheless"):
        wait(handle.future())
    assert len(backend.sent) == 3
    wait(writer.flush_future())


def test_time_ends(appender: Make) -> None:
    backend = log_backend()
    backend.script = lambda write: Fault(NetworkError("down"))
    writer = appender(backend, retry_timeout=50, writer_batch_size=1024)
    handles = one_batch_each(writer, 20)
    with pytest.raises(WriteError, match="down"):
        wait(writer.flush_future())
    for handle in handles:
        assert isinstance(handle.future().exception(), WriteError)
    backend.script = lambda write: None
    one_batch_each(writer, 1, first=99)
    wait(writer.flush_future())
    assert ids(backend) == [99]
    assert writer.metrics()["buffered_bytes"] == 0


def test_a_server_that_cannot_be_found(appender: Make) -> None:
    backend = log_backend()
    tries: list[TableBucket] = []

    async def locate(table: TableInfo, bucket: TableBucket) -> int:
        tries.append(bucket)
        if len(tries) < 4:
            raise ConnectError("nobody answers")
        return 0

    backend.locate = locate  # type: ignore[method-assign]
    backend.leaders[BUCKET] = 0
    writer = appender(backend)
    one_batch_each(writer, 2)
    wait(writer.flush_future())
    assert ids(backend) == [0, 1]
    assert len(tries) == 4


def test_who_may_not_write_is_told_at_once(appender: Make) -> None:
    backend = log_backend()

    async def init_writer(paths: list[TablePath]) -> int:
        raise AuthorizationError("alice may not write")

    backend.init_writer = init_writer  # type: ignore[method-assign, assignment]
    writer = appender(backend)
    one_batch_each(writer, 3)
    with pytest.raises(WriteError, match="alice may not write") as caught:
        wait(writer.flush_future())
    assert caught.value.error_code == AuthorizationError.code


def test_a_dropped_table(appender: Make) -> None:
    backend = log_backend()
    backend.dropped = True
    backend.script = lambda write: Fault(UnknownTableOrBucketError("who?"))
    writer = appender(backend)
    one_batch_each(writer, 2)
    with pytest.raises(TableNotExistError, match="500 rows for TableBucket"):
        wait(writer.flush_future())


def test_a_table_that_was_dropped_and_made_again(appender: Make) -> None:
    backend = log_backend()
    writer = appender(backend)
    backend.script = lambda write: Fault(UnknownTableOrBucketError("who?"))
    other = table_of(SCHEMA)
    object.__setattr__(other, "table_id", 8)
    backend.table = other
    one_batch_each(writer, 1)
    with pytest.raises(TableNotExistError, match="dropped and made anew"):
        wait(writer.flush_future())


def test_a_dropped_partition_and_the_one_made_after_it(appender: Make) -> None:
    backend = log_backend(partition_keys=["id"])
    backend.partitions = {"1": 10}
    writer = appender(backend)
    writer.append((1,))
    wait(writer.flush_future())
    backend.partitions = {"1": 11}
    backend.script = lambda write: (
        Fault(UnknownTableOrBucketError("who?")) if write.bucket.partition_id == 10 else None
    )
    writer.append((1,))
    with pytest.raises(PartitionNotExistError, match="partition 10"):
        wait(writer.flush_future())
    writer.append((1,))
    wait(writer.flush_future())
    assert backend.logs[TableBucket(7, 0, partition_id=11)] == [(1,)]


def test_buckets_that_a_server_does_not_know_yet_share_a_look_at_what_there_is(
    appender: Make,
) -> None:
    count, rounds = 200, sender.EXISTENCE_CHECK_EVERY + 1
    backend = log_backend(partition_keys=["id"])
    backend.partitions = {str(number): number for number in range(count)}
    refusals: Counter[TableBucket] = Counter()

    def unknown_at_first(write: BucketWrite) -> Fault | None:
        refusals[write.bucket] += 1
        known = refusals[write.bucket] > rounds
        return None if known else Fault(UnknownTableOrBucketError("who?"))

    backend.script = unknown_at_first
    writer = appender(backend)
    writer.write_arrow_batch(pa.record_batch([pa.array(range(count), pa.int32())], ["id"]))
    wait(writer.flush_future())
    assert len(backend.logs) == count
    first_list = 1
    assert backend.partition_lists - first_list < count / 10


def test_the_first_error_is_told_once_per_flush(appender: Make) -> None:
    backend = log_backend()
    both_wait = asyncio.Event()
    backend.script = lambda write: Fault(RecordTooLargeError("too large"), until=both_wait)
    writer = appender(backend, writer_batch_size=1024)
    one_batch_each(writer, 3)
    first, second = writer.flush_future(), writer.flush_future()
    runtime().loop.call_soon_threadsafe(both_wait.set)
    assert isinstance(first.exception(), WriteError)
    assert isinstance(second.exception(), WriteError), "both flushes cover the rows"
    wait(writer.flush_future())


@pytest.mark.parametrize("inflight", [1, 5])
def test_without_idempotence(appender: Make, inflight: int) -> None:
    backend = log_backend()
    failed: Counter[bytes] = Counter()

    def script(write: BucketWrite) -> Fault | None:
        assert (write.writer_id, write.sequence) == (-1, -1)
        failed["all"] += 1
        return Fault(NotLeaderOrFollowerError("moved")) if failed["all"] % 3 == 0 else None

    backend.script = script  # type: ignore[assignment]
    writer = appender(
        backend,
        writer_enable_idempotence=False,
        writer_batch_size=1024,
        writer_max_inflight_requests_per_bucket=inflight,
    )
    one_batch_each(writer, 20)
    wait(writer.flush_future())
    assert sorted(ids(backend)) == list(range(20))
    assert inflight > 1 or ids(backend) == list(range(20))
    assert backend.writer_ids == 0


@pytest.fixture
def short_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    """Retry at once: what is tried here is the order of events, not the time between them."""
    monkeypatch.setattr(Backoff, "delay_ms", lambda self, attempt: 0.0)


ANY_ORDER = settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)


@ANY_ORDER
@given(seed=st.integers(0, 1 << 32), rate=st.floats(0, 0.6), buckets=st.integers(1, 4))
def test_any_faults_in_any_order(short_pauses: None, seed: int, rate: float, buckets: int) -> None:
    """Answers get lost, come late and out of order; each batch is there once, in order."""
    chance = random.Random(seed)
    backend = log_backend(buckets=buckets, bucket_keys=["id"])

    def script(write: BucketWrite) -> Fault:
        delay_s = chance.choice([0, 0, 0.001, 0.003])
        if chance.random() >= rate:
            return Fault(delay_s=delay_s)
        if chance.random() < 0.2:
            backend.leaders[write.bucket] = chance.randrange(2)
        if chance.random() < 0.5:
            return Fault(chance.choice(AFTER), taken=True, delay_s=delay_s)
        return Fault(chance.choice(BEFORE), delay_s=delay_s)

    backend.script = script
    config = Config({"writer.batch-size": 1024})
    writer = AppendWriter(backend, backend.table, config)  # type: ignore[arg-type]
    for at in range(30):
        writer.write_arrow_batch(pa.record_batch({"id": pa.array([at] * 250, pa.int32())}))
    wait(writer.flush_future())
    found = [at for bucket in backend.logs for at in ids(backend, bucket)]
    assert sorted(found) == list(range(30))
    for bucket in backend.logs:
        assert ids(backend, bucket) == sorted(ids(backend, bucket))
        assert len(connections_of(backend, bucket)) == 1


@ANY_ORDER
@given(seed=st.integers(0, 1 << 32))
def test_any_faults_and_some_that_are_final(short_pauses: None, seed: int) -> None:
    """What is acknowledged is there once; what failed for good may be there once; order holds."""
    chance = random.Random(seed)
    backend = log_backend()

    def script(write: BucketWrite) -> Fault:
        luck = chance.random()
        if luck < 0.6:
            return Fault(delay_s=chance.choice([0, 0.001]))
        if luck < 0.7:
            return Fault(chance.choice([RecordTooLargeError("big"), UnknownWriterIdError("who?")]))
        if luck < 0.75:
            return Fault(AuthorizationError("odd"), taken=True)
        return Fault(chance.choice(AFTER), taken=chance.random() < 0.5)

    backend.script = script
    config = Config({"writer.batch-size": 1024})
    writer = AppendWriter(backend, backend.table, config)  # type: ignore[arg-type]
    handles = one_batch_each(writer, 30)
    writer.flush_future().exception()
    found = ids(backend)
    assert len(set(found)) == len(found)
    assert found == sorted(found)
    written = [at for at, handle in enumerate(handles) if handle.future().exception() is None]
    assert set(written) <= set(found)
    assert writer.metrics()["buffered_bytes"] == 0


def test_a_fault_of_the_backend_itself_fails_the_rows_instead_of_hanging(appender: Make) -> None:
    backend = log_backend()

    async def append(*args: Any) -> Any:
        raise AssertionError("a bug")

    backend.append = append  # type: ignore[method-assign]
    writer = appender(backend)
    one_batch_each(writer, 1)
    with pytest.raises(WriteError, match="a bug"):
        wait(writer.flush_future())


def test_the_loop_is_never_blocked_while_a_writer_waits(appender: Make) -> None:
    backend = log_backend()
    gate = asyncio.Event()
    backend.script = lambda write: Fault(until=gate)
    writer = appender(backend, writer_buffer_memory_size=4096, writer_batch_size=1024)
    with concurrent.futures.ThreadPoolExecutor(1) as pool:
        job = pool.submit(one_batch_each, writer, 40)
        for _ in range(5):
            runtime().call(asyncio.sleep(0))
        runtime().loop.call_soon_threadsafe(gate.set)
        job.result()
    wait(writer.flush_future())
    assert ids(backend) == list(range(40))
