"""Planning while partitions are created and dropped.

A dropped partition was read to its end, or it was not. For partitions that were dropped through
this package, the store has a record of the drop (`checkpoints/dropped.py`) that answers this. For
others there is no answer, so a dropped partition that an earlier plan has seen is an error by
default.

No plan has seen a partition that was created, filled and dropped between two plans. Only its id is
left: a cluster numbers the partitions of all its tables with one sequence. An id that no partition
of this table has belongs to another table, or to a dropped partition. The plan notes such ids. With
`on_partition_unseen="fail"` the partitions of all tables are listed, and an id that none of them
has is an error. An id above the highest existing one is found once a later partition was created.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterable
from dataclasses import replace
from typing import Any

from fluss_client import FlussConnection, TablePath
from fluss_client.engine import (
    Backend,
    Backoff,
    Deadline,
    backend_of,
    existing_partitions,
    run_blocking,
)
from fluss_client.errors import DatabaseNotExistError, TableNotExistError
from fluss_orchestrate.core.checkpoints.dropped import (
    NO_RECORDS,
    NOTHING_DROPPED,
    DropRecords,
    drops_after,
    last_drop,
)
from fluss_orchestrate.core.checkpoints.position import TablePosition
from fluss_orchestrate.core.checkpoints.store import CheckpointStore
from fluss_orchestrate.core.errors import PartitionGoneError, PartitionUnseenError
from fluss_orchestrate.core.incremental.planning.guards import UNKNOWN_END
from fluss_orchestrate.core.incremental.planning.planner import Draft
from fluss_orchestrate.core.incremental.planning.settings import ScanSettings
from fluss_orchestrate.core.plan import Place

RECORD_WAIT_MS = 2_000
"""How long a process may take from dropping a partition to recording the drop."""
TABLES_AT_ONCE_MAX = 32
ID_RANGES_NOTED_MAX = 100
RECORD_PAUSE = Backoff(first_ms=50, max_ms=50)

MakeDraft = Callable[[DropRecords], Coroutine[Any, Any, Draft]]
IdRange = tuple[int, int]
"""The first and the last of consecutive ids."""


def draft_upon_drops(
    connection: FlussConnection,
    store: CheckpointStore,
    settings: ScanSettings,
    known: TablePosition | None,
    make: MakeDraft,
) -> Draft:
    """Return a draft that takes account of dropped partitions, with notes about what is not known.

    The records are read before `make` observes the table: so no partition of a record is in that
    view.
    """
    if known is not None and is_unpartitioned(known.offsets):
        return run_blocking(make(NOTHING_DROPPED))
    alias = connection.config.resolved_alias()
    seen = None if known is None else known.drops_seen
    draft, records = with_records(store, alias, settings.path, seen, make)
    position = draft.position
    before = None if known is None else known.partitions_seen
    details = unseen_details(connection, settings, known, position, records)
    return replace(
        draft,
        position=as_seen(position, records.last, before),
        details={**draft.details, **details},
    )


def as_seen(position: TablePosition, drops: int, before: int | None = None) -> TablePosition:
    """Return a position that was just taken, with the number of the last record of drops before it.

    `before` is the highest partition id that was seen before.
    """
    if is_unpartitioned(position.offsets):
        return position
    ids = [*position.partitions, -1 if before is None else before]
    return replace(position, drops_seen=drops, partitions_seen=max(ids))


def with_records(
    store: CheckpointStore, alias: str, path: TablePath, seen: int | None, make: MakeDraft
) -> tuple[Draft, DropRecords]:
    """Return a draft that uses the records after `seen`, or all records if those leave a gap."""
    last = last_drop(store, alias, path)
    if seen is None:
        records = DropRecords({}, last)
    else:
        # The checkpoint may have been imported from another store, which had more records.
        records = drops_after(store, alias, path, seen if seen <= last else NO_RECORDS)
    last_used = records.last_used
    deadline: Deadline | None = None
    while True:
        try:
            return run_blocking(make(records)), records
        except PartitionGoneError as error:
            known_ends = all(r.stop != UNKNOWN_END for r in error.ranges)
            if records.last == NO_RECORDS or known_ends:
                raise
            # Another process may just have dropped the partition, and will record the drop next.
            if deadline is None:
                deadline = Deadline(RECORD_WAIT_MS, RECORD_PAUSE)
            elif deadline.passed():
                raise
            else:
                deadline.backoff.pause_blocking(0)
            records = replace(drops_after(store, alias, path, NO_RECORDS), last_used=last_used)


def is_unpartitioned(places: Iterable[Place]) -> bool:
    """Return whether these are places of a table without partitions."""
    first = next(iter(places), None)
    return first is not None and first[0] is None


def unseen_details(
    connection: FlussConnection,
    settings: ScanSettings,
    before: TablePosition | None,
    now: TablePosition,
    records: DropRecords,
) -> dict[str, Any]:
    """Return which partitions may have been created and dropped since the last plan.

    Raises:
        PartitionUnseenError: The policy is `fail`, and such a partition was there, of this table
            or of another one.
    """
    if before is None or before.table != now.table or before.partitions_seen is None:
        return {}
    recorded = {place[0] for place in records.of(now.table) if place[0] is not None}
    ids = gaps(before.partitions_seen, {*now.partitions, *recorded})
    if not ids:
        return {}
    if settings.on_partition_unseen == "fail":
        _check_unseen(connection, now, ids)
    count = sum(last - first + 1 for first, last in ids)
    ranges = [list(r) for r in ids[:ID_RANGES_NOTED_MAX]]
    return {"unseen_partition_ids": {"count": count, "ranges": ranges}}


def gaps(above: int, ids: Iterable[int]) -> list[IdRange]:
    """Return the ranges of missing ids, above a number and below the highest id."""
    found = []
    for number in sorted(i for i in ids if i > above):
        if number > above + 1:
            found.append((above + 1, number - 1))
        above = number
    return found


def _check_unseen(connection: FlussConnection, position: TablePosition, ids: list[IdRange]) -> None:
    """Raise unless each id belongs to a partition that exists in the cluster."""
    backend = backend_of(connection)
    held: set[int] = set()
    # Listing takes time. The second listing finds the partitions that were created meanwhile.
    for _ in range(2):
        held |= run_blocking(partition_ids(backend))
        left = [part for first, last in ids for part in gaps(first - 1, _within(held, first, last))]
        if not left:
            return
    raise PartitionUnseenError(position.table, left)


def _within(held: set[int], first: int, last: int) -> set[int]:
    """Return the known ids of a range, and the id after it, so that a gap at its end is found."""
    return {i for i in held if first <= i <= last} | {last + 1}


async def partition_ids(backend: Backend) -> set[int]:
    """Return the ids of all partitions of all tables that this user may see."""
    gate = asyncio.Semaphore(TABLES_AT_ONCE_MAX)

    async def of_table(path: TablePath) -> list[int]:
        async with gate:
            try:
                info = await backend.get_table_info(path)
                if not info.is_partitioned():
                    return []
                return [p.partition_id for p in await existing_partitions(backend, info)]
            except TableNotExistError:
                return []

    async def of_database(name: str) -> list[TablePath]:
        try:
            return [TablePath(name, table) for table in await backend.list_tables(name)]
        except DatabaseNotExistError:
            return []

    databases = await backend.list_databases()
    paths = [path for name in databases for path in await of_database(name)]
    found = await asyncio.gather(*(of_table(path) for path in paths))
    return {number for numbers in found for number in numbers}
