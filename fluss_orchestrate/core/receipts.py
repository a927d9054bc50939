"""Receipts: the small, versioned JSON that says what a run did.

One shape goes to XCom, asset events, Dagster's metadata, OpenLineage facets and the command line.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from fluss_orchestrate.core import plain_values as plain
from fluss_orchestrate.core.identity import TableIdentity
from fluss_orchestrate.core.plan import BucketRange, Position

RECEIPT_VERSION = 1


@dataclass(frozen=True, slots=True)
class Receipt:
    """What was done: to which table, over which ranges, with how many rows."""

    kind: str
    """`increment`, `append`, `upsert`, `tier`, `bulk_load`, `provision`, …"""
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
    """What only this kind has, as plain values; never a secret."""

    @property
    def position(self) -> Position:
        """Where each place of the receipt ends."""
        return {r.place: r.stop for r in self.ranges}

    def to_json(self) -> dict[str, Any]:
        """The receipt as plain values."""
        return {
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
        }

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> Receipt:
        """The receipt from `to_json`; one of a newer version is refused."""
        with plain.reading("receipt"):
            plain.check_version(value, RECEIPT_VERSION, "a receipt")
            return cls(
                kind=plain.text(value["kind"]),
                table=TableIdentity.from_json(value["table"]),
                run_key=plain.text(value["run_key"]),
                ranges=tuple(BucketRange.from_json(r) for r in value["ranges"]),
                rows=plain.number(value["rows"]),
                bytes=plain.number(value["bytes"]),
                plan_id=plain.text_or_none(value["plan_id"]),
                snapshot_id=plain.number_or_none(value["snapshot_id"]),
                started_ms=plain.number(value["started_ms"]),
                finished_ms=plain.number(value["finished_ms"]),
                details=plain.mapping(value["details"]),
            )
