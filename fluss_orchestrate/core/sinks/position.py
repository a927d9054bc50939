"""The position that a sink stores together with its rows, and how a plan relates to it."""

from __future__ import annotations

import enum
import json
from dataclasses import dataclass

from fluss_orchestrate.core import plain_values as plain
from fluss_orchestrate.core.checkpoints.position import TablePosition
from fluss_orchestrate.core.errors import show_ranges
from fluss_orchestrate.core.plan import Generation, ScanPlan, generation_json
from fluss_orchestrate.core.sinks.errors import SinkPositionError


@dataclass(frozen=True, slots=True)
class SinkPosition:
    """How far a sink is for a checkpoint.

    Attributes:
        offsets: The offsets that it has reached.
        generation: The checkpoint's generation.
        columns: The columns that rows of a mirror or a history were written with; empty if that is
            not known.
    """

    offsets: TablePosition
    generation: Generation | None = None
    columns: tuple[str, ...] = ()

    def to_text(self) -> str:
        """Return the position as JSON text, as sinks store it."""
        value = self.offsets.to_json()
        if self.generation is not None:
            value["generation"] = self.generation.to_json()
        if self.columns:
            value["columns"] = list(self.columns)
        return json.dumps(value, separators=(",", ":"))

    @classmethod
    def from_text(cls, text: str) -> SinkPosition:
        """Read the text of `to_text`. Texts of earlier versions have no generation."""
        with plain.reading("position of a sink"):
            value = json.loads(text)
            generation = Generation.from_json(value.get("generation"))
            columns = plain.texts(value.get("columns", ()))
            return cls(TablePosition.from_json(value), generation, columns)


class PlanState(enum.Enum):
    """What the position of a sink says about a plan.

    `DONE`: the sink holds the plan. `NEXT`: the plan begins where the sink's position is.
    """

    DONE = "done"
    NEXT = "next"


def plan_state(sink: str, plan: ScanPlan, plan_id: str, at: SinkPosition | None) -> PlanState:
    """Return whether the sink holds the plan, or the plan begins where the sink's position is.

    A plan that ends before the position is done. A plan of a later generation of the checkpoint
    begins anew.

    Args:
        sink: The sink's name, for the error.
        plan: The plan.
        plan_id: The last plan that the sink wrote for this checkpoint.
        at: Where that plan ended; None if the sink holds nothing of the checkpoint.

    Raises:
        SinkPositionError: To write the plan would lose rows or write rows twice.
    """
    if at is None:
        return PlanState.NEXT
    if _begins_anew(sink, plan, at.generation):
        if at.offsets.table.uri != plan.table.uri:
            raise SinkPositionError(
                sink,
                plan.name,
                plan.plan_id,
                f"it holds rows of {at.offsets.table.uri}, and the plan is about {plan.table.uri}",
            )
        return PlanState.NEXT
    if plan_id == plan.plan_id:
        return PlanState.DONE
    if at.offsets.table != plan.table:
        raise SinkPositionError(
            sink,
            plan.name,
            plan.plan_id,
            f"it holds rows of {at.offsets.table.uri} with id {at.offsets.table.table_id}, the "
            f"plan is about {plan.table.uri} with id {plan.table.table_id}",
        )
    offsets = at.offsets.offsets
    if plan.dropped and not plan.ranges and not dropped_names(plan, at):
        return PlanState.DONE
    known = [r for r in plan.ranges if r.place in offsets]
    behind = [r for r in known if r.stop <= offsets[r.place]]
    if behind and len(behind) == len(plan.ranges):
        return PlanState.DONE
    wrong = [r for r in known if r.start != offsets[r.place]]
    if wrong:
        where = ", ".join(str(offsets[r.place]) for r in wrong[:5])
        raise SinkPositionError(
            sink,
            plan.name,
            plan.plan_id,
            f"it wants to go on with {show_ranges(wrong)} where the sink is at {where}",
        )
    return PlanState.NEXT


def _begins_anew(sink: str, plan: ScanPlan, generation: Generation | None) -> bool:
    """Return whether the plan is of a later generation; refuse one of an earlier generation."""
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


def dropped_names(plan: ScanPlan, at: SinkPosition | None) -> list[str]:
    """Return the dropped partitions of a plan whose rows the sink may hold.

    A sink that knows no offset of a partition holds no row of it. So a plan that is written late,
    after others, deletes nothing that came after it.
    """
    if at is None or at.generation != plan.generation:
        return []
    held = {partition_id for partition_id, _ in at.offsets.offsets}
    return [name for partition_id, name in plan.dropped if partition_id in held]


def check_beginning(sink: str, plan: ScanPlan, at: SinkPosition | None) -> bool:
    """Return whether the plan begins a mirror or a history, or a new generation of one.

    Raises:
        SinkPositionError: The sink holds nothing that the plan could go on with, and the plan does
            not begin with all rows.
    """
    if at is not None and at.generation == plan.generation:
        return False
    earlier = any((plan.begin or {}).values()) or any(r.start > 0 for r in plan.ranges)
    if plan.kind != "state" and earlier:
        raise SinkPositionError(
            sink,
            plan.name,
            plan.plan_id,
            "the sink holds nothing of this generation of the checkpoint, and the plan begins in "
            "the middle. `reset` the checkpoint to start, and the next run begins with all rows",
        )
    return True


def position_after(
    plan: ScanPlan, at: SinkPosition | None, *, keeps_columns: bool = False
) -> SinkPosition:
    """Return the sink's position after it has written the plan.

    Args:
        plan: The plan.
        at: The position before; None if the sink held nothing of the checkpoint.
        keeps_columns: Whether the sink keeps a mirror or a history, whose columns must stay.
    """
    begin = TablePosition(plan.table, {})
    if at is not None and at.generation == plan.generation:
        gone = {partition_id for partition_id, _ in plan.dropped}
        begin = at.offsets.without([p for p in at.offsets.offsets if p[0] in gone])
    columns = plan.columns if keeps_columns else ()
    return SinkPosition(begin.advanced(plan.ranges, {}), plan.generation, columns)
