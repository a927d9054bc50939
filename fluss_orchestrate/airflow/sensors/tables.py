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
    """Waits until a table exists; gives its id."""

    def condition(self, client: FlussConnection, context: Context) -> Condition:
        """The table."""
        from fluss_client.model.table import TablePath
        from fluss_orchestrate.core.conditions import TableExists

        return TableExists(TablePath.parse(self.table))


class FlussPartitionSensor(FlussSensor):
    """Waits until a partition exists; `partition` maps all or some columns to values."""

    template_fields = ("fluss_conn_id", "table", "partition")

    def __init__(self, *, partition: Mapping[str, str], **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.partition = partition

    def condition(self, client: FlussConnection, context: Context) -> Condition:
        """The partition."""
        from fluss_client.model.table import TablePath
        from fluss_orchestrate.core.conditions import PartitionExists

        spec = {column: str(value) for column, value in self.partition.items()}
        return PartitionExists(TablePath.parse(self.table), spec)
