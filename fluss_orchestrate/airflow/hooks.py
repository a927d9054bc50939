"""`FlussHook`: from an Airflow connection to a client."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from airflow.sdk import BaseHook
from airflow.sdk.lineage import get_hook_lineage_collector

from fluss_orchestrate.airflow.assets import asset_uri
from fluss_orchestrate.airflow.connections import (
    aclient_for,
    alias_of,
    client_for,
    config_of,
    secrets_of,
)
from fluss_orchestrate.airflow.loading import loaded

if TYPE_CHECKING:
    from fluss_client import Config, FlussConnection
    from fluss_orchestrate.core.receipts import Receipt

TEST_TIMEOUT_S = 20.0


class FlussHook(BaseHook):
    """A client for an Airflow connection of type `fluss`.

    Each process has one client per connection; it is made when it is first asked for, after any
    fork, and closed when the process ends. Do not close it: others use it too.
    """

    conn_name_attr = "fluss_conn_id"
    default_conn_name = "fluss_default"
    conn_type = "fluss"
    hook_name = "Apache Fluss"

    def __init__(self, fluss_conn_id: str = default_conn_name, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.fluss_conn_id = fluss_conn_id

    def get_conn(self) -> FlussConnection:
        """The client. Its handles block with `.result()` and can be awaited."""
        return client_for(self.get_config())

    async def aget_client(self) -> FlussConnection:
        """The client, without blocking the event loop; for triggers and async tasks."""
        masking = await loaded("airflow.sdk.log")
        connection = await self.aget_connection(self.fluss_conn_id)
        # The first import of the client takes a second; the loop has other work meanwhile.
        config = await asyncio.to_thread(config_of, connection)
        for secret in secrets_of(config):
            # Masking imports it, and that takes long outside of a triggerer.
            await loaded("airflow.sdk.execution_time.task_runner")
            await masking.amask_secret(secret)
        return await aclient_for(config)

    def get_config(self) -> Config:
        """The client's settings, password included; its text shows no secret."""
        from airflow.sdk.log import mask_secret

        config = config_of(self.get_connection(self.fluss_conn_id))
        for secret in secrets_of(config):
            mask_secret(secret)
        return config

    @property
    def cluster_alias(self) -> str:
        """The cluster's name in checkpoints and URIs."""
        return self.get_config().resolved_alias()

    @property
    def named_alias(self) -> str:
        """The same from the connection alone, without the import of the client."""
        return alias_of(self.get_connection(self.fluss_conn_id))

    def test_connection(self) -> tuple[bool, str]:
        """Connect and ask for the databases; whether that went well, and a sentence."""
        from fluss_client import FlussConnection
        from fluss_client.errors import FlussError

        try:
            config = self.get_config().copy()
            config.retry_timeout_ms = int(TEST_TIMEOUT_S * 1000)
            with FlussConnection.create(config).result(TEST_TIMEOUT_S) as client:
                admin = client.get_admin().result(TEST_TIMEOUT_S)
                count = len(admin.list_databases().result(TEST_TIMEOUT_S))
        except FlussError as error:
            return False, f"{type(error).__name__}: {error}"
        return True, f"Connected to {config.resolved_bootstrap()}: {count} databases"

    def report_read(self, table: str, receipt: Receipt | None = None) -> None:
        """Tell Airflow's lineage that this task has read a table."""
        collector = get_hook_lineage_collector()
        collector.add_input_asset(
            self, scheme="fluss", asset_kwargs={"uri": self._uri(table)}, asset_extra=None
        )
        _report_counts(collector, self, table, receipt)

    def report_write(self, table: str, receipt: Receipt | None = None) -> None:
        """Tell Airflow's lineage that this task has written a table."""
        collector = get_hook_lineage_collector()
        collector.add_output_asset(
            self, scheme="fluss", asset_kwargs={"uri": self._uri(table)}, asset_extra=None
        )
        _report_counts(collector, self, table, receipt)

    def _uri(self, table: str) -> str:
        return asset_uri(table, self.cluster_alias)


def _report_counts(collector: Any, hook: FlussHook, table: str, receipt: Receipt | None) -> None:
    if receipt is not None:
        value = {"table": table, "rows": receipt.rows, "plan_id": receipt.plan_id}
        collector.add_extra(hook, key=f"fluss.{receipt.kind}", value=value)
