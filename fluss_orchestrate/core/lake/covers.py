"""Whether a lake snapshot covers some offsets, and waiting until one does."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from fluss_client import FlussConnection, LakeSnapshot, TablePath
from fluss_client.aio import FlussConnection as AsyncConnection
from fluss_client.engine import async_connection, backend_of, existing_partitions, run_blocking
from fluss_client.errors import (
    ConfigError,
    FlussError,
    LakeSnapshotNotExistError,
    TableNotExistError,
)
from fluss_orchestrate.core import plain_values as plain
from fluss_orchestrate.core.errors import (
    NotYetError,
    PartitionGoneError,
    TableIdentityChangedError,
)
from fluss_orchestrate.core.identity import TableIdentity
from fluss_orchestrate.core.incremental.planning.observation import observe
from fluss_orchestrate.core.incremental.planning.settings import Offsets, place_offsets
from fluss_orchestrate.core.incremental.time.timestamps import resolve_timestamp
from fluss_orchestrate.core.lake.catalog import has_lake
from fluss_orchestrate.core.lake.errors import NoLakeError, WaitTimedOutError
from fluss_orchestrate.core.plan import BucketRange, Place, Position, ScanPlan, behind_text
from fluss_orchestrate.core.polling import POLL_INTERVAL_S, Look, LookReport, on_its_loop, poller_of
from fluss_orchestrate.core.receipts import Receipt
from fluss_orchestrate.core.times import Time, as_time_ms
from fluss_orchestrate.deprecated import accepts_old_parameters

Target = str | Time | Offsets | ScanPlan | Receipt
"""`latest`, a time, offsets, a plan, or a receipt."""


@dataclass(frozen=True, slots=True)
class LakeTarget:
    """A target of the lake: everything below these offsets of one table. It never changes."""

    table: TableIdentity
    offsets: Position

    def missing(self, snapshot: LakeSnapshot | None) -> dict[Place, tuple[int, int]]:
        """Return the places that are not covered: the offset of the lake and the wanted one.

        The offset of the lake is -1 if it has none. Offset 0 is always covered.

        Raises:
            TableIdentityChangedError: The snapshot belongs to a table that was created again under
                the name.
        """
        held: dict[Place, int] = {}
        if snapshot is not None:
            for bucket, offset in snapshot.table_buckets_offset.items():
                if bucket.table_id != self.table.table_id:
                    found = TableIdentity(
                        self.table.cluster, self.table.path, bucket.table_id, created_time=-1
                    )
                    raise TableIdentityChangedError(self.table, found)
                held[bucket.partition_id, bucket.bucket_id] = offset
        return {
            place: (held.get(place, -1), wanted)
            for place, wanted in self.offsets.items()
            if held.get(place, 0) < wanted
        }

    def covered_by(self, snapshot: LakeSnapshot | None) -> bool:
        """Return whether the snapshot covers the whole target."""
        return not self.missing(snapshot)

    def to_json(self) -> dict[str, Any]:
        """Return the target as plain values, so that a sensor can store it."""
        return {
            "table": self.table.to_json(),
            "offsets": [[p, b, offset] for (p, b), offset in self.offsets.items()],
        }

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> LakeTarget:
        """Return the target from what `to_json` returned."""
        with plain.reading("target in the lake"):
            offsets = {
                (plain.number_or_none(p), plain.number(b)): plain.number(offset)
                for p, b, offset in value["offsets"]
            }
            return cls(TableIdentity.from_json(value["table"]), offsets)


async def resolve_target(
    core: AsyncConnection, table: TablePath, target: Target | LakeTarget
) -> LakeTarget:
    """Resolve a target to offsets. Runs on the event loop of the connection.

    `latest` means everything that is in the log now. A time means exactly everything that was
    committed before it. Plans, receipts and resolved targets need no request.

    Raises:
        NotYetError: The offsets of a time are not final yet.
    """
    if isinstance(target, LakeTarget):
        return target
    if isinstance(target, (ScanPlan, Receipt)):
        if target.table.path != table:
            raise ConfigError(f"this is about {target.table.path}, not about {table}")
        return LakeTarget(target.table, {r.place: r.stop for r in target.ranges})
    alias = core.config.resolved_alias()
    if isinstance(target, Mapping):
        info = await backend_of(core).get_table_info(table)
        return LakeTarget(TableIdentity.of(alias, info), place_offsets(target))
    view = await observe(backend_of(core), alias, table)
    if target == "latest":
        return LakeTarget(view.identity, dict(view.latest))
    moment = as_time_ms(target)
    if moment is not None:
        cut = await resolve_timestamp(backend_of(core), core.config, view, moment)
        return LakeTarget(view.identity, cut)
    raise ConfigError(f"{target!r} is no target: give 'latest', a time, offsets, a plan or receipt")


async def latest_snapshot(core: AsyncConnection, table: TablePath) -> LakeSnapshot | None:
    """Return the newest snapshot that the cluster knows; None before the first."""
    try:
        return await backend_of(core).get_lake_snapshot(table, None, False)
    except LakeSnapshotNotExistError:
        return None


async def awaited_snapshot(core: AsyncConnection, table: TablePath) -> LakeSnapshot | None:
    """Return the newest snapshot for a caller that waits for one; None before the first.

    Raises:
        NoLakeError: if the table has no lake, so that none will ever come.
    """
    snapshot = await latest_snapshot(core, table)
    if snapshot is None and not has_lake(await backend_of(core).get_table_info(table)):
        raise NoLakeError(table)
    return snapshot


def lake_covers(
    connection: FlussConnection, table: TablePath | str, target: Target | LakeTarget
) -> bool:
    """Return whether the lake holds everything up to a target now.

    It blocks, for about two requests. To check the same target several times, resolve it with
    `freeze_target` first.

    Args:
        connection: The connection to the cluster.
        table: The table, as a path or as `database.table`.
        target: A time, offsets, a receipt, a plan, `latest`, or a resolved target.
    """
    path = TablePath.parse(table) if isinstance(table, str) else table
    core = async_connection(connection)

    async def ask() -> bool:
        frozen = await resolve_target(core, path, target)
        return frozen.covered_by(await latest_snapshot(core, path))

    return run_blocking(ask())


def freeze_target(
    connection: FlussConnection, table: TablePath | str, target: Target
) -> LakeTarget:
    """Resolve a target to offsets, which can be stored and checked later. Blocks."""
    path = TablePath.parse(table) if isinstance(table, str) else table
    return run_blocking(resolve_target(async_connection(connection), path, target))


INTERVALS_PER_PARTITION_CHECK = 10
"""The number of polls between two checks whether the partitions of a target still exist."""


@dataclass(frozen=True)
class LatestSnapshot:
    """The newest lake snapshot of a table; None before the first."""

    path: TablePath

    async def ask(self, core: AsyncConnection) -> LakeSnapshot | None:
        """Make one request, or two before the first snapshot, to check that there is a lake."""
        return await awaited_snapshot(core, self.path)


@dataclass(frozen=True)
class PartitionIds:
    """The ids of a table's partitions."""

    path: TablePath

    async def ask(self, core: AsyncConnection) -> frozenset[int]:
        """Make two requests: late rows of expired partitions are in a partition of their own."""
        backend = backend_of(core)
        found = await existing_partitions(backend, await backend.get_table_info(self.path))
        return frozenset(p.partition_id for p in found)


@dataclass
class _Covering:
    """Compares the answers of the cluster with the target of one waiter."""

    target: LakeTarget
    report: LookReport | None = None
    missing: Mapping[Place, tuple[int, int]] = field(default_factory=dict)
    failure: FlussError | None = None

    def of_snapshot(self, snapshot: LakeSnapshot | None) -> LakeSnapshot | None:
        """Return the snapshot if it covers the target."""
        self.missing = self.target.missing(snapshot)
        self.failure = None
        if self.missing:
            if self.report is not None:
                self.report.look(lambda: behind_text("the lake", self.missing))
            return None
        # Without a snapshot, only an empty target is covered: there was nothing to tier.
        return LakeSnapshot(-1) if snapshot is None else snapshot

    def failed(self, error: FlussError) -> None:
        """Remember that the cluster did not answer."""
        self.failure = error
        if self.report is not None:
            self.report.look(lambda: f"the cluster gave no answer: {error}")

    def of_partitions(self, present: frozenset[int]) -> None:
        """Raise if a partition of the target was dropped: the lake will never cover it."""
        gone = [
            BucketRange(place[0], None, place[1], max(0, held), wanted)
            for place, (held, wanted) in self.missing.items()
            if place[0] is not None and place[0] not in present
        ]
        if gone:
            raise PartitionGoneError(self.target.table, gone)

    def looks(self, interval_s: float) -> list[Look]:
        """Return the requests to make."""
        path = self.target.table.path
        question = LatestSnapshot(path)
        looks = [Look(question, self.of_snapshot, interval_s, self.failed, steady=True)]
        if any(place[0] is not None for place in self.target.offsets):
            seldom_s = interval_s * INTERVALS_PER_PARTITION_CHECK
            looks.append(Look(PartitionIds(path), self.of_partitions, seldom_s))
        return looks


@accepts_old_parameters("wait_for_snapshot")
async def wait_for_snapshot(
    connection: AsyncConnection | FlussConnection,
    table: TablePath | str,
    covers: Target | LakeTarget = "latest",
    *,
    timeout_s: float | None = None,
    poll_interval_s: float = POLL_INTERVAL_S,
    report: LookReport | None = None,
) -> LakeSnapshot:
    """Wait until the lake holds everything up to `covers`, and return the snapshot that does.

    The target is resolved to offsets once. If Fluss cannot resolve a time yet, the call tries again
    later. Cancelling only stops the waiting. With a connection of the facade, the waiting runs on
    the client's I/O thread, otherwise on this event loop.

    Args:
        connection: The connection to the cluster.
        table: The table, as a path or as `database.table`.
        covers: A time, offsets, a receipt, a plan, `latest`, or a resolved target.
        timeout_s: How long to wait; None waits without end.
        poll_interval_s: The time between two requests.
        report: Called after each request with what it found.

    Raises:
        WaitTimedOutError: `timeout_s` has passed.
        TableIdentityChangedError: The table was dropped and created again.
        PartitionGoneError: A partition of the target was dropped.
    """
    path = TablePath.parse(table) if isinstance(table, str) else table
    return await on_its_loop(
        connection, lambda core: _wait(core, path, covers, timeout_s, poll_interval_s, report)
    )


def wait_for_snapshot_blocking(
    connection: FlussConnection,
    table: TablePath | str,
    covers: Target | LakeTarget = "latest",
    *,
    timeout_s: float | None = None,
    poll_interval_s: float = POLL_INTERVAL_S,
) -> LakeSnapshot:
    """Wait as `wait_for_snapshot` does, in code without an event loop."""
    path = TablePath.parse(table) if isinstance(table, str) else table
    return run_blocking(
        _wait(async_connection(connection), path, covers, timeout_s, poll_interval_s)
    )


async def _wait(
    core: AsyncConnection,
    path: TablePath,
    target: Target | LakeTarget,
    timeout_s: float | None,
    interval_s: float,
    report: LookReport | None = None,
) -> LakeSnapshot:
    loop = asyncio.get_running_loop()
    deadline = None if timeout_s is None else loop.time() + timeout_s
    while True:
        left = None if deadline is None else deadline - loop.time()
        try:
            frozen = await resolve_target(core, path, target)
            return await _wait_frozen(core, frozen, interval_s, left, report)
        except NotYetError as error:
            pause_s = error.retry_after_ms / 1000
            if report is not None:
                report.look(lambda error=error: f"the time is not final yet: {error}")  # type: ignore[misc]
            if timeout_s is not None and left is not None and pause_s >= left:
                await asyncio.sleep(max(0.0, left))
                raise WaitTimedOutError.after(
                    path, timeout_s, f"the target cannot be resolved yet: {error}"
                ) from error
            await asyncio.sleep(pause_s)


async def _wait_frozen(
    core: AsyncConnection,
    target: LakeTarget,
    interval_s: float,
    timeout_s: float | None,
    report: LookReport | None,
) -> LakeSnapshot:
    covering = _Covering(target, report)
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
        unmet = behind_text("the lake", covering.missing)
        if covering.failure is not None:
            unmet += f"; the cluster gave no answer at the last look: {covering.failure}"
        raise WaitTimedOutError.after(
            target.table.path,
            timeout_s,
            f"{unmet}; see whether a tiering service runs (lake_status shows the lag)",
        ) from None
