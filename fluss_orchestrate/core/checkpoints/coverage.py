"""Which rows of a table one sink gets from which checkpoint.

An incremental scan (a cursor) takes all rows from its begin on; a scan by intervals takes ranges of
the log in any order. Both may bring rows of one table into one sink, and neither knows the position
of the other. So each claims its rows here before it records a plan, and rows that another scan has
claimed are refused. There is one history per sink and table, under a reserved name of the store.
Its last event contains all claims, and a claim is a compare-and-set like every other event.

A cursor claims once per generation: from its first offset on, without an end. An interval claims
its ranges, and when it is committed they are merged with those of its scan's other intervals.

A sink that keeps the last row of each key must get the rows of a bucket in their order. For such a
sink, rows from before those that were claimed are refused, and so are rows from after an interval
that is not committed yet.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from fluss_orchestrate.core import plain_values as plain
from fluss_orchestrate.core.checkpoints.events import CALLER, RESERVED, Event, EventKind
from fluss_orchestrate.core.checkpoints.position import place_order
from fluss_orchestrate.core.checkpoints.store import CheckpointStore
from fluss_orchestrate.core.checkpoints.transitions import claim_event
from fluss_orchestrate.core.errors import (
    EarlierRowsPendingError,
    RowsOutOfOrderError,
    RowsTakenError,
)
from fluss_orchestrate.core.identity import TableIdentity
from fluss_orchestrate.core.plan import (
    BucketRange,
    Generation,
    Place,
    Position,
    by_place,
    generation_json,
    without,
)

NAME_PREFIX = f"{RESERVED}coverage{RESERVED}"
EVENTS_AT_ONCE = 500
NO_END = plain.NUMBER_MAX
"""The end of a cursor's claim, which has no end."""


@dataclass(frozen=True, slots=True)
class CursorClaim:
    """The claim of an incremental scan: all rows from `begin` on; other places from offset 0 on."""

    generation: Generation | None
    begin: Position

    def to_json(self) -> dict[str, Any]:
        """Return the claim as plain values."""
        begin = [[p, b, offset] for (p, b), offset in self.begin.items() if offset > 0]
        return {"generation": generation_json(self.generation), "begin": begin}

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> CursorClaim:
        """Return the claim from what `to_json` returned."""
        begin = {
            (plain.number_or_none(p), plain.number(b)): plain.number(offset)
            for p, b, offset in value["begin"]
        }
        return cls(Generation.from_json(value["generation"]), begin)


@dataclass(frozen=True, slots=True)
class IntervalClaim:
    """The claim of an interval that is not committed yet: its ranges."""

    ranges: tuple[BucketRange, ...]
    upon: int
    """The sequence of the interval's last event at the time of the claim. If the plan was abandoned
    after that, the claim is void. If it was abandoned before, the interval plans again next."""

    def to_json(self) -> dict[str, Any]:
        """Return the claim as plain values."""
        return {"ranges": [r.to_json() for r in self.ranges], "upon": self.upon}

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> IntervalClaim:
        """Return the claim from what `to_json` returned."""
        return cls(_ranges(value["ranges"]), plain.number(value["upon"]))


@dataclass(frozen=True)
class Coverage:
    """All claims on the rows of one table for one sink."""

    cursors: Mapping[str, CursorClaim] = field(default_factory=dict)
    intervals: Mapping[str, IntervalClaim] = field(default_factory=dict)
    """The claims of intervals that are not committed yet, by checkpoint."""
    settled: Mapping[str, tuple[BucketRange, ...]] = field(default_factory=dict)
    """What the committed intervals of a scan have taken, by the name of the scan."""
    scans: tuple[str, ...] = ()
    """The scans whose history is included."""

    def to_json(self) -> dict[str, Any]:
        """Return the claims as plain values."""
        return {
            "cursors": {name: claim.to_json() for name, claim in self.cursors.items()},
            "intervals": {name: claim.to_json() for name, claim in self.intervals.items()},
            "settled": {n: [r.to_json() for r in rs] for n, rs in self.settled.items()},
            "scans": list(self.scans),
        }

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> Coverage:
        """Return the claims from what `to_json` returned."""
        with plain.reading("coverage of a sink"):
            cursors = plain.mapping(value["cursors"])
            intervals = plain.mapping(value["intervals"])
            settled = plain.mapping(value["settled"])
            return cls(
                {name: CursorClaim.from_json(claim) for name, claim in cursors.items()},
                {name: IntervalClaim.from_json(claim) for name, claim in intervals.items()},
                {name: _ranges(ranges) for name, ranges in settled.items()},
                plain.texts(value["scans"]),
            )


@dataclass(frozen=True, slots=True)
class _Taken:
    """The rows that one checkpoint takes: ranges, or all rows from the begin of a cursor on."""

    owner: str
    ranges: tuple[BucketRange, ...] = ()
    cursor: CursorClaim | None = None
    interval: IntervalClaim | None = None

    def at(self, places: Iterable[Place]) -> list[BucketRange]:
        """Return what is taken of some places."""
        if self.cursor is None:
            return list(self.ranges)
        begin = self.cursor.begin
        return [_range(place, begin.get(place, 0), NO_END) for place in places]


class CoverageLedger:
    """The claims on one table for one sink. Many processes may use it at the same time.

    `scan` is the name of the scan that uses it. Rows that it took without a claim are found in its
    history.
    """

    def __init__(self, store: CheckpointStore, sink: str, table: TableIdentity, scan: str) -> None:
        self._store = store
        self._sink = sink
        self._table = table
        self._scan = scan
        key = json.dumps([sink, table.to_json()], sort_keys=True, separators=(",", ":"))
        self._name = NAME_PREFIX + hashlib.sha256(key.encode()).hexdigest()[:32]

    def claim_cursor(
        self,
        name: str,
        generation: Generation | None,
        begin: Position,
        *,
        extend: bool = False,
        in_order: bool = False,
    ) -> None:
        """Claim all rows from `begin` on for an incremental scan, instead of its earlier claim.

        With `extend` an earlier claim keeps its begin: the scan continues in a new generation, and
        the sink keeps what it took before. `in_order` says that the sink keeps the last row of each
        key.

        Raises:
            RowsTakenError: if another checkpoint brings some of these rows into the sink.
            EarlierRowsPendingError: if rows from before these are not committed yet.
        """

        def step(now: Coverage) -> Coverage:
            known = now.cursors.get(name)
            first = known.begin if extend and known is not None else begin
            for taken in self._taken(now, name):
                places = sorted({*first, *(r.place for r in taken.ranges)}, key=place_order)
                wanted = [_range(place, first.get(place, 0), NO_END) for place in places]
                common = self._common(wanted, taken)
                if common or taken.cursor is not None:
                    hint = (
                        f"Use another sink, or begin where '{taken.owner}' ends with start= or a "
                        "reset; if the sink does not hold those rows any more, `reset` "
                        f"'{taken.owner}', and if it is not used any more, `retire` it"
                    )
                    raise RowsTakenError(name, taken.owner, self._sink, common, hint)
                if in_order:
                    self._check_order(name, wanted, taken)
            return replace(now, cursors={**now.cursors, name: CursorClaim(generation, first)})

        self._advance(step)

    def claim_interval(
        self,
        name: str,
        head: Event | None,
        ranges: Sequence[BucketRange],
        *,
        skip_taken: bool,
        in_order: bool = False,
    ) -> tuple[BucketRange, ...]:
        """Claim ranges for one interval, instead of its earlier claim, and return what is left.

        With `skip_taken`, rows that another checkpoint takes are left out. `in_order` says that the
        sink keeps the last row of each key. An interval that was reset may be written again after
        newer ones: a person has decided that.

        Raises:
            RowsTakenError: if another checkpoint brings some of these rows into the sink.
            RowsOutOfOrderError: if newer rows are in the sink already.
            EarlierRowsPendingError: if rows from before these are not committed yet.
        """
        left: tuple[BucketRange, ...] = ()
        upon = -1 if head is None else head.sequence
        again = head is not None and head.state.generation is not None

        def step(now: Coverage) -> Coverage:
            nonlocal left
            left = tuple(ranges)
            others = list(self._taken(now, name, again))
            for taken in others:
                common = self._common(left, taken)
                if common and not skip_taken:
                    raise RowsTakenError(name, taken.owner, self._sink, common)
                left = without(left, common) if common else left
            if in_order and not again:
                for taken in others:
                    self._check_order(name, left, taken)
            return replace(now, intervals={**now.intervals, name: IntervalClaim(left, upon)})

        self._advance(step)
        return left

    def settle(self, name: str, ranges: Sequence[BucketRange]) -> None:
        """Merge the ranges of a committed interval with those of its scan's other intervals."""

        def step(now: Coverage) -> Coverage | None:
            if name not in now.intervals:
                return None
            merged = merged_ranges((*now.settled.get(self._scan, ()), *ranges))
            left = {other: claim for other, claim in now.intervals.items() if other != name}
            return replace(now, intervals=left, settled={**now.settled, self._scan: merged})

        self._advance(step)

    def settled(self) -> tuple[BucketRange, ...]:
        """Return what the committed intervals of the scan have taken, in as few ranges as possible.

        Intervals of earlier versions are missing until the scan plans again.
        """
        head = self._store.head(self._name)
        if head is None:
            return ()
        return Coverage.from_json(head.details["coverage"]).settled.get(self._scan, ())

    def _advance(self, step: Callable[[Coverage], Coverage | None]) -> None:
        def event(head: Event | None) -> Event | None:
            now = Coverage() if head is None else Coverage.from_json(head.details["coverage"])
            if self._scan not in now.scans:
                now = self._with_history(now)
            after = step(now)
            if after is None:
                return None
            details = {
                "sink": self._sink,
                "table": self._table.to_json(),
                "coverage": after.to_json(),
            }
            return claim_event(head, self._name, details)

        self._store.advance(self._name, event)

    def _taken(self, now: Coverage, name: str, again: bool = False) -> Iterator[_Taken]:
        """Return what checkpoints other than `name` take.

        `again` says that the interval was reset to be read again. Then the rows of its scan's other
        intervals do not count as taken.
        """
        for owner, claim in now.cursors.items():
            found = None if owner == name else self._of_cursor(owner, claim)
            if found is not None:
                yield found
        for owner, interval in now.intervals.items():
            if owner != name:
                yield _Taken(owner, interval.ranges, interval=interval)
        for owner, ranges in now.settled.items():
            if not (again and owner == self._scan):
                yield _Taken(owner, ranges)

    def _common(self, wanted: Sequence[BucketRange], taken: _Taken) -> list[BucketRange]:
        """Return the parts of `wanted` that another checkpoint takes."""
        common = _common(wanted, taken.at([r.place for r in wanted]))
        return [] if common and self._is_void(taken) else common

    def _check_order(self, name: str, wanted: Sequence[BucketRange], taken: _Taken) -> None:
        """Refuse rows from before those that are taken, or after those that are not committed."""
        others = by_place(taken.at([r.place for r in wanted]))
        older = [r for r in wanted if any(t.start >= r.stop for t in others.get(r.place, ()))]
        if older and not self._is_void(taken):
            raise RowsOutOfOrderError(name, taken.owner, self._sink, older)
        if taken.interval is None:
            return  # what is before `wanted` is committed
        newer = [r for r in wanted if any(t.stop <= r.start for t in others.get(r.place, ()))]
        if newer and not self._is_void(taken):
            raise EarlierRowsPendingError(name, taken.owner, self._sink, newer)

    def _is_void(self, taken: _Taken) -> bool:
        """Return whether the claim is one of an interval whose plan was abandoned after it."""
        if taken.interval is None:
            return False
        head = self._store.head(taken.owner)
        if head is None or head.kind is not EventKind.ABANDON:
            return False
        return head.sequence > taken.interval.upon

    def _of_cursor(self, owner: str, claim: CursorClaim) -> _Taken | None:
        """Return what an incremental scan takes, by its history.

        The result is None if the scan was reset or has another sink.
        """
        head = self._store.head(owner)
        if head is None:
            # It has claimed and is about to plan.
            return _Taken(owner, cursor=claim)
        state = head.state
        if state.generation != claim.generation:
            return None
        if state.binding is not None and state.binding.sink != self._sink:
            return None
        if state.retired and state.position is not None:
            ends = state.position.offsets.items()
            taken = (_range(place, claim.begin.get(place, 0), end) for place, end in ends)
            return _Taken(owner, tuple(r for r in taken if r.start < r.stop))
        return _Taken(owner, cursor=claim)

    def _with_history(self, now: Coverage) -> Coverage:
        """Return the claims with the rows that the scan took without a claim, by its history.

        An earlier version of this package did so, or the checkpoint was imported from another
        store.
        """
        cursors = dict(now.cursors)
        head = self._store.head(self._scan)
        if head is not None and self._may_have_taken(head):
            begin = first_offsets(self._store, self._scan)
            cursors[self._scan] = CursorClaim(head.state.generation, begin)
        settled: list[BucketRange] = []
        pending = dict(now.intervals)
        for name in self._store.names():
            head = self._store.head(name) if name.startswith(f"{self._scan}/[") else None
            if head is None or not self._may_have_taken(head):
                continue
            if head.state.pending is not None:
                pending[name] = IntervalClaim(head.state.pending.ranges, head.sequence)
            elif head.receipt is not None:
                settled += head.receipt.ranges
        by_scan = {**now.settled, **({self._scan: merged_ranges(settled)} if settled else {})}
        return Coverage(cursors, pending, by_scan, (*now.scans, self._scan))

    def _may_have_taken(self, head: Event) -> bool:
        """Return whether a checkpoint may have brought rows of this table into this sink."""
        position, bound = head.state.position, head.state.binding
        if position is None or position.table != self._table:
            return False
        return bound is None or bound.sink == self._sink


def ledger_of(
    store: CheckpointStore, sink: str, table: TableIdentity, scan: str
) -> CoverageLedger | None:
    """Return the claims for a sink; None for callers, who may each write to another place."""
    return None if sink == CALLER else CoverageLedger(store, sink, table, scan)


def first_offsets(store: CheckpointStore, name: str) -> Position:
    """Return the offsets at which a checkpoint first began; 0 where the history does not say.

    Resets of earlier versions did not begin a generation, so the lowest offset of all counts.
    """
    head = store.head(name)
    if head is None:
        return {}
    begins: list[Position] = []
    for start in range(0, head.sequence + 1, EVENTS_AT_ONCE):
        events = store.log.events(name, start, min(start + EVENTS_AT_ONCE, head.sequence + 1))
        if start == 0 and not (events and events[0].sequence == 0):
            return {}
        begins += [
            event.state.position.offsets
            for event in events
            if event.state.position is not None
            and (event.sequence == 0 or event.kind is EventKind.RESET)
        ]
    places = {place for begin in begins for place in begin}
    return {place: min(begin.get(place, 0) for begin in begins) for place in places}


def _range(place: Place, start: int, stop: int) -> BucketRange:
    return BucketRange(place[0], None, place[1], start, stop)


def _ranges(value: Any) -> tuple[BucketRange, ...]:
    return tuple(BucketRange.from_json(r) for r in value)


def _common(wanted: Iterable[BucketRange], taken: Iterable[BucketRange]) -> list[BucketRange]:
    """Return the parts of `wanted` that are in `taken` too."""
    others = by_place(taken)
    return [
        replace(r, start=max(r.start, other.start), stop=min(r.stop, other.stop))
        for r in wanted
        for other in others.get(r.place, ())
        if max(r.start, other.start) < min(r.stop, other.stop)
    ]


def merged_ranges(ranges: Iterable[BucketRange]) -> tuple[BucketRange, ...]:
    """Return the same offsets in as few ranges as possible, in the order of place and offset."""
    merged: list[BucketRange] = []
    grouped = by_place(ranges)
    for place in sorted(grouped, key=place_order):
        for r in sorted(grouped[place], key=lambda r: r.start):
            last = merged[-1] if merged else None
            if last is not None and last.place == place and r.start <= last.stop:
                merged[-1] = replace(last, stop=max(last.stop, r.stop))
            else:
                merged.append(r)
    return tuple(merged)
