"""How far a sink is, kept by the sink itself, and what that means for a plan."""

from __future__ import annotations

import enum

from fluss_orchestrate.core.checkpoints.position import TablePosition
from fluss_orchestrate.core.errors import show_ranges
from fluss_orchestrate.core.plan import ScanPlan
from fluss_orchestrate.core.sink_errors import SinkPositionError


class Standing(enum.Enum):
    """Where a plan stands against a sink's position."""

    DONE = "done"
    NEXT = "next"


def standing(sink: str, plan: ScanPlan, plan_id: str, at: TablePosition | None) -> Standing:
    """Whether the sink holds the plan already, or the plan goes on exactly where the sink is.

    `plan_id` is the last plan that the sink took under this name and `at` where that ended. A plan
    that lies wholly behind is done. Anything else would lose rows or write some twice:
    `SinkPositionError`.
    """
    if at is None:
        return Standing.NEXT
    if plan_id == plan.plan_id:
        return Standing.DONE
    if at.table != plan.table:
        raise SinkPositionError(
            sink,
            plan.name,
            plan.plan_id,
            f"it holds rows of {at.table.uri} with id {at.table.table_id}, the plan is about "
            f"{plan.table.uri} with id {plan.table.table_id}",
        )
    known = [r for r in plan.ranges if r.place in at.offsets]
    behind = [r for r in known if r.stop <= at.offsets[r.place]]
    if behind and len(behind) == len(plan.ranges):
        return Standing.DONE
    wrong = [r for r in known if r.start != at.offsets[r.place]]
    if wrong:
        where = ", ".join(str(at.offsets[r.place]) for r in wrong[:5])
        raise SinkPositionError(
            sink,
            plan.name,
            plan.plan_id,
            f"it wants to go on with {show_ranges(wrong)} where the sink is at {where}",
        )
    return Standing.NEXT


def position_after(plan: ScanPlan, at: TablePosition | None) -> TablePosition:
    """The sink's position once it holds the plan."""
    begin = TablePosition(plan.table, {}) if at is None else at
    return begin.advanced(plan.ranges, {})
