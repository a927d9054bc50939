"""What people do to a cluster from the console, each with who did it and why.

Each action is recorded twice: before it begins, and with its result. The record is in the
checkpoint store, under a reserved name, beside the histories of checkpoints.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from fluss_client import FlussConnection
from fluss_orchestrate.core.checkpoints import CheckpointStore, FlussCheckpointStore, transitions
from fluss_orchestrate.core.checkpoints.events import RESERVED, Event
from fluss_orchestrate.core.incremental import IncrementalScan
from fluss_orchestrate.core.incremental.planning.late_rows import late_rows_policy
from fluss_orchestrate.core.incremental.planning.settings import Start
from fluss_orchestrate.core.lake.tiering import tier_table
from fluss_orchestrate.core.provisioning.window import (
    PartitionWindow,
    WindowPlan,
    apply_partition_window,
    plan_partition_window,
)

JOURNAL = f"{RESERVED}console actions"
REASON_LENGTH_MAX = 500
ACTIONS_SHOWN_MAX = 100
BEGUN, DONE, FAILED = "begun", "done", "failed"


@dataclass(frozen=True, slots=True)
class ActionRecord:
    """One entry of the record."""

    at_ms: int
    action: str
    """`reset`, `abandon`, `tier` or `partitions`."""
    target: str
    """The checkpoint or the table."""
    who: str
    reason: str
    state: str
    """`begun`, `done` or `failed`."""
    result: str = ""

    def to_json(self) -> dict[str, Any]:
        """Return the record as plain values."""
        return asdict(self)


@dataclass(frozen=True, slots=True)
class Order:
    """Who orders an action, and why."""

    who: str
    reason: str

    @property
    def text(self) -> str:
        """The reason for the history of a checkpoint, which has no other place for the person."""
        return f"{self.reason} ({self.who}, in the console)"


class Actions:
    """The actions on one cluster. Calls block.

    Args:
        connection: The cluster.
        store: Its checkpoints; None for the default store.
    """

    def __init__(self, connection: FlussConnection, store: CheckpointStore | None = None) -> None:
        self._connection = connection
        self._store = store or FlussCheckpointStore(connection)

    def reset(self, name: str, to: Start, order: Order, *, abandon_pending: bool = False) -> str:
        """Set the position of a checkpoint.

        Args:
            name: The checkpoint.
            to: `earliest`, `latest`, `current`, `start` or a time, as for `IncrementalScan.reset`.
            order: Who orders it, and why.
            abandon_pending: Abandon a pending plan first.

        Returns:
            What was done.
        """
        head = self._store.require(name)
        position, pending = head.state.position, head.state.pending
        path = position.table.path if position else pending.table.path if pending else None

        def work() -> str:
            if path is None:
                event = self._store.reset(name, None, order.text, abandon_pending=abandon_pending)
            else:
                late = late_rows_policy(head)
                scan = IncrementalScan(
                    self._connection, str(path), name, self._store, on_late_rows=late
                )
                event = scan.reset(to, order.text, abandon_pending=abandon_pending)
            return f"it now stands at {to} (event {event.sequence})"

        return self._recorded("reset", name, order, work)

    def abandon(self, name: str, plan_id: str, order: Order) -> str:
        """Abandon the pending plan of a checkpoint, if it is still `plan_id`."""

        def work() -> str:
            event = self._store.abandon(name, plan_id, order.text)
            return f"gave up plan {plan_id} (event {event.sequence})"

        return self._recorded("abandon", name, order, work)

    def tier(self, table: str, order: Order) -> str:
        """Bring everything that is in a table now into its lake."""

        def work() -> str:
            receipt = tier_table(self._connection, table, allow_tiering=True)
            if not receipt.rows:
                return "the lake held everything already"
            return f"{receipt.rows} rows into snapshot {receipt.snapshot_id}"

        return self._recorded("tier", table, order, work)

    def plan_partitions(self, window: PartitionWindow) -> WindowPlan:
        """Return which partitions a window creates and drops; change nothing."""
        return plan_partition_window(self._connection, window, store=self._store)

    def apply_partitions(self, planned: WindowPlan, order: Order) -> str:
        """Create and drop partitions as planned; one that a guard keeps by now stays."""

        def work() -> str:
            done = apply_partition_window(self._connection, planned)
            kept = f", {len(done.kept)} kept" if done.kept else ""
            return f"{len(done.create)} created, {len(done.drop)} dropped{kept}"

        return self._recorded("partitions", planned.window.table, order, work)

    def records(self, limit: int = ACTIONS_SHOWN_MAX) -> list[ActionRecord]:
        """Return the newest records, the newest first."""
        head = self._store.head(JOURNAL)
        if head is None:
            return []
        events = self._store.log.events(
            JOURNAL, max(0, head.sequence - limit + 1), head.sequence + 1
        )
        return [_record(event) for event in reversed(events)]

    def _recorded(self, action: str, target: str, order: Order, work: Any) -> str:
        if not order.reason.strip():
            raise ValueError("an action needs a reason")
        self._note(action, target, order, BEGUN, "")
        try:
            result = str(work())
        except Exception as error:
            self._note(action, target, order, FAILED, f"{type(error).__name__}: {error}")
            raise
        self._note(action, target, order, DONE, result)
        return result

    def _note(self, action: str, target: str, order: Order, state: str, result: str) -> None:
        details: Mapping[str, Any] = {
            "action": action,
            "target": target,
            "who": order.who,
            "reason": order.reason[:REASON_LENGTH_MAX],
            "state": state,
            "result": result[:REASON_LENGTH_MAX],
        }
        self._store.advance(JOURNAL, lambda head: transitions.claim_event(head, JOURNAL, details))


def _record(event: Event) -> ActionRecord:
    texts = {key: str(value) for key, value in event.details.items()}
    return ActionRecord(event.created_ms, **texts)
