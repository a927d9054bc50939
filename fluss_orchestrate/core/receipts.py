"""Receipts: the small, versioned JSON that says what a run did.

One shape goes to XCom, asset events, Dagster's metadata, OpenLineage facets and the command line.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from fluss_orchestrate.core import plain_values as plain
from fluss_orchestrate.core.errors import PositionUnknownError
from fluss_orchestrate.core.identity import TableIdentity
from fluss_orchestrate.core.plan import BucketRange, Place, Position, ScanPlan

RECEIPT_VERSION = 1


@dataclass(frozen=True, slots=True)
class Receipt:
    """What a finished step did: the table, the ranges, the number of rows.

    Attributes:
        kind: `increment`, `append`, `upsert`, `tier`, `bulk_load`, `provision` and others.
        table: The identity of the table.
        run_key: The name of the run.
        ranges: The ranges of offsets.
        rows: The number of rows in the ranges.
        bytes: Their size.
        plan_id: The id of the plan, for increments.
        snapshot_id: The id of the lake snapshot that was written.
        started_ms: When the work began, in milliseconds since 1970; -1 if not known.
        finished_ms: When the work ended, in milliseconds since 1970; -1 if not known.
        details: Further values of this kind of receipt; never a secret.
        rows_moved: The number of rows that this call has written; None for all of `rows`. It is
            less if the sink had some of them before, and 0 if the plan was committed before.
        position: The next offset of every known place of the table after the work; None if only the
            places in `ranges` are known.
    """

    kind: str
    table: TableIdentity
    run_key: str = ""
    ranges: tuple[BucketRange, ...] = ()
    rows: int = 0
    bytes: int = 0
    plan_id: str | None = None
    snapshot_id: int | None = None
    started_ms: int = -1
    finished_ms: int = -1
    details: Mapping[str, Any] = field(default_factory=dict)
    rows_moved: int | None = None
    position: Position | None = field(default=None, repr=False)

    @property
    def ends(self) -> Position:
        """Where each range of the receipt ends."""
        return {r.place: r.stop for r in self.ranges}

    @property
    def moved(self) -> int:
        """Rows that the call which gave this receipt has written."""
        return self.rows if self.rows_moved is None else self.rows_moved

    def repeated(self) -> Receipt:
        """Return this receipt for a later call that repeats the work: it moved no rows."""
        return replace(self, rows_moved=0, details={**self.details, "already_committed": True})

    def to_json(self) -> dict[str, Any]:
        """Return the receipt as plain values."""
        value = {
            "version": RECEIPT_VERSION,
            "kind": self.kind,
            "uri": self.table.uri,
            "table": self.table.to_json(),
            "run_key": self.run_key,
            "ranges": [r.to_json() for r in self.ranges],
            "rows": self.rows,
            "bytes": self.bytes,
            "plan_id": self.plan_id,
            "snapshot_id": self.snapshot_id,
            "started_ms": self.started_ms,
            "finished_ms": self.finished_ms,
            "details": dict(self.details),
            "rows_moved": self.moved,
        }
        if self.position is not None:
            value["position"] = _position_json(self.position)
        return value

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> Receipt:
        """Return the receipt from the `value` that `to_json` returned."""
        with plain.reading("receipt"):
            plain.check_version(value, RECEIPT_VERSION, "a receipt")
            rows, moved = plain.number(value["rows"]), value.get("rows_moved")
            return cls(
                kind=plain.text(value["kind"]),
                table=TableIdentity.from_json(value["table"]),
                run_key=plain.text(value["run_key"]),
                ranges=tuple(BucketRange.from_json(r) for r in value["ranges"]),
                rows=rows,
                bytes=plain.number(value["bytes"]),
                plan_id=plain.text_or_none(value["plan_id"]),
                snapshot_id=plain.number_or_none(value["snapshot_id"]),
                started_ms=plain.number(value["started_ms"]),
                finished_ms=plain.number(value["finished_ms"]),
                details=plain.mapping(value["details"]),
                rows_moved=None if moved == rows else plain.number_or_none(moved),
                position=_position_from(value.get("position")),
            )


def whole_position(of: Receipt | ScanPlan, places: Iterable[Place]) -> Position:
    """Return the next offset of every place of the table after a receipt or a plan.

    `places` are those that the table has now. Places that came later are not in the answer.

    Raises:
        PositionUnknownError: if only the places of the ranges are known, and there are others.
    """
    if of.position is not None:
        return of.position
    ends = {r.place: r.stop for r in of.ranges}
    missing = [place for place in places if place not in ends]
    if missing:
        raise PositionUnknownError(of.table, missing)
    return ends


def _position_json(position: Position) -> list[Any]:
    """`[[partition id, [offset of bucket 0, ...]], ...]`: a bucket is an index, not a key."""
    groups: dict[int | None, dict[int, int]] = {}
    for (partition_id, bucket), offset in position.items():
        groups.setdefault(partition_id, {})[bucket] = offset
    return [
        [partition_id, [buckets.get(b) for b in range(max(buckets) + 1)]]
        for partition_id, buckets in groups.items()
    ]


def _position_from(value: Any) -> Position | None:
    if value is None:
        return None
    found: dict[Place, int] = {}
    for partition_id, offsets in value:
        for bucket, offset in enumerate(offsets):
            if offset is not None:
                found[plain.number_or_none(partition_id), bucket] = plain.number(offset)
    return found
