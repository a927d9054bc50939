"""An Airflow connection as the client's configuration, and the clients of this process."""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from airflow.sdk import Connection

    from fluss_client import Config, FlussConnection

CONNECT_TIMEOUT_S = 150.0
ALIAS_VARIABLE = "FLUSS_CLUSTER_ALIAS"

_lock = threading.Lock()
_clients: dict[tuple[int, frozenset[tuple[str, Any]]], FlussConnection] = {}


def config_of(connection: Connection) -> Config:
    """The client's settings for a connection of type `fluss`.

    The address is the host (with the port, when that is given apart), or `bootstrap_servers` in
    the extras. A login means SASL. The extras may also hold `cluster_alias`, `security_protocol`
    and `client_options`, a mapping of further keys.
    """
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
    """The cluster's alias, as `config_of(connection).resolved_alias()`, without the client."""
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
    """The values that nobody may see."""
    everything = config.to_dict(with_secrets=True)
    return [str(everything[key]) for key in everything.keys() - config.to_dict().keys()]


def client_for(config: Config) -> FlussConnection:
    """The client for some settings. Blocks; the same settings give the same client.

    A worker forks its tasks: a client belongs to the process that made it, so every process has
    clients of its own.
    """
    from fluss_client import FlussConnection

    key = _key(config)
    with _lock:
        client = _usable(key)
        if client is None:
            client = FlussConnection.create(config).result(CONNECT_TIMEOUT_S)
            _clients[key] = client
        return client


async def aclient_for(config: Config) -> FlussConnection:
    """`client_for` without blocking the event loop."""
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
    client = _clients.get(key)
    return None if client is None or client.core.closed else client
