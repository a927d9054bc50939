"""Waiting until the lake holds something.

A waiter's target is frozen before it begins to wait, so it is never let go early, and rows that
come later do not keep it. One poller serves all waiters of a cluster (see `polling`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, field

from fluss_client.aio.connection import FlussConnection as AsyncConnection
from fluss_client.errors import TableNotExistError
from fluss_client.facade.connection import FlussConnection
from fluss_client.model.cluster import LakeSnapshot
from fluss_client.model.table import TablePath
from fluss_client.runtime import runtime
from fluss_orchestrate.core.errors import (
    NotYetError,
    PartitionGoneError,
    TableIdentityChangedError,
)
from fluss_orchestrate.core.lake.covers import LakeTarget, Target, awaited_snapshot, resolve_target
from fluss_orchestrate.core.lake.errors import WaitTimedOutError
from fluss_orchestrate.core.plan import BucketRange, Place
from fluss_orchestrate.core.polling import POLL_INTERVAL_S, Look, on_its_loop, poller_of

INTERVALS_PER_PARTITION_CHECK = 10
"""How many polls go by between two looks at whether waited-for partitions still exist."""


@dataclass(frozen=True)
class LatestSnapshot:
    """The newest lake snapshot of a table; None before the first."""

    path: TablePath

    async def ask(self, core: AsyncConnection) -> LakeSnapshot | None:
        """One request, and one more before the first snapshot: a table without a lake has none."""
        return await awaited_snapshot(core, self.path)


@dataclass(frozen=True)
class PartitionIds:
    """The ids of a table's partitions."""

    path: TablePath

    async def ask(self, core: AsyncConnection) -> frozenset[int]:
        """One request."""
        found = await core.backend.list_partitions(self.path, None)
        return frozenset(p.partition_id for p in found)


@dataclass
class _Covering:
    """What one waiter makes of the answers."""

    target: LakeTarget
    missing: Mapping[Place, tuple[int, int]] = field(default_factory=dict)

    def of_snapshot(self, snapshot: LakeSnapshot | None) -> LakeSnapshot | None:
        """The snapshot when it covers the target."""
        self.missing = self.target.missing(snapshot)
        if self.missing:
            return None
        # Without one, nothing was asked for: an empty table is in the lake from the beginning.
        return LakeSnapshot(-1) if snapshot is None else snapshot

    def of_partitions(self, present: frozenset[int]) -> None:
        """A partition that was dropped before it was tiered never comes."""
        gone = [
            BucketRange(place[0], None, place[1], max(0, held), wanted)
            for place, (held, wanted) in self.missing.items()
            if place[0] is not None and place[0] not in present
        ]
        if gone:
            raise PartitionGoneError(self.target.table, gone)

    def looks(self, interval_s: float) -> list[Look]:
        """The questions to ask."""
        path = self.target.table.path
        looks = [Look(LatestSnapshot(path), self.of_snapshot, interval_s)]
        if any(place[0] is not None for place in self.target.offsets):
            seldom_s = interval_s * INTERVALS_PER_PARTITION_CHECK
            looks.append(Look(PartitionIds(path), self.of_partitions, seldom_s))
        return looks


async def wait_for_snapshot(
    connection: AsyncConnection | FlussConnection,
    table: TablePath | str,
    target: Target | LakeTarget = "latest",
    *,
    timeout_s: float | None = None,
    poll_interval_s: float = POLL_INTERVAL_S,
) -> LakeSnapshot:
    """Wait until the lake holds everything up to the target; the snapshot that does.

    The target is resolved once and frozen; a time that cannot be told yet is asked for again when
    it may be. Cancelling stops the waiting and nothing else. `WaitTimedOutError` after
    `timeout_s`; `TableIdentityChangedError` or `PartitionGoneError` when it cannot come any more.
    With a facade connection the waiting runs on the client's I/O thread, else on this loop.
    """
    path = TablePath.parse(table) if isinstance(table, str) else table
    return await on_its_loop(
        connection, lambda core: _wait(core, path, target, timeout_s, poll_interval_s)
    )


def wait_for_snapshot_blocking(
    connection: FlussConnection,
    table: TablePath | str,
    target: Target | LakeTarget = "latest",
    *,
    timeout_s: float | None = None,
    poll_interval_s: float = POLL_INTERVAL_S,
) -> LakeSnapshot:
    """`wait_for_snapshot` for code without an event loop."""
    path = TablePath.parse(table) if isinstance(table, str) else table
    return runtime().call(_wait(connection.core, path, target, timeout_s, poll_interval_s))


async def _wait(
    core: AsyncConnection,
    path: TablePath,
    target: Target | LakeTarget,
    timeout_s: float | None,
    interval_s: float,
) -> LakeSnapshot:
    loop = asyncio.get_running_loop()
    deadline = None if timeout_s is None else loop.time() + timeout_s
    while True:
        left = None if deadline is None else deadline - loop.time()
        try:
            frozen = await resolve_target(core, path, target)
            return await _wait_frozen(core, frozen, interval_s, left)
        except NotYetError as error:
            pause_s = error.retry_after_ms / 1000
            if timeout_s is not None and left is not None and pause_s >= left:
                await asyncio.sleep(max(0.0, left))
                raise WaitTimedOutError.after(
                    path, timeout_s, f"the target cannot be told yet: {error}"
                ) from error
            await asyncio.sleep(pause_s)


async def _wait_frozen(
    core: AsyncConnection, target: LakeTarget, interval_s: float, timeout_s: float | None
) -> LakeSnapshot:
    covering = _Covering(target)
    try:
        found: LakeSnapshot = await poller_of(core).wait(
            core, covering.looks(interval_s), timeout_s
        )
        return found
    except TableNotExistError:
        raise TableIdentityChangedError(target.table, None) from None
    except TimeoutError:
        if timeout_s is None:
            raise
        behind = sum(wanted - max(0, held) for held, wanted in covering.missing.values())
        raise WaitTimedOutError.after(
            target.table.path,
            timeout_s,
            f"the lake still lacks {behind} offsets in "
            f"{len(covering.missing)} bucket(s); see whether a tiering service runs (lake_status "
            "shows the lag)",
        ) from None
