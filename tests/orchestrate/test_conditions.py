"""Conditions: written down and read again, looked at once, waited for on one poller."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from fluss_client import Config, FlussConnection, TablePath
from fluss_client.errors import ConfigError
from fluss_orchestrate import TableSpec, apply_tables, load_rows, tier_table
from fluss_orchestrate.core.conditions import (
    Condition,
    LakeCovers,
    LakeFresh,
    NewSnapshot,
    OffsetsReached,
    PartitionExists,
    RowsCame,
    TableExists,
    condition_from_json,
    holds,
    wait_until,
)
from fluss_orchestrate.core.errors import TableIdentityChangedError
from fluss_orchestrate.core.lake import WaitTimedOutError, freeze_target
from fluss_orchestrate.core.provisioning.dropping import PartitionNeededError, drop_partitions
from tests.waiting import let_pass_async

PATH = TablePath("shop", "orders")


@pytest.fixture
def connection(tmp_path: Path) -> Iterator[FlussConnection]:
    config = Config({"bootstrap.servers": f"embedded:{tmp_path / 'fluss'}"})
    with FlussConnection.create(config).result() as made:
        yield made


def create(connection: FlussConnection, **options: Any) -> None:
    value = {"table": str(PATH), "columns": {"id": "bigint", "day": "string"}, "buckets": 1}
    apply_tables(connection, [TableSpec.from_mapping({**value, **options})])


def rows(start: int, stop: int) -> pa.Table:
    ids = pa.array(range(start, stop), pa.int64())
    return pa.table({"id": ids, "day": ["20261117"] * len(ids)})


@pytest.mark.parametrize(
    "condition",
    [
        TableExists(PATH),
        PartitionExists(PATH, {"day": "20261117"}),
        RowsCame(PATH, {(None, 0): 4, (7, 1): 9}, 3, 10),
        OffsetsReached(PATH, {(None, 0): 4}, None),
        NewSnapshot(PATH, 12),
        LakeCovers(PATH, 1_700_000_000_000),
        LakeFresh(PATH, 5_000),
    ],
    ids=lambda condition: condition.kind,
)
def test_a_condition_is_the_same_after_json(condition: Condition) -> None:
    assert condition_from_json(condition.to_json()) == condition


def test_an_unknown_condition_is_refused() -> None:
    with pytest.raises(ConfigError, match="no condition"):
        condition_from_json({"kind": "moon_is_full", "table": "a.b"})


def test_rows_and_the_lake(connection: FlussConnection) -> None:
    assert holds(connection, TableExists(PATH)) is None
    create(connection, lake=True)
    found = holds(connection, TableExists(PATH))
    assert found is not None
    five = RowsCame(PATH, {}, found["table_id"], 5)
    load_rows(connection, PATH, rows(0, 4), "four")
    assert holds(connection, five) is None
    load_rows(connection, PATH, rows(4, 6), "two")
    came = holds(connection, five)
    assert came is not None
    assert came["ranges"] == [[None, None, 0, 0, 6]]
    covering = LakeCovers(PATH, freeze_target(connection, PATH, "latest"))
    assert condition_from_json(covering.to_json()) == covering
    assert holds(connection, covering) is None
    tier_table(connection, PATH, allow_tiering=True)
    held = holds(connection, covering)
    assert held is not None
    assert holds(connection, NewSnapshot(PATH, held["snapshot_id"])) is None
    assert holds(connection, LakeFresh(PATH, 1)) is not None
    with pytest.raises(TableIdentityChangedError):
        holds(connection, RowsCame(PATH, {}, found["table_id"] + 1, 1))


def test_a_waiter_wakes_and_a_cancelled_one_disturbs_nobody(connection: FlussConnection) -> None:
    async def scenario() -> dict[str, Any]:
        wait = [
            asyncio.create_task(wait_until(connection, TableExists(PATH), poll_interval_s=0.05))
            for _ in range(20)
        ]
        await let_pass_async(0.2, "the waiters look a few times")
        wait[0].cancel()
        with pytest.raises(WaitTimedOutError, match="no such table"):
            await wait_until(connection, TableExists(PATH), timeout_s=0.1, poll_interval_s=0.05)
        await asyncio.to_thread(create, connection)
        return (await asyncio.gather(*wait[1:]))[0]

    assert asyncio.run(scenario())["table"] == str(PATH)


def test_a_partition_that_is_needed_is_not_dropped(connection: FlussConnection) -> None:
    day = {"day": "20261117"}
    columns = {"id": "bigint", "day": "string not null"}
    create(connection, columns=columns, partition_keys=["day"], partitions=[day], lake=True)
    load_rows(connection, PATH, rows(0, 3), "three")
    with pytest.raises(PartitionNeededError, match="the lake holds"):
        drop_partitions(connection, PATH, [day])
    tier_table(connection, PATH, allow_tiering=True)
    dropped = drop_partitions(connection, PATH, [day, {"day": "19990101"}])
    assert [p.partition_name for p in dropped] == ["20261117"]
    assert drop_partitions(connection, PATH, [day]) == []
