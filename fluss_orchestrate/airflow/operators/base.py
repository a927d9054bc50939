"""What all operators share: the connection, typed failures, receipts, and being killed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any

from airflow.sdk import BaseOperator

from fluss_orchestrate.airflow.assets import check_assets, fluss_assets
from fluss_orchestrate.airflow.errors import airflow_errors
from fluss_orchestrate.airflow.hooks import FlussHook
from fluss_orchestrate.airflow.links import FlussConsoleLink, FlussTableLink
from fluss_orchestrate.airflow.receipts import check_asset_partitions, publish
from fluss_orchestrate.airflow.templates import CheckedTemplates
from fluss_orchestrate.airflow.version_compat import AirflowTaskTerminated

if TYPE_CHECKING:
    from airflow.sdk import Context

    from fluss_orchestrate.airflow.flows import Flow

COLOUR = "#d5e8f7"


class FlussOperator(CheckedTemplates, BaseOperator):
    """An operator whose `work` returns a receipt, or other plain values, for XCom.

    The result also goes into the extra of the events of the task's outlets. An error that a retry
    cannot mend fails the task at once. A kill stops the work where it is; the next try, or another
    run, continues what is unfinished.

    Args:
        fluss_conn_id: The Airflow connection of the cluster.
        asset_partitions: Whether the task's outlets get one event for each partition of the table
            that it has moved, with the partition's name as the key. Airflow starts only DAGs with a
            `PartitionedAssetTimetable` by such events.
        **kwargs: The arguments of Airflow's `BaseOperator`.
    """

    template_fields: Sequence[str] = ("fluss_conn_id",)
    operator_extra_links: Any = (FlussTableLink(), FlussConsoleLink())
    ui_color = COLOUR

    def __init__(
        self,
        *,
        fluss_conn_id: str = FlussHook.default_conn_name,
        asset_partitions: bool = False,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.fluss_conn_id = fluss_conn_id
        self.asset_partitions = asset_partitions
        self._working = False
        self.flow: Flow | None = None

    @cached_property
    def hook(self) -> FlussHook:
        """The hook of the task's connection."""
        return FlussHook(self.fluss_conn_id)

    def execute(self, context: Context) -> Any:
        """Do the work and publish what it returned.

        Args:
            context: Airflow's context.

        Returns:
            The result, as plain values; long lists of ranges are summarised.

        Raises:
            FlussTaskError: If a retry may help.
            FlussTaskFailedError: If no retry can help.
        """
        self._working = True
        try:
            self.check_not_empty()
            with airflow_errors():
                self._check_assets()
                if self.asset_partitions:
                    check_asset_partitions(self.task_id)
                done = self.work(context)
                return publish(context, done, partitions=self.asset_partitions)
        finally:
            self._working = False

    def _check_assets(self) -> None:
        uris = fluss_assets(self)
        flow = self.expected_flow() if uris else None
        if flow is not None:
            check_assets(uris, (*flow.inputs, *flow.outputs))

    def work(self, context: Context) -> Mapping[str, Any]:
        """Do the operator's own part.

        Args:
            context: Airflow's context.

        Returns:
            The result, as plain values.
        """
        raise NotImplementedError

    def on_kill(self) -> None:
        """Stop the work at once. Airflow itself would let it go on until it kills the process."""
        if self._working:
            self._working = False
            raise AirflowTaskTerminated(f"{self.task_id} was told to stop; nothing was committed")

    def expected_flow(self) -> Flow | None:
        """Return what the task will move, as far as its arguments tell; None if that is nothing."""
        return None

    def get_openlineage_facets_on_start(self) -> Any:
        """Return the lineage of the task before it has done anything."""
        from fluss_orchestrate.airflow.lineage import lineage_of

        return lineage_of(self.expected_flow())

    def get_openlineage_facets_on_complete(self, task_instance: Any) -> Any:
        """Return the lineage of the task when it is done."""
        from fluss_orchestrate.airflow.lineage import lineage_of

        return lineage_of(self.flow)

    def get_openlineage_facets_on_failure(self, task_instance: Any) -> Any:
        """Return all of the lineage if the work was done; else what the task was to move."""
        from fluss_orchestrate.airflow.lineage import lineage_of

        return lineage_of(self.flow or self.expected_flow())
