"""The layers of a position: the whole one of an early event, and what later events changed of it.

A layer is what one record says about the position. Let w be the last event with the whole position.
Event w + r has the change since event w + (r & (r - 1)), which is r without its lowest bit: 1 and 2
since 0, 3 since 2, 4 since 0, 5 since 4, 6 since 4, 7 since 6. So the position after an event is
built of the whole one and one change per bit of r, however long the history is: `bases` has their
numbers.

The position is whole in the first event of a name; after a RESET; with another table; with at most
`WHOLE_PLACES_MAX` places, where a change saves nothing; and when the change would name half of the
places or more. So what is read is less than two positions, and what is written is what changed,
times at most log2 of the number of events over which the changes spread.

The events need not have one name: the first event of a name may be built upon an event of another
one, which the store has, too. So the plan of an interval is built upon the boundary where it
begins, and a boundary upon an earlier one. Such a layer has its `depth`, the r above; otherwise
that follows from the sequences.

The form in JSON is `TablePosition.to_json()` for a whole position, and for a change

    {"table":  identity of the table,
     "on":     [w, ..., e],               the events that it is built upon, in order: sequences, or
                                          [name, sequence] for an event of another name
     "depth":  r,                         only if there is one of another name
     "nonce":  nonce of event e,
     "change": PositionChange.to_json(),  since event e
     "check":  [number of places, sum of the offsets, sum of the commit times]}
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from fluss_orchestrate.core import plain_values as plain
from fluss_orchestrate.core.checkpoints.position import TablePosition
from fluss_orchestrate.core.checkpoints.position_change import PositionChange
from fluss_orchestrate.core.identity import TableIdentity
from fluss_orchestrate.core.plan import Place

WHOLE_PLACES_MAX = 256
"""A whole record of 256 places has 1 to 3 KB, one with a change of 16 of them about 600 bytes."""

LayerKey = tuple[str, int]
"""The name and the sequence of an event."""
Check = tuple[int, int, int]
"""The number of places, the sum of the offsets, the sum of the commit times."""


@dataclass(frozen=True, slots=True)
class PositionLayer:
    """What the record of one event says about the position."""

    name: str
    sequence: int
    nonce: str
    """Of the event."""
    table: TableIdentity
    check: Check
    """Of the position after the event."""
    whole: TablePosition | None = field(default=None, repr=False)
    on: tuple[LayerKey, ...] = ()
    """The events that a change is built upon, in order; empty with a whole position."""
    depth: int = 0
    """How many events there are since the whole position, in the chain that leads to this one."""
    base_nonce: str = ""
    """The nonce of the last one."""
    change: PositionChange = field(default_factory=PositionChange, repr=False)
    """Since the event of that nonce."""

    @property
    def key(self) -> LayerKey:
        """The name and the sequence of the event."""
        return self.name, self.sequence

    @classmethod
    def of_whole(cls, key: LayerKey, nonce: str, position: TablePosition) -> PositionLayer:
        """Return the layer of an event that has the whole position."""
        return cls(*key, nonce, position.table, check_of(position), position)

    @classmethod
    def upon(
        cls,
        layers: Sequence[PositionLayer],
        key: LayerKey,
        nonce: str,
        before: TablePosition,
        after: TablePosition,
        places: frozenset[Place] | None = None,
    ) -> PositionLayer:
        """Return the layer of the event after some others.

        Args:
            layers: The layers of the event before it, which may be of another name.
            key: The name and the sequence of the event.
            nonce: Its nonce.
            before: The position before the event.
            after: The position after it.
            places: The only places that may differ, if they are known.
        """
        places_count = len(after.offsets)
        if not layers or places_count <= WHOLE_PLACES_MAX or before.table != after.table:
            return cls.of_whole(key, nonce, after)
        depth = layers[-1].depth + 1
        on = tuple(layer.key for layer in layers[: depth.bit_count()])
        check = check_of(after)
        change = _change(before, after, places, layers[-1].check, check)
        for layer in reversed(layers[len(on) :]):
            change = layer.change.then(change)
        if 2 * change.size >= places_count:
            return cls(*key, nonce, after.table, check, after)
        base_nonce = layers[len(on) - 1].nonce
        return cls(*key, nonce, after.table, check, None, on, depth, base_nonce, change)

    def to_json(self) -> dict[str, Any] | None:
        """Return the change as plain values; None for a whole position, which an event has."""
        if self.whole is not None:
            return None
        return {
            "table": self.table.to_json(),
            "on": [at if name == self.name else [name, at] for name, at in self.on],
            **({"depth": self.depth} if self.is_upon_others else {}),
            "nonce": self.base_nonce,
            "change": self.change.to_json(),
            "check": list(self.check),
        }

    @property
    def is_upon_others(self) -> bool:
        """Whether it is built upon events of other names."""
        return any(name != self.name for name, _ in self.on)

    @classmethod
    def from_json(cls, key: LayerKey, nonce: str, value: Any) -> PositionLayer | None:
        """Return the layer from the position in a record; None if the event has none."""
        if value is None:
            return None
        if "on" not in value:
            return cls.of_whole(key, nonce, TablePosition.from_json(value))
        with plain.reading("change of a position"):
            on = tuple(_key_of(key[0], one) for one in value["on"])
            mine = [at for name, at in on if name == key[0]]
            late = mine != sorted(mine) or max(mine, default=-1) >= key[1]
            if not on or len({*on}) < len(on) or late:
                raise ValueError(f"it is built upon the events {value['on']}")
            depth = value["depth"] if "depth" in value else key[1] - on[0][1]
            places, offsets, times = value["check"]
            return cls(
                *key,
                nonce,
                TableIdentity.from_json(value["table"]),
                (plain.number(places), _sum(offsets), _sum(times)),
                None,
                on,
                plain.number(depth),
                plain.text(value["nonce"]),
                PositionChange.from_json(value["change"]),
            )


def follow(layers: Sequence[PositionLayer]) -> bool:
    """Return whether each layer is a change of the one before it, and the first one is whole."""
    if not layers or layers[0].whole is None:
        return False
    keys = tuple(layer.key for layer in layers)
    return all(
        layer.whole is None
        and layer.on == keys[:at]
        and layer.base_nonce == layers[at - 1].nonce
        and layer.table == layers[0].table
        for at, layer in enumerate(layers)
        if at
    )


def built(layers: Sequence[PositionLayer]) -> TablePosition | None:
    """Return the position of layers that `follow` each other; None if it fails their check."""
    position = layers[0].whole
    assert position is not None
    if len(layers) == 1:
        return position
    change = layers[1].change
    for layer in layers[2:]:
        change = change.then(layer.change)
    position = change.apply(position)
    return position if check_of(position) == layers[-1].check else None


def check_of(position: TablePosition) -> Check:
    """Return the numbers that a rebuilt position must have, too."""
    offsets, times = position.offsets, position.commit_ms
    return len(offsets), sum(offsets.values()), sum(times.values())


def _change(
    before: TablePosition,
    after: TablePosition,
    places: frozenset[Place] | None,
    was: Check,
    check: Check,
) -> PositionChange:
    """Return the change, by the places that may differ if they explain all of it."""
    if places is not None:
        change = PositionChange.between(before, after, places)
        at = [before.offsets.get(place, 0) for place in (*change.moved, *change.gone)]
        times = [before.commit_ms.get(place, 0) for place in (*change.moved, *change.gone)]
        new = sum(place not in before.offsets for place in change.moved)
        reached = change.moved.values()
        explained = (
            was[0] + new - len(change.gone),
            was[1] - sum(at) + sum(offset for offset, _ in reached),
            was[2] - sum(times) + sum(time or 0 for _, time in reached),
        )
        if explained == check:
            return change
    return PositionChange.between(before, after)


def _key_of(name: str, value: Any) -> LayerKey:
    """Return the event of an entry of `on`, in the record of an event of this name."""
    if isinstance(value, list):
        other, sequence = value
        return plain.text(other), plain.number(sequence)
    return name, plain.number(value)


def _sum(value: Any) -> int:
    """Return a sum, which may be larger than an offset is."""
    if not isinstance(value, int) or isinstance(value, bool):
        raise TypeError(f"{value!r} is no sum")
    return value
