"""Does the lake hold what is asked for? Targets are offsets, found once and then frozen.

A target that moved with the log would let a waiter start late or never; one that is looked up by
time twice could let it start early, because a server's answer for a time is not exact. So every
way of saying "up to here" becomes offsets first.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from fluss_client.aio.connection import FlussConnection as AsyncConnection
from fluss_client.errors import ConfigError, LakeSnapshotNotExistError
from fluss_client.facade.connection import FlussConnection
from fluss_client.model.cluster import LakeSnapshot
from fluss_client.model.table import TablePath
from fluss_client.runtime import runtime
from fluss_orchestrate.core import plain_values as plain
from fluss_orchestrate.core.errors import TableIdentityChangedError
from fluss_orchestrate.core.identity import TableIdentity
from fluss_orchestrate.core.incremental.observe import observe
from fluss_orchestrate.core.incremental.resolve import resolve_timestamp
from fluss_orchestrate.core.incremental.settings import Offsets, place_offsets
from fluss_orchestrate.core.lake.catalog import has_lake
from fluss_orchestrate.core.lake.errors import NoLakeError
from fluss_orchestrate.core.plan import Place, Position, ScanPlan
from fluss_orchestrate.core.receipts import Receipt
from fluss_orchestrate.core.times import Time, as_time_ms

Target = str | Time | Offsets | ScanPlan | Receipt
"""`latest`, a time, offsets, a plan, or a receipt."""


@dataclass(frozen=True, slots=True)
class LakeTarget:
    """What the lake shall hold: everything below these offsets of one table. Never changes."""

    table: TableIdentity
    offsets: Position

    def missing(self, snapshot: LakeSnapshot | None) -> dict[Place, tuple[int, int]]:
        """The places that are not there yet: the lake's offset (-1 for none) and the wanted one.

        Offset 0 is always there. `TableIdentityChangedError` when the snapshot is of a table that
        was created again under the name.
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
        """Whether the snapshot holds all of it."""
        return not self.missing(snapshot)

    def to_json(self) -> dict[str, Any]:
        """The target as plain values, so that a sensor can keep it."""
        return {
            "table": self.table.to_json(),
            "offsets": [[p, b, offset] for (p, b), offset in self.offsets.items()],
        }

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> LakeTarget:
        """The target from `to_json`."""
        with plain.reading("target in the lake"):
            offsets = {
                (plain.number_or_none(p), plain.number(b)): plain.number(offset)
                for p, b, offset in value["offsets"]
            }
            return cls(TableIdentity.from_json(value["table"]), offsets)


async def resolve_target(
    core: AsyncConnection, table: TablePath, target: Target | LakeTarget
) -> LakeTarget:
    """Freeze a target. Runs on the connection's own loop.

    `latest` is everything that is in the log now. A time means everything committed before it,
    exactly; `NotYetError` while that cannot be told. Plans, receipts and frozen targets need no
    request.
    """
    if isinstance(target, LakeTarget):
        return target
    if isinstance(target, (ScanPlan, Receipt)):
        if target.table.path != table:
            raise ConfigError(f"this is about {target.table.path}, not about {table}")
        return LakeTarget(target.table, {r.place: r.stop for r in target.ranges})
    alias = core.config.resolved_alias()
    if isinstance(target, Mapping):
        info = await core.backend.get_table_info(table)
        return LakeTarget(TableIdentity.of(alias, info), place_offsets(target))
    view = await observe(core.backend, alias, table)
    if target == "latest":
        return LakeTarget(view.identity, dict(view.latest))
    moment = as_time_ms(target)
    if moment is not None:
        cut = await resolve_timestamp(core.backend, core.config, view, moment)
        return LakeTarget(view.identity, cut)
    raise ConfigError(f"{target!r} is no target: give 'latest', a time, offsets, a plan or receipt")


async def latest_snapshot(core: AsyncConnection, table: TablePath) -> LakeSnapshot | None:
    """The newest snapshot that the cluster knows of; None before the first."""
    try:
        return await core.backend.get_lake_snapshot(table, None, False)
    except LakeSnapshotNotExistError:
        return None


async def awaited_snapshot(core: AsyncConnection, table: TablePath) -> LakeSnapshot | None:
    """The newest snapshot, for those who wait for one; None before the first.

    Raises:
        NoLakeError: if the table has no lake, so that none will ever come.
    """
    snapshot = await latest_snapshot(core, table)
    if snapshot is None and not has_lake(await core.backend.get_table_info(table)):
        raise NoLakeError(table)
    return snapshot


def covers(
    connection: FlussConnection, table: TablePath | str, target: Target | LakeTarget
) -> bool:
    """Whether the lake holds everything up to the target now. Blocks; two requests or so.

    To ask again and again about the same target, freeze it with `freeze_target` first.
    """
    path = TablePath.parse(table) if isinstance(table, str) else table
    core = connection.core

    async def ask() -> bool:
        frozen = await resolve_target(core, path, target)
        return frozen.covered_by(await latest_snapshot(core, path))

    return runtime().call(ask())


def freeze_target(
    connection: FlussConnection, table: TablePath | str, target: Target
) -> LakeTarget:
    """The target as offsets, to be kept and asked about later. Blocks."""
    path = TablePath.parse(table) if isinstance(table, str) else table
    return runtime().call(resolve_target(connection.core, path, target))
