"""Answers of Fluss 1.0 about bucket counts per partition, as messages: no 1.0 server can be run.

`tests/fluss1` plays whole conversations with a scripted server.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Any, TypeVar

import pytest

from fluss_client.aio.buckets import bucket_counts
from fluss_client.aio.existence import PartitionIds
from fluss_client.aio.writing.bucket_line import _SURELY_NOT_WRITTEN
from fluss_client.backend.cluster.admin import AdminCalls
from fluss_client.config import Config
from fluss_client.error_codes import ErrorCode
from fluss_client.errors import (
    InvalidBucketRoutingError,
    PartitionNotExistError,
    RescaledTableError,
    UnsupportedError,
    error_for,
)
from fluss_client.model.table import TableInfo, TablePath
from fluss_client.wire import apis
from fluss_client.wire import fluss_pb2 as pb

T = TypeVar("T")
PATH = TablePath("shop", "orders")
TABLE_JSON = json.dumps(
    {
        "version": 1,
        "schema": {
            "version": 1,
            "columns": [
                {"name": "id", "data_type": {"type": "INTEGER", "nullable": False}, "id": 0},
                {"name": "day", "data_type": {"type": "STRING", "nullable": False}, "id": 1},
            ],
            "primary_key": ["id", "day"],
            "highest_field_id": 1,
        },
        "partition_key": ["day"],
        "bucket_key": ["id"],
        "bucket_count": 4,
        "properties": {},
        "custom_properties": {},
    }
).encode()


class Answered(AdminCalls):
    """The cluster's calls with fixed answers in place of servers."""

    def __init__(self, counts: dict[str, int | None], epoch: int = 1) -> None:
        super().__init__([], Config({"request-timeout": "200ms"}))
        self.pool.takes_bucket_counts = any(count is not None for count in counts.values())
        self.asked: list[int] = []
        listed = pb.ListPartitionInfosResponse()
        for number, (name, count) in enumerate(counts.items()):
            info = listed.partitions_info.add(partition_id=number)
            info.partition_spec.partition_key_values.add(key="day", value=name)
            if count is not None:
                info.bucket_count = count
        self._answers: dict[int, Any] = {
            apis.LIST_PARTITION_INFOS.key: listed,
            apis.TABLE_EXISTS.key: pb.TableExistsResponse(exists=True),
            apis.GET_TABLE_INFO.key: pb.GetTableInfoResponse(
                table_id=7,
                schema_id=1,
                table_json=TABLE_JSON,
                created_time=1,
                modified_time=2,
                bucket_count_epoch=epoch,
            ),
        }

    async def on_any(self, api: Any, request: Any, *_: Any) -> Any:
        self.asked.append(api.key)
        return self._answers[api.key]


def run(
    counts: dict[str, int | None],
    work: Callable[[Answered, TableInfo], Awaitable[T]],
    epoch: int = 1,
) -> tuple[T, Answered]:
    async def main() -> tuple[T, Answered]:
        calls = Answered(counts, epoch)
        table = await calls.get_table_info(PATH)
        calls.asked.clear()
        return await work(calls, table), calls

    return asyncio.run(main())


def test_each_partition_has_its_own_count() -> None:
    async def counts(calls: Answered, table: TableInfo) -> dict[int | None, int]:
        return await bucket_counts(calls, table)  # type: ignore[arg-type]

    found, _ = run({"old": 2, "new": 4, "wide": 8}, counts)
    assert found == {0: 2, 1: 4, 2: 8}


def test_finding_a_partition_teaches_its_count() -> None:
    async def find(calls: Answered, table: TableInfo) -> tuple[int, int | None]:
        found = await calls.partition_id(table, "wide")
        return found, calls.known_bucket_count(table, found)

    found, calls = run({"old": 2, "wide": 8}, find)
    assert found == (1, 8)
    assert calls.asked == [apis.LIST_PARTITION_INFOS.key]


@pytest.mark.parametrize("partitions", [1, 40])
def test_a_table_that_was_opened_before_the_rescale_gets_the_counts(partitions: int) -> None:
    names = [f"d{number}" for number in range(partitions)]

    async def find(calls: Answered, table: TableInfo) -> list[int]:
        ids = PartitionIds(calls, replace(table, num_buckets=2))  # type: ignore[arg-type]
        return [ids.bucket_count(found) for found in await ids.find(names)]

    assert run(dict.fromkeys(names, 4), find)[0] == [4] * partitions


def test_a_forgotten_count_is_asked_for_again() -> None:
    async def again(calls: Answered, table: TableInfo) -> list[int | None]:
        found: list[int | None] = [await calls.bucket_count(table, 0)]
        calls.forget_bucket_count(table, 0)
        found.append(calls.known_bucket_count(table, 0))
        calls._answers[apis.LIST_PARTITION_INFOS.key].partitions_info[0].bucket_count = 16
        return [*found, await calls.bucket_count(table, 0)]

    assert run({"old": 2, "new": 4}, again)[0] == [2, None, 16]


def test_a_partition_without_a_count_has_that_of_a_table_that_was_never_rescaled() -> None:
    async def count(calls: Answered, table: TableInfo) -> int:
        return await calls.bucket_count(table, 0)

    assert run({"old": None, "new": 4}, count, epoch=0)[0] == 4


def test_the_count_of_a_rescaled_table_is_never_taken_for_that_of_a_partition() -> None:
    async def count(calls: Answered, table: TableInfo) -> int:
        return await calls.bucket_count(table, 0)

    with pytest.raises(InvalidBucketRoutingError, match="was rescaled"):
        run({"old": None, "new": 8}, count, epoch=1)


def test_a_dropped_partition_has_no_count() -> None:
    async def count(calls: Answered, table: TableInfo) -> int:
        return await calls.bucket_count(table, 99)

    with pytest.raises(PartitionNotExistError):
        run({"old": 2}, count)


def test_servers_before_1_0_are_not_asked_for_counts() -> None:
    async def count(calls: Answered, table: TableInfo) -> tuple[int, int | None]:
        return await calls.bucket_count(table, 0), calls.known_bucket_count(table, 1)

    found, calls = run({"a": None, "b": None}, count)
    assert found == (4, 4)
    assert calls.asked == []


def test_error_74_asks_for_new_metadata_and_proves_that_nothing_was_written() -> None:
    error = error_for(ErrorCode.INVALID_BUCKET_ROUTING_EXCEPTION)
    assert type(error) is InvalidBucketRoutingError
    assert error.retriable
    assert error.stale_metadata
    assert InvalidBucketRoutingError in _SURELY_NOT_WRITTEN


def test_an_operation_that_needs_one_count_refuses_by_name() -> None:
    async def check(calls: Answered, table: TableInfo) -> None:
        table.check_bucket_counts(await calls.list_partitions(PATH, None))

    with pytest.raises(RescaledTableError) as caught:
        run({"old": 2, "new": 4, "wide": 8}, check)
    assert caught.value.partitions == {"old": 2, "wide": 8}
    assert isinstance(caught.value, UnsupportedError)
    run({"a": 4, "b": 4}, check)
