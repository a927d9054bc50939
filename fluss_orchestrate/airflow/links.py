"""Links on a task's page: the table, and its lake, in the tools that the connection names.

Airflow shows only links that a browser can open. The addresses are templates in the connection's
extras: `table_url` and `lake_url`, such as `https://catalog.example/{database}/{table}`.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from airflow.sdk import BaseOperatorLink

from fluss_orchestrate.airflow.version_compat import CAPABILITIES, conf

if TYPE_CHECKING:
    from airflow.sdk import Context

    from fluss_client import FlussConnection
    from fluss_orchestrate.airflow.hooks import FlussHook

XCOM_KEY = "fluss_lake_table"
CONSOLE_PREFIX = "/fluss"
"""Where Airflow's API server has the console."""
log = logging.getLogger(__name__)


def table_url(hook: FlussHook, field: str, table: str) -> str | None:
    """Return the address of a table in a tool that the connection names, or None.

    Args:
        hook: The hook of the connection.
        field: `table_url` or `lake_url`.
        table: The table, as `database.table`.

    Raises:
        ConfigError: If the template has other fields, or is no http address.
    """
    from fluss_client.errors import ConfigError

    template = hook.extra_of(field)
    if not template:
        return None
    database, _, name = table.partition(".")
    values = {"cluster": hook.named_alias, "database": database, "table": name}
    try:
        made = template.format(**{key: quote(value, safe="") for key, value in values.items()})
    except (KeyError, IndexError, ValueError) as error:
        raise ConfigError(
            f"{field} of connection '{hook.fluss_conn_id}' has a field that is not known: {error}; "
            "there are {cluster}, {database} and {table}"
        ) from error
    if not made.startswith(("http://", "https://")):
        raise ConfigError(
            f"{field} of connection '{hook.fluss_conn_id}' is no http address: {template}"
        )
    return made


class FlussTableLink(BaseOperatorLink):
    """The table in the tool that `table_url` of the connection's extras names."""

    name = "Fluss table"

    def get_link(self, operator: Any, *, ti_key: Any) -> str:
        """Return the address; empty if the connection names none.

        Airflow calls it on the worker when the task has ended.

        Args:
            operator: The task.
            ti_key: The key of the task instance.
        """
        return _url(operator, "table_url")


class LakeTableLink(BaseOperatorLink):
    """The Iceberg table of a table in the tool that `lake_url` of the connection's extras names."""

    name = "Lake table"

    def get_link(self, operator: Any, *, ti_key: Any) -> str:
        """Return the address; the table's location if the connection names no address.

        Args:
            operator: The task.
            ti_key: The key of the task instance.
        """
        from airflow.sdk.execution_time.xcom import XCom

        found = _url(operator, "lake_url")
        return found or str(XCom.get_value(ti_key=ti_key, key=XCOM_KEY) or "")

    @staticmethod
    def persist(
        context: Context,
        client: FlussConnection,
        table: str,
        overrides: Mapping[str, str] | None = None,
    ) -> None:
        """Keep the location of the Iceberg table for the link.

        Args:
            context: Airflow's context.
            client: The cluster.
            table: The table, as `database.table`.
            overrides: Properties of the Iceberg catalog that differ.
        """
        from fluss_client.engine import table_info
        from fluss_orchestrate.core.lake.catalog import load_lake_table

        info = table_info(client, table)
        found = load_lake_table(info, client.config.resolved_alias(), overrides)
        ti: Any = context["ti"]
        ti.xcom_push(key=XCOM_KEY, value=found.location())


class FlussConsoleLink(BaseOperatorLink):
    """The checkpoint of the task, or its table, in the console that Airflow's API server shows.

    A run over an interval leads to the checkpoint of that interval.
    """

    name = "Fluss console"

    def get_link(self, operator: Any, *, ti_key: Any) -> str:
        """Return the address; empty if `[api] base_url` is not set on the worker.

        Args:
            operator: The task.
            ti_key: The key of the task instance.
        """
        try:
            return console_url(
                operator.fluss_conn_id,
                getattr(operator, "read_checkpoint", "") or getattr(operator, "checkpoint", None),
                getattr(operator, "table", None),
            )
        except Exception as error:  # noqa: BLE001 - a link must not fail a task that has ended
            log.warning("no link: %s", error)
            return ""


def console_url(connection_id: str, checkpoint: Any, table: Any) -> str:
    """Return the address of a page of the console in Airflow, or an empty text.

    Args:
        connection_id: The Airflow connection.
        checkpoint: The name of a checkpoint, if the task has one.
        table: Otherwise its table, as `database.table`.
    """
    from fluss_orchestrate.console import links

    server = str(conf.get("api", "base_url", fallback="") or "").rstrip("/")
    if not server.startswith(("http://", "https://")) or not CAPABILITIES.plugin_pages:
        return ""
    base = f"{server}{CONSOLE_PREFIX}/{quote(connection_id, safe='')}"
    if isinstance(checkpoint, str) and checkpoint:
        return links.checkpoint_page(base, checkpoint)
    return links.table_page(base, table) if isinstance(table, str) and table else ""


def _url(operator: Any, field: str) -> str:
    table = getattr(operator, "table", None)
    try:
        return (table_url(operator.hook, field, table) or "") if isinstance(table, str) else ""
    except Exception as error:  # noqa: BLE001 - a link must not fail a task that has ended
        log.warning("no link: %s", error)
        return ""
