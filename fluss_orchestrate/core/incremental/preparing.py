"""Before a plan is read: is its table still the one, with every offset that the plan names?"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from fluss_client.aio.scan_errors import OffsetUnavailableError
from fluss_client.backend.contract import Backend
from fluss_client.errors import FlussError, PartitionNotExistError, TableNotExistError
from fluss_client.model.cluster import OffsetSpec
from fluss_client.model.table import TableInfo
from fluss_orchestrate.core.errors import (
    LogWentBackwardsError,
    PartitionGoneError,
    RetentionPassedError,
    TableIdentityChangedError,
)
from fluss_orchestrate.core.identity import TableIdentity
from fluss_orchestrate.core.incremental.guards import check_identity, check_not_backwards
from fluss_orchestrate.core.incremental.observe import TableView, offsets_of
from fluss_orchestrate.core.plan import BucketRange, Place, ScanPlan


@dataclass(frozen=True, slots=True)
class Prepared:
    """A plan's table with the pinned schema, and what is left of its log."""

    table: TableInfo
    earliest: Mapping[Place, int]


async def pinned_table(backend: Backend, alias: str, plan: ScanPlan) -> TableInfo:
    """The table with the schema that the plan pins, whatever it has become since."""
    path = plan.table.path
    try:
        info = await backend.get_table_info(path)
    except TableNotExistError:
        raise TableIdentityChangedError(plan.table, None) from None
    check_identity(plan.table, TableIdentity.of(alias, info))
    if info.schema_id == plan.schema_id:
        return info
    _, schema = await backend.get_schema(path, plan.schema_id)
    return replace(info, schema=schema, schema_id=plan.schema_id)


async def prepare(
    backend: Backend, alias: str, plan: ScanPlan, backwards_wait_ms: int, lake: bool
) -> Prepared:
    """Check everything that can be checked before the first row.

    `lake` says that deleted offsets can be had from there.
    """
    table = await pinned_table(backend, alias, plan)
    ids = list(dict.fromkeys(r.partition_id for r in plan.ranges))
    try:
        earliest, latest = await asyncio.gather(
            offsets_of(backend, table, ids, OffsetSpec.earliest()),
            offsets_of(backend, table, ids, OffsetSpec.latest()),
        )
    except TableNotExistError:
        raise TableIdentityChangedError(plan.table, None) from None
    gone = [r for r in plan.ranges if r.place not in earliest or r.place not in latest]
    if gone:
        raise PartitionGoneError(plan.table, gone)
    names = {r.partition_id: r.partition for r in plan.ranges}
    partitions = {i: n for i, n in names.items() if i is not None and n is not None}
    view = TableView(table, plan.table, partitions, latest)
    ends = {r.place: r.stop for r in plan.ranges}
    await check_not_backwards(backend, view, ends, backwards_wait_ms)
    if plan.kind != "state":
        lost = lost_ranges(plan.ranges, earliest)
        if lost and not (lake and plan.kind == "log"):
            raise RetentionPassedError(plan.table, lost)
    return Prepared(table, earliest)


def lost_ranges(ranges: Sequence[BucketRange], earliest: Mapping[Place, int]) -> list[BucketRange]:
    """The parts of ranges that the log does not hold any more."""
    return [
        replace(r, stop=min(r.stop, earliest[r.place]))
        for r in ranges
        if earliest[r.place] > r.start
    ]


async def explained(backend: Backend, error: FlussError, plan: ScanPlan) -> FlussError:
    """An error of reading as the guard that it means, naming the ranges of the plan."""
    if isinstance(error, TableNotExistError):
        return TableIdentityChangedError(plan.table, None)
    if isinstance(error, PartitionNotExistError):
        there = await backend.list_partitions(plan.table.path, None)
        ids = {partition.partition_id for partition in there}
        gone = [r for r in plan.ranges if r.partition_id not in ids]
        return PartitionGoneError(plan.table, gone)
    if isinstance(error, OffsetUnavailableError):
        place = (error.bucket.partition_id, error.bucket.bucket_id)
        ranges = [r for r in plan.ranges if r.place == place]
        if error.earliest is not None and error.offset < error.earliest:
            return RetentionPassedError(plan.table, lost_ranges(ranges, {place: error.earliest}))
        if error.latest is not None and error.offset > error.latest:
            return LogWentBackwardsError(plan.table, ranges, "it ends before the plan does")
    return error
