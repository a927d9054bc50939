"""The position of a checkpoint: the next offset of every place of one table.

Beside each offset there is, if it is known, the commit time of the batch with the last offset
before it. A log that lost its tail and grew again has the same offsets with other commit times:
this shows that it is not the log that was read.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from fluss_orchestrate.core import plain_values as plain
from fluss_orchestrate.core.identity import TableIdentity
from fluss_orchestrate.core.plan import BucketRange, Place

NO_PARTITION = -1


def place_order(place: Place) -> tuple[int, int]:
    """Return the sort key of a place: its partition id, if it has one, then its bucket."""
    partition_id, bucket = place
    return (NO_PARTITION if partition_id is None else partition_id), bucket


@dataclass(frozen=True, slots=True)
class TablePosition:
    """The next offset of each known place of one table."""

    table: TableIdentity
    offsets: Mapping[Place, int]
    commit_ms: Mapping[Place, int] = field(default_factory=dict)
    """The commit time of the batch with offset - 1, for the places where it is known."""
    partitions: Mapping[int, str] = field(default_factory=dict)
    """Names of the partitions, for people."""
    drops_seen: int | None = None
    """The last record of dropped partitions (`dropped.py`) that the position includes; None in
    positions of earlier versions, which had no records."""
    partitions_seen: int | None = None
    """The highest partition id that existed when the position was taken."""

    def partition_name(self, place: Place) -> str | None:
        """Return the name of the partition of a place, if it has one."""
        return None if place[0] is None else self.partitions.get(place[0])

    def range_from(self, place: Place, stop: int) -> BucketRange:
        """Return the range from this position to `stop`."""
        start = self.offsets.get(place, 0)
        return BucketRange(place[0], self.partition_name(place), place[1], start, stop)

    def advanced(
        self, ranges: Iterable[BucketRange], commit_ms: Mapping[Place, int]
    ) -> TablePosition:
        """Return the position after `ranges` were read.

        It gets the commit times of their last batches. An offset never moves back. A place that
        moves without a commit time loses the one it had.
        """
        offsets = dict(self.offsets)
        times = dict(self.commit_ms)
        partitions = dict(self.partitions)
        for r in ranges:
            place = r.place
            if r.partition_id is not None and r.partition is not None:
                partitions[r.partition_id] = r.partition
            if r.stop <= offsets.get(place, -1):
                continue
            offsets[place] = r.stop
            times.pop(place, None)
            if place in commit_ms:
                times[place] = commit_ms[place]
        return replace(self, offsets=offsets, commit_ms=times, partitions=partitions)

    def without(self, places: Iterable[Place]) -> TablePosition:
        """Return the position without some places."""
        gone = set(places)
        if not gone:
            return self
        offsets = {p: o for p, o in self.offsets.items() if p not in gone}
        times = {p: t for p, t in self.commit_ms.items() if p not in gone}
        left = {p[0] for p in offsets}
        names = {i: n for i, n in self.partitions.items() if i in left}
        return replace(self, offsets=offsets, commit_ms=times, partitions=names)

    def to_json(self) -> dict[str, Any]:
        """Return the position as plain values: the id, name, offsets and times of each partition.

        A bucket is an index into a list, not a key, so that ten thousand places stay small.
        """
        groups: dict[int | None, dict[int, int]] = {}
        for (partition_id, bucket), offset in self.offsets.items():
            groups.setdefault(partition_id, {})[bucket] = offset
        places = []
        for partition_id in sorted(groups, key=lambda p: place_order((p, 0))):
            buckets = groups[partition_id]
            count = max(buckets) + 1
            times = [self.commit_ms.get((partition_id, b)) for b in range(count)]
            name = None if partition_id is None else self.partitions.get(partition_id)
            offsets = [buckets.get(b) for b in range(count)]
            places.append([partition_id, name, offsets, times if any(times) else []])
        seen = {
            key: number
            for key, number in (("drops", self.drops_seen), ("partitions", self.partitions_seen))
            if number is not None
        }
        found: dict[str, Any] = {"table": self.table.to_json(), "places": places}
        return {**found, "seen": seen} if seen else found

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> TablePosition:
        """Return the position from what `to_json` returned."""
        offsets: dict[Place, int] = {}
        commit_ms: dict[Place, int] = {}
        partitions: dict[int, str] = {}
        with plain.reading("position"):
            for given_id, name, by_bucket, times in value["places"]:
                partition_id = plain.number_or_none(given_id)
                if partition_id is not None and name is not None:
                    partitions[partition_id] = plain.text(name)
                for bucket, offset in enumerate(by_bucket):
                    if offset is not None:
                        offsets[partition_id, bucket] = plain.number(offset)
                for bucket, time in enumerate(times):
                    if time is not None and (partition_id, bucket) in offsets:
                        commit_ms[partition_id, bucket] = plain.number(time)
            seen = plain.mapping(value.get("seen", {}))
            return cls(
                TableIdentity.from_json(value["table"]),
                offsets,
                commit_ms,
                partitions,
                plain.number_or_none(seen.get("drops")),
                plain.number_or_none(seen.get("partitions")),
            )
