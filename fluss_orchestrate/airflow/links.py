"""Links on a task's page."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from airflow.sdk import BaseOperatorLink

if TYPE_CHECKING:
    from airflow.sdk import Context
    from airflow.sdk.types import RuntimeTaskInstanceProtocol

    from fluss_client import FlussConnection

XCOM_KEY = "fluss_lake_table"


class LakeTableLink(BaseOperatorLink):
    """Where the Iceberg table is that a task has filled or waited for."""

    name = "Lake table"

    def get_link(self, operator: Any, *, ti_key: Any) -> str:
        """The address; empty before the task has come to it."""
        from airflow.sdk.execution_time.xcom import XCom

        found = XCom.get_value(ti_key=ti_key, key=XCOM_KEY)
        return str(found or "")

    @staticmethod
    def persist(
        context: Context,
        client: FlussConnection,
        table: str,
        overrides: Mapping[str, str] | None = None,
    ) -> None:
        """Keep the address for the link."""
        from fluss_client.model.table import TablePath
        from fluss_client.runtime import runtime
        from fluss_orchestrate.core.lake.catalog import load_lake_table

        info = runtime().call(client.core.backend.get_table_info(TablePath.parse(table)))
        found = load_lake_table(info, client.config.resolved_alias(), overrides)
        ti: RuntimeTaskInstanceProtocol = context["ti"]
        ti.xcom_push(key=XCOM_KEY, value=found.location())
