"""The difference between two positions of one table, and its form in JSON.

    {"moved":   [[partition id, [bucket, ...], [offset, ...], [commit time or null, ...]], ...],
     "gone":    [[partition id, [bucket, ...]], ...],
     "names":   [[partition id, name], ...],
     "unnamed": [partition id, ...],
     "seen":    [last record of drops, highest partition id]}

`moved` has the places whose offset or commit time is another one, and the new places. `gone` has
the places that the position does not have any more. Lists are in the order of partition id and
bucket, and a list of times without a time is empty. An entry without content is left out, but for
`seen`, which has the numbers after the change.

A change says how a position becomes another one: `between(a, b).apply(a) == b`. Two changes in a
row are one: `x.then(y).apply(a) == y.apply(x.apply(a))`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

from fluss_orchestrate.core import plain_values as plain
from fluss_orchestrate.core.checkpoints.position import TablePosition, place_order
from fluss_orchestrate.core.plan import Place

K = TypeVar("K")
V = TypeVar("V")

Reached = tuple[int, int | None]
"""The offset of a place, and its commit time, if that is known."""


@dataclass(frozen=True, slots=True)
class PositionChange:
    """What changes between two positions of the same table."""

    moved: Mapping[Place, Reached] = field(default_factory=dict)
    gone: frozenset[Place] = frozenset()
    names: Mapping[int, str] = field(default_factory=dict)
    """Names of partitions that are new or have another name."""
    unnamed: frozenset[int] = frozenset()
    drops_seen: int | None = None
    """Its value after the change, as that of `partitions_seen`."""
    partitions_seen: int | None = None

    @classmethod
    def between(
        cls, before: TablePosition, after: TablePosition, places: Iterable[Place] | None = None
    ) -> PositionChange:
        """Return the change that makes `after` of `before`.

        Args:
            before: A position.
            after: A later position of the same table.
            places: The only places that may differ, if the caller knows them. Comparing all places
                takes long if there are many.
        """
        names, unnamed = _difference(before.partitions, after.partitions)
        moved: set[Place] = set()
        gone: set[Place] = set()
        if places is None:
            for part in ("offsets", "commit_ms"):
                moved.update(*_difference(getattr(before, part), getattr(after, part)))
            gone = {place for place in moved if place not in after.offsets}
        else:
            for place in places:
                if place not in after.offsets:
                    gone.add(place)
                elif _reached(before, place) != _reached(after, place):
                    moved.add(place)
        return cls(
            {place: (after.offsets[place], after.commit_ms.get(place)) for place in moved - gone},
            frozenset(gone),
            names,
            frozenset(unnamed),
            after.drops_seen,
            after.partitions_seen,
        )

    @property
    def size(self) -> int:
        """The number of places that the change names."""
        return len(self.moved) + len(self.gone)

    def then(self, later: PositionChange) -> PositionChange:
        """Return one change for this one and a later one."""
        kept = {place: to for place, to in self.moved.items() if place not in later.gone}
        named = {number: n for number, n in self.names.items() if number not in later.unnamed}
        return replace(
            later,
            moved={**kept, **later.moved},
            gone=(self.gone - later.moved.keys()) | later.gone,
            names={**named, **later.names},
            unnamed=(self.unnamed - later.names.keys()) | later.unnamed,
        )

    def apply(self, before: TablePosition) -> TablePosition:
        """Return the position after the change."""
        offsets, times = dict(before.offsets), dict(before.commit_ms)
        names = dict(before.partitions)
        for place in self.gone:
            offsets.pop(place, None)
            times.pop(place, None)
        for place, (offset, time) in self.moved.items():
            offsets[place] = offset
            if time is None:
                times.pop(place, None)
            else:
                times[place] = time
        for number in self.unnamed:
            names.pop(number, None)
        names.update(self.names)
        return TablePosition(
            before.table, offsets, times, names, self.drops_seen, self.partitions_seen
        )

    def to_json(self) -> dict[str, Any]:
        """Return the change as plain values."""
        value: dict[str, Any] = {}
        if self.moved:
            value["moved"] = [
                [partition_id, buckets, [self.moved[partition_id, b][0] for b in buckets], times]
                for partition_id, buckets in _by_partition(self.moved)
                for times in [_times(self.moved[partition_id, b][1] for b in buckets)]
            ]
        if self.gone:
            value["gone"] = [list(group) for group in _by_partition(self.gone)]
        if self.names:
            value["names"] = [[number, self.names[number]] for number in sorted(self.names)]
        if self.unnamed:
            value["unnamed"] = sorted(self.unnamed)
        return {**value, "seen": [self.drops_seen, self.partitions_seen]}

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> PositionChange:
        """Return the change from what `to_json` returned."""
        moved: dict[Place, Reached] = {}
        with plain.reading("change of a position"):
            for given_id, buckets, offsets, given_times in value.get("moved", ()):
                partition_id = plain.number_or_none(given_id)
                times = given_times or [None] * len(buckets)
                for bucket, offset, time in zip(buckets, offsets, times, strict=True):
                    reached = plain.number(offset), plain.number_or_none(time)
                    moved[partition_id, plain.number(bucket)] = reached
            gone = frozenset(
                (plain.number_or_none(partition_id), plain.number(bucket))
                for partition_id, buckets in value.get("gone", ())
                for bucket in buckets
            )
            drops_seen, partitions_seen = value["seen"]
            return cls(
                moved,
                gone,
                {plain.number(n): plain.text(name) for n, name in value.get("names", ())},
                frozenset(plain.number(n) for n in value.get("unnamed", ())),
                plain.number_or_none(drops_seen),
                plain.number_or_none(partitions_seen),
            )


def _difference(before: Mapping[K, V], after: Mapping[K, V]) -> tuple[dict[K, V], set[K]]:
    """Return what is new or another value in `after`, and the keys that it does not have."""
    if before is after or before == after:
        return {}, set()
    changed = {k: v for k, v in after.items() if k not in before or before[k] != v}
    return changed, {k for k in before if k not in after}


def _reached(position: TablePosition, place: Place) -> tuple[int | None, int | None]:
    return position.offsets.get(place), position.commit_ms.get(place)


def _by_partition(places: Iterable[Place]) -> list[tuple[int | None, list[int]]]:
    groups: dict[int | None, list[int]] = {}
    for partition_id, bucket in sorted(places, key=place_order):
        groups.setdefault(partition_id, []).append(bucket)
    return list(groups.items())


def _times(times: Iterable[int | None]) -> list[int | None]:
    found = list(times)
    return found if any(time is not None for time in found) else []
