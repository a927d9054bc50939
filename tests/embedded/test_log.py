"""The log: offsets, times, limits, projection, writers that send again, waiting for more."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from fluss_client.backend.contract import BucketWrite, FetchPosition, FetchRequest, TableChange
from fluss_client.backend.embedded.backend import EmbeddedBackend
from fluss_client.backend.embedded.log.batches import SPLIT_BYTES_MIN, encode_batch
from fluss_client.codec.arrow_body import Compression
from fluss_client.errors import (
    InvalidRequiredAcksError,
    InvalidTimestampError,
    LogOffsetOutOfRangeError,
    OutOfOrderSequenceError,
    RowError,
    TableNotExistError,
    UnknownTableOrBucketError,
    UnsupportedError,
)
from fluss_client.model.cluster import EARLIEST_OFFSET, OffsetSpec
from fluss_client.model.schema import Column
from fluss_client.model.table import TableInfo
from fluss_client.model.types import DataTypes
from tests.embedded.helpers import (
    EVERYTHING,
    append,
    end_of,
    key_table,
    make_table,
    on_loop,
    opened,
    place_of,
    read_log,
    read_rows,
)
from tests.waiting import let_pass_async, moment_between


def rows(first: int, count: int) -> list[dict[str, object]]:
    return [{"id": i, "name": f"n{i}"} for i in range(first, first + count)]


async def fetch(
    backend: EmbeddedBackend, table: TableInfo, offset: int, wait_ms: int = 0, **limits: int
) -> list[tuple[int, int]]:
    position = FetchPosition(place_of(table), offset, limits.pop("bucket_bytes", EVERYTHING))
    request = FetchRequest(table, [position], wait_ms=wait_ms, **limits)  # type: ignore[arg-type]
    answer = (await backend.fetch(0, request))[0]
    if answer.error is not None:
        raise answer.error
    return [(part.base_offset, part.next_offset) for part in answer.slices]


def test_offsets_follow_each_other_and_reading_starts_anywhere(tmp_path: Path) -> None:
    async def run() -> None:
        async with opened(tmp_path) as backend:
            table = await make_table(backend)
            offsets = [(await append(backend, table, rows(n, 3))).offset for n in (0, 3, 6)]
            assert offsets == [0, 3, 6]
            for start in range(10):
                found = await read_log(backend, table, offset=start)
                assert [offset for offset, _, _ in found] == list(range(start, 9))
            assert await fetch(backend, table, 4) == [(4, 6), (6, 9)]
            assert await fetch(backend, table, EARLIEST_OFFSET) == [(0, 3), (3, 6), (6, 9)]

    on_loop(run())


@pytest.mark.parametrize("offset", [-3, -1, 10])
def test_offsets_that_are_not_there_are_refused(tmp_path: Path, offset: int) -> None:
    async def run() -> None:
        async with opened(tmp_path) as backend:
            table = await make_table(backend)
            await append(backend, table, rows(0, 9))
            with pytest.raises(LogOffsetOutOfRangeError):
                await fetch(backend, table, offset)

    on_loop(run())


def test_limits_cut_between_batches_and_always_leave_one(tmp_path: Path) -> None:
    async def run() -> None:
        async with opened(tmp_path) as backend:
            table = await make_table(backend)
            for n in range(4):
                await append(backend, table, rows(n, 1))
            assert await fetch(backend, table, 0, bucket_bytes=1) == [(0, 1)]
            assert await fetch(backend, table, 0, bytes_max=1) == [(0, 1)]
            position = [FetchPosition(place_of(table), 0, EVERYTHING)] * 2
            both = await backend.fetch(0, FetchRequest(table, position, bytes_max=1, wait_ms=0))
            assert [len(answer.slices) for answer in both] == [1, 0]

    on_loop(run())


def test_times_find_offsets(tmp_path: Path) -> None:
    async def run() -> None:
        async with opened(tmp_path) as backend:
            table = await make_table(backend)

            async def at(ts: int) -> int:
                return (await backend.list_offsets(table, None, [0], OffsetSpec.timestamp(ts)))[0]

            assert await at(1) == 0
            times: list[int] = []
            for n in range(5):
                moment_between()
                await append(backend, table, rows(n * 2, 2))
                position = FetchPosition(place_of(table), n * 2, EVERYTHING)
                answer = await backend.fetch(0, FetchRequest(table, [position], wait_ms=0))
                times.append(answer[0].slices[0].timestamp)
            assert times == sorted(set(times))
            assert [await at(ts) for ts in times] == [0, 2, 4, 6, 8]
            assert [await at(ts + 1) for ts in times[:-1]] == [2, 4, 6, 8]
            with pytest.raises(InvalidTimestampError):
                await at(1 << 50)

    on_loop(run())


def test_large_batches_are_stored_by_column_and_read_alike(tmp_path: Path) -> None:
    schema = pa.schema([("a", pa.int64()), ("b", pa.string()), ("c", pa.float64())])
    count = SPLIT_BYTES_MIN // 8
    big = pa.record_batch(
        [np.arange(count), pa.array([f"v{i}" for i in range(count)]), np.random.rand(count)],
        schema=schema,
    )
    assert encode_batch(big, Compression.NONE).by_column

    async def run() -> None:
        async with opened(tmp_path) as backend:
            table = await make_table(backend, schema=schema)
            payload = backend.encode_append(table, big)
            ack = (await backend.append(table, 0, [BucketWrite(place_of(table), payload)], -1, 1))[
                0
            ]
            assert ack.error is None
            await backend.alter_table(
                table.table_path, TableChange(add_columns=(Column("d", DataTypes.int()),)), False
            )
            newer = await backend.get_table_info(table.table_path)
            for columns in (None, (0,), (1, 2), (0, 3), (3,)):
                position = [FetchPosition(place_of(table), 5, EVERYTHING)]
                answer = (await backend.fetch(0, FetchRequest(newer, position, columns)))[0]
                batch, _ = answer.slices[0].decode()
                wanted = columns if columns is not None else (0, 1, 2, 3)
                assert batch.num_rows == count - 5
                for at, position_in_table in enumerate(wanted):
                    if position_in_table == 3:
                        assert batch.column(at).null_count == count - 5
                    else:
                        assert batch.column(at).equals(big.column(position_in_table).slice(5))

    on_loop(run())


@pytest.mark.parametrize("codec", ["none", "lz4_frame", "zstd"])
def test_a_table_may_ask_for_compression(tmp_path: Path, codec: str) -> None:
    async def run() -> None:
        async with opened(tmp_path) as backend:
            properties = {"table.log.arrow.compression.type": codec}
            table = await make_table(backend, properties=properties)
            await append(backend, table, rows(0, 1000))
            assert await read_rows(backend, table) == rows(0, 1000)

    on_loop(run())


def test_a_batch_sent_again_is_answered_with_its_place(tmp_path: Path) -> None:
    async def run() -> None:
        async with opened(tmp_path) as backend:
            table = await make_table(backend)
            writer = await backend.init_writer([table.table_path])
            assert await backend.init_writer([table.table_path]) != writer

            async def send(sequence: int) -> int | type[Exception]:
                ack = await append(
                    backend, table, rows(sequence, 2), writer_id=writer, sequence=sequence
                )
                return ack.offset if ack.error is None else type(ack.error)

            refused = OutOfOrderSequenceError
            assert await send(1) == refused
            assert [await send(n) for n in (0, 0, 1, 3, 2, 3, 4, 5)] == [
                *(0, 0, 2, refused, 4, 6, 8, 10)
            ]
            # Five batches are remembered: 1 to 5.
            assert [await send(n) for n in (0, 1, 5, 6, 1)] == [refused, 2, 10, 12, refused]
            assert await end_of(backend, table) == 14

    on_loop(run())


def test_what_does_not_fit_is_refused(tmp_path: Path) -> None:
    async def run() -> None:
        async with opened(tmp_path) as backend:
            table = await make_table(backend)
            keys = await key_table(backend)
            with pytest.raises(UnsupportedError, match="upsert"):
                await append(backend, keys, [{"k": 1, "a": None, "b": None}])
            with pytest.raises(RowError):
                backend.encode_append(table, pa.record_batch({"id": pa.array(["x"])}))
            payload = backend.encode_append(
                table, pa.RecordBatch.from_pylist(rows(0, 1), schema=table.schema.wire)
            )
            with pytest.raises(InvalidRequiredAcksError):
                await backend.append(table, 0, [BucketWrite(place_of(table), payload)], 3, 1)
            acks = await backend.append(
                table, 0, [BucketWrite(place_of(table, b), payload) for b in (7, 0)], -1, 1
            )
            assert isinstance(acks[0].error, UnknownTableOrBucketError)
            assert (acks[1].error, acks[1].offset) == (None, 0)
            await backend.drop_table(table.table_path, False)
            acks = await backend.append(table, 0, [BucketWrite(place_of(table), payload)], -1, 1)
            assert isinstance(acks[0].error, UnknownTableOrBucketError)
            await backend.forget_location(table, place_of(table))
            with pytest.raises(TableNotExistError):
                await backend.locate(table, place_of(table))

    on_loop(run())


def test_a_fetch_waits_for_rows_of_this_process(tmp_path: Path) -> None:
    async def run() -> None:
        async with opened(tmp_path) as backend:
            table = await make_table(backend)
            started = time.monotonic()
            assert await fetch(backend, table, 0, wait_ms=50) == []
            assert time.monotonic() - started >= 0.05
            waiting = asyncio.create_task(fetch(backend, table, 0, wait_ms=3_600_000))
            await let_pass_async(0.05, "the fetch finds nothing in it")
            assert not waiting.done()
            await append(backend, table, rows(0, 1))
            assert await waiting == [(0, 1)]

    on_loop(run())


def test_a_fetch_hears_of_rows_that_another_backend_wrote(tmp_path: Path) -> None:
    async def run() -> None:
        async with opened(tmp_path) as reader, opened(tmp_path) as writer:
            table = await make_table(writer)
            waiting = asyncio.create_task(fetch(reader, table, 0, wait_ms=3_600_000))
            await let_pass_async(0.05, "the fetch finds nothing in it")
            assert not waiting.done()
            await append(writer, table, rows(0, 1))
            assert await waiting == [(0, 1)]

    on_loop(run())


def test_an_empty_batch_takes_one_offset(tmp_path: Path) -> None:
    async def run() -> None:
        async with opened(tmp_path) as backend:
            table = await make_table(backend)
            offsets = [(await append(backend, table, rows(0, n))).offset for n in (2, 0, 3)]
            assert offsets == [0, 2, 3]
            assert await fetch(backend, table, 0) == [(0, 2), (2, 3), (3, 6)]

    on_loop(run())


def test_limit_scans_give_the_last_rows(tmp_path: Path) -> None:
    async def run() -> None:
        async with opened(tmp_path) as backend:
            table = await make_table(backend)
            for n in range(0, 9, 3):
                await append(backend, table, rows(n, 3))
            for limit, expected in ((4, rows(5, 4)), (100, rows(0, 9)), (0, [])):
                batch = await backend.limit_scan(table, place_of(table), limit, None)
                assert batch.to_pylist() == expected
            batch = await backend.limit_scan(table, place_of(table), 2, (1,))
            assert batch.to_pylist() == [{"name": "n7"}, {"name": "n8"}]
            # Offsets that empty batches have taken are no rows.
            for _ in range(2):
                await append(backend, table, [])
            batch = await backend.limit_scan(table, place_of(table), 4, None)
            assert batch.to_pylist() == rows(6, 3)

    on_loop(run())
