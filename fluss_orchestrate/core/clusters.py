"""Clusters by their alias, so that another process can reach one without being told a secret.

What travels (in plans, options, pickles, arguments) is a `ClusterRef`: the alias and settings that
are no secrets. Each process adds its own, from variables such as

    FLUSS_CLUSTER_PROD_SECURITY_SASL_PASSWORD    (alias prod, key security.sasl.password)

or from the file that FLUSS_CLUSTERS_FILE names, which only its owner may read:

    [prod]
    bootstrap.servers = fluss-1:9123
    security.sasl.password = …
"""

from __future__ import annotations

import configparser
import importlib
import os
import re
import stat
import threading
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from fluss_client import Config, FlussConnection
from fluss_client.engine import OPTIONS, find_option
from fluss_client.errors import ConfigError, MissingExtraError
from fluss_orchestrate.core import plain_values as plain
from fluss_orchestrate.core.identity import check_alias

CLUSTERS_FILE_VARIABLE = "FLUSS_CLUSTERS_FILE"
VARIABLE_PREFIX = "FLUSS_CLUSTER_"
DEFAULT_ALIAS = "default"
CONNECTIONS_MAX = 16
SCHEDULERS = {"airflow": ("fluss_orchestrate.airflow.hooks", "config_by_id", "apache-airflow")}
"""Schedulers that keep connections: the module and function that read one, and the package needed.

Shells do not import each other. One that needs the connection of another asks here, by name.
"""
CONNECT_TIMEOUT_S = 120.0


@dataclass(frozen=True)
class ClusterRef:
    """A reference to a cluster without its secrets. It may be pickled and printed.

    Attributes:
        alias: The alias of the cluster. Executors find the secrets under it.
        properties: The client configuration without secrets.
    """

    alias: str = DEFAULT_ALIAS
    properties: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        check_alias(self.alias)
        for key in self.properties:
            if find_option(key).secret:
                raise ConfigError(
                    f"{key} is a secret and must not travel with a plan or an option: set the "
                    f"variable {variable_of(self.alias, key)}, or name a file in "
                    f"{CLUSTERS_FILE_VARIABLE}, where the work is done"
                )

    @classmethod
    def of(cls, config: Config) -> ClusterRef:
        """Return the reference to the cluster of a `config`, without its secrets."""
        values = config.to_dict()
        alias = config.resolved_alias()
        values.pop(Config.cluster_alias.key, None)
        return cls(alias, values)

    def config(self) -> Config:
        """The settings with this process's own secrets; given ones win over its environment's."""
        found = {**_from_file(self.alias), **_from_environment(self.alias), **self.properties}
        found.setdefault(Config.cluster_alias.key, self.alias)
        return Config(found)

    def connection(self) -> FlussConnection:
        """A connection that this process shares between all who ask for the same cluster."""
        return _connections.get(self)

    def to_json(self) -> dict[str, Any]:
        """Return the reference as plain values."""
        return {"alias": self.alias, "properties": dict(self.properties)}

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> ClusterRef:
        """Return the reference from the `value` that `to_json` returned."""
        with plain.reading("reference to a cluster"):
            return cls(plain.text(value["alias"]), plain.mapping(value["properties"]))


def scheduler_config(scheduler: str, connection_id: str) -> Config:
    """Return the settings that a scheduler keeps under a connection id.

    Args:
        scheduler: A key of `SCHEDULERS`.
        connection_id: The id of the connection within the scheduler.

    Raises:
        MissingExtraError: If the scheduler is not installed.
    """
    module, function, package = SCHEDULERS[scheduler]
    try:
        read = getattr(importlib.import_module(module), function)
    except ImportError:
        raise MissingExtraError(package, scheduler) from None
    found = read(connection_id)
    assert isinstance(found, Config)
    return found


def variable_of(alias: str, key: str) -> str:
    """The environment variable that holds a key of a cluster."""
    words = re.sub(r"[^A-Za-z0-9]+", "_", f"{alias}_{key}").upper()
    return f"{VARIABLE_PREFIX}{words}"


def secret_variables(config: Config) -> dict[str, str]:
    """What to put into another process's environment, so that it finds this config's secrets."""
    alias = config.resolved_alias()
    values = config.to_dict(with_secrets=True)
    return {variable_of(alias, key): values[key] for key in values if OPTIONS[key].secret}


def _from_environment(alias: str) -> dict[str, str]:
    found = {}
    for key in OPTIONS:
        value = os.environ.get(variable_of(alias, key))
        if value is not None:
            found[key] = value
    return found


def _from_file(alias: str) -> dict[str, str]:
    name = os.environ.get(CLUSTERS_FILE_VARIABLE, "")
    if not name:
        return {}
    parser = configparser.ConfigParser(interpolation=None, delimiters=("=",))
    try:
        with open(name) as file:
            mode = os.fstat(file.fileno()).st_mode
            if stat.S_ISREG(mode) and mode & (stat.S_IRWXG | stat.S_IRWXO):
                raise ConfigError(f"{name} holds secrets and others may read it: chmod 600 {name}")
            parser.read_file(file)
    except OSError as error:
        raise ConfigError(
            f"{CLUSTERS_FILE_VARIABLE} names {name}, which cannot be read: {error.strerror}"
        ) from None
    except configparser.Error as error:
        # The parser's own message may show a line, and so a secret.
        raise ConfigError(f"{name} is not in the form [alias] key = value") from error
    return dict(parser[alias]) if parser.has_section(alias) else {}


class _Connections:
    """Open connections of this process. A forked child opens its own."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._pid = os.getpid()
        self._open: dict[str, FlussConnection] = {}

    def get(self, ref: ClusterRef) -> FlussConnection:
        config = ref.config()
        key = repr(sorted(config.to_dict(with_secrets=True).items()))
        with self._lock:
            found = self._open.get(key)
            if found is None:
                while len(self._open) >= CONNECTIONS_MAX:
                    self._open.pop(next(iter(self._open)))
                found = FlussConnection.create(config).result(CONNECT_TIMEOUT_S)
                self._open[key] = found
            return found

    def after_fork(self) -> None:
        self.__init__()  # type: ignore[misc]


_connections = _Connections()
os.register_at_fork(after_in_child=_connections.after_fork)
