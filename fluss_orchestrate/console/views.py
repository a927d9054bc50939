"""What pages show, chosen and put in order: what needs attention first, and the worst of many."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from fluss_orchestrate.console import formats
from fluss_orchestrate.core.checkpoints.events import Event, EventKind, now_ms
from fluss_orchestrate.core.checkpoints.report import Lag, retention_ms
from fluss_orchestrate.core.overview.figures import (
    CheckpointFigures,
    Expiry,
    IntervalScanFigures,
    Overview,
    TableFigures,
)
from fluss_orchestrate.core.overview.gathering import TableLook
from fluss_orchestrate.core.overview.samples import Sample
from fluss_orchestrate.core.plan import BucketRange, by_place

T = TypeVar("T")
HOUR_MS = 3_600_000
EXPIRES_SOON_MS = 24 * HOUR_MS
EXPIRES_VERY_SOON_MS = 6 * HOUR_MS
PENDING_LONG_MS = HOUR_MS
BUCKETS_SHOWN_MAX = 500
ROWS_ON_OVERVIEW_MAX = 50
ROWS_PER_PAGE = 200
ATTENTION_MAX = 20
RANGES_SHOWN_MAX = 4
INTERVALS_BESIDE_MAX = 20
"""Intervals on the page of a checkpoint that has backfills, too."""
OWN_DATABASE = "fluss_orchestrate."


@dataclass(frozen=True, slots=True)
class Notice:
    """One thing that needs attention."""

    level: str
    """`bad`, `warn` or `note`."""
    kind: str
    """The page it leads to: `checkpoint` or `table`."""
    name: str
    text: str


@dataclass(frozen=True, slots=True)
class PlaceRow:
    """One bucket on the page of a table or a checkpoint."""

    partition: str | None
    bucket: int
    first: int
    end: int
    position: int | None = None
    unread: int = 0
    lost: int = 0
    committed_ms: int | None = None
    expires_ms: int | None = None
    lake: int | None = None

    @property
    def read_share(self) -> float:
        """The part of what the log holds that was read."""
        held = self.end - self.first
        return 1.0 if held <= 0 else 1 - min(held, self.unread) / held

    def to_json(self) -> dict[str, Any]:
        """Return the row as plain values."""
        return {name: getattr(self, name) for name in self.__dataclass_fields__}


@dataclass(frozen=True, slots=True)
class TakenRow:
    """What the intervals of a scan have taken of one bucket."""

    partition: str | None
    bucket: int
    first: int
    end: int
    ranges: tuple[tuple[int, int], ...]
    """Half-open ranges of offsets, in order."""

    @property
    def offsets(self) -> int:
        """How many offsets were taken."""
        return sum(stop - start for start, stop in self.ranges)

    @property
    def between(self) -> int:
        """How many offsets between the first and the last taken one were not taken."""
        if not self.ranges:
            return 0
        return self.ranges[-1][1] - self.ranges[0][0] - self.offsets

    @property
    def text(self) -> str:
        """The ranges; of many, the last ones."""
        shown = self.ranges[-RANGES_SHOWN_MAX:]
        texts = [f"{formats.number(start)} to {formats.number(stop)}" for start, stop in shown]
        hidden = len(self.ranges) - len(shown)
        more = [f"{formats.number(hidden)} more"] if hidden else []
        return ", ".join([*more, *texts])

    def to_json(self) -> dict[str, Any]:
        """Return the row as plain values."""
        return {name: getattr(self, name) for name in self.__dataclass_fields__}


def notices(overview: Overview) -> list[Notice]:
    """Return what needs attention, the worst first."""
    found: list[Notice] = []
    now = now_ms()
    for one in overview.checkpoints:
        if not one.retired:
            found += [Notice(level, "checkpoint", one.name, text) for level, text in _of(one, now)]
    found += [Notice("warn", "table", t.table, t.problem) for t in overview.tables if t.problem]
    order = {"bad": 0, "warn": 1, "note": 2}
    return sorted(found, key=lambda n: order[n.level])


def _of(one: CheckpointFigures, now: int) -> list[tuple[str, str]]:
    found = []
    if one.lost:
        text = f"{formats.number(one.lost)} offsets were deleted before they were read"
        found.append(("bad", text))
    if one.problem:
        found.append(("warn", one.problem))
    left = None if one.expires_ms is None else one.expires_ms - now
    if left is not None and left < EXPIRES_SOON_MS:
        level = "bad" if left < EXPIRES_VERY_SOON_MS else "warn"
        when = f"in {formats.duration(left)}" if left > 0 else "at any time"
        found.append((level, f"retention may delete unread rows {when}"))
    if one.expiry in (Expiry.UNKNOWN, Expiry.PARTLY) and one.unread:
        text = f"the age of unread rows is unknown in {one.buckets_unknown} buckets"
        found.append(("note", text))
    if one.pending is not None and now - one.pending.created_ms > PENDING_LONG_MS:
        age = formats.ago(one.pending.created_ms)
        found.append(("warn", f"a plan has been pending for {age}, of run {one.pending.run_key}"))
    return found


def by_urgency(checkpoints: Sequence[CheckpointFigures]) -> list[CheckpointFigures]:
    """Return checkpoints, those that need a person first."""
    far = 1 << 62

    def order(one: CheckpointFigures) -> tuple[Any, ...]:
        expires = far if one.expires_ms is None else one.expires_ms
        return (
            one.retired,
            not one.lost,
            not one.problem,
            expires,
            -(one.unread or 0),
            one.name,
        )

    return sorted(checkpoints, key=order)


def level_of(one: CheckpointFigures) -> str:
    """Return `bad`, `warn`, `ok` or `off` for a checkpoint."""
    if one.retired:
        return "off"
    levels = [level for level, _ in _of(one, now_ms())]
    return "bad" if "bad" in levels else "warn" if "warn" in levels else "ok"


def expiry_text(one: CheckpointFigures) -> str:
    """Return the time until retention reaches an unread row, or why there is none."""
    known = formats.until(one.expires_ms)
    return {
        Expiry.READ: "all read",
        Expiry.NEVER: "never",
        Expiry.KNOWN: known,
        Expiry.PARTLY: f"{known} or less",
        Expiry.UNKNOWN: "unknown",
        Expiry.PASSED: "passed" if one.expires_ms is None else f"passed; next in {known}",
    }[one.expiry]


def sums(overview: Overview) -> dict[str, Any]:
    """Return the figures of the whole cluster: for each question, the worst and where it is."""
    used = [c for c in overview.checkpoints if not c.retired]
    counted = [t for t in overview.tables if t.rows is not None]
    rates = [t.offsets_per_s for t in overview.tables if t.offsets_per_s is not None]
    lakes = [t for t in overview.tables if t.lake is not None]
    return {
        "tables": len(overview.tables),
        "buckets": sum(t.buckets for t in overview.tables),
        "rows": sum(t.rows or 0 for t in counted),
        "uncounted": len(overview.tables) - len(counted),
        "rate": sum(rates) if rates else None,
        "checkpoints": len(used),
        "behind": sum(bool(c.unread) for c in used),
        "unread": sum(c.unread or 0 for c in used),
        "latest": _first(used, lambda c: c.oldest_ms if c.unread else None),
        "pending": sum(c.pending is not None for c in used),
        "waiting": _first(used, lambda c: None if c.pending is None else c.pending.created_ms),
        "expiring": _first(used, lambda c: c.expires_ms),
        "unknown": sum(c.expiry in (Expiry.UNKNOWN, Expiry.PARTLY) for c in used),
        "lost": sum(c.lost for c in used),
        "lakes": len(lakes),
        "lake_behind": sum(t.lake.behind for t in lakes if t.lake is not None),
        "lake_unknown": sum(not t.lake.oldest_known for t in lakes if t.lake is not None),
        "lake_oldest": _first(lakes, lambda t: None if t.lake is None else t.lake.oldest_ms),
    }


def _first(named: Sequence[T], time_of: Callable[[T], int | None]) -> T | None:
    """Return the one with the earliest known time; None if none has a time."""
    known = [(at, one) for one in named if (at := time_of(one)) is not None]
    return min(known, key=lambda each: each[0])[1] if known else None


def busiest(tables: Sequence[TableFigures]) -> list[TableFigures]:
    """Return tables: those with a problem, then the busiest; those of this package last."""

    def order(one: TableFigures) -> tuple[Any, ...]:
        own = one.table.startswith(OWN_DATABASE)
        return (not one.problem, own, -(one.offsets_per_s or 0), one.table)

    return sorted(tables, key=order)


def table_places(look: TableLook) -> list[PlaceRow]:
    """Return the buckets of a table, in order."""
    held: Mapping[Any, int | None] = {}
    if look.lake is not None:
        held = {b.place: b.lake_offset for b in look.lake.buckets}
    return [
        PlaceRow(
            partition=look.view.partition_name(place),
            bucket=place[1],
            first=look.earliest.get(place, 0),
            end=end,
            lake=held.get(place),
        )
        for place, end in look.view.latest.items()
    ]


def checkpoint_places(head: Event, look: TableLook) -> list[PlaceRow]:
    """Return the buckets of a checkpoint's table with its position, those behind most first."""
    position = head.state.position
    if position is None:
        return []
    lag: Lag | None = look.lags.get(head.name)
    behind = {} if lag is None else {(p.partition, p.bucket): p for p in lag.places}
    kept_ms = retention_ms(look.view.info)
    rows = []
    for place, end in look.view.latest.items():
        name = look.view.partition_name(place)
        late = behind.get((name, place[1]))
        committed = None if late is None else late.committed_ms
        rows.append(
            PlaceRow(
                partition=name,
                bucket=place[1],
                first=look.earliest.get(place, 0),
                end=end,
                position=position.offsets.get(place),
                unread=0 if late is None else late.offsets,
                lost=0 if late is None else late.lost,
                committed_ms=committed,
                expires_ms=None if committed is None or kept_ms is None else committed + kept_ms,
            )
        )
    rows.sort(key=lambda row: (-row.lost, -row.unread))
    return rows


def taken_places(ranges: Sequence[BucketRange], look: TableLook) -> list[TakenRow]:
    """Return the buckets of a table with what intervals have taken of them, gaps first."""
    taken = by_place(ranges)
    rows = [
        TakenRow(
            partition=look.view.partition_name(place),
            bucket=place[1],
            first=look.earliest.get(place, 0),
            end=end,
            ranges=tuple((r.start, r.stop) for r in taken.get(place, ())),
        )
        for place, end in look.view.latest.items()
    ]
    rows.sort(key=lambda row: -row.between)
    return rows


def commits(events: Sequence[Event]) -> list[tuple[int, float, str]]:
    """Return the rows of each commit for a chart, the oldest first."""
    found = []
    for event in reversed(events):
        if event.kind is EventKind.COMMIT and event.receipt is not None:
            rows = event.receipt.rows
            at = formats.moment(event.created_ms)
            found.append((event.created_ms, float(rows), f"{formats.number(rows)} rows at {at}"))
    return found


def event_row(event: Event) -> dict[str, Any]:
    """Return one event of a checkpoint's history for its page and as JSON."""
    receipt, pending = event.receipt, event.state.pending
    ranges = receipt.ranges if receipt is not None else pending.ranges if pending else ()
    took = None
    if receipt is not None and 0 <= receipt.started_ms <= receipt.finished_ms:
        took = receipt.finished_ms - receipt.started_ms
    details = {**event.details, **(dict(receipt.details) if receipt is not None else {})}
    return {
        "sequence": event.sequence,
        "kind": str(event.kind),
        "at_ms": event.created_ms,
        "run_key": event.run_key,
        "plan_id": event.plan_id,
        "offsets": sum(r.count for r in ranges),
        "ranges": len(ranges),
        "rows": None if receipt is None else receipt.rows,
        "moved": None if receipt is None else receipt.moved,
        "bytes": None if receipt is None else receipt.bytes,
        "took_ms": took,
        "snapshot_id": None if receipt is None else receipt.snapshot_id,
        "reason": str(details.pop("reason", "") or ""),
        "details": {key: value for key, value in details.items() if key not in _SHOWN},
    }


_SHOWN = ("name", "sequence", "of")


def points(samples: Sequence[Sample], value: int) -> list[tuple[int, float | None]]:
    """Return one value of samples for a chart."""
    return [(sample.at_ms, sample.values[value]) for sample in samples]


Named = TableFigures | CheckpointFigures | IntervalScanFigures


def matching(named: Sequence[Named], text: str, run: str = "") -> list[Any]:
    """Return those whose name or table contains a text, whatever its case.

    Args:
        named: Tables, checkpoints, or scans by intervals.
        text: The text; empty for all.
        run: How the run key of their last event begins; empty for all.
    """
    wanted = text.casefold()
    return [
        one
        for one in named
        if (wanted in one.table.casefold() or wanted in getattr(one, "name", "").casefold())
        and _is_of(one, run)
    ]


def _is_of(one: Named, run: str) -> bool:
    if not run or isinstance(one, TableFigures):
        return True
    pending = one.pending if isinstance(one, CheckpointFigures) else None
    keys = (one.last_run, "" if pending is None else pending.run_key)
    return any(key.startswith(run) for key in keys)
