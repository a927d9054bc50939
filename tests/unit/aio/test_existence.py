"""Who asks whether something was dropped shares looks, and is never told of an older one."""

from __future__ import annotations

import asyncio

import pyarrow as pa
import pytest

from fluss_client.aio.existence import Existence
from fluss_client.errors import PartitionNotExistError, TableNotExistError
from fluss_client.model.table import TableBucket
from tests.unit.aio.fake_backend import FakeBackend, table_of

SCHEMA = pa.schema([("id", pa.int32()), ("day", pa.string())])


@pytest.fixture
def backend() -> FakeBackend:
    made = FakeBackend(table_of(SCHEMA, partition_keys=["day"]))
    made.partitions = {"mon": 1, "tue": 2}
    return made


@pytest.fixture
def existence(backend: FakeBackend) -> Existence:
    return Existence(backend, backend.table)  # type: ignore[arg-type]


def bucket(partition: int) -> TableBucket:
    return TableBucket(7, 0, partition_id=partition)


def test_many_share_a_look(existence: Existence, backend: FakeBackend) -> None:
    async def ask() -> None:
        questions = [existence.find_dropped(bucket(at % 3 + 1)) for at in range(3_000)]
        found = await asyncio.gather(*questions)
        assert [type(error) for error in found[:3]] == [
            type(None),
            type(None),
            PartitionNotExistError,
        ]

    asyncio.run(ask())
    assert backend.partition_lists <= 3


def test_a_partition_younger_than_the_last_look_is_there(
    existence: Existence, backend: FakeBackend
) -> None:
    async def ask() -> None:
        assert await existence.find_dropped(bucket(1)) is None
        backend.partitions["wed"] = 3
        assert await existence.find_dropped(bucket(3)) is None
        assert await existence.find_dropped(bucket(1)) is None

    asyncio.run(ask())
    assert backend.partition_lists == 2


def test_a_table_that_is_gone(existence: Existence, backend: FakeBackend) -> None:
    backend.dropped = True

    async def ask() -> None:
        first, second = [await existence.find_dropped(bucket(1)) for _ in range(2)]
        assert isinstance(first, TableNotExistError)
        assert first is not second, "each failure has a traceback of its own"

    asyncio.run(ask())
