"""What goes wrong while following a log, and what a poll tells about it."""

from __future__ import annotations

import asyncio
import pickle

import pytest

from fluss_client.aio.scanning import errors as fetch_errors
from fluss_client.aio.scanning import log_fetcher
from fluss_client.aio.scanning.errors import OffsetUnavailableError, SubscriptionError
from fluss_client.errors import (
    AuthorizationError,
    ClosedError,
    CorruptDataError,
    FlussError,
    LeaderNotAvailableError,
    LogOffsetOutOfRangeError,
    LogStorageError,
    NetworkError,
    PartitionNotExistError,
    TableNotExistError,
    UnknownTableOrBucketError,
)
from fluss_client.model.cluster import EARLIEST_OFFSET
from fluss_client.model.table import PartitionInfo, TableBucket, TableInfo
from fluss_client.net.retry import Backoff
from tests.unit.aio_scan.fake_backend import FakeBackend, make_table, on_loop, recreated, until
from tests.unit.aio_scan.test_polling import LONG_MS, poll_offsets, scanner


@pytest.fixture(autouse=True)
def _quick_retries(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Backoff, "delay_ms", lambda self, attempt: 1.0)


@on_loop
async def test_an_offset_that_is_gone_names_what_is_there() -> None:
    backend = FakeBackend(make_table(buckets=2))
    backend.append(0, 10)
    backend.append(0, 10)
    backend.append(1, 5)
    backend.logs[backend.bucket(0)].earliest = 10
    async with scanner(backend) as scan:
        scan.subscribe_buckets({0: 3, 1: 5})
        with pytest.raises(
            LogOffsetOutOfRangeError, match=r"no offset 3: it holds \[10, 20\)"
        ) as e:
            await scan.poll(LONG_MS)
        error = e.value
        assert isinstance(error, OffsetUnavailableError)
        assert (error.bucket, error.offset) == (backend.bucket(0), 3)
        assert (error.earliest, error.latest) == (10, 20)
        assert pickle.loads(pickle.dumps(error)).earliest == 10
        # The other bucket goes on; this one is unsubscribed until it is told where to start.
        backend.append(1, 2)
        await backend.announce()
        assert await poll_offsets(scan, 2) == [5, 6]
        assert (await scan.poll(0)).is_empty()
        scan.subscribe(0, error.earliest)
        assert await poll_offsets(scan, 10) == list(range(10, 20))


@on_loop
async def test_an_offset_beyond_the_end() -> None:
    backend = FakeBackend(make_table(buckets=1))
    backend.append(0, 3)
    async with scanner(backend) as scan:
        scan.subscribe(0, 4)
        with pytest.raises(OffsetUnavailableError, match=r"no offset 4: it holds \[0, 3\)"):
            await scan.poll(LONG_MS)
        with pytest.raises(SubscriptionError, match="No buckets subscribed"):
            await scan.poll(0)


@on_loop
async def test_earliest_moves_on_with_retention_until_something_was_read() -> None:
    backend = FakeBackend(make_table(buckets=1))
    backend.append(0, 10)
    backend.append(0, 10)
    log = backend.logs[backend.bucket(0)]
    backend.gate.clear()
    async with scanner(backend) as scan:
        scan.subscribe(0, EARLIEST_OFFSET)
        waiting = asyncio.create_task(scan.poll(LONG_MS))
        await until(lambda: bool(backend.requests))
        log.earliest = 10
        backend.gate.set()
        assert [r.offset for r in await waiting] == list(range(10, 20))
        # From then on a lost offset is an error: rows would be skipped silently.
        backend.append(0, 10)
        log.earliest = 25
        await backend.announce()
        with pytest.raises(OffsetUnavailableError, match=r"no offset 20: it holds \[25, 30\)"):
            await scan.poll(LONG_MS)


@on_loop
async def test_a_moved_leader_is_looked_up_again() -> None:
    backend = FakeBackend(make_table(buckets=1))
    backend.append(0, 3)
    leaders = [1]
    backend.nodes = lambda bucket: leaders[0]
    async with scanner(backend) as scan:
        scan.subscribe(0, 0)
        assert await poll_offsets(scan, 3) == [0, 1, 2]
        leaders[0] = 2
        await backend.announce()
        backend.append(0, 2)
        assert await poll_offsets(scan, 2) == [3, 4]
    assert backend.forgotten == [backend.bucket(0)]
    assert backend.requests[-1][0] == 2
    assert scan.metrics()["retries"] == 1


@pytest.mark.parametrize("where", ["fetch_errors", "locate_errors", "offset_errors"])
@on_loop
async def test_a_broken_line_is_tried_again(where: str) -> None:
    backend = FakeBackend(make_table(buckets=3))
    for bucket in range(3):
        backend.append(bucket, 2)
    getattr(backend, where).extend(NetworkError("cut") for _ in range(5))
    async with scanner(backend) as scan:
        scan.subscribe_buckets(dict.fromkeys(range(3), EARLIEST_OFFSET))
        assert len(await poll_offsets(scan, 6)) == 6


@on_loop
async def test_patience_ends_with_the_error_and_starts_anew_after_it() -> None:
    backend = FakeBackend(make_table(buckets=2))
    backend.append(0, 3)
    backend.append(1, 1)
    broken = backend.errors[backend.bucket(0)]
    broken.extend(LogStorageError("disk") for _ in range(10_000))
    async with scanner(backend, retry_timeout="50ms") as scan:
        scan.subscribe_buckets({0: 0, 1: 0})
        assert await poll_offsets(scan, 1) == [0]
        with pytest.raises(LogStorageError, match=r"bucket=0\) at offset 0: disk"):
            await scan.poll(LONG_MS)
        # The bucket stays subscribed: when the server recovers, so does the scanner.
        broken.clear()
        assert await poll_offsets(scan, 3) == [0, 1, 2]


@on_loop
async def test_an_error_for_good_is_raised_after_the_rows_before_it() -> None:
    backend = FakeBackend(make_table(buckets=1))
    backend.append(0, 3)
    async with scanner(backend, scanner__log__max_poll_records=2) as scan:
        scan.subscribe(0, 0)
        assert len(await scan.poll(LONG_MS)) == 2
        backend.errors[backend.bucket(0)].append(AuthorizationError("you may not"))
        # Nobody waits, and the log is at its end: the fetch leaves with the next poll.
        assert [r.offset for r in await scan.poll(LONG_MS)] == [2]
        with pytest.raises(AuthorizationError, match="at offset 3: you may not"):
            await scan.poll(LONG_MS)


@on_loop
async def test_a_dropped_table_is_found_out() -> None:
    backend = FakeBackend(make_table(buckets=1))
    backend.errors[backend.bucket(0)].extend(UnknownTableOrBucketError("?") for _ in range(99))
    async with scanner(backend) as scan:
        scan.subscribe(0, 0)
        backend.dropped = True
        with pytest.raises(TableNotExistError, match=r"bucket=0.*db.events was dropped"):
            await scan.poll(LONG_MS)
    assert len(backend.requests) == fetch_errors.UNKNOWN_TRIES_MAX


@on_loop
async def test_a_table_that_was_made_anew_is_another_one() -> None:
    backend = FakeBackend(make_table(buckets=1))
    backend.errors[backend.bucket(0)].extend(UnknownTableOrBucketError("?") for _ in range(99))
    async with scanner(backend) as scan:
        scan.subscribe(0, 0)
        backend.table = recreated(backend.table, 99)
        with pytest.raises(TableNotExistError, match="made anew with id 99"):
            await scan.poll(LONG_MS)


@on_loop
async def test_a_dropped_partition_is_found_out_and_the_others_go_on() -> None:
    backend = FakeBackend(make_table(buckets=1, partitioned=True))
    backend.partitions = [PartitionInfo(12, "b")]
    gone, there = backend.bucket(0, 11), backend.bucket(0, 12)
    backend.append(there, 2)
    backend.errors[gone].extend(UnknownTableOrBucketError("?") for _ in range(99))
    async with scanner(backend) as scan:
        scan.subscribe_partition_buckets({(11, 0): 0, (12, 0): 0})
        with pytest.raises(PartitionNotExistError, match=r"partition 11 .* was dropped"):
            await poll_offsets(scan, 1000)
        backend.append(there, 1)
        await backend.announce()
        found: list[int] = []
        while 2 not in found:
            found += [r.offset for r in await scan.poll(LONG_MS)]


@on_loop
async def test_an_unknown_bucket_of_a_table_that_exists_is_waited_for() -> None:
    backend = FakeBackend(make_table(buckets=1))
    backend.append(0, 1)
    backend.errors[backend.bucket(0)].extend(UnknownTableOrBucketError("?") for _ in range(20))
    backend.locate_errors.extend(LeaderNotAvailableError("none") for _ in range(10))
    async with scanner(backend) as scan:
        scan.subscribe(0, 0)
        assert await poll_offsets(scan, 1) == [0]


@on_loop
async def test_a_backend_that_looks_long_for_a_leader_does_not_hide_a_dropped_table(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(log_fetcher, "LOCATE_TIMEOUT_S", 0.01)
    backend = FakeBackend(make_table(buckets=2))
    backend.append(1, 1)

    async def locate(table: TableInfo, bucket: TableBucket) -> int:
        if bucket.bucket_id == 0:
            await asyncio.Event().wait()
        return 1

    monkeypatch.setattr(backend, "locate", locate)
    async with scanner(backend) as scan:
        scan.subscribe_buckets({0: 0, 1: 0})
        # Meanwhile the other bucket is read.
        assert await poll_offsets(scan, 1) == [0]
        backend.dropped = True
        with pytest.raises(TableNotExistError, match="was dropped"):
            await scan.poll(LONG_MS)


@on_loop
async def test_rows_that_cannot_be_decoded_end_the_bucket() -> None:
    backend = FakeBackend(make_table(buckets=1))
    backend.append(0, 3)
    backend.decode_error = CorruptDataError("checksum")
    async with scanner(backend) as scan:
        scan.subscribe(0, 0)
        with pytest.raises(CorruptDataError, match="checksum"):
            await scan.poll(LONG_MS)
        backend.decode_error = None
        scan.subscribe(0, 1)
        assert await poll_offsets(scan, 2) == [1, 2]


@on_loop
async def test_a_fault_of_ours_is_not_swallowed() -> None:
    backend = FakeBackend(make_table(buckets=1))
    backend.fetch_errors.append(ZeroDivisionError("a bug"))
    async with scanner(backend) as scan:
        scan.subscribe(0, 0)
        with pytest.raises(ZeroDivisionError):
            await scan.poll(LONG_MS)


@on_loop
async def test_offsets_that_run_backwards_are_refused() -> None:
    backend = FakeBackend(make_table(buckets=1))
    backend.append(0, 3)
    backend.append(0, 3)
    log = backend.logs[backend.bucket(0)]
    log.batches[1].base = 2
    log.batches[1].offsets = 4
    async with scanner(backend) as scan:
        scan.subscribe(0, 0)
        with pytest.raises(CorruptDataError, match="run backwards"):
            await scan.poll(LONG_MS)


@on_loop
async def test_a_closed_connection_is_an_error_of_an_iteration_not_its_end() -> None:
    backend = FakeBackend(make_table(buckets=1))
    backend.fetch_errors.append(ClosedError("the connection was closed"))
    async with scanner(backend) as scan:
        scan.subscribe(0, 0)
        with pytest.raises(ClosedError, match="connection"):
            async for _ in scan:
                pass


@on_loop
async def test_errors_of_one_line_are_told_once_per_bucket() -> None:
    backend = FakeBackend(make_table(buckets=2))
    backend.fetch_errors.append(AuthorizationError("no"))
    async with scanner(backend) as scan:
        scan.subscribe_buckets({0: 0, 1: 0})
        told: list[FlussError] = []
        for _ in range(2):
            with pytest.raises(AuthorizationError) as e:
                await scan.poll(LONG_MS)
            told.append(e.value)
        assert {"bucket=0" in str(t) for t in told} == {True, False}
        assert told[0].__cause__ is told[1].__cause__
