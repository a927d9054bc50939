"""Partitions are looked up one by one while they are few, and listed when they are many."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pyarrow as pa
import pytest

from fluss_client.aio.existence import LOOKED_UP_MAX, PartitionIds
from fluss_client.errors import PartitionNotExistError
from tests.unit.aio.fake_backend import FakeBackend, table_of

SCHEMA = pa.schema([("id", pa.int32()), ("day", pa.string())])
DAYS = [f"d{number:03}" for number in range(10 * LOOKED_UP_MAX)]


@pytest.fixture
def backend() -> FakeBackend:
    made = FakeBackend(table_of(SCHEMA, partition_keys=["day"]))
    made.partitions = {day: number + 1000 for number, day in enumerate(DAYS)}
    return made


@pytest.fixture
def ids(backend: FakeBackend) -> PartitionIds:
    return PartitionIds(backend, backend.table)  # type: ignore[arg-type]


def find(ids: PartitionIds, names: Sequence[str]) -> list[int]:
    return asyncio.run(ids.find(names))


def test_each_is_asked_for_once(ids: PartitionIds, backend: FakeBackend) -> None:
    few = DAYS[:3]
    assert ids.known(few) is None
    assert find(ids, few) == [1000, 1001, 1002]
    assert find(ids, [few[2], few[0]]) == ids.known([few[2], few[0]]) == [1002, 1000]
    assert sorted(backend.partition_questions) == few
    assert backend.partition_lists == 0


@pytest.mark.parametrize("at_once", [1, 5, len(DAYS)])
def test_many_are_listed(ids: PartitionIds, backend: FakeBackend, at_once: int) -> None:
    for start in range(0, len(DAYS), at_once):
        names = DAYS[start : start + at_once]
        assert find(ids, names) == [backend.partitions[name] for name in names]
    assert len(backend.partition_questions) <= LOOKED_UP_MAX
    assert backend.partition_lists == 1


def test_names_that_are_not_there_never_make_a_list(
    ids: PartitionIds, backend: FakeBackend
) -> None:
    for number in range(3 * LOOKED_UP_MAX):
        with pytest.raises(PartitionNotExistError, match=f"'no{number}'"):
            find(ids, [f"no{number}"])
    assert backend.partition_lists == 0


def test_a_missing_one_among_many_is_named(ids: PartitionIds) -> None:
    with pytest.raises(PartitionNotExistError, match="'gone'"):
        find(ids, [*DAYS, "gone"])


def test_what_came_after_the_list_is_found(ids: PartitionIds, backend: FakeBackend) -> None:
    find(ids, DAYS)
    backend.partitions["new"] = 7
    assert find(ids, ["new", DAYS[0]]) == [7, 1000]
    assert backend.partition_lists == 1


def test_forgotten_names_are_asked_for_again(ids: PartitionIds, backend: FakeBackend) -> None:
    find(ids, ["d000"])
    backend.partitions["d000"] = 11
    ids.forget()
    assert ids.known(["d000"]) is None
    assert find(ids, ["d000"]) == [11]
