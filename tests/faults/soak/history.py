"""What was written, what was acknowledged, and what must be found of it: a pure judgement.

Every row has a number that no other write has: `writer * APART + n`, in the order in which its
writer sent them. What was acknowledged must be there; what was not may be there or not. Nothing may
be there twice, in another order than it was sent within a bucket, or without having been sent.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

APART = 1 << 40
"""Between the numbers of two writers."""
SHOWN_MAX = 5

Numbers = npt.NDArray[np.int64]


def numbers(values: Iterable[int] | Numbers) -> Numbers:
    """Numbers as an array."""
    if isinstance(values, np.ndarray):
        return values.astype(np.int64)
    return np.fromiter(values, np.int64)


@dataclass
class Findings:
    """What is wrong with a place; all is well if every list is empty."""

    place: str
    lost: list[str] = field(default_factory=list)
    doubled: list[str] = field(default_factory=list)
    reordered: list[str] = field(default_factory=list)
    foreign: list[str] = field(default_factory=list)
    """Rows that nobody sent, or that the place should not have."""
    rows: int = 0
    """How many rows were judged."""

    @property
    def is_well(self) -> bool:
        """Whether nothing was found."""
        return not (self.lost or self.doubled or self.reordered or self.foreign)

    def __str__(self) -> str:
        found = {
            kind: f"{len(rows)}: {rows[:SHOWN_MAX]}"
            for kind in ("lost", "doubled", "reordered", "foreign")
            if (rows := getattr(self, kind))
        }
        return f"{self.place}: {found or 'as it should be'} ({self.rows} rows)"


@dataclass
class Written:
    """What all writers did: ranges of numbers that were sent, and those that were acknowledged."""

    sent: list[tuple[int, int]] = field(default_factory=list)
    """First number, and the number after the last."""
    acknowledged: list[tuple[int, int]] = field(default_factory=list)

    def count(self) -> int:
        """How many rows were acknowledged."""
        return sum(stop - start for start, stop in self.acknowledged)


@dataclass(frozen=True)
class Rows:
    """The rows of a log, or of a copy of one: where each is in the log, and its number."""

    bucket: Numbers
    offset: Numbers
    number: Numbers

    def __len__(self) -> int:
        return len(self.number)

    @classmethod
    def of(cls, rows: Iterable[tuple[int, int, int]]) -> Rows:
        """Rows given one by one: bucket, offset, number."""
        columns: Sequence[Sequence[int]] = list(zip(*rows, strict=True)) or [(), (), ()]
        return cls(*(numbers(column) for column in columns))

    def in_order(self) -> Rows:
        """Sorted by bucket and offset."""
        order = np.lexsort((self.offset, self.bucket))
        return Rows(self.bucket[order], self.offset[order], self.number[order])


def _expanded(ranges: Iterable[tuple[int, int]]) -> Numbers:
    parts = [np.arange(start, stop, dtype=np.int64) for start, stop in ranges]
    return np.concatenate(parts) if parts else numbers([])


def _names(found: Numbers) -> list[str]:
    return [f"{int(n) // APART}/{int(n) % APART}" for n in found]


def judge_log(place: str, written: Written, rows: Rows, *, gapless: bool = True) -> Findings:
    """Judge a whole log by what its writers did.

    Args:
        place: What the findings call it.
        written: What was sent and acknowledged.
        rows: All rows of the log.
        gapless: Whether the offsets of a bucket are 0, 1, 2, ...; a changelog has other rows, too.
    """
    found = Findings(place, rows=len(rows))
    unique, counts = np.unique(rows.number, return_counts=True)
    found.lost = _names(np.setdiff1d(_expanded(written.acknowledged), unique))
    found.doubled = _names(unique[counts > 1])
    found.foreign = _names(np.setdiff1d(unique, _expanded(written.sent)))
    ordered = rows.in_order()
    # Of the rows of one bucket and one writer, none comes after one that was sent later.
    by_writer = np.lexsort((ordered.offset, ordered.number // APART, ordered.bucket))
    number, bucket = ordered.number[by_writer], ordered.bucket[by_writer]
    same = (bucket[1:] == bucket[:-1]) & (number[1:] // APART == number[:-1] // APART)
    found.reordered = _names(number[1:][same & (number[1:] < number[:-1])])
    for each in np.unique(ordered.bucket) if gapless else ():
        offsets = ordered.offset[ordered.bucket == each]
        if len(offsets) != offsets[-1] + 1 or offsets[0] != 0:
            found.foreign.append(f"bucket {each}: offsets are not 0 to {len(offsets) - 1}")
    return found


def judge_copy(place: str, log: Rows, copy: Rows, *, arrival: bool = False) -> Findings:
    """Judge a copy, which must have each row of a log once, with its bucket and offset.

    Args:
        place: What the findings call it.
        log: The rows of the log.
        copy: The rows of the copy.
        arrival: The rows of the copy are given in the order in which it keeps them, and that must
            be the order of the log within each bucket.
    """
    found = Findings(place, rows=len(copy))
    unique, counts = np.unique(copy.number, return_counts=True)
    found.lost = _names(np.setdiff1d(log.number, unique))
    found.doubled = _names(unique[counts > 1])
    found.foreign = _names(np.setdiff1d(unique, log.number))
    _, wanted, had = np.intersect1d(log.number, copy.number, return_indices=True)
    moved = (log.bucket[wanted] != copy.bucket[had]) | (log.offset[wanted] != copy.offset[had])
    found.foreign += [f"{name} is elsewhere" for name in _names(log.number[wanted][moved])]
    if arrival:
        for bucket in np.unique(copy.bucket):
            mine = copy.bucket == bucket
            offsets, named = copy.offset[mine], copy.number[mine]
            found.reordered += _names(named[1:][offsets[1:] < offsets[:-1]])
    return found


@dataclass
class KeyWritten(Written):
    """What the writer of each key did, in the order in which it was sent."""

    changes: list[tuple[int, dict[int, int | None]]] = field(default_factory=list)
    """First number of each request, and the number that each key then has; None was deleted."""

    def acceptable(self) -> dict[int, set[int | None]]:
        """The values that each key may have in the end.

        That is the last one that was acknowledged, or one that was sent and not acknowledged: a
        request whose client is gone may still lie with a server that was stopped.
        """
        acknowledged = {start for start, _ in self.acknowledged}
        last: dict[int, int | None] = {}
        open_: dict[int, set[int | None]] = {}
        for first, change in self.changes:
            for key, value in change.items():
                if first in acknowledged:
                    last[key] = value
                else:
                    open_.setdefault(key, set()).add(value)
        return {key: {last.get(key)} | open_.get(key, set()) for key in last.keys() | open_.keys()}


def judge_keys(place: str, written: KeyWritten, state: Sequence[tuple[int, int]]) -> Findings:
    """Judge the rows of a key table, or of a mirror of one, by what its writers did.

    Args:
        place: What the findings call it.
        written: What was sent and acknowledged.
        state: Key and number of every row that was found.
    """
    found = Findings(place, rows=len(state))
    values: dict[int, int] = {}
    for key, value in state:
        if key in values:
            found.doubled.append(f"key {key}")
        values[key] = value
    acceptable = written.acceptable()
    for key, wanted in acceptable.items():
        value = values.get(key)
        if value not in wanted:
            kind = found.lost if value is None or value not in _ever(written, key) else None
            (found.reordered if kind is None else kind).append(
                f"key {key} has {value}, not one of {sorted(wanted, key=str)[:SHOWN_MAX]}"
            )
    found.foreign = [f"key {key}" for key in values if key not in acceptable]
    return found


def _ever(written: KeyWritten, key: int) -> set[int | None]:
    return {change[key] for _, change in written.changes if key in change}


def judge_equal(
    place: str, wanted: Mapping[int, int], state: Sequence[tuple[int, int]]
) -> Findings:
    """Judge a copy of a key table, which must have the rows of the table and no others."""
    found = Findings(place, rows=len(state))
    values = dict(state)
    if len(values) != len(state):
        found.doubled.append(f"{len(state) - len(values)} keys come twice")
    for key in wanted.keys() | values.keys():
        if key not in values:
            found.lost.append(f"key {key}")
        elif key not in wanted:
            found.foreign.append(f"key {key}")
        elif values[key] != wanted[key]:
            found.reordered.append(f"key {key} has {values[key]}, not {wanted[key]}")
    return found


def folded(changes: Iterable[tuple[str, int, int]]) -> dict[int, int]:
    """The rows that a changelog leaves: change type, key and number of each record, in order."""
    state: dict[int, int] = {}
    for kind, key, value in changes:
        if kind in ("-D", "-U"):
            state.pop(key, None)
        else:
            state[key] = value
    return state
