"""How far a sink is, kept by the sink itself, and what that means for a plan."""

from __future__ import annotations

import enum
import json
from dataclasses import dataclass

from fluss_orchestrate.core import plain_values as plain
from fluss_orchestrate.core.checkpoints.position import TablePosition
from fluss_orchestrate.core.errors import show_ranges
from fluss_orchestrate.core.plan import Generation, ScanPlan, generation_json
from fluss_orchestrate.core.sink_errors import SinkPositionError


@dataclass(frozen=True, slots=True)
class SinkPosition:
    """Where a sink is with a checkpoint, in which generation of it."""

    offsets: TablePosition
    generation: Generation | None = None

    def to_text(self) -> str:
        """The position as a sink keeps it, in JSON."""
        value = self.offsets.to_json()
        if self.generation is not None:
            value["generation"] = self.generation.to_json()
        return json.dumps(value, separators=(",", ":"))

    @classmethod
    def from_text(cls, text: str) -> SinkPosition:
        """The position from `to_text`; one of an earlier version has no generation."""
        with plain.reading("position of a sink"):
            value = json.loads(text)
            generation = Generation.from_json(value.get("generation"))
            return cls(TablePosition.from_json(value), generation)


class Standing(enum.Enum):
    """Where a plan stands against a sink's position."""

    DONE = "done"
    NEXT = "next"


def standing(sink: str, plan: ScanPlan, plan_id: str, at: SinkPosition | None) -> Standing:
    """Whether the sink holds the plan already, or the plan goes on exactly where the sink is.

    `plan_id` is the last plan that the sink took under this name and `at` where that ended. A plan
    that lies wholly behind is done. A plan of a later generation begins anew. Anything else would
    lose rows or write some twice: `SinkPositionError`.
    """
    if at is None or _begins_anew(sink, plan, at.generation):
        return Standing.NEXT
    if plan_id == plan.plan_id:
        return Standing.DONE
    if at.offsets.table != plan.table:
        raise SinkPositionError(
            sink,
            plan.name,
            plan.plan_id,
            f"it holds rows of {at.offsets.table.uri} with id {at.offsets.table.table_id}, the "
            f"plan is about {plan.table.uri} with id {plan.table.table_id}",
        )
    offsets = at.offsets.offsets
    known = [r for r in plan.ranges if r.place in offsets]
    behind = [r for r in known if r.stop <= offsets[r.place]]
    if behind and len(behind) == len(plan.ranges):
        return Standing.DONE
    wrong = [r for r in known if r.start != offsets[r.place]]
    if wrong:
        where = ", ".join(str(offsets[r.place]) for r in wrong[:5])
        raise SinkPositionError(
            sink,
            plan.name,
            plan.plan_id,
            f"it wants to go on with {show_ranges(wrong)} where the sink is at {where}",
        )
    return Standing.NEXT


def _begins_anew(sink: str, plan: ScanPlan, generation: Generation | None) -> bool:
    """Whether the plan is of a later generation; an earlier or a foreign one is refused."""
    if plan.generation == generation:
        return False
    ours = -1 if generation is None else generation.sequence
    theirs = -1 if plan.generation is None else plan.generation.sequence
    if theirs > ours:
        return True
    raise SinkPositionError(
        sink,
        plan.name,
        plan.plan_id,
        f"the plan is of generation {generation_json(plan.generation)} of the checkpoint, and the "
        f"sink is in generation {generation_json(generation)}: the checkpoint was reset after the "
        "plan was made, or belongs to another store",
    )


def position_after(plan: ScanPlan, at: SinkPosition | None) -> SinkPosition:
    """The sink's position once it holds the plan."""
    begin = TablePosition(plan.table, {})
    if at is not None and at.generation == plan.generation:
        begin = at.offsets
    return SinkPosition(begin.advanced(plan.ranges, {}), plan.generation)
