"""Increments to one kind of target, under the names that people look for."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from fluss_orchestrate.airflow.operators.scanning import FlussIncrementalScanOperator
from fluss_orchestrate.airflow.targets import IcebergTarget, SqlTarget


class FlussToIcebergOperator(FlussIncrementalScanOperator):
    """Bring what is new in a table into an Iceberg table, exactly once.

    It is `FlussIncrementalScanOperator` with an `IcebergTarget`.

    Args:
        iceberg_table: The Iceberg table, as `namespace.table`; it is created with the first
            increment.
        catalog: The properties of the catalog, by the names of pyiceberg. No secrets.
        catalog_conn_id: The Airflow connection with the other properties of the catalog.
        partition_by: The partitioning of a table that is created.
        schema_policy: What happens with columns that the table lacks: `error` or `add_columns`.
        **kwargs: The arguments of `FlussIncrementalScanOperator` but `sink`.
    """

    def __init__(
        self,
        *,
        iceberg_table: str,
        catalog: Mapping[str, str] | None = None,
        catalog_conn_id: str | None = None,
        partition_by: Sequence[str] = (),
        schema_policy: str = "error",
        **kwargs: Any,
    ) -> None:
        super().__init__(
            sink=IcebergTarget(
                iceberg_table, dict(catalog or {}), catalog_conn_id, partition_by, schema_policy
            ),
            **kwargs,
        )


class FlussToSqlOperator(FlussIncrementalScanOperator):
    """Bring what is new in a table into a table of a SQL database, exactly once.

    It is `FlussIncrementalScanOperator` with a `SqlTarget`.

    Args:
        sql_table: The table; it is created with the first increment.
        sql_conn_id: The Airflow connection of the database.
        schema: The schema of the table.
        schema_policy: What happens with columns that the table lacks: `error` or `add_columns`.
        **kwargs: The arguments of `FlussIncrementalScanOperator` but `sink`.
    """

    def __init__(
        self,
        *,
        sql_table: str,
        sql_conn_id: str,
        schema: str | None = None,
        schema_policy: str = "error",
        **kwargs: Any,
    ) -> None:
        super().__init__(sink=SqlTarget(sql_table, sql_conn_id, schema, schema_policy), **kwargs)
