"""Records of partitions that were dropped through this package, with the end of their logs.

No server knows where the log of a dropped partition ended. So the code that drops a partition
records its end offsets right after the drop, under a reserved name of the checkpoint store, one
event per partition. A scan whose position contains a dropped partition compares: if the partition
was read to its end, the scan forgets it; otherwise an error names the range that was not read.

The record is written after the drop, never before it: rows could be written after a record without
a drop, and would be lost. If a process dies in between, there is no record, and the scan raises.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from fluss_client import PartitionInfo, TablePath
from fluss_orchestrate.core.checkpoints.events import (
    RESERVED,
    CheckpointState,
    Event,
    EventKind,
    new_nonce,
    now_ms,
)
from fluss_orchestrate.core.checkpoints.position import TablePosition
from fluss_orchestrate.core.checkpoints.store import CheckpointStore
from fluss_orchestrate.core.checkpoints.transitions import check_not_retired, next_sequence
from fluss_orchestrate.core.identity import TableIdentity
from fluss_orchestrate.core.plan import BucketRange, Place

NO_RECORDS = -1
RECORDS_AT_ONCE_MAX = 500
_NAME_LENGTH_MAX = 200


@dataclass(frozen=True, slots=True)
class DroppedPlace:
    """One bucket of a dropped partition."""

    partition: str | None
    end: int
    """The end offset of its log right before the drop."""
    sequence: int
    """Of the record."""

    def unread(self, place: Place, start: int) -> BucketRange:
        """Return the range that was not read, from `start` on."""
        return BucketRange(place[0], self.partition, place[1], start, self.end)


@dataclass(frozen=True, slots=True)
class DropRecords:
    """The records of the drops at one table path, as far as they were read."""

    places: Mapping[tuple[TableIdentity, Place], DroppedPlace]
    last: int = NO_RECORDS
    """The sequence of the last record; -1 if there is none."""
    last_used: int | None = None
    """The last record that the scan used before; None if it has not used any."""

    def of(self, table: TableIdentity) -> dict[Place, DroppedPlace]:
        """Return the dropped places of one table, not those of other tables of its name."""
        return {place: found for (of, place), found in self.places.items() if of == table}


NOTHING_DROPPED = DropRecords({})


def record_dropped(
    store: CheckpointStore,
    table: TableIdentity,
    partition: PartitionInfo,
    ends: Mapping[int, int],
    since: int = NO_RECORDS,
) -> None:
    """Record that a partition was just dropped, and the end offset of each of its buckets.

    If two processes drop a partition at the same time, only one records it: a scan would take a
    second record for another drop. `since` is the last record before the partition was seen for the
    last time.
    """
    name = _name(table.cluster, table.path)
    number = partition.partition_id
    position = TablePosition(
        table,
        {(number, bucket): end for bucket, end in ends.items()},
        {},
        {number: partition.partition_name},
    )

    def step(head: Event | None) -> Event | None:
        known = drops_after(store, table.cluster, table.path, since).of(table)
        if any(place[0] == number for place in known):
            return None
        return Event(
            name=name,
            sequence=next_sequence(head),
            kind=EventKind.RESET,
            state=CheckpointState(position=position),
            nonce=new_nonce(),
            created_ms=now_ms(),
            details={"dropped": partition.partition_name},
        )

    store.advance(name, step)


def last_drop(store: CheckpointStore, cluster: str, path: TablePath) -> int:
    """Return the sequence of the last record; -1 if there is none."""
    head = store.head(_name(cluster, path))
    return NO_RECORDS if head is None else head.sequence


def last_drop_to_add_to(store: CheckpointStore, cluster: str, path: TablePath) -> int:
    """Return the sequence of the last record before a drop, and refuse a store that was moved."""
    name = _name(cluster, path)
    head = store.head(name)
    check_not_retired(f"drops of {path}", head)
    return NO_RECORDS if head is None else head.sequence


def drops_after(
    store: CheckpointStore, cluster: str, path: TablePath, sequence: int
) -> DropRecords:
    """Return the records after a sequence; -1 returns all of them."""
    last = last_drop(store, cluster, path)
    places: dict[tuple[TableIdentity, Place], DroppedPlace] = {}
    for start in range(sequence + 1, last + 1, RECORDS_AT_ONCE_MAX):
        stop = min(last + 1, start + RECORDS_AT_ONCE_MAX)
        places |= _places(store.log.events(_name(cluster, path), start, stop))
    return DropRecords(places, last, sequence)


def _places(events: Iterable[Event]) -> dict[tuple[TableIdentity, Place], DroppedPlace]:
    found = {}
    for event in events:
        position = event.state.position
        if event.kind is not EventKind.RESET or position is None:
            continue  # The store was moved.
        for place, end in position.offsets.items():
            name = position.partition_name(place)
            found[position.table, place] = DroppedPlace(name, end, event.sequence)
    return found


def _name(cluster: str, path: TablePath) -> str:
    name = f"{cluster}/{path}"
    if len(name) > _NAME_LENGTH_MAX:
        name = hashlib.sha256(name.encode()).hexdigest()
    return f"{RESERVED}dropped{RESERVED}{name}"
