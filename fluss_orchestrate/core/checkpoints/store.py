"""Checkpoint stores: an append-only history of events per name, and the operations on it.

A store implements `EventLog`: find the head, claim the next sequence. Everything else is the same
for all stores and is in `CheckpointStore`: read the head, make the event that may follow it, claim
its sequence, and begin again if another process was first. No clock and no lock decides anything.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from types import TracebackType
from typing import Any, Protocol

from fluss_client.engine import Backoff
from fluss_orchestrate.core.checkpoints import transitions
from fluss_orchestrate.core.checkpoints.events import (
    RESERVED,
    Binding,
    Event,
    EventKind,
    check_checkpoint_name,
)
from fluss_orchestrate.core.checkpoints.position import TablePosition
from fluss_orchestrate.core.errors import (
    CheckpointConflictError,
    CheckpointHistoryError,
    CheckpointNotFoundError,
)
from fluss_orchestrate.core.plan import Place, ScanPlan
from fluss_orchestrate.core.receipts import Receipt

CLAIM_ATTEMPTS_MAX = 100
"""How often another process may claim a sequence first before this one gives up. Each time, the
other process has made progress."""
CLAIM_PAUSE = Backoff(first_ms=1, max_ms=20)
"""The pauses after a lost claim; they differ, so that processes do not keep colliding."""


class EventLog(Protocol):
    """Keeps events.

    An event is in the log if a read returns it, never because a write seemed to succeed. Sequences
    of a name have no gaps. Calls block, and may be made from several threads. What the log keeps of
    an event may be less than the event (`records.py`); what it returns is always the whole event.
    """

    def head(self, name: str, run_key: str | None = None) -> Event | None:
        """Return the last event of a name; `run_key` is one that `plan_event_of` gets next."""

    def seen_head(self, name: str) -> Event | None:
        """Return the last event that this log has seen, without a request; others may follow it."""

    def heads(self, names: Sequence[str], known: Mapping[str, Event]) -> dict[str, Event]:
        """Return the last events of many names; `known` are some that were read before."""

    def event(self, name: str, sequence: int) -> Event | None:
        """Return one event."""

    def events(self, name: str, start: int, stop: int) -> list[Event]:
        """Return the existing events with start ≤ sequence < stop, in order."""

    def plan_event_of(self, name: str, run_key: str) -> Event | None:
        """Return the `plan` event of a run key, unless it was abandoned.

        It finds every event that is followed by another one. So a caller reads the head first,
        looks at it, and then calls this.
        """

    def append(self, event: Event, previous: Event | None) -> Event | None:
        """Claim the event's sequence, which follows `previous`; None if another event has it.

        `previous` must be as this log has returned it, and so must be what the caller takes for the
        next `previous`: the event that is returned here.
        """

    def names(self) -> list[str]:
        """Return every name that has events."""

    def close(self) -> None:
        """Close connections."""


class CheckpointStore:
    """Checkpoints by name. Many processes may use it at the same time.

    Args:
        log: The events of the checkpoints, in Fluss or in a SQL database.
    """

    def __init__(self, log: EventLog) -> None:
        self.log = log

    def head(self, name: str, run_key: str | None = None) -> Event | None:
        """Return the last event of a checkpoint, which contains its whole state.

        Args:
            name: The name of the checkpoint.
            run_key: A run key that the caller passes to `plan_of` next. The store then reads both
                with one request.

        Returns:
            The event, or None if there is no such checkpoint.
        """
        return self.log.head(name, run_key)

    def heads(
        self, names: Sequence[str], known: Mapping[str, Event] | None = None
    ) -> dict[str, Event]:
        """Return the last events of many checkpoints, with few requests.

        Args:
            names: The names of the checkpoints. One that does not exist is left out.
            known: The last events that the caller has read before. A checkpoint to which nothing
                was added since costs a part of one request that all of them share.
        """
        return self.log.heads(names, known or {})

    def require(self, name: str) -> Event:
        """Return the last event of the checkpoint called `name`.

        Raises:
            CheckpointNotFoundError: There is no such checkpoint.
        """
        head = self.log.head(name)
        if head is None:
            raise CheckpointNotFoundError(name)
        return head

    def names(self, *, internal: bool = False) -> list[str]:
        """Return the names of the checkpoints, with `internal` also those of this package."""
        return sorted(n for n in self.log.names() if internal or not n.startswith(RESERVED))

    def history(self, name: str, limit: int = 50) -> Iterator[Event]:
        """Iterate over the newest events of a checkpoint, the newest first.

        Args:
            name: The name of the checkpoint.
            limit: The largest number of events.
        """
        head = self.require(name)
        start = max(0, head.sequence - limit + 1)
        yield from reversed(self.log.events(name, start, head.sequence + 1))

    def plan_of(self, name: str, run_key: str, head: Event | None) -> ScanPlan | None:
        """Return the plan of a run key, committed or not.

        Args:
            name: The name of the checkpoint.
            run_key: The run key.
            head: The last event, which the caller must have read before this call.

        Returns:
            The plan, or None if the run key has none.
        """
        if head is None:
            return None
        if head.state.pending is not None and head.state.pending.run_key == run_key:
            return pending_of(head)
        if head.kind is EventKind.ABANDON and head.run_key == run_key:
            return None
        event = self.log.plan_event_of(name, run_key)
        if event is None or event.sequence < head.state.reset_at:
            return None
        return pending_of(event)

    def receipt_of(self, plan: ScanPlan, head: Event | None) -> Receipt | None:
        """Return the receipt of a plan that was committed.

        Args:
            plan: The plan.
            head: The last event of the checkpoint.

        Returns:
            The receipt, or None while the plan is pending.
        """
        pending = None if head is None else head.state.pending
        if pending is not None and _same(pending, plan):
            return None
        return self._receipt_of(plan)

    def try_plan(
        self,
        head: Event | None,
        plan: ScanPlan,
        position: TablePosition,
        details: Mapping[str, Any] | None = None,
        binding: Binding | None = None,
        upon: Event | None = None,
    ) -> ScanPlan | None:
        """Record a plan that was made upon the state in `head`.

        Args:
            head: The last event that the plan is based on; None for a new checkpoint.
            plan: The plan.
            position: The position before the plan.
            details: Values to record with the plan.
            binding: The table, columns and sink that the checkpoint belongs to from now on, unless
                they are fixed already.
            upon: For a new checkpoint: an event of this store with nearly the same position.

        Returns:
            The recorded plan, or None if another event was recorded first.
        """
        check_checkpoint_name(plan.name.removeprefix(RESERVED))
        event = transitions.plan_event(head, plan, position, details, binding)
        if head is None:
            event = replace(event, upon=upon)
        return event.state.pending if self.log.append(event, head) else None

    def commit(
        self,
        plan: ScanPlan,
        receipt: Receipt,
        commit_ms: Mapping[Place, int] | None = None,
        *,
        retire: bool = False,
    ) -> Receipt:
        """Commit a plan, if it is still the pending one (compare-and-set).

        Args:
            plan: The plan.
            receipt: The receipt to record.
            commit_ms: The commit time of the last batch that was read of each place.
            retire: Retire the checkpoint in the same event.

        Returns:
            The recorded receipt. If the plan was committed before, by any run, the receipt of that
            commit.

        Raises:
            CheckpointConflictError: The plan was abandoned, or the store does not know it.
        """

        def step(head: Event | None) -> Event | None:
            pending = None if head is None else head.state.pending
            if head is None or pending is None or not _same(pending, plan):
                return None
            return transitions.commit_event(head, receipt, commit_ms or {}, retire)

        # In most cases nothing was recorded since the plan, so that the next sequence is free.
        seen = self.log.seen_head(plan.name)
        done = step(seen)
        if done is not None:
            done = self.log.append(done, seen)
        if done is None:
            done = self.advance(plan.name, step)
        if done is not None and done.receipt is not None:
            return done.receipt
        return self._receipt_of(plan).repeated()

    def _receipt_of(self, plan: ScanPlan) -> Receipt:
        event = self.log.event(plan.name, plan.sequence)
        known = None if event is None else event.state.pending
        if event is None or known is None or not _same(known, plan):
            raise CheckpointConflictError(
                plan.name,
                f"the store knows no plan {plan.plan_id} at {plan.sequence}; it was restored, "
                "compacted away or belongs to another store. Nothing was committed: compare the "
                "sink with `show`, then `reset` the checkpoint if needed",
                plan.sequence,
                plan.plan_id,
            )
        # Only adoptions can be between a plan and its commit.
        sequence = plan.sequence
        while event is not None:
            sequence += 1
            event = self.log.event(plan.name, sequence)
            if event is not None and event.kind is EventKind.COMMIT and event.receipt is not None:
                return event.receipt
            if event is not None and event.kind is not EventKind.ADOPT:
                break
        raise CheckpointConflictError(
            plan.name,
            f"plan {plan.plan_id} was given up ({'gone' if event is None else event.kind}); its "
            "rows may be planned again, so take them out of the sink",
            plan.sequence,
            plan.plan_id,
        )

    def adopt(self, name: str, run_key: str) -> ScanPlan:
        """Assign the pending plan to another run, and record that.

        Args:
            name: The name of the checkpoint.
            run_key: The run that takes the plan.
        """

        def step(head: Event | None) -> Event | None:
            head = _known(name, head)
            pending = head.state.pending
            if pending is not None and run_key in (pending.run_key, head.state.adopted_by):
                return None
            return transitions.adopt_event(head, run_key)

        self.advance(name, step)
        pending = pending_of(self.require(name))
        if pending is None:
            raise CheckpointConflictError(name, "its plan was finished meanwhile; plan again")
        return pending

    def abandon(self, name: str, plan_id: str | None = None, reason: str = "") -> Event:
        """Abandon the pending plan, so that its rows are planned again. A person decides this.

        Args:
            name: The name of the checkpoint.
            plan_id: The plan to abandon; None for the pending one.
            reason: Why; it is recorded.
        """
        return self._must(
            name, lambda head: transitions.abandon_event(_known(name, head), plan_id, reason)
        )

    def reset(
        self,
        name: str,
        position: TablePosition | None,
        reason: str = "",
        *,
        abandon_pending: bool = False,
    ) -> Event:
        """Set the position of a checkpoint, and begin a new generation.

        It works for a checkpoint whose position cannot be built any more, too.

        Args:
            name: The name of the checkpoint.
            position: The new position, before or after the old one; None to begin again as a first
                run does.
            reason: Why; it is recorded.
            abandon_pending: Abandon a pending plan first. Otherwise a pending plan is an error.
        """
        check_checkpoint_name(name.removeprefix(RESERVED))
        given_up = ""
        while True:
            head = self.head(name)
            pending = None if head is None else head.state.pending
            if not abandon_pending or pending is None or (head and head.state.retired):
                break
            try:
                self.abandon(name, pending.plan_id, reason or "reset")
            except CheckpointHistoryError:
                # The position cannot be recorded once more, so the reset gives the plan up itself.
                given_up = pending.plan_id
                break

        def step(head: Event | None) -> Event:
            pending = None if head is None else head.state.pending
            if head is not None and pending is not None and pending.plan_id == given_up:
                head = replace(head, state=replace(head.state, pending=None))
            return transitions.reset_event(head, name, position, reason)

        return self._must(name, step)

    def set_first(
        self,
        name: str,
        position: TablePosition,
        details: Mapping[str, Any] | None = None,
        upon: Event | None = None,
    ) -> Event:
        """Set the position of a checkpoint that does not exist yet.

        Args:
            name: The name of the checkpoint.
            position: The position.
            details: Values to record with it.
            upon: An event of this store with nearly the same position.

        Returns:
            The event of the new checkpoint, or the last event of one that exists.
        """

        def step(head: Event | None) -> Event | None:
            if head is not None:
                return None
            first = transitions.reset_event(None, name, position, "")
            return replace(first, details=dict(details or {}), upon=upon)

        return self.advance(name, step) or self.require(name)

    def retire(self, name: str, reason: str = "", *, with_pending: bool = False) -> Event:
        """Retire a checkpoint: its history stays, plans are refused, a reset makes it usable again.

        Args:
            name: The name of the checkpoint.
            reason: Why; it is recorded.
            with_pending: Retire it also if a plan is pending.
        """

        def step(head: Event | None) -> Event | None:
            if head is not None and head.state.retired:
                return None
            return transitions.retire_event(head, name, reason, with_pending)

        return self.advance(name, step) or self.require(name)

    def _must(self, name: str, step: Callable[[Event | None], Event]) -> Event:
        event = self.advance(name, step)
        assert event is not None
        return event

    def advance(self, name: str, step: Callable[[Event | None], Event | None]) -> Event | None:
        """Append the next event of a checkpoint, and try again if another process was faster.

        Args:
            name: The name of the checkpoint.
            step: Returns the event that follows the last one, or None to append nothing.

        Returns:
            The appended event, or None.
        """
        for attempt in range(CLAIM_ATTEMPTS_MAX):
            head = self.head(name)
            event = step(head)
            if event is None:
                return None
            made = self.log.append(event, head)
            if made is not None:
                return made
            CLAIM_PAUSE.pause_blocking(attempt)
        raise lost_too_often(name)

    def close(self) -> None:
        """Close the connections that this store has opened itself."""
        self.log.close()

    def __enter__(self) -> CheckpointStore:
        return self

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()


def pending_of(event: Event) -> ScanPlan | None:
    """Return the plan that is pending after an event, with the position at which it begins."""
    pending, position = event.state.pending, event.state.position
    if pending is None or position is None:
        return pending
    return replace(pending, begin=position.offsets)


def lost_too_often(name: str) -> CheckpointConflictError:
    """Return the error of a caller that lost every race."""
    return CheckpointConflictError(
        name, f"others were faster {CLAIM_ATTEMPTS_MAX} times in a row; try again"
    )


def _known(name: str, head: Event | None) -> Event:
    if head is None:
        raise CheckpointNotFoundError(name)
    return head


def _same(one: ScanPlan, other: ScanPlan) -> bool:
    return one.sequence == other.sequence and one.plan_id == other.plan_id
