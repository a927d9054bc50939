"""Fluss as a resource of Dagster: a connection, and the work that assets do with it."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import dagster as dg
import pyarrow as pa
from pydantic import Field

from fluss_client import Config, FlussConnection, TableInfo, TablePath
from fluss_client.engine import is_closed
from fluss_client.errors import AuthenticationError, ConfigError
from fluss_orchestrate import deprecated
from fluss_orchestrate.core.incremental.planning.settings import Until
from fluss_orchestrate.core.lake.covers import Target
from fluss_orchestrate.core.lake.maintenance import LakeMaintenance, MaintenanceSettings
from fluss_orchestrate.core.lake.state import read_table
from fluss_orchestrate.core.provisioning import PartitionWindow, TableSpec
from fluss_orchestrate.core.provisioning.guards import PartitionGuard
from fluss_orchestrate.core.sinks.base import SchemaPolicy, Sink
from fluss_orchestrate.dagster import work
from fluss_orchestrate.dagster.metadata import linked
from fluss_orchestrate.dagster.runs import StepContext

if TYPE_CHECKING:
    from fluss_orchestrate.core.spark_submit.load_spec import LoadSource
    from fluss_orchestrate.core.spark_submit.submit import SparkSubmit


CONNECT_TIMEOUT_S = 120.0

_lock = threading.Lock()
_open: dict[tuple[int, tuple[tuple[str, str], ...]], FlussConnection] = {}


def shared_connection(settings: Mapping[str, str]) -> FlussConnection:
    """The process's connection with these settings, opened when nobody did before."""
    key = (os.getpid(), tuple(sorted(settings.items())))
    with _lock:
        found = _open.get(key)
        if found is None or is_closed(found):
            config = Config(dict(settings))
            found = _open[key] = FlussConnection.create(config).result(CONNECT_TIMEOUT_S)
        return found


def close_connections() -> int:
    """Close every connection of this process, as tests want to; how many there were."""
    with _lock:
        mine = [key for key in _open if key[0] == os.getpid()]
        for key in mine:
            _open.pop(key).close()
        _open.clear()
    return len(mine)


# A fork while another thread opens a connection must not leave the child with a held lock.
os.register_at_fork(
    before=_lock.acquire, after_in_parent=_lock.release, after_in_child=_lock.release
)


_PASSWORD_KEYS = ("password", "secret", "token")
_FIELDS = {
    "security.protocol=sasl, ": "",
    "security.sasl.username": "sasl_username",
    "security.sasl.password": "sasl_password",
    "bootstrap.servers": "bootstrap_servers",
}


class FlussResource(dg.ConfigurableResource):  # type: ignore[type-arg]
    """A connection to a Fluss cluster or to an embedded directory.

    It connects when it is first used, once per process. Give the password as `dg.EnvVar("…")`, so
    that no definition contains it. The methods that take a context do the work of an asset and
    return its `MaterializeResult`. If a retry or a re-execution of the run calls them again, each
    row is still written once.

    Attributes:
        bootstrap_servers: The addresses of the cluster (`host:port[,host:port]`), or
            `embedded:PATH` for a local folder.
        cluster_alias: The name of the cluster in identities and URIs.
        sasl_username: The user; SASL is used if it is set.
        sasl_password: The password.
        client_options: Further keys of the client's configuration; no secrets.
        console_url: Where a console of the cluster is; materialisations then link to its pages.
        options: Deprecated: use `client_options`.
    """

    bootstrap_servers: str = Field(
        description="Addresses of the cluster, or embedded:PATH for a local folder."
    )
    cluster_alias: str = Field(default="", description="The cluster's name in identities and URIs.")
    sasl_username: str = Field(default="", description="The user; SASL is used when it is set.")
    sasl_password: str = Field(
        default="", repr=False, description="The password: give it as an EnvVar."
    )
    client_options: dict[str, str] = Field(
        default_factory=dict, description="Further keys of the client's configuration; no secrets."
    )
    console_url: str = Field(
        default="", description="Where a console of the cluster is, such as https://fluss.example."
    )
    options: dict[str, str] = Field(
        default_factory=dict, description="Deprecated: use client_options."
    )

    def settings(self) -> dict[str, str]:
        """Return the client's configuration.

        Raises:
            ConfigError: If `client_options` has a key of a password, or one of user and password
                is missing.
        """
        if self.options:
            deprecated.warn(deprecated.renamed("FlussResource")["options"])
        further = {**self.options, **self.client_options}
        for key in further:
            if any(word in key.lower() for word in _PASSWORD_KEYS):
                raise ConfigError(f"'{key}' does not belong in client_options: set sasl_password")
        settings = {"bootstrap.servers": self.bootstrap_servers, **further}
        if self.cluster_alias:
            settings["cluster.alias"] = self.cluster_alias
        if bool(self.sasl_username) is not bool(self.sasl_password):
            given, missing = ("sasl_username", "sasl_password")
            if self.sasl_password:
                given, missing = missing, given
            raise ConfigError(
                f"FlussResource has {given} and no {missing}: set both for SASL, or none. A "
                'password may be given as sasl_password=dg.EnvVar("..."), whose variable must not '
                "be empty where the code runs"
            )
        if self.sasl_username:
            settings |= {
                "security.protocol": "sasl",
                "security.sasl.username": self.sasl_username,
                "security.sasl.password": self.sasl_password,
            }
        return settings

    @property
    def connection(self) -> FlussConnection:
        """This process's connection, opened now if it was not; it stays open for others."""
        try:
            return shared_connection(self.settings())
        except AuthenticationError as error:
            # The client names its own keys, which nobody has set here.
            said = error.message
            for key, name in _FIELDS.items():
                said = said.replace(key, name)
            raise AuthenticationError(f"{said} (fields of FlussResource)") from error

    @contextmanager
    def get_connection(self) -> Iterator[FlussConnection]:
        """Return the connection for a `with` block, as other resources of Dagster do."""
        yield self.connection

    def table_info(self, table: TablePath | str) -> TableInfo:
        """Return the description of a `table`."""
        path = TablePath.parse(table) if isinstance(table, str) else table
        return self.connection.get_admin().result().get_table_info(path).result()

    def read_table(
        self,
        table: TablePath | str,
        columns: Sequence[str] | None = None,
        partition: str | Mapping[str, str] | None = None,
        as_of: Target | None = None,
        on_late_rows: str = "read",
    ) -> pa.RecordBatchReader:
        """Read all rows of a table, batch by batch; each bucket is exact by itself.

        Args:
            table: The table, as a path or as `database.table`.
            columns: The columns to read; None reads all.
            partition: The name of a partition, or its values by column; None reads all partitions.
            as_of: A time, offsets, a receipt or a plan: the rows as they were there.
            on_late_rows: What to do about rows of expired partitions: `read` them, leave them out
                (`note`), or `fail`.
        """
        return read_table(
            self.connection, table, columns, partition, as_of, on_late_rows=on_late_rows
        )

    @deprecated.accepts_old_parameters("FlussResource.incremental")
    def incremental(
        self,
        context: StepContext,
        table: TablePath | str,
        sink: Sink,
        *,
        checkpoint: str | None = None,
        until: Until = "latest",
        max_offsets: int | None = None,
        scan_options: Mapping[str, Any] | None = None,
        asset_key: dg.AssetKey | None = None,
        source: dg.AssetKey | None = None,
        **old_options: Any,
    ) -> dg.MaterializeResult[Any]:
        """Bring what is new in a table into the sink and commit the checkpoint last.

        In a run of time partitions, each partition takes the rows that were committed in its time
        window.

        Args:
            context: The step's context.
            table: The table to read.
            sink: Where the rows go.
            checkpoint: The checkpoint's name; by default made of the asset's key.
            until: Where this run ends: `latest`, `lake`, a time, offsets or a receipt.
            max_offsets: The largest number of offsets that one run reads.
            scan_options: Further arguments of `IncrementalScan`, such as `columns` or `start`.
            asset_key: The asset that is materialised, where the context does not say it.
            source: The asset of the table; with it, the lineage of the columns is reported.
            **old_options: Deprecated: the same as `scan_options`, as keyword arguments.

        Returns:
            The materialisation, with the receipt in its metadata.
        """
        if old_options:
            deprecated.warn(
                deprecated.renamed("FlussResource.incremental")["**scan_options"], stacklevel=3
            )
        choices = work.IncrementChoices(
            checkpoint, until, max_offsets, {**old_options, **(scan_options or {})}, source
        )
        done = work.increment(self.connection, context, table, sink, choices, asset_key)
        return linked(done, self.console_url)

    def append(
        self,
        context: StepContext,
        table: TablePath | str,
        rows: Any,
        *,
        part: str = "",
        schema_policy: SchemaPolicy | str = SchemaPolicy.ERROR,
        create_partitions: bool = False,
        asset_key: dg.AssetKey | None = None,
    ) -> dg.MaterializeResult[Any]:
        """Append rows to a log table, once for all tries of the step.

        Args:
            context: The context of the step.
            table: The table, as a path or as `database.table`.
            rows: Arrow data or a frame.
            part: Distinguishes several calls of one asset for the same table.
            schema_policy: `error` or `add_columns`, for columns that the table lacks.
            create_partitions: Create the partitions that the rows need.
            asset_key: The asset that is materialised; by default that of the step.
        """
        choices = work.LoadChoices(part, SchemaPolicy(schema_policy), create_partitions)
        done = work.load(self.connection, context, table, rows, "append", choices, asset_key)
        return linked(done, self.console_url)

    def upsert(
        self,
        context: StepContext,
        table: TablePath | str,
        rows: Any,
        *,
        part: str = "",
        schema_policy: SchemaPolicy | str = SchemaPolicy.ERROR,
        create_partitions: bool = False,
        asset_key: dg.AssetKey | None = None,
    ) -> dg.MaterializeResult[Any]:
        """Upsert rows into a key table, once for all tries of the step.

        If the rows have a column `_change_type`, those with `-D` are deletes. A late retry does not
        overwrite newer values with its old ones.

        Args:
            context: The context of the step.
            table: The table, as a path or as `database.table`.
            rows: Arrow data or a frame.
            part: Distinguishes several calls of one asset for the same table.
            schema_policy: `error` or `add_columns`, for columns that the table lacks.
            create_partitions: Create the partitions that the rows need.
            asset_key: The asset that is materialised; by default that of the step.
        """
        choices = work.LoadChoices(part, SchemaPolicy(schema_policy), create_partitions)
        done = work.load(self.connection, context, table, rows, "upsert", choices, asset_key)
        return linked(done, self.console_url)

    def provision(
        self,
        context: StepContext,
        specs: Sequence[TableSpec],
        *,
        asset_key: dg.AssetKey | None = None,
    ) -> dg.MaterializeResult[Any]:
        """Create and extend tables as their specs say. Nothing is dropped or rebuilt.

        Args:
            context: The context of the step.
            specs: The tables as they shall be.
            asset_key: The asset that is materialised; by default that of the step.
        """
        return work.provision(self.connection, context, specs, asset_key)

    def partition_window(
        self,
        context: StepContext,
        window: PartitionWindow,
        *,
        guards: Sequence[PartitionGuard] | None = None,
        asset_key: dg.AssetKey | None = None,
    ) -> dg.MaterializeResult[Any]:
        """Create the next partitions, and drop those past retention.

        Args:
            context: The context of the step.
            window: Which partitions shall exist.
            guards: What keeps a partition from being dropped; by default checkpoints and the lake.
            asset_key: The asset that is materialised; by default that of the step.
        """
        return work.move_window(self.connection, context, window, guards, asset_key)

    def tier(
        self,
        context: StepContext,
        table: TablePath | str,
        *,
        allow_tiering: bool = False,
        asset_key: dg.AssetKey | None = None,
    ) -> dg.MaterializeResult[Any]:
        """Copy the rows of a table into its lake, where no other tiering service runs.

        Args:
            context: The context of the step.
            table: The table, as a path or as `database.table`.
            allow_tiering: Must be True: confirms that no other service tiers this table.
            asset_key: The asset that is materialised; by default that of the step.
        """
        done = work.tier_table(self.connection, context, table, allow_tiering, asset_key)
        return linked(done, self.console_url)

    def maintain_lake(
        self,
        context: StepContext,
        table: TablePath | str,
        *,
        settings: MaintenanceSettings | None = None,
        dry_run: bool = False,
        catalog: Mapping[str, str] | None = None,
    ) -> LakeMaintenance:
        """Compact the lake of a table, expire its snapshots and delete files that nobody needs.

        Args:
            context: The step's context.
            table: The table.
            settings: What to do.
            dry_run: Only tell what would be done.
            catalog: Properties of the Iceberg catalog that differ from those of the table.

        Returns:
            What was done; the log of the step says it too.
        """
        return work.maintain(self.connection, context, table, settings, dry_run, catalog)

    def bulk_load(
        self,
        context: StepContext,
        source: LoadSource,
        table: str,
        *,
        submit: SparkSubmit | None = None,
        timeout_s: float | None = None,
        load_options: Mapping[str, Any] | None = None,
        asset_key: dg.AssetKey | None = None,
        **old_options: Any,
    ) -> dg.MaterializeResult[Any]:
        """Load files, a table or a query by Spark, each row once; a retry resumes the load.

        When the step ends early, the Spark job ends with it.

        Args:
            context: The step's context.
            source: Where the rows come from.
            table: The table that receives them, as `database.table`.
            submit: How Spark is started; by default on this machine.
            timeout_s: Seconds after which the job is killed.
            load_options: Further fields of `BulkLoadSpec`, such as `transform_sql`.
            asset_key: The asset that is materialised, where the context does not say it.
            **old_options: Deprecated: the same as `load_options`, as keyword arguments.

        Returns:
            The materialisation, with the receipt in its metadata.
        """
        from fluss_orchestrate.dagster.spark import bulk_load_asset

        if old_options:
            deprecated.warn(deprecated.renamed("FlussResource.bulk_load")["**options"])
        options = {**old_options, **(load_options or {})}
        return bulk_load_asset(
            self.connection, context, source, table, submit, timeout_s, asset_key, options
        )
