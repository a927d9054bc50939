"""Answers of Fluss 1.0 about bucket counts per partition, as messages: no 1.0 server can be run.

What the client makes of them is what matters: a table whose partitions have different counts is
refused before rows are placed or reads are planned, and error 74 is never retried.
"""

from __future__ import annotations

import asyncio
import json
from dataclasses import replace
from typing import Any

import pytest

from fluss_client.aio.existence import PartitionIds
from fluss_client.aio.writing.bucket_line import _SURELY_NOT_WRITTEN
from fluss_client.backend.cluster.admin import AdminCalls
from fluss_client.error_codes import ErrorCode
from fluss_client.errors import (
    InvalidBucketRoutingError,
    RescaledTableError,
    UnsupportedError,
    error_for,
)
from fluss_client.model.table import TablePath
from fluss_client.wire import apis
from fluss_client.wire import fluss_pb2 as pb

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

    def __init__(self, counts: dict[str, int | None]) -> None:
        self.schemas = {}
        self.asked: list[int] = []
        listed = pb.ListPartitionInfosResponse()
        for number, (name, count) in enumerate(counts.items()):
            info = listed.partitions_info.add(partition_id=number)
            info.partition_spec.partition_key_values.add(key="day", value=name)
            if count is not None:
                info.bucket_count = count
        self._answers: dict[int, Any] = {
            apis.LIST_PARTITION_INFOS.key: listed,
            apis.GET_TABLE_INFO.key: pb.GetTableInfoResponse(
                table_id=7, schema_id=1, table_json=TABLE_JSON, created_time=1, modified_time=2
            ),
        }

    async def on_any(self, api: Any, request: Any, *_: Any) -> Any:
        self.asked.append(api.key)
        return self._answers[api.key]


def test_partitions_with_other_counts_are_refused_by_name() -> None:
    calls = Answered({"old": 2, "new": 4, "wide": 8})
    with pytest.raises(RescaledTableError) as caught:
        asyncio.run(calls.list_partitions(PATH, None))
    assert caught.value.bucket_count == 4
    assert caught.value.partitions == {"old": 2, "wide": 8}
    assert isinstance(caught.value, UnsupportedError)
    assert "'old': 2" in str(caught.value)


def test_a_writer_that_looks_up_one_partition_is_refused_too() -> None:
    calls = Answered({"old": 2})

    async def look_up() -> int:
        return await calls.partition_id(await calls.get_table_info(PATH), "old")

    with pytest.raises(RescaledTableError):
        asyncio.run(look_up())


@pytest.mark.parametrize("partitions", [1, 40])
def test_a_table_that_was_opened_before_the_rescale_is_refused(partitions: int) -> None:
    # The server's table and all partitions have 4 buckets; the writer's table still has 2.
    names = [f"d{number}" for number in range(partitions)]
    calls = Answered(dict.fromkeys(names, 4))

    async def find() -> list[int]:
        before = replace(await calls.get_table_info(PATH), num_buckets=2)
        return await PartitionIds(calls, before).find(names)  # type: ignore[arg-type]

    with pytest.raises(RescaledTableError) as caught:
        asyncio.run(find())
    assert caught.value.bucket_count == 2


def test_partitions_with_the_count_of_the_table_are_taken() -> None:
    calls = Answered({"a": 4, "b": 4})
    found = asyncio.run(calls.list_partitions(PATH, None))
    assert [p.partition_name for p in found] == ["a", "b"]


def test_servers_before_1_0_describe_no_count_and_are_not_asked_again() -> None:
    calls = Answered({"a": None, "b": None})
    assert len(asyncio.run(calls.list_partitions(PATH, None))) == 2
    assert calls.asked == [apis.LIST_PARTITION_INFOS.key]


def test_error_74_is_typed_and_not_retried() -> None:
    error = error_for(ErrorCode.INVALID_BUCKET_ROUTING_EXCEPTION)
    assert type(error) is InvalidBucketRoutingError
    assert not error.retriable
    assert InvalidBucketRoutingError in _SURELY_NOT_WRITTEN
