"""Waiting for tables and partitions to exist."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from fluss_orchestrate.airflow.sensors.base import FlussSensor

if TYPE_CHECKING:
    from airflow.sdk import Context

    from fluss_client import FlussConnection
    from fluss_orchestrate.core.conditions import Condition


class FlussTableSensor(FlussSensor):
    """Waits until a table exists, and returns its id.

    Args:
        **kwargs: The arguments of `FlussSensor`: `table`, `fluss_conn_id`, `deferrable`,
            `poll_interval`, and those of Airflow's `BaseSensorOperator`.
    """

    def condition(self, client: FlussConnection, context: Context) -> Condition:
        """Return the condition of the table.

        Args:
            client: The connection to the cluster.
            context: The context of the Airflow task.
        """
        from fluss_client import TablePath
        from fluss_orchestrate.core.conditions import TableExists

        return TableExists(TablePath.parse(self.table))


class FlussPartitionSensor(FlussSensor):
    """Waits until a partition exists.

    Args:
        partition: The values of all or some partition columns.
        **kwargs: The arguments of `FlussSensor`: `table`, `fluss_conn_id`, `deferrable`,
            `poll_interval`, and those of Airflow's `BaseSensorOperator`.
    """

    template_fields = ("fluss_conn_id", "table", "partition")

    def __init__(self, *, partition: Mapping[str, str], **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.partition = partition

    def condition(self, client: FlussConnection, context: Context) -> Condition:
        """Return the condition of the partition.

        Args:
            client: The connection to the cluster.
            context: The context of the Airflow task.
        """
        from fluss_client import TablePath
        from fluss_orchestrate.core.conditions import PartitionExists

        spec = {column: str(value) for column, value in self.partition.items()}
        return PartitionExists(TablePath.parse(self.table), spec)
