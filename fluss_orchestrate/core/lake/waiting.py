"""Waiting until the lake holds something: any number of waiters, one poller per cluster.

The poller asks once per interval and table, however many wait for it, and stops when nobody does.
A waiter's target is frozen before it begins to wait, so it is never let go early, and rows that
come later do not keep it. A waiter that is cancelled is forgotten; the others do not notice.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from dataclasses import dataclass, field

from fluss_client.aio.connection import FlussConnection as AsyncConnection
from fluss_client.errors import (
    ClosedError,
    FlussError,
    LakeSnapshotNotExistError,
    TableNotExistError,
)
from fluss_client.facade.connection import FlussConnection
from fluss_client.model.cluster import LakeSnapshot
from fluss_client.model.table import TablePath
from fluss_client.runtime import runtime
from fluss_orchestrate.core.errors import (
    NotYetError,
    PartitionGoneError,
    TableIdentityChangedError,
)
from fluss_orchestrate.core.lake.covers import LakeTarget, Target, resolve_target
from fluss_orchestrate.core.lake.errors import WaitTimedOutError
from fluss_orchestrate.core.plan import BucketRange, Place

log = logging.getLogger(__name__)
POLL_INTERVAL_S = 1.0
TABLES_AT_ONCE_MAX = 32
TICKS_PER_PARTITION_CHECK = 10
"""How many polls go by between two looks at whether waited-for partitions still exist."""


@dataclass(eq=False)
class _Waiter:
    core: AsyncConnection
    target: LakeTarget
    interval_s: float
    done: asyncio.Future[LakeSnapshot]
    missing: Mapping[Place, tuple[int, int]] = field(default_factory=dict)


class LakePoller:
    """Asks one cluster for lake snapshots on behalf of all waiters of one event loop."""

    def __init__(self) -> None:
        self._waiters: dict[TablePath, list[_Waiter]] = {}
        self._task: asyncio.Task[None] | None = None
        self._wake = asyncio.Event()
        self.requests = 0
        """Snapshots asked for so far."""

    async def wait(
        self, core: AsyncConnection, target: LakeTarget, interval_s: float, timeout_s: float | None
    ) -> LakeSnapshot:
        """The first snapshot seen that covers the target."""
        path = target.table.path
        waiter = _Waiter(core, target, interval_s, asyncio.get_running_loop().create_future())
        self._waiters.setdefault(path, []).append(waiter)
        self._start()
        try:
            async with asyncio.timeout(timeout_s):
                return await waiter.done
        except TimeoutError:
            raise WaitTimedOutError(path, _timeout_text(waiter, timeout_s)) from None
        finally:
            rest = self._waiters[path]
            rest.remove(waiter)
            if not rest:
                del self._waiters[path]
                self._wake.set()

    def _start(self) -> None:
        self._wake.set()
        if self._task is None or self._task.done():
            self._task = asyncio.get_running_loop().create_task(self._poll())

    async def _poll(self) -> None:
        try:
            await self._ticks()
        except Exception as error:
            for group in self._waiters.values():
                _fail(group, error)
            raise
        finally:
            # The next waiter makes another; so no poller outlives its loop.
            for key in [k for k, p in _pollers.items() if p is self]:
                del _pollers[key]

    async def _ticks(self) -> None:
        tick = 0
        while self._waiters:
            self._wake.clear()
            gate = asyncio.Semaphore(TABLES_AT_ONCE_MAX)
            check = tick % TICKS_PER_PARTITION_CHECK == TICKS_PER_PARTITION_CHECK - 1
            await asyncio.gather(*(self._ask(path, gate, check) for path in list(self._waiters)))
            tick += 1
            intervals = [w.interval_s for group in self._waiters.values() for w in group]
            try:
                async with asyncio.timeout(min(intervals, default=0)):
                    # A newcomer need not wait for the others' interval; a leaver may end it all.
                    await self._wake.wait()
            except TimeoutError:
                continue

    async def _ask(self, path: TablePath, gate: asyncio.Semaphore, check: bool) -> None:
        """One request for one table, and what it means for each of its waiters."""
        async with gate:
            group = [w for w in self._waiters.get(path, ()) if not w.done.done()]
            while group:
                try:
                    self.requests += 1
                    snapshot = await group[0].core.backend.get_lake_snapshot(path, None, False)
                    break
                except LakeSnapshotNotExistError:
                    snapshot = None
                    break
                except ClosedError as error:
                    # Its connection is closed; the next one may have another.
                    _fail([group.pop(0)], error)
                except TableNotExistError:
                    for waiter in group:
                        _fail([waiter], TableIdentityChangedError(waiter.target.table, None))
                    return
                except FlussError as error:
                    if not error.is_retriable:
                        _fail(group, error)
                    log.debug("asking for the lake snapshot of %s: %s", path, error)
                    return
            _settle(group, snapshot if group else None)
            left = [w for w in group if not w.done.done()]
            if check and left:
                await _check_partitions(path, left)


def _settle(group: list[_Waiter], snapshot: LakeSnapshot | None) -> None:
    for waiter in group:
        try:
            waiter.missing = waiter.target.missing(snapshot)
        except TableIdentityChangedError as error:
            _fail([waiter], error)
            continue
        if not waiter.missing and snapshot is not None and not waiter.done.done():
            waiter.done.set_result(snapshot)
        elif not waiter.missing and not waiter.done.done():
            # Nothing was asked for: an empty table is in the lake from the beginning.
            waiter.done.set_result(LakeSnapshot(-1))


async def _check_partitions(path: TablePath, group: list[_Waiter]) -> None:
    """A partition that was dropped before it was tiered never comes."""
    wanted = {place[0] for w in group for place in w.missing} - {None}
    if not wanted:
        return
    try:
        found = await group[0].core.backend.list_partitions(path, None)
    except FlussError as error:
        log.debug("asking for the partitions of %s: %s", path, error)
        return
    present = {p.partition_id for p in found}
    for waiter in group:
        gone = [
            BucketRange(place[0], None, place[1], max(0, held), wanted_offset)
            for place, (held, wanted_offset) in waiter.missing.items()
            if place[0] is not None and place[0] not in present
        ]
        if gone:
            _fail([waiter], PartitionGoneError(waiter.target.table, gone))


def _fail(group: list[_Waiter], error: Exception) -> None:
    for waiter in group:
        if not waiter.done.done():
            waiter.done.set_exception(error)


def _timeout_text(waiter: _Waiter, timeout_s: float | None) -> str:
    behind = sum(wanted - max(0, held) for held, wanted in waiter.missing.values())
    return (
        f"after {timeout_s} s the lake still lacks {behind} offsets in {len(waiter.missing)} "
        "bucket(s); see whether a tiering service runs (lake_status shows the lag)"
    )


_pollers: dict[tuple[asyncio.AbstractEventLoop, str, str], LakePoller] = {}


def poller_of(core: AsyncConnection) -> LakePoller:
    """The poller that all connections to one cluster share on one event loop."""
    config = core.config
    loop = asyncio.get_running_loop()
    key = (loop, config.resolved_bootstrap(), config.security_sasl_username)
    return _pollers.setdefault(key, LakePoller())


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
    if isinstance(connection, FlussConnection):
        waiting = _wait(connection.core, path, target, timeout_s, poll_interval_s)
        future = asyncio.run_coroutine_threadsafe(waiting, runtime().loop)
        return await asyncio.wrap_future(future)
    return await _wait(connection, path, target, timeout_s, poll_interval_s)


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
            return await poller_of(core).wait(core, frozen, interval_s, left)
        except NotYetError as error:
            pause_s = error.retry_after_ms / 1000
            if left is not None and pause_s >= left:
                await asyncio.sleep(max(0.0, left))
                raise WaitTimedOutError(
                    path, f"after {timeout_s} s the target cannot be told yet: {error}"
                ) from error
            await asyncio.sleep(pause_s)
