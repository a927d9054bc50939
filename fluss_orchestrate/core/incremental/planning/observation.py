"""The state of a table at this moment: its identity, its partitions, and the ends of its logs."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from fluss_client import OffsetSpec, PartitionInfo, TableInfo, TablePath
from fluss_client.aio import FlussConnection as AsyncConnection
from fluss_client.engine import Backend, backend_of, existing_partitions
from fluss_client.errors import PartitionNotExistError
from fluss_orchestrate.core.checkpoints.position import place_order
from fluss_orchestrate.core.identity import TableIdentity
from fluss_orchestrate.core.plan import BucketRange, Place

PARTITIONS_AT_ONCE_MAX = 64
"""The largest number of concurrent requests for offsets, one per partition."""


@dataclass(frozen=True, slots=True)
class TableView:
    """The observed state of a table. Places are in the order of partition id and bucket."""

    info: TableInfo
    identity: TableIdentity
    partitions: Mapping[int, str]
    """Names by id; empty for a table without partitions."""
    latest: Mapping[Place, int]
    """The high watermark of each place."""

    def partition_name(self, place: Place) -> str | None:
        """Return the name of the partition of a place, if it has one."""
        return None if place[0] is None else self.partitions.get(place[0])

    def range_of(self, place: Place, start: int, stop: int) -> BucketRange:
        """Return a range of one place, with the name of its partition."""
        return BucketRange(place[0], self.partition_name(place), place[1], start, stop)

    def partition_ids(self) -> list[int | None]:
        """Return the partition ids for requests of offsets."""
        return list(self.partitions) if self.info.is_partitioned() else [None]


async def observe_table(connection: AsyncConnection, path: TablePath) -> TableView:
    """Observe a table by a connection; `observe` is for code that has only the backend."""
    return await observe(backend_of(connection), connection.config.resolved_alias(), path)


async def observe(backend: Backend, alias: str, path: TablePath) -> TableView:
    """Read the state of a table: its partitions, and the latest offset of each bucket.

    This takes one call for the table, one for its partitions, and one per partition and leader. A
    partition that is dropped meanwhile is left out, as if it had been dropped before. The system
    partition with rows of expired partitions is one of them.
    """
    return await observe_all(backend, alias, await backend.get_table_info(path))


async def observe_all(backend: Backend, alias: str, info: TableInfo) -> TableView:
    """Do as `observe` for a table whose `TableInfo` is known."""
    found = await existing_partitions(backend, info) if info.is_partitioned() else []
    return await _observed(backend, alias, info, found)


async def observe_offsets(
    backend: Backend, alias: str, info: TableInfo, more: Sequence[PartitionInfo] = ()
) -> TableView:
    """Read the latest offsets of the partitions that are listed, and of `more` partitions.

    Scans and reads decide by their policy whether the system partition is one of them.
    """
    found: list[PartitionInfo] = []
    if info.is_partitioned():
        found = await backend.list_partitions(info.table_path, None)
    return await _observed(backend, alias, info, [*found, *more])


async def _observed(
    backend: Backend, alias: str, info: TableInfo, found: Sequence[PartitionInfo]
) -> TableView:
    partitions = {p.partition_id: p.partition_name for p in found}
    ids: list[int | None] = list(partitions) if info.is_partitioned() else [None]
    latest = await offsets_of(backend, info, ids, OffsetSpec.latest())
    seen = {place[0] for place in latest}
    return TableView(
        info,
        TableIdentity.of(alias, info),
        {i: name for i, name in partitions.items() if i in seen},
        latest,
    )


async def offsets_of(
    backend: Backend, info: TableInfo, partition_ids: Iterable[int | None], spec: OffsetSpec
) -> dict[Place, int]:
    """Return the offsets of all buckets of some partitions, ordered by place.

    Partitions that do not exist any more are left out.
    """
    limit = asyncio.Semaphore(PARTITIONS_AT_ONCE_MAX)

    async def ask(partition_id: int | None) -> dict[Place, int]:
        async with limit:
            try:
                # Partitions of a table that was rescaled have different counts.
                buckets = range(await backend.bucket_count(info, partition_id))
                answer = await backend.list_offsets(info, partition_id, buckets, spec)
            except PartitionNotExistError:
                return {}
        return {(partition_id, bucket): offset for bucket, offset in answer.items()}

    ids = sorted(partition_ids, key=lambda i: place_order((i, 0)))
    answers = await asyncio.gather(*(ask(i) for i in ids), return_exceptions=True)
    found: dict[Place, int] = {}
    for part in answers:
        if isinstance(part, BaseException):
            raise part
        # All of one partition, so that the buckets decide.
        found.update(sorted(part.items()))
    return found
