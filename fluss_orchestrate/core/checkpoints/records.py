"""What a store keeps of an event: a record, and how the event is rebuilt from records.

The position is the part of an event that grows with its table: it names every bucket. So the
records of a large checkpoint have what changed of it (`layers.py`), and an event that a store
returns always has the whole position. Whole records are of version 1 or 2, as earlier releases
write them; a record with a change is of version 3, or of version 4 if it is built upon an event of
another name, which those refuse. They may add events where the last record is whole, and this
release goes on from there.

A record is one row, or a few rows of one batch, so it is there as a whole or not at all. What it is
built upon was visible before it was made and never changes: nothing is written before or after it,
nothing is ever written again, and nothing must be deleted. If a store has lost events or was
exchanged, one that a record is built upon is missing or has another nonce. Then, or if the sums of
the position differ, whatever uses the position raises `CheckpointHistoryError`. The history can be
looked at, and the checkpoint can be reset.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, TypeVar

from fluss_orchestrate.core import plain_values as plain
from fluss_orchestrate.core.checkpoints.events import (
    Event,
    EventKind,
    body_content,
    event_of,
    reading_record,
)
from fluss_orchestrate.core.checkpoints.layers import PositionLayer, built, follow
from fluss_orchestrate.core.checkpoints.position import TablePosition
from fluss_orchestrate.core.errors import CheckpointHistoryError

K = TypeVar("K")
V = TypeVar("V")

RecordRow = Mapping[str, Any]
"""A record in a store: `name`, `seq`, `kind`, `nonce` and `body`."""
RecordKey = tuple[str, int]
Fetch = Callable[[Sequence[RecordKey]], Iterable[RecordRow]]
"""Returns the records of some names and sequences, without those that do not exist."""


def recorded(event: Event, previous: Event | None) -> tuple[Event, bytes]:
    """Return an event with its layers, and the body of its record.

    Args:
        event: The event.
        previous: The event before it, as the store has returned it.
    """
    position = event.state.position
    if position is None:
        return replace(event, layers=(), upon=None), event.body()
    key = (event.name, event.sequence)
    upon = event.upon
    if upon is None and event.kind is not EventKind.RESET:
        upon = previous
    before = None if upon is None else upon.state.position
    if upon is None or before is None:
        layer = PositionLayer.of_whole(key, event.nonce, position)
    else:
        # Only a hint. To compare all places takes long where there are many.
        places = None
        pending = upon.state.pending
        if event.kind is EventKind.COMMIT and pending is not None:
            places = frozenset(r.place for r in pending.ranges)
        layer = PositionLayer.upon(upon.layers, key, event.nonce, before, position, places)
    below = () if upon is None else upon.layers[: len(layer.on)]
    return replace(event, layers=(*below, layer), upon=None), event.body(layer.to_json())


def rebuilt(
    rows: Iterable[RecordRow],
    fetch: Fetch,
    known: Mapping[str, Event],
    *,
    at_once: bool = False,
) -> list[Event]:
    """Return the events of some records, each with its whole position.

    Args:
        rows: The records.
        fetch: Reads the records that these are built upon.
        known: Events by name that were read before, whose layers are used again.
        at_once: Build the positions now rather than when they are used first: for the last event
            of a name. A history may be too long for all its positions.
    """
    read = [_Read.of(row) for row in rows]
    below = {layer.key: layer for event in known.values() for layer in event.layers}
    below |= {r.layer.key: r.layer for r in read if r.layer is not None}
    missing = dict.fromkeys(key for r in read for key in r.keys_below if key not in below)
    below |= _fetched(fetch, missing)
    events = []
    for one in read:
        layers = one.upon(below)
        if not follow(layers):
            # What is known may be of a store that was exchanged since.
            layers = one.upon(_fetched(fetch, one.keys_below))
        events.append(_whole(one.event, layers, at_once))
    return events


@dataclass(frozen=True, slots=True)
class _Read:
    """A record, before its position is built."""

    event: Event
    """Without a position."""
    layer: PositionLayer | None

    @classmethod
    def of(cls, row: RecordRow) -> _Read:
        with reading_record(row["name"], row["seq"]):
            content = body_content(row["name"], row["body"])
            state = plain.mapping(content["state"])
            key = (row["name"], int(row["seq"]))
            layer = PositionLayer.from_json(key, row["nonce"], state["position"])
            return cls(event_of(row, {**content, "state": {**state, "position": None}}), layer)

    @property
    def keys_below(self) -> list[RecordKey]:
        return [] if self.layer is None else list(self.layer.on)

    def upon(self, below: Mapping[RecordKey, PositionLayer]) -> tuple[PositionLayer, ...]:
        """Return the layer after those below it; empty without a position."""
        if self.layer is None:
            return ()
        return (*(below[key] for key in self.keys_below if key in below), self.layer)


def _fetched(fetch: Fetch, keys: Iterable[RecordKey]) -> dict[RecordKey, PositionLayer]:
    """Return the layers of the records of some events, as far as they exist."""
    wanted = list(keys)
    read = [_Read.of(row) for row in fetch(wanted)] if wanted else []
    return {r.layer.key: r.layer for r in read if r.layer is not None}


def _whole(event: Event, layers: tuple[PositionLayer, ...], at_once: bool) -> Event:
    """Return the event with its position, now or when it is used."""
    if not layers:
        return event

    last = layers[-1]
    position = built(layers) if at_once and follow(layers) else last.whole
    if position is None:
        later, seen = _Later(event, layers), last.change
        position = TablePosition(
            last.table,
            _Part(later, "offsets"),
            _Part(later, "commit_ms"),
            _Part(later, "partitions"),
            seen.drops_seen,
            seen.partitions_seen,
        )
    receipt = event.receipt
    if receipt is not None:
        receipt = replace(receipt, position=position.offsets)
    state = replace(event.state, position=position)
    return replace(event, state=state, receipt=receipt, layers=layers)


class _Later:
    """A position that is built when it is used first, or that cannot be built."""

    def __init__(self, event: Event, layers: tuple[PositionLayer, ...]) -> None:
        self._event = event
        self._layers = layers

    @cached_property
    def position(self) -> TablePosition:
        position = built(self._layers) if follow(self._layers) else None
        if position is None:
            raise CheckpointHistoryError(self._event.name, self._event.sequence)
        return position


class _Part(Mapping[K, V]):
    """One mapping of a position that is built later."""

    __slots__ = ("_later", "_name")

    def __init__(self, later: _Later, name: str) -> None:
        self._later = later
        self._name = name

    def _found(self) -> Mapping[K, V]:
        found: Mapping[K, V] = getattr(self._later.position, self._name)
        return found

    def __getitem__(self, key: K) -> V:
        return self._found()[key]

    def __iter__(self) -> Iterator[K]:
        return iter(self._found())

    def __len__(self) -> int:
        return len(self._found())
