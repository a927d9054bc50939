"""The Iceberg table of a sink, and what its properties say about the plans that it holds.

A commit sets the properties `fluss.sink.<checkpoint>.plan-id`, `.position`, `.rows` and, for other
forms than `append`, `.form`. The summary of the snapshot has the plan's id too, so that earlier
plans are found as long as their snapshots are kept.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from fluss_client.engine import Backoff
from fluss_orchestrate.core.checkpoints.position import TablePosition
from fluss_orchestrate.core.lake.catalog import explained_by_catalog, explained_by_store
from fluss_orchestrate.core.lake.layout.iceberg_schema import partition_spec
from fluss_orchestrate.core.plan import ScanPlan
from fluss_orchestrate.core.sinks.base import SinkForm, SinkResult
from fluss_orchestrate.core.sinks.errors import SinkError, SinkFormError, SinkPositionError
from fluss_orchestrate.core.sinks.position import (
    PlanState,
    SinkPosition,
    plan_state,
    position_after,
)

if TYPE_CHECKING:
    from pyiceberg.catalog import Catalog
    from pyiceberg.schema import Schema
    from pyiceberg.table import Table

COMMIT_ATTEMPTS_MAX = 30
COMMIT_PAUSE = Backoff(first_ms=10, max_ms=1_000, jitter_low=0)
"""The pauses after another commit to the same table came first. They begin at 0, so that racing
commits spread."""
PROPERTY_PREFIX = "fluss.sink."
PLAN_ID_SUMMARY = "fluss-plan-id"
PLAN_ROWS_SUMMARY = "fluss-plan-rows"
_PARTS = ("plan-id", "position", "rows", "form")


@dataclass(frozen=True)
class SinkTable:
    """Where a sink writes to.

    Attributes:
        catalog: The catalog.
        identifier: The table, as `namespace.table`.
        form: What the sink makes of the rows.
        create: Whether a table that does not exist is created.
    """

    catalog: Catalog
    identifier: str
    form: SinkForm
    create: bool

    def store(self, doing: str) -> AbstractContextManager[None]:
        """Tell what the store of the table's files refuses, while something is done with them."""
        properties = self.catalog.properties
        return explained_by_store(properties.get("warehouse", ""), properties, doing)

    def find(self) -> Table | None:
        """Load the table; None if it does not exist and may be created.

        Raises:
            SinkError: The table does not exist and may not be created.
        """
        from pyiceberg.exceptions import NoSuchTableError

        try:
            return self.load()
        except NoSuchTableError:
            if not self.create:
                raise SinkError(self.identifier, "there is no such Iceberg table") from None
            return None

    def load(self) -> Table:
        """Load the table."""
        with explained_by_catalog(self.catalog):
            return self.catalog.load_table(self.identifier)

    def created(
        self, schema: Schema, partition_by: Sequence[str], properties: Mapping[str, str]
    ) -> Table:
        """Create the table, or load the one that another process has created meanwhile."""
        from pyiceberg.exceptions import TableAlreadyExistsError

        try:
            with explained_by_catalog(self.catalog):
                self._ensure_namespace(self.identifier.rpartition(".")[0])
                return self.catalog.create_table(
                    self.identifier,
                    schema,
                    partition_spec=partition_spec(schema, partition_by),
                    properties=dict(properties),
                )
        except TableAlreadyExistsError:
            return self.load()

    def _ensure_namespace(self, namespace: str) -> None:
        try:
            self.catalog.create_namespace_if_not_exists(namespace)
        except Exception:
            # pyiceberg's SQL catalog looks first and inserts then: of two processes at once, one
            # gets the error of the database, and the namespace is there.
            if not self.catalog.namespace_exists(namespace):
                raise

    def done(self, table: Table, plan: ScanPlan) -> SinkResult | None:
        """Return what the table holds of the plan; None if the plan comes next.

        Raises:
            SinkPositionError: The plan does not begin where the table's position is.
            SinkFormError: The checkpoint has written into the table in another form.
        """
        at = position_of(table, plan.name)
        self._check_form(table, plan.name)
        last = table.properties.get(property_key(plan.name, "plan-id"), "")
        written = _written_as(table, plan)
        try:
            if plan_state(self.identifier, plan, last, at) is PlanState.NEXT:
                return None
        except SinkPositionError:
            # The position forgets dropped partitions, so it may not tell of an earlier plan that
            # had rows of them. The snapshots do.
            is_same = at is not None and at.generation == plan.generation
            if written is None or not is_same or not self.form.follows_state:
                raise
        if written is not None:
            return written
        # The snapshot has expired. The number of rows is known of the last plan only.
        held = table.properties.get(property_key(plan.name, "rows"), 0)
        rows = int(held) if last == plan.plan_id else 0
        return SinkResult(rows, 0, {"snapshot_expired": True}, moved=0)

    def _check_form(self, table: Table, name: str) -> None:
        """Refuse a checkpoint that has written in another form: it would misread what is there."""
        if position_of(table, name) is None:
            return
        stored = table.properties.get(property_key(name, "form"), "")
        is_state = self.form.follows_state
        if stored == self.form or (not is_state and not stored):
            return
        raise SinkFormError(
            self.identifier,
            f"checkpoint '{name}' has written into it with form='{stored or SinkForm.APPEND}', and "
            f"this sink has form='{self.form}': use another checkpoint and another table",
        )

    def properties_after(self, table: Table, plan: ScanPlan, rows: int) -> dict[str, str]:
        """Return the properties of the table after the plan was written."""
        end = position_after(
            plan, position_of(table, plan.name), keeps_columns=self.form.follows_state
        )
        found = {
            property_key(plan.name, "plan-id"): plan.plan_id,
            property_key(plan.name, "position"): end.to_text(),
            property_key(plan.name, "rows"): str(rows),
        }
        if self.form.follows_state:
            found[property_key(plan.name, "form")] = str(self.form)
        return found

    def reset_position(self, name: str, position: TablePosition | None) -> None:
        """Set or remove the position of a checkpoint."""
        table = self.find()
        if table is None:
            return
        keys = [property_key(name, what) for what in _PARTS]
        with table.transaction() as change:
            change.remove_properties(*[key for key in keys if key in table.properties])
            if position is not None:
                properties = {property_key(name, "position"): SinkPosition(position).to_text()}
                if self.form.follows_state:
                    properties[property_key(name, "form")] = str(self.form)
                change.set_properties(properties)


def _written_as(table: Table, plan: ScanPlan) -> SinkResult | None:
    """Return what the snapshot of a plan says of it; None if there is no such snapshot."""
    for snapshot in reversed(table.snapshots()):
        summary = snapshot.summary
        if summary is not None and summary[PLAN_ID_SUMMARY] == plan.plan_id:
            size = int(summary["added-files-size"] or 0)
            rows = int(summary[PLAN_ROWS_SUMMARY] or summary["added-records"] or 0)
            return SinkResult(rows, size, {"snapshot_id": snapshot.snapshot_id}, moved=0)
    return None


def property_key(name: str, what: str) -> str:
    """Return the name of a table property about a checkpoint."""
    return f"{PROPERTY_PREFIX}{name}.{what}"


def position_of(table: Table, name: str) -> SinkPosition | None:
    """Return the position of a checkpoint in a table; None if the table holds no plan of it."""
    return stored_position(table.properties, name)


def stored_position(properties: Mapping[str, str], name: str) -> SinkPosition | None:
    """Return the position of a checkpoint in the properties of a table."""
    text = properties.get(property_key(name, "position"))
    return None if text is None else SinkPosition.from_text(text)


def checkpoints_in(properties: Mapping[str, str]) -> list[str]:
    """Return the checkpoints whose position is among the properties of a table."""
    return sorted(
        key.removeprefix(PROPERTY_PREFIX).removesuffix(".position")
        for key in properties
        if key.startswith(PROPERTY_PREFIX) and key.endswith(".position")
    )
