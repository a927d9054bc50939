"""Scans by intervals, for people: which intervals were read, by whom, and which are missing.

Each interval has a checkpoint of its own, which its commit retires, so a scan by intervals has no
position. What it has taken is the sum of its intervals.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from fluss_orchestrate.core.checkpoints.events import (
    CheckpointState,
    Event,
    EventKind,
    IntervalName,
)
from fluss_orchestrate.core.overview.figures import IntervalScanFigures

PENDING, COMMITTED = "pending", "committed"
_STATES = {
    EventKind.COMMIT: COMMITTED,
    EventKind.ABANDON: "abandoned",
    EventKind.RESET: "reset",
    EventKind.RETIRE: "retired",
}


@dataclass(frozen=True, slots=True)
class IntervalFigures:
    """One interval."""

    name: str
    """Its checkpoint."""
    since_ms: int
    until_ms: int
    table: str
    sink: str
    state: str
    """`pending`, `committed`, `abandoned`, `reset` (it is read again) or `retired`."""
    at_ms: int
    """When its last event was recorded."""
    run_key: str
    rows: int | None
    """None before its commit."""
    offsets: int

    def to_json(self) -> dict[str, Any]:
        """Return the figures as plain values."""
        return asdict(self)


def interval_figures(head: Event) -> IntervalFigures | None:
    """Return the figures of an interval by its last event; None for other checkpoints."""
    name = IntervalName.of(head.name)
    if name is None:
        return None
    state, receipt = head.state, head.receipt
    ranges = state.pending.ranges if state.pending else receipt.ranges if receipt else ()
    return IntervalFigures(
        name=head.name,
        since_ms=name.since_ms,
        until_ms=name.until_ms,
        table="" if state.position is None else str(state.position.table.path),
        sink="" if state.binding is None else state.binding.sink,
        state=PENDING if state.pending is not None else _STATES.get(head.kind, str(head.kind)),
        at_ms=head.created_ms,
        run_key=state.adopted_by or head.run_key,
        rows=None if receipt is None else receipt.rows,
        offsets=sum(r.count for r in ranges),
    )


def without_offsets(head: Event) -> Event:
    """Return the last event of a finished interval without its offsets.

    They are as many as the table has buckets, for each of thousands of intervals.
    """
    state = CheckpointState(retired=head.state.retired)
    return replace(head, state=state, receipt=None, details={}, layers=())


def interval_scan_figures(scan: str, intervals: Sequence[IntervalFigures]) -> IntervalScanFigures:
    """Return the sum of the intervals of a scan."""
    done = [one for one in intervals if one.state == COMMITTED]
    newest = max(intervals, key=lambda one: one.at_ms)
    return IntervalScanFigures(
        name=scan,
        table=newest.table,
        sink=newest.sink,
        committed=len(done),
        pending=sum(one.state == PENDING for one in intervals),
        rows=sum(one.rows or 0 for one in done),
        since_ms=min((one.since_ms for one in done), default=None),
        until_ms=max((one.until_ms for one in done), default=None),
        missing=len(missing_times(done)),
        updated_ms=newest.at_ms,
        last_run=newest.run_key,
    )


def missing_times(intervals: Iterable[IntervalFigures]) -> list[tuple[int, int]]:
    """Return the times between committed intervals that no interval has read, in order."""
    found: list[tuple[int, int]] = []
    end: int | None = None
    for one in sorted(intervals, key=lambda each: each.since_ms):
        if one.state != COMMITTED:
            continue
        if end is not None and one.since_ms > end:
            found.append((end, one.since_ms))
        end = one.until_ms if end is None else max(end, one.until_ms)
    return found
