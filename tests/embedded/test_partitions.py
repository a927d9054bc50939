"""Partitions by hand and by the clock."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from fluss_client.backend.embedded.store import validation
from fluss_client.errors import (
    InvalidPartitionError,
    PartitionAlreadyExistError,
    PartitionNotExistError,
    TableNotPartitionedError,
    TooManyBucketsError,
    TooManyPartitionsError,
    UnknownServerError,
)
from fluss_client.model.cluster import OffsetSpec
from tests.embedded.helpers import append, make_table, on_loop, opened, place_of, read_rows

SCHEMA = pa.schema([("id", pa.int32()), ("day", pa.string()), ("region", pa.string())])


def test_partitions_hold_rows_of_their_own(tmp_path: Path) -> None:
    async def run() -> None:
        async with opened(tmp_path) as backend:
            table = await make_table(backend, schema=SCHEMA, partition_keys=["day"])
            for day in ("1", "2"):
                await backend.create_partition(table.table_path, {"day": day}, False)
            ids = [await backend.partition_id(table, day) for day in ("1", "2")]
            for partition_id, day in zip(ids, ("1", "2"), strict=True):
                place = place_of(table, partition_id=partition_id)
                rows = [{"id": 7, "day": day, "region": None}]
                assert (await append(backend, table, rows, place=place)).offset == 0
                assert await read_rows(backend, table, place=place) == rows
            await backend.drop_partition(table.table_path, {"day": "1"}, False)
            await backend.create_partition(table.table_path, {"day": "1"}, False)
            again = await backend.partition_id(table, "1")
            assert again > max(ids)
            assert await read_rows(backend, table, place=place_of(table, partition_id=again)) == []
            with pytest.raises(PartitionNotExistError):
                await backend.list_offsets(table, ids[0], [0], OffsetSpec.latest())

    on_loop(run())


@pytest.mark.parametrize(
    ("spec", "error"),
    [
        ({"day": "1"}, InvalidPartitionError),
        ({"day": "1", "where": "x"}, InvalidPartitionError),
        ({"day": "a.b", "region": "x"}, InvalidPartitionError),
        ({"day": "", "region": "x"}, InvalidPartitionError),
        ({"day": "__1", "region": "x"}, InvalidPartitionError),
        ({"day": "1" * 201, "region": "x"}, InvalidPartitionError),
        ({"region": "x", "day": "taken"}, PartitionAlreadyExistError),
    ],
)
def test_partitions_that_cannot_be(
    tmp_path: Path, spec: dict[str, str], error: type[Exception]
) -> None:
    async def run() -> None:
        async with opened(tmp_path) as backend:
            table = await make_table(backend, schema=SCHEMA, partition_keys=["day", "region"])
            taken = {"day": "taken", "region": "x"}
            await backend.create_partition(table.table_path, taken, False)
            await backend.create_partition(table.table_path, taken, True)
            with pytest.raises(error):
                await backend.create_partition(table.table_path, spec, False)
            with pytest.raises(UnknownServerError):
                await backend.list_partitions(table.table_path, {"where": "x"})
            found = await backend.list_partitions(table.table_path, {"region": "x"})
            assert [(p.partition_name, dict(p.spec)) for p in found] == [("taken$x", taken)]

    on_loop(run())


def test_a_table_takes_so_many_partitions_and_buckets(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def run() -> None:
        async with opened(tmp_path) as backend:
            table = await make_table(backend, schema=SCHEMA, partition_keys=["day"], bucket_count=3)

            async def create(day: int) -> None:
                await backend.create_partition(table.table_path, {"day": str(day)}, False)

            for day in range(3):
                await create(day)
            monkeypatch.setattr(validation, "BUCKETS_MAX", 11)
            with pytest.raises(TooManyBucketsError):
                await create(3)
            monkeypatch.setattr(validation, "PARTITIONS_MAX", 3)
            with pytest.raises(TooManyPartitionsError):
                await create(3)

    on_loop(run())


def test_a_table_without_partition_keys_has_none(tmp_path: Path) -> None:
    async def run() -> None:
        async with opened(tmp_path) as backend:
            table = await make_table(backend)
            with pytest.raises(TableNotPartitionedError):
                await backend.list_partitions(table.table_path, None)
            with pytest.raises(TableNotPartitionedError):
                await backend.partition_id(table, "x")

    on_loop(run())


def auto(**more: Any) -> dict[str, str]:
    return {"table.auto-partition.enabled": "true"} | {
        f"table.auto-partition.{key.replace('_', '-')}": str(value) for key, value in more.items()
    }


def days(*offsets: int) -> list[str]:
    now = datetime.now(UTC)
    return [(now + timedelta(days=offset)).strftime("%Y%m%d") for offset in offsets]


def test_the_next_partitions_are_there_from_the_start(tmp_path: Path) -> None:
    async def run() -> None:
        async with opened(tmp_path) as backend:
            expected = days(0, 1, 2)
            table = await make_table(
                backend, schema=SCHEMA, partition_keys=["day"], properties=auto(num_precreate=3)
            )
            found = await backend.list_partitions(table.table_path, None)
            assert [p.partition_name for p in found] in (expected, days(0, 1, 2))

    on_loop(run())


def test_the_clock_makes_and_drops_partitions_when_somebody_looks(tmp_path: Path) -> None:
    async def run() -> None:
        async with opened(tmp_path) as backend:
            table = await make_table(
                backend,
                schema=SCHEMA,
                partition_keys=["day"],
                properties=auto(num_precreate=1, num_retention=2),
            )
            path = table.table_path
            for day in days(-3, -2, -1):
                await backend.create_partition(path, {"day": day}, False)
            today = (await backend.list_partitions(path, None))[0].partition_name
            await backend.drop_partition(path, {"day": today}, False)
            # Past retention is gone, what is needed now is back.
            assert await backend.partition_id(table, today) > 0
            names = {p.partition_name for p in await backend.list_partitions(path, None)}
            assert today in names
            assert days(-3)[0] not in names
            await backend.drop_partition(path, {"day": today}, False)
        async with opened(tmp_path) as backend:
            assert await backend.partition_id(table, today) > 0

    on_loop(run())


def test_with_several_keys_the_clock_only_drops(tmp_path: Path) -> None:
    async def run() -> None:
        async with opened(tmp_path) as backend:
            table = await make_table(
                backend,
                schema=SCHEMA,
                partition_keys=["region", "day"],
                properties=auto(key="day", num_retention=1),
            )
            path = table.table_path
            assert await backend.list_partitions(path, None) == []
            for day in days(-5, 0):
                await backend.create_partition(path, {"region": "x", "day": day}, False)
            found = await backend.list_partitions(path, None)
            assert [p.spec["day"] for p in found] == days(0)

    on_loop(run())
