"""The settings of a scan, checked once."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import pyarrow as pa

from fluss_client import LakeSnapshot, TableBucket, TablePath
from fluss_client.errors import ConfigError
from fluss_orchestrate.core.checkpoints.events import check_checkpoint_name
from fluss_orchestrate.core.plan import METADATA_COLUMNS, Place, ScanPlan
from fluss_orchestrate.core.receipts import Receipt
from fluss_orchestrate.core.times import Time, as_time_ms

ON_PENDING = ("adopt", "wait", "skip", "fail")
ON_RETENTION = ("fail", "earliest", "lake")
ON_PARTITION_GONE = ("fail", "forget", "delete")
ON_PARTITION_UNSEEN = ("note", "fail")
ON_LATE_ROWS = ("read", "note", "fail")
ON_RECREATED = ("fail", "restart")
ON_COVERED = ("fail", "skip")
ON_COMMITTED = ("keep", "again")
PENDING_TIMEOUT_MS = 600_000
BACKWARDS_WAIT_MS = 5_000

Offsets = Mapping[int, int] | Mapping[Place, int] | Mapping[TableBucket, int]
"""Offsets by bucket, by (partition id, bucket), or by `TableBucket`."""
Start = str | Time | Offsets
"""`earliest`, `latest`, `state`, a time, or offsets."""
Until = str | Time | Offsets | LakeSnapshot | Receipt
"""`latest`, `lake`, a time, offsets, a lake snapshot, or another run's receipt."""

LakeReader = Callable[[ScanPlan], Iterable[pa.RecordBatch]]
"""Reads a plan of one range from the lake: its rows by offset, in the plan's columns."""


@dataclass(frozen=True)
class ScanSettings:
    """The settings of one scan."""

    name: str
    path: TablePath
    columns: tuple[str, ...] | None = None
    """None reads the columns that the table has when a plan is made."""
    metadata_columns: tuple[str, ...] = ()
    start: Start = field(default="earliest")
    on_pending: str = "adopt"
    on_retention: str = "fail"
    on_partition_gone: str = "fail"
    """What a plan does about a partition that was dropped before it was read to its end. `delete`
    is for mirrors: the plan makes the sink delete the rows of dropped partitions."""
    on_partition_unseen: str = "note"
    """What a plan does about ids of partitions that it cannot have seen: note them in the history,
    or list the partitions of all tables and fail for ids that none of them has."""
    on_late_rows: str = "read"
    """What a plan does about rows that were written for partitions that had expired (Fluss 1.0):
    `read` them, leave them out and `note` that in the plan, or `fail`."""
    on_recreated: str = "fail"
    on_covered: str = "fail"
    """What an interval does with rows that another checkpoint brings into the same sink."""
    on_committed: str = "keep"
    """What a run does whose plan was committed before: `keep` writes nothing, `again` gives the
    same rows to the sink once more."""
    pending_timeout_ms: int = PENDING_TIMEOUT_MS
    backwards_wait_ms: int = BACKWARDS_WAIT_MS
    settle_ms: int | None = None

    def __post_init__(self) -> None:
        check_checkpoint_name(self.name)
        one_of("on_pending", self.on_pending, ON_PENDING)
        one_of("on_retention", self.on_retention, ON_RETENTION)
        one_of("on_partition_gone", self.on_partition_gone, ON_PARTITION_GONE)
        one_of("on_partition_unseen", self.on_partition_unseen, ON_PARTITION_UNSEEN)
        one_of("on_late_rows", self.on_late_rows, ON_LATE_ROWS)
        one_of("on_recreated", self.on_recreated, ON_RECREATED)
        one_of("on_covered", self.on_covered, ON_COVERED)
        one_of("on_committed", self.on_committed, ON_COMMITTED)
        if isinstance(self.start, str) and as_time_ms(self.start) is None:
            one_of("start", self.start, ("earliest", "latest", "state"))
        for name in self.metadata_columns:
            one_of("metadata_columns", name, METADATA_COLUMNS)
        if self.columns is not None and not self.columns:
            raise ConfigError("columns must name at least one column; leave it out to read all")
        named = [*(self.columns or ()), *self.metadata_columns]
        if len(set(named)) != len(named):
            raise ConfigError(f"a column is named twice: {named}")


def names_of(columns: Sequence[str] | None) -> tuple[str, ...] | None:
    """Return column names as a tuple, and refuse a single text, which is a sequence of letters."""
    if isinstance(columns, str):
        raise ConfigError(f"columns takes a list of names, not '{columns}'")
    return None if columns is None else tuple(columns)


def place_offsets(offsets: Offsets) -> dict[Place, int]:
    """Return offsets by place, from any of the accepted keys."""
    found: dict[Place, int] = {}
    for key, offset in offsets.items():
        if isinstance(key, TableBucket):
            place: Place = (key.partition_id, key.bucket_id)
        elif isinstance(key, tuple):
            place = key
        else:
            place = (None, int(key))
        if not isinstance(offset, int) or offset < 0:
            raise ConfigError(f"{offset!r} is no offset (bucket {place[1]})")
        found[place] = offset
    return found


def one_of(what: str, value: str, allowed: Sequence[str]) -> None:
    """Raise `ConfigError` for a setting that has another value than those that are allowed."""
    if value not in allowed:
        raise ConfigError(f"{what} is one of {', '.join(allowed)}, not '{value}'")
