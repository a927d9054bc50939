"""Sinks: where the rows of a plan go, exactly once under the plan's id.

A sink has an identity: the place where its rows end up. A checkpoint belongs to one of them, so
that two runs that share a name by mistake do not share its rows out between two places.

A sink is given the plan and `read`, which is `IncrementalScan.read`: called with the plan, or with
a part of it (`range_plan`, `plan.split`), it gives the rows, the same ones every time. So a sink
chooses its own cut: one reader for everything, or one per range.

What every sink but `FunctionSink` promises: whatever dies in between, and however often `write` is
called for a plan, by whichever processes at once, the sink ends up with the plan's rows once. A
plan is committed to its checkpoint after `write` has returned.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

import pyarrow as pa

from fluss_orchestrate.core.plan import BucketRange, ScanPlan

ReadPlan = Callable[[ScanPlan], pa.RecordBatchReader]


@dataclass(frozen=True, slots=True)
class SinkResult:
    """What a sink holds of one plan."""

    rows: int
    bytes: int = 0
    details: Mapping[str, Any] = field(default_factory=dict)
    """What only this sink has, as plain values for a receipt; never a secret."""
    moved: int | None = None
    """Rows that this call has written; None for all of them."""


class Sink(Protocol):
    """Takes plans. Calls block; one sink may be used for many plans, one after the other."""

    @property
    def identity(self) -> str:
        """Where the rows end up: the kind, and the configured name, path or table.

        Never an address or a credential: those change while the place stays the same.
        """

    @property
    def needs_change_type(self) -> bool:
        """Whether rows of a key table must say what change they are.

        True where rows are appended or upserted: without `_change_type` a delete would come back
        as a row.
        """

    @property
    def exactly_once(self) -> bool:
        """Whether a repeated `write` leaves each row once."""

    def already_done(self, plan: ScanPlan) -> SinkResult | None:
        """What the sink holds of the plan, if it holds all of it; None if `write` has work."""

    def write(self, plan: ScanPlan, read: ReadPlan) -> SinkResult:
        """Take all rows of the plan, or raise. Does nothing for a plan that is done already."""


def identity_of(sink: Sink) -> str:
    """The sink's identity; its class where it was written before sinks had one."""
    return str(getattr(sink, "identity", "") or type(sink).__qualname__)


def range_plan(plan: ScanPlan, part: BucketRange) -> ScanPlan:
    """The plan for one of its ranges alone."""
    return replace(plan, ranges=(part,))
