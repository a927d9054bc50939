"""The binding of a checkpoint to its table, projection and sink, checked before a plan is used.

The first plan of a checkpoint fixes the binding. Changes of a key table go only to a sink that can
tell deletes from rows, and rows that another checkpoint writes into the same sink are not planned.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fluss_client import FlussConnection
from fluss_client.engine import has_old_rows, table_info
from fluss_orchestrate.core.checkpoints.coverage import CoverageLedger, first_offsets, ledger_of
from fluss_orchestrate.core.checkpoints.events import CALLER, Binding, CheckpointState, Event
from fluss_orchestrate.core.checkpoints.fluss_rows import MERGE_ENGINE
from fluss_orchestrate.core.checkpoints.store import CheckpointStore
from fluss_orchestrate.core.errors import CheckpointBindingError
from fluss_orchestrate.core.identity import TableIdentity, table_uri
from fluss_orchestrate.core.incremental.planning.planner import Draft
from fluss_orchestrate.core.incremental.planning.settings import ScanSettings
from fluss_orchestrate.core.plan import ScanPlan
from fluss_orchestrate.core.sinks.base import Sink, SinkForm, identity_of, needs_order
from fluss_orchestrate.core.sinks.errors import (
    ContractChangedError,
    SinkChangesError,
    SinkFormError,
)

CONTRACT = "contract"
"""The contract that a plan was begun with, in the details of its event."""
FIRST_ROW = "FIRST_ROW"
"""Tables of this engine keep the first row of a key, so that their changes are inserts alone."""


class BindingCheck:
    """The checks of one scan with one sink; without a sink the caller takes the rows."""

    def __init__(
        self,
        connection: FlussConnection,
        store: CheckpointStore,
        settings: ScanSettings,
        sink: Sink | None,
    ) -> None:
        self._connection = connection
        self._store = store
        self._settings = settings
        self._sink = sink
        self._uri = table_uri(connection.config.resolved_alias(), settings.path)
        identity = CALLER if sink is None else identity_of(sink)
        self.binding = Binding(identity, settings.columns, settings.metadata_columns)

    def check_head(self, head: Event | None) -> None:
        """Refuse a checkpoint that belongs to another table, projection or sink."""
        if head is None:
            return
        if head.state.position is not None:
            self._check_table(head.state.position.table)
        bound = head.state.binding
        if bound is not None and bound != self.binding:
            raise CheckpointBindingError(self._settings.name, str(bound), str(self.binding))

    def check_plan(self, plan: ScanPlan) -> None:
        """Refuse a plan of another table or projection, and one that the sink would misread."""
        self._check_table(plan.table)
        wanted = self.binding
        columns = plan.columns if wanted.columns is not None else None
        found = Binding(wanted.sink, columns, plan.metadata_columns)
        if found != wanted:
            raise CheckpointBindingError(self._settings.name, f"a plan with {found}", str(wanted))
        self._check_form(plan)

    def check_pending(self, plan: ScanPlan) -> None:
        """Refuse a pending plan that another contract may have divided already."""
        self.check_plan(plan)
        event = self._store.log.event(plan.name, plan.sequence)
        begun = None if event is None else event.details.get(CONTRACT)
        if not _divide_alike(begun, self._contract):
            raise ContractChangedError(self.binding.sink, plan.name, plan.plan_id)

    def with_contract(self, details: Mapping[str, Any]) -> dict[str, Any]:
        """Return the details of a plan with the contract of the sink, if it has one."""
        return {**details, **({} if self._contract is None else {CONTRACT: self._contract})}

    @property
    def _contract(self) -> Mapping[str, Any] | None:
        return getattr(self._sink, "contract", None)

    def _check_table(self, found: TableIdentity) -> None:
        if found.uri != self._uri:
            raise CheckpointBindingError(
                self._settings.name, f"table {found.uri}", f"table {self._uri}"
            )

    def _check_form(self, plan: ScanPlan) -> None:
        """Refuse a plan whose rows the sink would misread."""
        # A sink of an earlier version of this package has no form.
        form: SinkForm | None = getattr(self._sink, "form", None)
        deletes = self._settings.on_partition_gone == "delete"
        if deletes and (form is None or not form.follows_state):
            raise SinkFormError(
                self.binding.sink,
                "on_partition_gone='delete' is for sinks with form='mirror' or 'history'; others "
                "cannot delete the rows of dropped partitions",
            )
        if form is None:
            return
        if plan.kind == "log":
            if form.follows_state:
                raise SinkFormError(
                    self.binding.sink,
                    f"{plan.table.path} is a log table and has no key, so it has no {form}: use "
                    "form='append'",
                )
            return
        missing = [name for name in form.metadata_columns if name not in plan.metadata_columns]
        if missing and not (form is SinkForm.APPEND and self._only_inserts(plan)):
            raise SinkChangesError(self.binding.sink, str(plan.table.path), missing)
        if form.follows_state:
            self._check_follows_state(plan, form)

    def _only_inserts(self, plan: ScanPlan) -> bool:
        info = table_info(self._connection, plan.table.path)
        return info.properties.get(MERGE_ENGINE, "").upper() == FIRST_ROW

    def _check_follows_state(self, plan: ScanPlan, form: SinkForm) -> None:
        """Refuse settings and columns with which the sink would not follow the table."""
        info = table_info(self._connection, plan.table.path)
        absent = [name for name in info.primary_keys if name not in plan.columns]
        if absent:
            raise SinkFormError(
                self.binding.sink,
                f"a {form} needs the whole primary key; add {', '.join(absent)} to columns=",
            )
        settings = self._settings
        if settings.on_retention != "fail":
            raise SinkFormError(
                self.binding.sink,
                f"a {form} cannot go on after rows that were not read: use on_retention='fail'; "
                "after a loss, `reset` the checkpoint to start",
            )
        if info.is_partitioned() and settings.on_partition_gone != "delete":
            raise SinkFormError(
                self.binding.sink,
                f"{plan.table.path} has partitions; a {form} needs on_partition_gone='delete', so "
                "that rows of dropped partitions leave it too",
            )

    def check_interval(self) -> None:
        """Refuse a mirror or a history as the sink of an interval."""
        form: SinkForm | None = getattr(self._sink, "form", None)
        if form is not None and form.follows_state:
            raise SinkFormError(
                self.binding.sink,
                f"a {form} takes every change in order, and an interval gives it some of them: "
                "run it by its checkpoint, without an interval",
            )

    def check_first(self, head: Event | None, draft: Draft) -> None:
        """Refuse a first plan of a mirror or a history that does not begin with every row."""
        form: SinkForm | None = getattr(self._sink, "form", None)
        if form is None or not form.follows_state:
            return
        is_first = head is None or head.state.binding is None or draft.plan.generation is not None
        from_zero = not any(draft.position.offsets.values())
        if is_first and draft.plan.kind != "state" and not from_zero:
            path = draft.plan.table.path
            if not has_old_rows(table_info(self._connection, path)):
                raise SinkFormError(
                    self.binding.sink,
                    f"a {form} of {path} begins with the whole changelog, because that has no old "
                    "rows (table.changelog.image is not FULL), and a part of it was deleted "
                    "already. Create the table with table.changelog.image=FULL, or keep its log "
                    "(table.log.ttl) until the first run",
                )
            raise SinkFormError(
                self.binding.sink,
                f"a {form} begins with all rows of the table, and this plan begins in the middle "
                "of its changelog: use start='state', and `reset` the checkpoint to start",
            )

    def claim(self, head: Event | None, draft: Draft) -> None:
        """Claim all rows from the begin of a scan on, with the first plan of a generation."""
        plan = draft.plan
        ledger = self.ledger(plan.table)
        if ledger is None:
            return
        state = CheckpointState() if head is None else head.state
        goes_on = state.binding is not None
        if goes_on and plan.generation is None:
            return
        begin = draft.position.offsets
        if not goes_on and state.position is not None and state.generation is None:
            # Of an earlier version, which claimed nothing, or its first plan was abandoned.
            begin = first_offsets(self._store, self._settings.name)
        generation = plan.generation or state.generation
        ledger.claim_cursor(
            self._settings.name, generation, begin, extend=goes_on, in_order=self.needs_order(plan)
        )

    def needs_order(self, plan: ScanPlan) -> bool:
        """Return whether the sink must get rows in the order of the log."""
        return needs_order(self._sink, plan)

    def ledger(self, table: TableIdentity) -> CoverageLedger | None:
        """The claims on the table's rows for the sink; None if the sink has no identity."""
        return ledger_of(self._store, self.binding.sink, table, self._settings.name)


def _divide_alike(begun: Mapping[str, Any] | None, now: Mapping[str, Any] | None) -> bool:
    """Return whether attempts with these contracts write the same rows into the same sinks.

    A contract without a quarantine writes all rows or none, as a sink without a contract does. Its
    plan may go on with a quarantine if the rules are the same: if a row violates one, nothing was
    written.
    """
    quarantine = None if now is None else now["quarantine"]
    if now is None or quarantine is None:
        return begun is None or begun["quarantine"] is None
    return begun is not None and (
        begun["rules"] == now["rules"] and begun["quarantine"] in (None, quarantine)
    )
