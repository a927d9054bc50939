"""Offsets of many buckets at once."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping

from fluss_client.backend.contract import Backend
from fluss_client.errors import UnknownTableOrBucketError
from fluss_client.model.cluster import EARLIEST_OFFSET, LATEST_OFFSET, OffsetSpec
from fluss_client.model.table import TableBucket, TableInfo

PARTITIONS_AT_ONCE_MAX = 32
"""Requests in flight; a table may have thousands of partitions."""

Ranges = Mapping[TableBucket, tuple[int, int]]
"""Half-open ranges of offsets, `(start, stop)`."""
SPECS = {EARLIEST_OFFSET: OffsetSpec.earliest(), LATEST_OFFSET: OffsetSpec.latest()}


async def bucket_offsets(
    backend: Backend, table: TableInfo, buckets: Iterable[TableBucket], spec: OffsetSpec
) -> dict[TableBucket, int]:
    """Return an offset of every bucket, with one request per partition.

    Raises:
        UnknownTableOrBucketError: The server sent no offset for a bucket.
    """
    by_partition: dict[int | None, list[TableBucket]] = {}
    for bucket in buckets:
        by_partition.setdefault(bucket.partition_id, []).append(bucket)
    limit = asyncio.Semaphore(PARTITIONS_AT_ONCE_MAX)
    found: dict[TableBucket, int] = {}

    async def ask(partition_id: int | None, members: list[TableBucket]) -> None:
        async with limit:
            ids = [bucket.bucket_id for bucket in members]
            answer = await backend.list_offsets(table, partition_id, ids, spec)
        for bucket in members:
            if bucket.bucket_id not in answer:
                raise UnknownTableOrBucketError(f"no offset was given for {bucket}")
            found[bucket] = answer[bucket.bucket_id]

    # All requests end before an error is raised, so that none goes on in the background.
    calls = [ask(partition_id, members) for partition_id, members in by_partition.items()]
    for outcome in await asyncio.gather(*calls, return_exceptions=True):
        if outcome is not None:
            raise outcome
    return found


async def resolve_offsets(
    backend: Backend, table: TableInfo, positions: dict[TableBucket, int]
) -> dict[TableBucket, int]:
    """Return the positions with the offsets that `EARLIEST_OFFSET` and `LATEST_OFFSET` mean."""
    resolved = dict(positions)
    for mark, spec in SPECS.items():
        marked = [bucket for bucket, offset in positions.items() if offset == mark]
        if marked:
            resolved.update(await bucket_offsets(backend, table, marked, spec))
    return resolved


async def ranges_to_latest(
    backend: Backend, table: TableInfo, positions: dict[TableBucket, int]
) -> dict[TableBucket, tuple[int, int]]:
    """Return the range from each position to the latest offset of now."""
    starts = await resolve_offsets(backend, table, positions)
    stops = await bucket_offsets(backend, table, positions, OffsetSpec.latest())
    return {b: (start, max(start, stops[b])) for b, start in starts.items()}
