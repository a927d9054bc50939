"""`FlussHook`: a client of Fluss for an Airflow connection.

The module turns a connection into the client's configuration, keeps one client per process and
configuration, and imports heavy modules without blocking an event loop.
"""

from __future__ import annotations

import asyncio
import importlib
import json
import os
import sys
import threading
from collections.abc import Mapping
from types import ModuleType
from typing import TYPE_CHECKING, Any

from fluss_orchestrate.airflow.assets import asset_uri, check_alias_name
from fluss_orchestrate.airflow.version_compat import (
    CAPABILITIES,
    BaseHook,
    get_hook_lineage_collector,
)

if TYPE_CHECKING:
    import pyarrow as pa
    from airflow.sdk import Connection

    from fluss_client import Config, FlussConnection
    from fluss_orchestrate.core.receipts import Receipt


_one_at_a_time = threading.Lock()


async def loaded(module: str) -> ModuleType:
    """Import a module on another thread and return it: the first import takes a second or two."""
    found = sys.modules.get(module)
    if found is not None and not getattr(found.__spec__, "_initializing", False):
        return found
    return await asyncio.to_thread(_import, module)


def _import(module: str) -> ModuleType:
    # Two threads in one package would wait for each other's modules, and Python then gives one
    # of them a module that is not whole. A triggerer starts many triggers at once.
    with _one_at_a_time:
        return importlib.import_module(module)


CONNECT_TIMEOUT_S = 150.0
ALIAS_VARIABLE = "FLUSS_CLUSTER_ALIAS"

_lock = threading.Lock()
_clients: dict[tuple[int, frozenset[tuple[str, Any]]], FlussConnection] = {}


def config_of(connection: Connection) -> Config:
    """Return the client's settings for a connection of type `fluss`."""
    from fluss_client import Config
    from fluss_client.errors import ConfigError

    extra = connection.extra_dejson
    values: dict[str, Any] = dict(_client_options(extra.get("client_options")))
    address = extra.get("bootstrap_servers") or connection.host or ""
    if address and connection.port and ":" not in address:
        address = f"{address}:{connection.port}"
    if not address and "bootstrap.servers" not in values:
        raise ConfigError(
            f"connection '{connection.conn_id}' has no address: set its host to "
            "host:port[,host:port] for a cluster, or to embedded:PATH for the embedded engine"
        )
    if address:
        values["bootstrap.servers"] = address
    if extra.get("cluster_alias"):
        values["cluster.alias"] = extra["cluster_alias"]
    protocol = extra.get("security_protocol") or ("SASL" if connection.login else "")
    if protocol:
        # The client writes one of them small, as the servers do.
        values["security.protocol"] = "sasl" if protocol.upper() == "SASL" else protocol.upper()
    if connection.login:
        values["security.sasl.username"] = connection.login
    if connection.password:
        values["security.sasl.password"] = connection.password
    return Config(values)


def alias_of(connection: Connection) -> str:
    """Return the alias of the cluster, as the client would, without importing it."""
    extra = connection.extra_dejson
    given = extra.get("client_options")
    options = json.loads(given) if isinstance(given, str) and given else given or {}
    found = extra.get("cluster_alias") or options.get("cluster.alias")
    return str(found or os.environ.get(ALIAS_VARIABLE, "").strip() or "default")


def _client_options(given: Any) -> Mapping[str, Any]:
    from fluss_client.errors import ConfigError

    if not given:
        return {}
    if isinstance(given, str):
        try:
            given = json.loads(given)
        except ValueError as error:
            raise ConfigError(f"client_options is no JSON: {error}") from None
    if not isinstance(given, Mapping):
        raise ConfigError("client_options is a JSON object of configuration keys and values")
    return given


def secrets_of(config: Config) -> list[str]:
    """Return the values that must be masked."""
    everything = config.to_dict(with_secrets=True)
    return [str(everything[key]) for key in everything.keys() - config.to_dict().keys()]


def client_for(config: Config) -> FlussConnection:
    """Return the client for some settings. Blocks; the same settings return the same client."""
    from fluss_client import FlussConnection

    key = _key(config)
    with _lock:
        client = _usable(key)
        if client is None:
            client = FlussConnection.create(config).result(CONNECT_TIMEOUT_S)
            _clients[key] = client
        return client


async def aclient_for(config: Config) -> FlussConnection:
    """Return the client for some settings, as `client_for`, without blocking the event loop."""
    from fluss_client import FlussConnection

    key = _key(config)
    client = _usable(key)
    if client is None:
        made = await FlussConnection.create(config)
        client = _clients.setdefault(key, made)
        if client is not made:
            await made.__aexit__(None, None, None)
    return client


def close_clients() -> None:
    """Close all clients of this process."""
    with _lock:
        mine = [key for key in _clients if key[0] == os.getpid()]
        for key in mine:
            _clients.pop(key).close()


def _key(config: Config) -> tuple[int, frozenset[tuple[str, Any]]]:
    return os.getpid(), frozenset(config.to_dict(with_secrets=True).items())


def _usable(key: tuple[int, frozenset[tuple[str, Any]]]) -> FlussConnection | None:
    from fluss_client.engine import is_closed

    client = _clients.get(key)
    return None if client is None or is_closed(client) else client


TEST_TIMEOUT_S = 20.0


class FlussHook(BaseHook):
    """A client for an Airflow connection of type `fluss`.

    Each process has one client per connection. It is made when it is first asked for, after any
    fork, and closed when the process ends. Do not close it: others use it, too.

    Args:
        fluss_conn_id: The Airflow connection.
        **kwargs: The arguments of Airflow's `BaseHook`.
    """

    conn_name_attr = "fluss_conn_id"
    default_conn_name = "fluss_default"
    conn_type = "fluss"
    hook_name = "Apache Fluss"

    # Later releases warn of hooks that have these. Airflow looks for them in this very class.
    if not CAPABILITIES.declared_form:

        @classmethod
        def get_connection_form_widgets(cls) -> dict[str, Any]:
            """Return the fields of the connection form for the extras."""
            from fluss_orchestrate.airflow.provider_info import form_widgets

            return form_widgets()

        @classmethod
        def get_ui_field_behaviour(cls) -> dict[str, Any]:
            """Return how the connection form shows the standard fields."""
            from fluss_orchestrate.airflow.provider_info import form_behaviour

            return form_behaviour()

    def __init__(self, fluss_conn_id: str = default_conn_name, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.fluss_conn_id = fluss_conn_id

    def get_conn(self) -> FlussConnection:
        """Return the client. Its handles block with `.result()` and can be awaited.

        Raises:
            ConfigError: If the connection cannot be understood.
            FlussError: If the cluster cannot be reached.
        """
        return client_for(self.get_config())

    async def aget_client(self) -> FlussConnection:
        """Return the client without blocking the event loop; for triggers and async tasks.

        Raises:
            ConfigError: If the connection cannot be understood.
            FlussError: If the cluster cannot be reached.
        """
        masking = await loaded("airflow.sdk.log")
        connection = await self._aget_connection()
        # The first import of the client takes a second; the loop has other work meanwhile.
        config = await asyncio.to_thread(config_of, connection)
        for secret in secrets_of(config):
            # Masking imports it, and that takes long outside of a triggerer.
            await loaded("airflow.sdk.execution_time.task_runner")
            if CAPABILITIES.async_masking:
                await masking.amask_secret(secret)
            else:
                await asyncio.to_thread(masking.mask_secret, secret)
        return await aclient_for(config)

    async def _aget_connection(self) -> Connection:
        if hasattr(BaseHook, "aget_connection"):
            found: Connection = await self.aget_connection(self.fluss_conn_id)
            return found
        # 3.0 has no such call, and its own one must not be made on the event loop.
        return await asyncio.to_thread(self.get_connection, self.fluss_conn_id)

    def get_config(self) -> Config:
        """Return the client's settings with the password; their text shows no secret.

        Raises:
            ConfigError: If the connection cannot be understood.
        """
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
        """The cluster's alias from the connection alone, without the import of the client."""
        return alias_of(self.get_connection(self.fluss_conn_id))

    def test_connection(self) -> tuple[bool, str]:
        """Connect and ask for the databases.

        Returns:
            Whether that went well, and a sentence.
        """
        from fluss_client import FlussConnection
        from fluss_client.errors import FlussError

        try:
            config = self.get_config().copy()
            # Before anything is opened: an embedded directory is created by opening it.
            check_alias_name(config.resolved_alias())
            config.retry_timeout_ms = int(TEST_TIMEOUT_S * 1000)
            with FlussConnection.create(config).result(TEST_TIMEOUT_S) as client:
                admin = client.get_admin().result(TEST_TIMEOUT_S)
                count = len(admin.list_databases().result(TEST_TIMEOUT_S))
        except (FlussError, ValueError) as error:
            return False, f"{type(error).__name__}: {error}"
        return True, f"Connected to {config.resolved_bootstrap()}: {count} databases"

    def extra_of(self, name: str) -> str | None:
        """Return a field of the connection's extras as text, or None.

        Args:
            name: The name of the field.
        """
        value = self.get_connection(self.fluss_conn_id).extra_dejson.get(name)
        return None if value is None else str(value)

    def list_tables(self, database: str) -> list[str]:
        """Return the names of the tables of a database.

        Args:
            database: The database.

        Raises:
            DatabaseNotExistError: If there is no such database.
        """
        return self.get_conn().get_admin().result().list_tables(database).result()

    def table_exists(self, table: str) -> bool:
        """Return whether there is a table.

        Args:
            table: The table, as `database.table`.
        """
        from fluss_client import TablePath

        return self.get_conn().get_admin().result().table_exists(TablePath.parse(table)).result()

    def get_table_schema(self, table: str) -> pa.Schema:
        """Return the columns of a table as an Arrow schema.

        Args:
            table: The table, as `database.table`.

        Raises:
            TableNotExistError: If there is no such table.
        """
        from fluss_client.engine import table_info

        return table_info(self.get_conn(), table).schema.arrow

    def report_read(self, table: str, receipt: Receipt | None = None) -> None:
        """Report to Airflow's lineage that this task has read a table.

        Args:
            table: The table, as `database.table`.
            receipt: What was read.
        """
        collector = get_hook_lineage_collector()
        collector.add_input_asset(
            self, scheme="fluss", asset_kwargs={"uri": self._uri(table)}, asset_extra=None
        )
        _report_counts(collector, self, table, receipt)

    def report_write(self, table: str, receipt: Receipt | None = None) -> None:
        """Report to Airflow's lineage that this task has written a table.

        Args:
            table: The table, as `database.table`.
            receipt: What was written.
        """
        collector = get_hook_lineage_collector()
        collector.add_output_asset(
            self, scheme="fluss", asset_kwargs={"uri": self._uri(table)}, asset_extra=None
        )
        _report_counts(collector, self, table, receipt)

    def _uri(self, table: str) -> str:
        return asset_uri(table, self.cluster_alias)


def config_by_id(connection_id: str) -> Config:
    """Return the client's settings for a connection id (see `core.clusters.SCHEDULERS`)."""
    return FlussHook(connection_id).get_config()


def _report_counts(collector: Any, hook: FlussHook, table: str, receipt: Receipt | None) -> None:
    if receipt is not None and CAPABILITIES.lineage_extra:
        value = {"table": table, "rows": receipt.rows, "plan_id": receipt.plan_id}
        collector.add_extra(hook, key=f"fluss.{receipt.kind}", value=value)
