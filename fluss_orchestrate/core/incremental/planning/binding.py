"""The binding of a checkpoint to its table, projection and sink, checked before a plan is used.

The first plan of a checkpoint fixes the binding. Changes of a key table go only to a sink that can
tell deletes from rows, and rows that another checkpoint writes into the same sink are not planned.
"""

from __future__ import annotations

from fluss_client import FlussConnection
from fluss_client.engine import table_info
from fluss_orchestrate.core.checkpoints.coverage import CoverageLedger, first_offsets, ledger_of
from fluss_orchestrate.core.checkpoints.events import CALLER, Binding, CheckpointState, Event
from fluss_orchestrate.core.checkpoints.fluss_rows import MERGE_ENGINE
from fluss_orchestrate.core.checkpoints.store import CheckpointStore
from fluss_orchestrate.core.errors import CheckpointBindingError
from fluss_orchestrate.core.identity import TableIdentity, table_uri
from fluss_orchestrate.core.incremental.planning.planner import Draft
from fluss_orchestrate.core.incremental.planning.settings import ScanSettings
from fluss_orchestrate.core.plan import ScanPlan
from fluss_orchestrate.core.sinks.base import Sink, identity_of
from fluss_orchestrate.core.sinks.errors import SinkChangesError

CHANGE_TYPE = "_change_type"
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
        self._check_changes(plan)

    def _check_table(self, found: TableIdentity) -> None:
        if found.uri != self._uri:
            raise CheckpointBindingError(
                self._settings.name, f"table {found.uri}", f"table {self._uri}"
            )

    def _check_changes(self, plan: ScanPlan) -> None:
        # A sink that was written before sinks said so has no such attribute.
        if not getattr(self._sink, "needs_change_type", False) or plan.kind == "log":
            return
        if CHANGE_TYPE in plan.metadata_columns:
            return
        info = table_info(self._connection, plan.table.path)
        if info.properties.get(MERGE_ENGINE, "").upper() != FIRST_ROW:
            raise SinkChangesError(self.binding.sink, str(plan.table.path))

    def claim(self, head: Event | None, draft: Draft) -> None:
        """Claim the rows of a scan by cursor with the first plan of a generation."""
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
        ledger.claim_cursor(self._settings.name, generation, begin, extend=goes_on)

    def ledger(self, table: TableIdentity) -> CoverageLedger | None:
        """The claims on the table's rows for the sink; None where nobody knows what the sink is."""
        return ledger_of(self._store, self.binding.sink, table, self._settings.name)
