"""Filling the lake, and setting a checkpoint by hand."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from fluss_orchestrate.airflow.flows import Flow, Node, copies, named_table, table_node
from fluss_orchestrate.airflow.links import FlussConsoleLink, FlussTableLink, LakeTableLink
from fluss_orchestrate.airflow.operators.base import FlussOperator
from fluss_orchestrate.airflow.operators.checkpoints import check_exists
from fluss_orchestrate.airflow.scans import until_of

if TYPE_CHECKING:
    from airflow.sdk import Context

RESET_WORDS = ("earliest", "latest", "current", "start")


class FlussTierToLakeOperator(FlussOperator):
    """Bring everything that is in a table into its lake, once.

    For clusters without a tiering service of their own.

    Args:
        table: The table, as `database.table`.
        allow_tiering: Says that no tiering service runs beside this task; the task fails without
            it.
        catalog: Properties of the Iceberg catalog that differ from those of the table. Secrets
            belong in the environment.
        **kwargs: `fluss_conn_id`, and the arguments of Airflow's `BaseOperator`.
    """

    template_fields = ("fluss_conn_id", "table", "catalog")
    operator_extra_links = (FlussTableLink(), LakeTableLink(), FlussConsoleLink())

    def __init__(
        self,
        *,
        table: str,
        allow_tiering: bool = False,
        catalog: Mapping[str, str] | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.table = table
        self.allow_tiering = allow_tiering
        self.catalog = catalog

    def work(self, context: Context) -> dict[str, Any]:
        """Tier the table, and return the receipt with the snapshot.

        Args:
            context: The context of the Airflow task.
        """
        from fluss_orchestrate.core.lake import tier_table

        client = self.hook.get_conn()
        receipt = tier_table(
            client, self.table, allow_tiering=self.allow_tiering, catalog=self.catalog
        )
        self.log.info("%s: %d rows, snapshot %s", self.table, receipt.rows, receipt.snapshot_id)
        self.hook.report_read(self.table, receipt)
        table = table_node(client, self.table)
        self.flow = Flow((table,), (_lake_of(table),), receipt, copies(table))
        LakeTableLink.persist(context, client, self.table, self.catalog)
        return receipt.to_json()

    def expected_flow(self) -> Flow:
        """Return the table and its lake."""
        table = named_table(self.hook.named_alias, self.table)
        return Flow((table,), (_lake_of(table),))


class FlussMaintainLakeOperator(FlussOperator):
    """Compact the lake of a table, expire its snapshots and delete files that nobody needs.

    It may run beside tiering and readers. Snapshots that Fluss knows, and those that a branch or a
    tag in Iceberg names, stay.

    Args:
        table: The table, as `database.table`.
        dry_run: Only tell what would be done.
        settings: Fields of `MaintenanceSettings`, such as `snapshot_age_ms`.
        catalog: Properties of the Iceberg catalog that differ from those of the table. Secrets
            belong in the environment.
        **kwargs: `fluss_conn_id`, and the arguments of Airflow's `BaseOperator`.
    """

    template_fields = ("fluss_conn_id", "table", "settings", "catalog")
    operator_extra_links = (FlussTableLink(), LakeTableLink(), FlussConsoleLink())

    def __init__(
        self,
        *,
        table: str,
        dry_run: bool = False,
        settings: Mapping[str, Any] | None = None,
        catalog: Mapping[str, str] | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.table = table
        self.only_plan = dry_run
        self.settings = settings
        self.catalog = catalog

    def work(self, context: Context) -> dict[str, Any]:
        """Maintain the lake, and return what was done.

        Args:
            context: The context of the Airflow task.
        """
        from fluss_orchestrate.core.lake import MaintenanceSettings, maintain_lake

        client = self.hook.get_conn()
        done = maintain_lake(
            client,
            self.table,
            settings=MaintenanceSettings.of(self.settings or {}),
            dry_run=self.only_plan,
            catalog=self.catalog,
        )
        self.log.info("%s", done)
        LakeTableLink.persist(context, client, self.table, self.catalog)
        return done.to_json()

    def expected_flow(self) -> Flow:
        """Return the lake, which is read and written."""
        lake = _lake_of(named_table(self.hook.named_alias, self.table))
        return Flow((lake,), (lake,))


def _lake_of(table: Node) -> Node:
    return replace(table, namespace=f"{table.namespace}#lake")


class FlussCheckpointResetOperator(FlussOperator):
    """Set the position of a checkpoint, and record why.

    What a sink holds is not touched: rows that are read again are written again, unless the sink
    keeps its own position and refuses them.

    Args:
        table: The table, as `database.table`.
        checkpoint: The name of the checkpoint. It must exist, so that a mistyped name is an error.
        to: `earliest`, `latest`, a time, offsets by bucket, another task's receipt, `current` to
            keep the position, or `start` to begin as a first run does, which rebuilds a mirror.
        reason: Why; the name of the task by default.
        abandon_pending: Give up a pending plan of another run; without it such a plan is an error.
        create: Create the checkpoint, if it does not exist.
        **kwargs: `fluss_conn_id`, and the arguments of Airflow's `BaseOperator`.
    """

    template_fields = ("fluss_conn_id", "table", "checkpoint", "to", "reason")
    free_fields = ("reason",)

    def __init__(
        self,
        *,
        table: str,
        checkpoint: str,
        to: Any,
        reason: str = "",
        abandon_pending: bool = False,
        create: bool = False,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.table = table
        self.checkpoint = checkpoint
        self.to = to
        self.reason = reason
        self.abandon_pending = abandon_pending
        self.create = create

    def work(self, context: Context) -> dict[str, Any]:
        """Reset the checkpoint, and return its new position.

        Args:
            context: The context of the Airflow task.
        """
        from fluss_orchestrate.core.incremental import IncrementalScan

        scan = IncrementalScan(self.hook.get_conn(), self.table, self.checkpoint)
        if not self.create:
            check_exists(scan.store, self.checkpoint, "reset", ", or say create=True")
        to = self.to if self.to in RESET_WORDS else until_of(self.to, scan.connection)
        ti = context["ti"]
        reason = self.reason or f"Airflow: {ti.dag_id}.{ti.task_id} in {ti.run_id}"
        event = scan.reset(to, reason, abandon_pending=self.abandon_pending)
        position = event.state.position
        return {
            "checkpoint": self.checkpoint,
            "sequence": event.sequence,
            "reason": reason,
            "position": None if position is None else position.to_json(),
        }
