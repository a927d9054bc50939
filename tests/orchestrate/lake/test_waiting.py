"""Status, targets and waiting: never early, one request for all, and nobody hangs."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Any

import pytest

from fluss_client import Config, FlussConnection, LakeSnapshot, TableBucket, TablePath, aio
from fluss_client.errors import ConfigError
from fluss_orchestrate.core import polling
from fluss_orchestrate.core.errors import (
    NotYetError,
    PartitionGoneError,
    TableIdentityChangedError,
)
from fluss_orchestrate.core.lake import (
    LakeTarget,
    WaitTimedOutError,
    freeze_target,
    lake_covers,
    lake_status,
    tier_table,
    wait_for_snapshot,
    wait_for_snapshot_blocking,
)
from fluss_orchestrate.core.plan import ScanPlan
from tests.contract.tables import eventually
from tests.orchestrate.lake.tables import DAYS, append, upsert
from tests.waiting import WAIT_S, let_pass, moment_between, scaled

NewTable = Callable[..., TablePath]


async def looked(poller: polling.Poller, times: int) -> None:
    """Wait until a poller has sent so many requests."""
    await asyncio.to_thread(eventually, lambda: poller.requests, lambda sent: sent >= times)


def test_status_counts_offsets_and_time(connection: FlussConnection, new_table: NewTable) -> None:
    path = new_table(layout="keyed")
    empty = lake_status(connection, path)
    assert (empty.snapshot_id, empty.lag_offsets, empty.lag_ms) == (None, 0, 0)
    append(connection, path, 0, 100)
    let_pass(0.05, "the lag is a time")
    before = lake_status(connection, path)
    assert (before.snapshot_id, before.lag_offsets) == (None, 100)
    assert before.lag_ms is not None
    assert 50 <= before.lag_ms < 60_000
    receipt = tier_table(connection, path, allow_tiering=True)
    append(connection, path, 100, 130)
    after = lake_status(connection, path, times=False)
    assert (after.snapshot_id, after.lag_offsets, after.lag_ms) == (receipt.snapshot_id, 30, None)
    assert after.covers(freeze_target(connection, path, receipt))
    assert not after.covers(freeze_target(connection, path, "latest"))
    assert after.to_json()["lag_offsets"] == 30


def test_targets(connection: FlussConnection, new_table: NewTable) -> None:
    path = new_table(buckets=1)
    append(connection, path, 0, 10)
    cut_ms = moment_between()
    receipt = tier_table(connection, path, allow_tiering=True)
    append(connection, path, 10, 20)

    assert freeze_target(connection, path, cut_ms).offsets == {(None, 0): 10}
    assert lake_covers(connection, path, cut_ms)
    assert lake_covers(connection, path, {0: 10})
    assert not lake_covers(connection, path, {0: 11})
    assert lake_covers(connection, path, receipt)
    assert not lake_covers(connection, path, "latest")
    plan = ScanPlan("n", "r", receipt.table, 1, ("id",), (), receipt.ranges)
    assert lake_covers(connection, path, plan)
    frozen = freeze_target(connection, path, "latest")
    assert LakeTarget.from_json(frozen.to_json()) == frozen
    with pytest.raises(NotYetError):
        lake_covers(connection, path, int(time.time() * 1000) + 3_600_000)
    with pytest.raises(ConfigError, match="no target"):
        lake_covers(connection, path, "sometime")


def test_targets_of_a_key_table(connection: FlussConnection, new_table: NewTable) -> None:
    """Its offsets are those of its changelog, also for the first round, which reads its state."""
    path = new_table(buckets=1, primary_keys=["id"])
    upsert(connection, path, 0, 10)
    upsert(connection, path, 0, 5)
    assert not lake_covers(connection, path, "latest")
    end = freeze_target(connection, path, "latest").offsets[None, 0]
    assert end >= 15
    cut_ms = moment_between()
    receipt = tier_table(connection, path, allow_tiering=True)
    upsert(connection, path, 5, 10)
    assert freeze_target(connection, path, cut_ms).offsets == {(None, 0): end}
    for target in (cut_ms, {0: end}, receipt):
        assert lake_covers(connection, path, target)
    for target in ({0: end + 1}, "latest"):
        assert not lake_covers(connection, path, target)
    later = freeze_target(connection, path, "latest")
    with pytest.raises(WaitTimedOutError):
        wait_for_snapshot_blocking(connection, path, later, timeout_s=0.1)
    tier_table(connection, path, allow_tiering=True)
    found = wait_for_snapshot_blocking(connection, path, later, timeout_s=scaled(WAIT_S))
    assert found.snapshot_id == lake_status(connection, path).snapshot_id


def test_a_table_that_was_created_again_is_not_covered() -> None:
    from tests.orchestrate.sinks.plans import IDENTITY

    target = LakeTarget(IDENTITY, {(None, 0): 5})
    other = LakeSnapshot(1, {TableBucket(IDENTITY.table_id + 1, 0): 100})
    with pytest.raises(TableIdentityChangedError):
        target.covered_by(other)
    assert not target.covered_by(None)
    assert LakeTarget(IDENTITY, {(None, 0): 0}).covered_by(None)


def test_waiters_are_let_go_when_the_lake_is_there_and_not_before(
    connection: FlussConnection, new_table: NewTable, lake_address: str
) -> None:
    path = new_table(buckets=1)
    append(connection, path, 0, 10)

    async def scenario() -> None:
        config = Config({"bootstrap.servers": lake_address})
        async with (
            await aio.FlussConnection.create(config) as one,
            await aio.FlussConnection.create(config) as two,
        ):
            await waits(one, two)

    async def waits(one: Any, two: Any) -> None:
        poller = polling.poller_of(one)
        assert polling.poller_of(two) is poller
        begun = time.monotonic()
        first = [
            asyncio.create_task(
                wait_for_snapshot(
                    core, path, {0: 10}, poll_interval_s=0.1, timeout_s=scaled(WAIT_S)
                )
            )
            for core in (one, two) * 50
        ]
        later = asyncio.create_task(
            wait_for_snapshot(two, path, {0: 20}, poll_interval_s=0.1, timeout_s=scaled(WAIT_S))
        )
        cancelled = first.pop()
        await looked(poller, 3)
        cancelled.cancel()
        assert not any(task.done() for task in first)
        # A hundred waiters cost about one request per interval.
        assert 1 <= poller.requests <= 7 + (time.monotonic() - begun) / 0.1
        receipt = await asyncio.to_thread(tier_table, connection, path, allow_tiering=True)
        found = await asyncio.gather(*first)
        assert {s.snapshot_id for s in found} == {receipt.snapshot_id}
        assert not later.done()
        await asyncio.to_thread(append, connection, path, 10, 20)
        await looked(poller, poller.requests + 2)
        assert not later.done()
        await asyncio.to_thread(tier_table, connection, path, allow_tiering=True)
        await later
        with pytest.raises(asyncio.CancelledError):
            await cancelled

    asyncio.run(scenario())
    assert not polling._pollers


def test_the_connection_that_polls_may_close(
    connection: FlussConnection, new_table: NewTable, lake_address: str
) -> None:
    path = new_table(buckets=1)
    append(connection, path, 0, 10)

    async def scenario() -> None:
        config = Config({"bootstrap.servers": lake_address})
        one = await aio.FlussConnection.create(config)
        async with await aio.FlussConnection.create(config) as two:
            options: dict[str, Any] = {"poll_interval_s": 0.05, "timeout_s": scaled(WAIT_S)}
            lost = asyncio.create_task(wait_for_snapshot(one, path, {0: 10}, **options))
            kept = asyncio.create_task(wait_for_snapshot(two, path, {0: 10}, **options))
            await looked(polling.poller_of(one), 2)
            await one.close()
            await asyncio.to_thread(tier_table, connection, path, allow_tiering=True)
            await kept
            await asyncio.gather(lost, return_exceptions=True)

    asyncio.run(scenario())


def test_blocking_and_from_another_loop(connection: FlussConnection, new_table: NewTable) -> None:
    path = new_table(buckets=1)
    append(connection, path, 0, 10)
    with pytest.raises(WaitTimedOutError, match="10 offsets in 1 bucket"):
        wait_for_snapshot_blocking(connection, path, timeout_s=0.2, poll_interval_s=0.05)
    receipt = tier_table(connection, path, allow_tiering=True)
    found = wait_for_snapshot_blocking(connection, path, timeout_s=scaled(WAIT_S))
    assert found.snapshot_id == receipt.snapshot_id

    async def elsewhere() -> LakeSnapshot:
        return await wait_for_snapshot(connection, path, receipt, timeout_s=scaled(WAIT_S))

    assert asyncio.run(elsewhere()).snapshot_id == receipt.snapshot_id


def test_a_time_that_cannot_be_told_yet(connection: FlussConnection, new_table: NewTable) -> None:
    path = new_table(buckets=1)
    append(connection, path, 0, 10)
    tier_table(connection, path, allow_tiering=True)
    soon = int(time.time() * 1000) + 500
    wait_for_snapshot_blocking(connection, path, soon, timeout_s=scaled(WAIT_S))
    assert time.time() * 1000 >= soon
    with pytest.raises(WaitTimedOutError, match="cannot be resolved yet"):
        wait_for_snapshot_blocking(connection, path, soon + 3_600_000, timeout_s=0.2)


def test_what_never_comes_is_an_error(connection: FlussConnection, new_table: NewTable) -> None:
    path = new_table(layout="partitioned")
    append(connection, path, 0, 10)
    admin = connection.get_admin().result()
    target = freeze_target(connection, path, "latest")
    admin.drop_partition(path, {"day": DAYS[0]}).result()
    with pytest.raises(PartitionGoneError):
        wait_for_snapshot_blocking(
            connection, path, target, timeout_s=scaled(WAIT_S), poll_interval_s=0.02
        )
    admin.drop_table(path).result()
    with pytest.raises(TableIdentityChangedError, match="does not exist"):
        wait_for_snapshot_blocking(
            connection, path, target, timeout_s=scaled(WAIT_S), poll_interval_s=0.02
        )
