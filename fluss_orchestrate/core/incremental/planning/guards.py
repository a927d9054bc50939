"""Checks of a checkpoint against its table, before anything is planned or read.

Each guard accepts the checkpoint, returns what its policy makes of it, or raises a typed error that
names the ranges.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from fluss_client import OffsetSpec, TableBucket
from fluss_client.engine import Backend, Deadline
from fluss_client.errors import LakeSnapshotNotExistError, LakeStorageNotConfiguredError
from fluss_orchestrate.core.checkpoints.dropped import DroppedPlace, DropRecords
from fluss_orchestrate.core.checkpoints.position import TablePosition, place_order
from fluss_orchestrate.core.errors import (
    LogWentBackwardsError,
    PartitionGoneError,
    RetentionPassedError,
    TableIdentityChangedError,
)
from fluss_orchestrate.core.identity import TableIdentity
from fluss_orchestrate.core.incremental.planning.observation import TableView, offsets_of
from fluss_orchestrate.core.incremental.planning.settings import ScanSettings
from fluss_orchestrate.core.plan import BucketRange, Place

UNKNOWN_END = -1


@dataclass(frozen=True, slots=True)
class Retention:
    """The starts of a plan after the check of retention."""

    starts: Mapping[Place, int]
    lost: tuple[BucketRange, ...] = ()
    """Ranges that are skipped, because they were deleted."""
    from_lake: tuple[BucketRange, ...] = ()
    """Ranges that only the lake has."""


def check_identity(expected: TableIdentity, found: TableIdentity) -> None:
    """Refuse another table, also one with the same name."""
    if expected != found:
        raise TableIdentityChangedError(expected, found)


@dataclass(frozen=True, slots=True)
class PartitionCheck:
    """The result of checking the partitions of a position."""

    position: TablePosition
    """The position without the places of dropped partitions."""
    finished: tuple[BucketRange, ...] = ()
    """Dropped after they were read to their end; the ranges are empty."""
    lost: tuple[BucketRange, ...] = ()
    """Ranges that were not read, and that the policy skips."""
    dropped: tuple[tuple[int, str], ...] = ()
    """The id and name of each dropped partition, if its rows are to be deleted from the sink."""

    def details(self) -> dict[str, Any]:
        """Return the result for the history and the receipt."""
        found: dict[str, Any] = {}
        if self.lost:
            found["gone_ranges"] = [r.to_json() for r in self.lost]
        if self.finished:
            names = dict.fromkeys(r.partition or str(r.partition_id) for r in self.finished)
            found["finished_partitions"] = list(names)
        return found


def check_partitions(
    position: TablePosition, view: TableView, records: DropRecords, policy: str
) -> PartitionCheck:
    """Find the dropped partitions, and distinguish those that were read to their end.

    The records must have been read before the view was taken, so that no partition of a record is
    in the view. Partitions that were created and dropped since the last plan are known by their
    records only.

    Raises:
        PartitionGoneError: Rows were not read, or nobody can tell, and the policy is `fail`.
    """
    absent = sorted((p for p in position.offsets if p not in view.latest), key=place_order)
    left = position.without(absent)
    if policy == "delete":
        gone = sorted({i for i in position.partitions if i not in view.partitions})
        return PartitionCheck(left, dropped=tuple((i, position.partitions[i]) for i in gone))
    dropped = records.of(view.identity)
    finished, lost = [], []
    for place in absent:
        start, record = position.offsets[place], dropped.get(place)
        if record is None:
            lost.append(position.range_from(place, UNKNOWN_END))
        elif record.end <= start:
            finished.append(position.range_from(place, start))
        else:
            lost.append(record.unread(place, start))
    if records.last_used is not None:
        lost += unknown_drops(dropped, position, view, records.last_used, records.last)
    if lost and policy != "forget":
        raise PartitionGoneError(position.table, lost)
    return PartitionCheck(left, tuple(finished), tuple(lost))


def unknown_drops(
    dropped: Mapping[Place, DroppedPlace],
    position: TablePosition,
    view: TableView,
    after: int,
    to: int,
) -> list[BucketRange]:
    """Return the rows of dropped partitions that no position contains.

    They are found in the records in (after, to].
    """
    return [
        record.unread(place, 0)
        for place, record in dropped.items()
        if after < record.sequence <= to
        and record.end > 0
        and place not in position.offsets
        and place not in view.latest
    ]


async def check_not_backwards(
    backend: Backend, view: TableView, ends: Mapping[Place, int], wait_ms: int
) -> TableView:
    """Return the view in which every log reaches the offsets that were read of it.

    After a failover the watermark of the new leader lags for a moment, so this waits before it
    fails.
    """
    deadline = Deadline(wait_ms)
    attempt = 0
    while True:
        behind = [p for p, end in ends.items() if p in view.latest and view.latest[p] < end]
        if not behind:
            return view
        if deadline.passed():
            ranges = [view.range_of(p, view.latest[p], ends[p]) for p in behind]
            raise LogWentBackwardsError(
                view.identity, ranges, "it ends before what was read of it, or is to be read"
            )
        pause_ms = min(deadline.backoff.delay_ms(attempt), max(1.0, deadline.remaining_ms()))
        await asyncio.sleep(pause_ms / 1000)
        attempt += 1
        ids = list(dict.fromkeys(place[0] for place in behind))
        fresh = await offsets_of(backend, view.info, ids, OffsetSpec.latest())
        latest = {**view.latest, **fresh}
        view = TableView(view.info, view.identity, view.partitions, latest)


async def check_retention(
    backend: Backend,
    view: TableView,
    starts: Mapping[Place, int],
    changed: Sequence[Place],
    settings: ScanSettings,
    can_read_lake: bool,
) -> Retention:
    """Return the starts of a plan as the policy for deleted rows says.

    They are unchanged, moved to the first offset that is left, or kept for a read of the lake.
    """
    ids = list(dict.fromkeys(place[0] for place in changed))
    earliest = await offsets_of(backend, view.info, ids, OffsetSpec.earliest()) if ids else {}
    lost = [
        view.range_of(place, starts[place], earliest[place])
        for place in changed
        if earliest.get(place, 0) > starts[place]
    ]
    if not lost:
        return Retention(starts)
    if settings.on_retention == "earliest":
        moved = {**starts, **{r.place: r.stop for r in lost}}
        return Retention(moved, lost=tuple(lost))
    if settings.on_retention == "lake":
        await _check_lake(backend, view, lost, can_read_lake)
        return Retention(starts, from_lake=tuple(lost))
    raise RetentionPassedError(view.identity, lost)


async def _check_lake(
    backend: Backend, view: TableView, lost: Sequence[BucketRange], can_read_lake: bool
) -> None:
    info = view.info
    if info.has_primary_key():
        hint = "the lake holds the state of a key table, not its changes; `reset` to begin anew"
        raise RetentionPassedError(view.identity, lost, hint)
    if not can_read_lake:
        hint = "on_retention='lake' needs a lake_reader"
        raise RetentionPassedError(view.identity, lost, hint)
    try:
        snapshot = await backend.get_lake_snapshot(info.table_path, None, True)
        tiered = snapshot.table_buckets_offset
    except (LakeSnapshotNotExistError, LakeStorageNotConfiguredError):
        tiered = {}
    missing = []
    for r in lost:
        bucket = TableBucket(info.table_id, r.bucket, partition_id=r.partition_id)
        if tiered.get(bucket, 0) < r.stop:
            missing.append(r)
    if missing:
        hint = "the lake does not hold it either; on_retention='earliest' goes on without it"
        raise RetentionPassedError(view.identity, missing, hint)
