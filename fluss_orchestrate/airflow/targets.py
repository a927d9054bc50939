"""Targets: the sinks of increments, as arguments of an operator.

A DAG file makes a target while it is parsed. The target does no I/O and holds no secret: secrets
stay in Airflow connections, and the sink is opened when the task runs.

The classes at the end of this file are generated from the declarations of the sinks
(`core/sinks/registry.py`), so that editors and type checkers know their arguments.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import TYPE_CHECKING, Any, ClassVar, Protocol

from fluss_orchestrate.airflow.flows import Node

if TYPE_CHECKING:
    from fluss_client import FlussConnection
    from fluss_orchestrate.core.sinks import Sink
    from fluss_orchestrate.core.sinks.registry import SinkDeclaration, SinkField


STORAGE = "storage"
"""The word of a field that holds properties of storage: its connection is one of a cloud."""
# Where the connections of Airflow's providers keep what pyiceberg calls by these names.
_STORAGE_LOGINS = {
    "aws": ("s3.access-key-id", "s3.secret-access-key"),
    "wasb": ("adls.account-name", "adls.account-key"),
    "adls": ("adls.client-id", "adls.client-secret"),
}
_STORAGE_EXTRAS = {
    "aws_access_key_id": "s3.access-key-id",
    "aws_secret_access_key": "s3.secret-access-key",
    "aws_session_token": "s3.session-token",
    "region_name": "s3.region",
    "endpoint_url": "s3.endpoint",
    "role_arn": "s3.role-arn",
    "tenant_id": "adls.tenant-id",
    "sas_token": "adls.sas-token",
    "account_name": "adls.account-name",
}
_STORAGE_PREFIXES = ("s3.", "gcs.", "adls.", "hdfs.", "fs.")


class Target(Protocol):
    """Opens a sink."""

    def open(self, client: FlussConnection) -> Sink:
        """Open the sink; `client` is the connection that the rows are read with."""

    def node(self, alias: str) -> Node:
        """Return the dataset for lineage; `alias` is the alias of the cluster that is read."""


class SinkTarget:
    """What the targets of all declared sinks share."""

    sink_name: ClassVar[str]
    template_fields: ClassVar[Sequence[str]]

    def open(self, client: FlussConnection) -> Sink:
        """Open the sink.

        Args:
            client: The connection that the rows are read with.
        """
        values = self._values()
        for declared in self._clusters():
            values[declared.name] = _hook_of(self, declared).get_conn()
        return self._declaration.open(values, client)

    def node(self, alias: str) -> Node:
        """Return the dataset for lineage. No connection to a cluster is opened.

        Args:
            alias: The alias of the cluster that is read.
        """
        for declared in self._clusters():
            alias = _hook_of(self, declared).named_alias
        return Node(*self._declaration.node(self._values(), alias))

    @property
    def _declaration(self) -> SinkDeclaration:
        from fluss_orchestrate.core.sinks.registry import declaration

        return declaration(self.sink_name)

    def _values(self) -> dict[str, Any]:
        """Return the values of the fields, with the secrets of the connections."""
        from fluss_orchestrate.core.sinks.registry import FieldKind

        values: dict[str, Any] = {}
        for declared in self._declaration.fields:
            if declared.kind is FieldKind.CLUSTER:
                continue
            if declared.kind is FieldKind.PROPERTIES:
                own = getattr(self, declared.name)
                take = _storage_of if declared.connection == STORAGE else _properties_of
                values[declared.name] = {**own, **take(_conn_id(self, declared))}
            elif declared.kind is FieldKind.DATABASE:
                values[declared.name] = _engine_of(_conn_id(self, declared))
            elif declared.kind is FieldKind.SECRET:
                values[declared.name] = _password_of(_conn_id(self, declared))
            else:
                values[declared.name] = getattr(self, declared.name)
        return values

    def _clusters(self) -> list[SinkField]:
        """Return the fields that name a cluster, if the target names one."""
        from fluss_orchestrate.core.sinks.registry import FieldKind

        found = [f for f in self._declaration.fields if f.kind is FieldKind.CLUSTER]
        return [f for f in found if _conn_id(self, f) is not None]

    def __repr__(self) -> str:
        # Airflow stores this text, so it must not show a secret that stands in properties.
        shown = ", ".join(f"{f.name}={_shown(getattr(self, f.name))!r}" for f in fields(self))  # type: ignore[arg-type]
        return f"{type(self).__name__}({shown})"


def conn_id_name(declared: SinkField) -> str:
    """Return the parameter that names the Airflow connection of a field."""
    return f"{declared.connection}_conn_id" if declared.connection else "conn_id"


def _conn_id(target: SinkTarget, declared: SinkField) -> Any:
    return getattr(target, conn_id_name(declared))


def _hook_of(target: SinkTarget, declared: SinkField) -> Any:
    from fluss_orchestrate.airflow.hooks import FlussHook

    return FlussHook(_conn_id(target, declared))


def _properties_of(conn_id: str | None) -> dict[str, str]:
    from fluss_orchestrate.airflow.version_compat import BaseHook

    if conn_id is None:
        return {}
    connection = BaseHook.get_connection(conn_id)
    found = {key: str(value) for key, value in connection.extra_dejson.items()}
    if connection.host:
        found.setdefault("uri", connection.host)
    if connection.login:
        found.setdefault("credential", f"{connection.login}:{connection.password or ''}")
    return found


def _storage_of(conn_id: str | None) -> dict[str, str]:
    """Return the properties of storage of a connection such as `aws_default`."""
    from fluss_orchestrate.airflow.version_compat import BaseHook

    if conn_id is None:
        return {}
    connection = BaseHook.get_connection(conn_id)
    extras: dict[str, Any] = dict(connection.extra_dejson)
    # Newer connections of AWS keep the address of each service apart.
    services = extras.get("service_config") or {}
    extras |= services.get("s3") or {}
    found: dict[str, str] = {
        _STORAGE_EXTRAS.get(key, key): str(value)
        for key, value in extras.items()
        if value and (key in _STORAGE_EXTRAS or key.startswith(_STORAGE_PREFIXES) or key == "name")
    }
    names = _STORAGE_LOGINS.get(connection.conn_type or "")
    if names and connection.login:
        found.setdefault(names[0], connection.login)
        if connection.password:
            found.setdefault(names[1], connection.password)
    return found


def _engine_of(conn_id: str) -> Any:
    from fluss_client.errors import ConfigError
    from fluss_orchestrate.airflow.version_compat import CAPABILITIES, BaseHook

    if not CAPABILITIES.sqlalchemy_2:
        raise ConfigError(
            "SQL targets need SQLAlchemy 2, which Airflow allows from 3.1 on: upgrade Airflow, or "
            "take another target, such as ParquetTarget"
        )
    connection = BaseHook.get_connection(conn_id)
    url = connection.extra_dejson.get("sqlalchemy_url")
    if url:
        return str(url)
    hook: Any = connection.get_hook()  # type: ignore[no-untyped-call]
    if not hasattr(hook, "get_sqlalchemy_engine"):
        raise ConfigError(
            f"connection '{conn_id}' ({connection.conn_type}) gives no SQLAlchemy "
            "engine: use one of a SQL database, or set sqlalchemy_url in its extras"
        )
    return hook.get_sqlalchemy_engine()


def _password_of(conn_id: str | None) -> str | None:
    from fluss_orchestrate.airflow.version_compat import BaseHook

    return None if conn_id is None else BaseHook.get_connection(conn_id).password


def _shown(value: Any) -> Any:
    if not isinstance(value, Mapping) or not value:
        return value
    from fluss_orchestrate.core.lake.catalog import redacted

    return redacted(value)


# Generated by `python -m tests.sink_declarations` from here to the end: do not edit.


@dataclass(repr=False)
class FlussTarget(SinkTarget):
    """Another Fluss table; it is created with the first increment.

    Args:
        table: The table, as database.table.
        fluss_conn_id: The Airflow connection of the cluster; the one that is read, if not given.
        create_partitions: Whether partitions that do not exist are created.
        create_table: Whether a table that does not exist is created like the one that is read.
        schema_policy: What happens with columns that the table lacks: `error` or `add_columns`.
        form: What the sink makes of the rows: `append`, `mirror`.
    """

    table: str
    fluss_conn_id: str | None = None
    create_partitions: bool = False
    create_table: bool = True
    schema_policy: str = "error"
    form: str = "append"
    sink_name: ClassVar[str] = "fluss_table"
    template_fields: ClassVar[Sequence[str]] = ("table", "fluss_conn_id")


@dataclass(repr=False)
class IcebergTarget(SinkTarget):
    """A table of an Iceberg catalog; it is created with the first increment.

    Args:
        table: The table, as namespace.table.
        catalog: The properties of the catalog, by the names of pyiceberg. No secrets.
        catalog_conn_id: The Airflow connection with the other properties: its host is the `uri`,
            its extras are properties, and login and password are the `credential`.
        partition_by: The partitioning of a table that is created, such as region, day(at) or
            bucket(16, id).
        schema_policy: What happens with columns that the table lacks: `error` or `add_columns`.
        form: What the sink makes of the rows: `append`, `changes`, `mirror`.
        write_mode: How a mirror replaces rows: `equality` (equality deletes, cheap to write) or
            `copy_on_write` (data files are written again, for readers of every kind).
    """

    table: str
    catalog: Mapping[str, str] = field(default_factory=dict)
    catalog_conn_id: str | None = None
    partition_by: Sequence[str] = ()
    schema_policy: str = "error"
    form: str = "append"
    write_mode: str = "equality"
    sink_name: ClassVar[str] = "iceberg"
    template_fields: ClassVar[Sequence[str]] = ("table", "catalog")


@dataclass(repr=False)
class ParquetTarget(SinkTarget):
    """A directory of Parquet files.

    Args:
        path: The directory: a local path, or a URI such as `s3://bucket/path`.
        compression: The codec of the files.
        storage: Properties of the store by the names of pyiceberg, such as `s3.endpoint`; `name`
            chooses those that the environment has under that name. No secrets.
        storage_conn_id: The Airflow connection of the store, such as `aws_default`: login and
            password are the keys, `region_name`, `endpoint_url` and `role_arn` are taken from its
            extras, and so are properties by the names of pyiceberg.
    """

    path: str
    compression: str = "zstd"
    storage: Mapping[str, str] = field(default_factory=dict)
    storage_conn_id: str | None = None
    sink_name: ClassVar[str] = "parquet"
    template_fields: ClassVar[Sequence[str]] = ("path", "storage")


@dataclass(repr=False)
class SqlTarget(SinkTarget):
    """A table of a SQL database; it is created with the first increment.

    Args:
        table: The name of the table.
        conn_id: The Airflow connection of the database. Its hook gives the engine; a connection
            whose extras hold `sqlalchemy_url` needs no hook.
        schema: The schema of the table.
        schema_policy: What happens with columns that the table lacks: `error` or `add_columns`.
        replace_nul: The text that replaces U+0000 in PostgreSQL; rows with it are refused if not
            given.
        form: What the sink makes of the rows: `append`, `changes`, `mirror`, `history`.
    """

    table: str
    conn_id: str
    schema: str | None = None
    schema_policy: str = "error"
    replace_nul: str | None = None
    form: str = "append"
    sink_name: ClassVar[str] = "sql"
    template_fields: ClassVar[Sequence[str]] = ("table", "conn_id", "schema")
