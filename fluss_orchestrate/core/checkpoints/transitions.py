"""The transitions of a checkpoint: each function returns the next event, or refuses.

Nothing here reads or writes. A store claims the sequence of the event; if another process claimed
it first, the caller begins again with the new head.

    (nothing) ── PLAN, RESET
    idle      ── PLAN, RESET, RETIRE
    pending   ── ADOPT, COMMIT, ABANDON
    retired   ── RESET
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from fluss_orchestrate.core.checkpoints.events import (
    Binding,
    CheckpointState,
    Event,
    EventKind,
    new_nonce,
    now_ms,
)
from fluss_orchestrate.core.checkpoints.position import TablePosition
from fluss_orchestrate.core.errors import (
    CheckpointConflictError,
    CheckpointNotFoundError,
    CheckpointRetiredError,
    PendingPlanError,
)
from fluss_orchestrate.core.plan import Generation, Place, ScanPlan
from fluss_orchestrate.core.receipts import Receipt

FIRST_SEQUENCE = 0
REPORTED = (
    "lost_ranges",
    "gone_ranges",
    "lake_ranges",
    "covered_ranges",
    "late_rows",
    "restarted",
)
"""The details of a plan that its receipt must have, too."""


def next_sequence(head: Event | None) -> int:
    """Return the sequence to claim after `head`."""
    return FIRST_SEQUENCE if head is None else head.sequence + 1


def plan_event(
    head: Event | None,
    plan: ScanPlan,
    position: TablePosition,
    details: Mapping[str, Any] | None = None,
    binding: Binding | None = None,
) -> Event:
    """Return the event that makes a plan pending.

    `position` is where the plan begins, for every known place. The plan gets the sequence of the
    event, and the generation of the checkpoint unless it begins one. `binding` is fixed unless
    there is one.
    """
    check_idle(plan.name, head)
    check_not_retired(plan.name, head)
    sequence = next_sequence(head)
    before = CheckpointState() if head is None else head.state
    bound = before.binding
    if bound is None and binding is not None:
        bound = replace(binding, since=sequence)
    generation = plan.generation or before.generation
    pending = replace(plan, sequence=sequence, begin=position.offsets, generation=generation)
    state = replace(
        before,
        position=position,
        pending=pending,
        adopted_by="",
        generation=generation,
        binding=bound,
    )
    return _event(head, plan.name, EventKind.PLAN, state, pending, details)


def commit_event(
    head: Event, receipt: Receipt, commit_ms: Mapping[Place, int], retire: bool = False
) -> Event:
    """Return the event that commits the pending plan: the position moves to the end of its ranges.

    With `retire`, the checkpoint is retired too.
    """
    pending = _pending(head)
    position = head.state.position
    assert position is not None
    moved = position.advanced(pending.ranges, commit_ms)
    state = replace(head.state, position=moved, pending=None, adopted_by="", retired=retire)
    event = _event(head, head.name, EventKind.COMMIT, state, pending, None)
    reported = {key: head.details[key] for key in REPORTED if key in head.details}
    completed = replace(receipt, details={**receipt.details, **reported}, position=moved.offsets)
    return replace(event, receipt=completed)


def abandon_event(head: Event, plan_id: str | None, reason: str) -> Event:
    """Return the event that abandons the pending plan: the position stays, the run key is free."""
    pending = _pending(head)
    if plan_id is not None and plan_id != pending.plan_id:
        raise CheckpointConflictError(
            head.name,
            f"plan {plan_id} is not the pending one, which is {pending.plan_id} of run "
            f"'{pending.run_key}'; nothing was abandoned",
            pending.sequence,
            plan_id,
        )
    bound = head.state.binding
    if bound is not None and bound.since == pending.sequence:
        # Nothing was written under it yet, so the next plan may belong to something else.
        bound = None
    # A state is the first plan of a generation: the next run begins with the state again.
    position = None if pending.kind == "state" else head.state.position
    state = replace(head.state, position=position, pending=None, adopted_by="", binding=bound)
    return _event(head, head.name, EventKind.ABANDON, state, pending, {"reason": reason})


def adopt_event(head: Event, run_key: str) -> Event:
    """Return the event by which another run takes the pending plan."""
    pending = _pending(head)
    state = replace(head.state, adopted_by=run_key)
    details = {**head.details, "of": pending.run_key}
    event = _event(head, head.name, EventKind.ADOPT, state, pending, details)
    return replace(event, run_key=run_key)


def reset_event(
    head: Event | None, name: str, position: TablePosition | None, reason: str
) -> Event:
    """Return the event that sets the position by hand and begins a new generation.

    A retired checkpoint becomes usable again. Without a position, the next run begins as a first
    run does.
    """
    check_idle(name, head)
    event = _event(
        head, name, EventKind.RESET, CheckpointState(position=position), None, {"reason": reason}
    )
    if head is None:
        return event
    state = replace(
        event.state,
        generation=Generation(event.sequence, event.nonce),
        reset_at=event.sequence,
    )
    return replace(event, state=state)


def retire_event(head: Event | None, name: str, reason: str, with_pending: bool = False) -> Event:
    """Return the event that retires a checkpoint; its history stays."""
    if head is None:
        raise CheckpointNotFoundError(name)
    if not with_pending:
        check_idle(name, head)
    state = replace(head.state, retired=True)
    return _event(head, name, EventKind.RETIRE, state, None, {"reason": reason})


def claim_event(head: Event | None, name: str, details: Mapping[str, Any]) -> Event:
    """Return the event that changes the claims on a sink's rows.

    The history of claims has no plans and no position.
    """
    return _event(head, name, EventKind.CLAIM, CheckpointState(), None, details)


def check_idle(name: str, head: Event | None) -> None:
    """Raise if a plan is pending."""
    if head is not None and head.state.pending is not None and not head.state.retired:
        pending = head.state.pending
        raise PendingPlanError(
            name, pending.run_key, pending.plan_id, pending.sequence, pending.created_ms
        )


def check_not_retired(name: str, head: Event | None) -> None:
    """Raise if the checkpoint was retired."""
    if head is not None and head.state.retired:
        raise CheckpointRetiredError(name)


def _pending(head: Event) -> ScanPlan:
    check_not_retired(head.name, head)
    if head.state.pending is None:
        raise CheckpointConflictError(head.name, "it has no pending plan")
    return head.state.pending


def _event(
    head: Event | None,
    name: str,
    kind: EventKind,
    state: CheckpointState,
    plan: ScanPlan | None,
    details: Mapping[str, Any] | None,
) -> Event:
    return Event(
        name=name,
        sequence=next_sequence(head),
        kind=kind,
        state=state,
        run_key="" if plan is None else plan.run_key,
        plan_id="" if plan is None else plan.plan_id,
        nonce=new_nonce(),
        created_ms=now_ms(),
        details=dict(details or {}),
    )
