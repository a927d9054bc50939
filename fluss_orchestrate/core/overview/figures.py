"""The figures of an overview: plain, frozen values that go to pages, JSON and metrics alike.

Times are absolute (milliseconds since 1970), so that a figure that was kept for a while does not
become wrong. `None` always means that something is not known, or does not apply; it never means 0.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import Any

from fluss_orchestrate.core import plain_values as plain

OVERVIEW_VERSION = 1


class Expiry(StrEnum):
    """What is known of the time at which retention may delete the first unread row."""

    READ = "all read"
    """Nothing is unread."""
    NEVER = "never"
    """The table keeps its rows for ever."""
    KNOWN = "known"
    """The commit time of the oldest unread row of every bucket is known."""
    PARTLY = "partly known"
    """It is known for some buckets: another one may be earlier."""
    UNKNOWN = "unknown"
    PASSED = "passed"
    """Rows were deleted before they were read."""


@dataclass(frozen=True, slots=True)
class LakeFigures:
    """The lake of a table."""

    snapshot_id: int | None
    """None before the first snapshot."""
    behind: int
    """Offsets of the log that are not in the lake."""
    oldest_ms: int | None
    """When the oldest row was committed that is not in the lake; None without one, or unknown."""
    oldest_known: bool = True
    """Whether `oldest_ms` takes account of every bucket that is behind."""


@dataclass(frozen=True, slots=True)
class TableFigures:
    """One table."""

    table: str
    """`database.table`"""
    kind: str = ""
    """`log` or `primary key`; empty with a problem."""
    partitions: int | None = None
    """None for a table without partitions."""
    buckets: int = 0
    """Buckets of all partitions."""
    offsets: int = 0
    """The sum of the end offsets of all buckets."""
    rows: int | None = None
    """Rows in the log of a log table, keys of a key table; None if servers do not count them."""
    bytes: int | None = None
    """The size in Arrow's form by a sample of rows; servers of 0.9 do not tell what a table takes.
    """
    offsets_per_s: float | None = None
    """The rate since the pass before; None in the first pass."""
    retention_ms: int | None = None
    """`table.log.ttl`; None if rows are kept for ever."""
    partitions_expire: bool = False
    """Whether auto-partitioning also drops old partitions whole."""
    lake: LakeFigures | None = None
    problem: str = ""
    """Why the table could not be looked at."""


@dataclass(frozen=True, slots=True)
class PendingFigures:
    """A plan that was neither committed nor abandoned."""

    plan_id: str
    run_key: str
    """The run that made the plan."""
    adopted_by: str
    """The run that took it over; empty if none did."""
    created_ms: int
    offsets: int
    ranges: int


@dataclass(frozen=True, slots=True)
class CheckpointFigures:
    """One checkpoint."""

    name: str
    table: str = ""
    """`database.table`; empty before the first plan."""
    events: int = 0
    last_event: str = ""
    updated_ms: int = 0
    retired: bool = False
    unread: int | None = None
    lost: int = 0
    """Offsets that retention deleted before they were read."""
    oldest_ms: int | None = None
    """When the oldest unread row was committed."""
    expiry: Expiry = Expiry.UNKNOWN
    expires_ms: int | None = None
    """The earliest time at which retention may delete an unread row."""
    buckets_behind: int = 0
    buckets_unknown: int = 0
    """Buckets that are behind, and whose oldest unread row has no known time."""
    pending: PendingFigures | None = None
    last_run: str = ""
    """The run of the last event."""
    problem: str = ""


@dataclass(frozen=True, slots=True)
class IntervalScanFigures:
    """All intervals of one scan by intervals. Each has a checkpoint of its own."""

    name: str
    """The scan."""
    table: str = ""
    sink: str = ""
    committed: int = 0
    """Intervals that were read."""
    pending: int = 0
    rows: int = 0
    since_ms: int | None = None
    """The begin of the earliest interval that was read."""
    until_ms: int | None = None
    """The end of the latest interval that was read."""
    missing: int = 0
    """Times between these two that no interval has read."""
    updated_ms: int = 0
    last_run: str = ""


@dataclass(frozen=True, slots=True)
class Overview:
    """Tables, checkpoints and lakes at one moment."""

    observed_ms: int
    took_ms: int
    alias: str
    address: str
    servers: int
    tables: tuple[TableFigures, ...]
    checkpoints: tuple[CheckpointFigures, ...]
    """Those in use come first; retired ones after them."""
    intervals: tuple[IntervalScanFigures, ...] = ()

    def to_json(self) -> dict[str, Any]:
        """Return the overview as plain values."""
        return {"version": OVERVIEW_VERSION, **asdict(self)}

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> Overview:
        """Return the overview from what `to_json` returned."""
        with plain.reading("overview"):
            plain.check_version(value, OVERVIEW_VERSION, "an overview")
            parts = ("version", "tables", "checkpoints", "intervals")
            rest = {k: v for k, v in value.items() if k not in parts}
            return cls(
                **rest,
                tables=tuple(_table(each) for each in value["tables"]),
                checkpoints=tuple(_checkpoint(each) for each in value["checkpoints"]),
                intervals=tuple(IntervalScanFigures(**e) for e in value.get("intervals", ())),
            )


def _table(value: Mapping[str, Any]) -> TableFigures:
    lake = value["lake"]
    return TableFigures(**{**value, "lake": None if lake is None else LakeFigures(**lake)})


def _checkpoint(value: Mapping[str, Any]) -> CheckpointFigures:
    pending = value["pending"]
    return CheckpointFigures(
        **{
            **value,
            "expiry": Expiry(value["expiry"]),
            "pending": None if pending is None else PendingFigures(**pending),
        }
    )
