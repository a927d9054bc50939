"""Where increments go, as arguments of an operator: no I/O here, and no secret.

A DAG file makes one of these while it is parsed; the sink itself is opened when the task runs.
Their texts may be templates. Secrets stay in Airflow connections.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar, Protocol

from fluss_orchestrate.airflow.flows import Node, named_table, path_node, url_node

if TYPE_CHECKING:
    from fluss_client import FlussConnection
    from fluss_orchestrate.core.sinks import Sink


class Target(Protocol):
    """Opens a sink."""

    def open(self, client: FlussConnection) -> Sink:
        """The sink; `client` is the one that the rows are read with."""

    def node(self, alias: str) -> Node:
        """The target as lineage names it; `alias` is that of the cluster that is read."""


@dataclass
class ParquetTarget:
    """A directory of Parquet files, on a local path or a URI that pyarrow knows."""

    path: str
    compression: str = "zstd"
    template_fields: ClassVar[Sequence[str]] = ("path",)

    def open(self, client: FlussConnection) -> Sink:
        """The directory."""
        from fluss_orchestrate.core.sinks import ParquetSink

        return ParquetSink(self.path, compression=self.compression)

    def node(self, alias: str) -> Node:
        """The directory."""
        return path_node(self.path)


@dataclass
class IcebergTarget:
    """A table of an Iceberg catalog.

    `catalog` has pyiceberg's properties, those that are no secret. `catalog_conn_id` names an
    Airflow connection with the others: its host is the `uri`, its extras are properties, and
    login and password are the `credential` of a REST catalog.
    """

    table: str
    catalog: Mapping[str, str] = field(default_factory=dict)
    catalog_conn_id: str | None = None
    partition_by: Sequence[str] = ()
    schema_policy: str = "error"
    template_fields: ClassVar[Sequence[str]] = ("table", "catalog")

    def open(self, client: FlussConnection) -> Sink:
        """The table; it is created with the first increment when it is not there."""
        from fluss_orchestrate.core.sinks import IcebergSink

        return IcebergSink(
            {**self.catalog, **self._from_connection()},
            self.table,
            partition_by=self.partition_by,
            schema_policy=self.schema_policy,
        )

    def node(self, alias: str) -> Node:
        """The table, in the namespace of its catalog's address."""
        catalog = {**self.catalog, **self._from_connection()}
        return url_node(catalog.get("uri", catalog.get("warehouse", "iceberg:")), self.table)

    def _from_connection(self) -> dict[str, str]:
        from airflow.sdk import BaseHook

        if self.catalog_conn_id is None:
            return {}
        connection = BaseHook.get_connection(self.catalog_conn_id)
        found = {key: str(value) for key, value in connection.extra_dejson.items()}
        if connection.host:
            found.setdefault("uri", connection.host)
        if connection.login:
            found.setdefault("credential", f"{connection.login}:{connection.password or ''}")
        return found

    def __repr__(self) -> str:
        from fluss_orchestrate.core.lake.catalog import redacted

        return f"IcebergTarget({self.table!r}, {redacted(self.catalog)})"


@dataclass
class FlussTarget:
    """Another Fluss table, of the same cluster unless a connection is named."""

    table: str
    fluss_conn_id: str | None = None
    create_partitions: bool = False
    schema_policy: str = "error"
    template_fields: ClassVar[Sequence[str]] = ("table", "fluss_conn_id")

    def open(self, client: FlussConnection) -> Sink:
        """The table."""
        from fluss_orchestrate.core.sinks import FlussTableSink

        return FlussTableSink(
            self._client(client),
            self.table,
            create_partitions=self.create_partitions,
            schema_policy=self.schema_policy,
        )

    def node(self, alias: str) -> Node:
        """The table."""
        from fluss_orchestrate.airflow.hooks import FlussHook

        if self.fluss_conn_id is not None:
            alias = FlussHook(self.fluss_conn_id).named_alias
        return named_table(alias, self.table)

    def _client(self, client: FlussConnection) -> FlussConnection:
        from fluss_orchestrate.airflow.hooks import FlussHook

        return client if self.fluss_conn_id is None else FlussHook(self.fluss_conn_id).get_conn()


@dataclass
class SqlTarget:
    """A table of a SQL database, reached by an Airflow connection.

    The connection's own hook gives the engine; a connection whose extras hold `sqlalchemy_url`
    needs no hook.
    """

    table: str
    conn_id: str
    schema: str | None = None
    schema_policy: str = "error"
    replace_nul: str | None = None
    template_fields: ClassVar[Sequence[str]] = ("table", "conn_id", "schema")

    def open(self, client: FlussConnection) -> Sink:
        """The table; it is created with the first increment when it is not there."""
        from fluss_orchestrate.core.sinks import SqlSink

        return SqlSink(
            self._engine(),
            self.table,
            schema=self.schema,
            schema_policy=self.schema_policy,
            replace_nul=self.replace_nul,
        )

    def node(self, alias: str) -> Node:
        """The table, in the namespace of its database's address."""
        engine = self._engine()
        name = f"{self.schema}.{self.table}" if self.schema else self.table
        return url_node(engine if isinstance(engine, str) else str(engine.url), name)

    def _engine(self) -> Any:
        from airflow.sdk import BaseHook

        from fluss_client.errors import ConfigError

        connection = BaseHook.get_connection(self.conn_id)
        url = connection.extra_dejson.get("sqlalchemy_url")
        if url:
            return str(url)
        hook: Any = connection.get_hook()  # type: ignore[no-untyped-call]
        if not hasattr(hook, "get_sqlalchemy_engine"):
            raise ConfigError(
                f"connection '{self.conn_id}' ({connection.conn_type}) gives no SQLAlchemy "
                "engine: use one of a SQL database, or set sqlalchemy_url in its extras"
            )
        return hook.get_sqlalchemy_engine()
