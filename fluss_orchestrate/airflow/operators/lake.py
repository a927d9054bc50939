"""Filling the lake, and setting a checkpoint by hand."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from fluss_orchestrate.airflow.flows import Flow, Node, copies, named_table, table_node
from fluss_orchestrate.airflow.links import LakeTableLink
from fluss_orchestrate.airflow.operators.base import FlussOperator
from fluss_orchestrate.airflow.scans import until_of

if TYPE_CHECKING:
    from airflow.sdk import Context

    from fluss_orchestrate.core.checkpoints import CheckpointStore

NAMES_SHOWN_MAX = 5


class FlussTierToLakeOperator(FlussOperator):
    """Bring everything that is in a log table into its lake, once.

    For clusters without a tiering service of their own; `allow_tiering=True` says that there is
    none. `catalog` overrides properties of the Iceberg catalog; secrets belong in the environment.
    """

    template_fields = ("fluss_conn_id", "table", "catalog")
    operator_extra_links = (LakeTableLink(),)

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
        """Tier the table; the receipt names the snapshot."""
        from fluss_orchestrate.core.lake import tier

        client = self.hook.get_conn()
        receipt = tier(client, self.table, allow_tiering=self.allow_tiering, overrides=self.catalog)
        self.log.info("%s: %d rows, snapshot %s", self.table, receipt.rows, receipt.snapshot_id)
        self.hook.report_read(self.table, receipt)
        table = table_node(client, self.table)
        self.flow = Flow((table,), (_lake_of(table),), receipt, copies(table))
        LakeTableLink.persist(context, client, self.table, self.catalog)
        return receipt.to_json()

    def expected_flow(self) -> Flow:
        """The table, and its lake."""
        table = named_table(self.hook.named_alias, self.table)
        return Flow((table,), (_lake_of(table),))


def _lake_of(table: Node) -> Node:
    return replace(table, namespace=f"{table.namespace}#lake")


class FlussCheckpointResetOperator(FlussOperator):
    """Set a checkpoint to `earliest`, `latest`, a time or offsets by bucket, and record why.

    The checkpoint must exist, so that a mistyped name is an error; `create=True` makes one that
    begins there.

    What a sink holds is not touched: rows that are read again are written again, unless the sink
    keeps its own position and refuses.
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
        """Reset it; where it stands now."""
        from fluss_orchestrate.core.incremental import IncrementalScan

        scan = IncrementalScan(self.hook.get_conn(), self.table, self.checkpoint)
        if not self.create:
            self._check_exists(scan.store)
        to = self.to if self.to in ("earliest", "latest") else until_of(self.to)
        ti = context["ti"]
        reason = self.reason or f"Airflow: {ti.dag_id}.{ti.task_id} in {ti.run_id}"
        event = scan.reset(to, reason, abandon_pending=self.abandon_pending)
        position = event.state.position
        assert position is not None
        return {
            "checkpoint": self.checkpoint,
            "sequence": event.sequence,
            "reason": reason,
            "position": position.to_json(),
        }

    def _check_exists(self, store: CheckpointStore) -> None:
        from difflib import get_close_matches

        from fluss_client.errors import ConfigError

        if store.head(self.checkpoint) is not None:
            return
        names = store.names()
        near = get_close_matches(self.checkpoint, names) or names[:NAMES_SHOWN_MAX]
        raise ConfigError(
            f"there is no checkpoint '{self.checkpoint}' to reset"
            + (f"; there are {', '.join(near)}" if near else "")
            + ". Mend the name, or say create=True to begin a new one"
        )
