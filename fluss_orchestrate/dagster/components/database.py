"""A component that makes the tables of databases assets, with their checks, jobs and sensors.

What the cluster has is written down by `dg utils refresh-defs-state`, and again whenever `dagster
dev` or `dg` loads the project. Loading reads that file. A cluster that does not answer then is no
reason to fail: what was written down before is used, with a warning.
"""

# Dagster reads the types of fields as a component is made, so they are no strings here.
import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any

import dagster as dg
from dagster.components import DefsStateConfig, DefsStateConfigArgs, ResolvedDefsStateConfig
from dagster.components.utils.translation import TranslationFn, TranslationFnResolver
from pydantic import Field

from fluss_client.errors import ConfigError, FlussError
from fluss_orchestrate.dagster.checks import (
    CHECK_INTERVAL_S,
    LAKE_LAG_FACTOR,
    build_fluss_check_schedule,
    build_fluss_check_sensor,
    build_fluss_checks,
)
from fluss_orchestrate.dagster.compat import state_is_local, valid_name
from fluss_orchestrate.dagster.components.connection import ConnectionAttributes
from fluss_orchestrate.dagster.components.increments import IncrementAttributes
from fluss_orchestrate.dagster.components.scaffolding import FlussDatabaseScaffolder
from fluss_orchestrate.dagster.sensors.lake import build_fluss_lake_snapshot_sensor
from fluss_orchestrate.dagster.sensors.partitions import build_fluss_partition_sensor
from fluss_orchestrate.dagster.sensors.tables import build_fluss_table_sensor
from fluss_orchestrate.dagster.tables import (
    DagsterFlussTranslator,
    FlussTableProps,
    describe_tables,
    read_state,
    write_state,
)

_log = logging.getLogger(__name__)


class CheckAttributes(dg.Model, dg.Resolvable):
    """Checks of all tables of a component, and when they run."""

    min_rows: int | None = Field(default=None, description="How many rows each table must have.")
    lake_lag_factor: float = Field(
        default=LAKE_LAG_FACTOR,
        description="A lake may be late by so many times its table.datalake.freshness.",
    )
    interval_s: int = Field(
        default=CHECK_INTERVAL_S, description="A sensor runs the checks every so many seconds."
    )
    cron: str | None = Field(
        default=None, description="A cron schedule that runs the checks instead of the sensor."
    )


@dg.scaffold_with(FlussDatabaseScaffolder)
@dataclass
class FlussDatabaseComponent(dg.StateBackedComponent, dg.Resolvable):
    """The tables of some databases as assets; increments, checks, jobs and sensors beside them.

    Subclass it and override `get_asset_spec` for what YAML's `translation` cannot say. What is made
    beside a table depends on the table's asset and has its group, owners and tags.
    """

    connection: ConnectionAttributes
    databases: Sequence[str]
    include: Sequence[str] = ("*",)
    exclude: Sequence[str] = ()
    partitions_start: str | int | None = None
    """With a time, auto-partitioned tables have time partitions from there on."""
    lake_assets: bool = True
    observe: bool = True
    """Whether a sensor reports new rows and numbers of all tables."""
    checks: CheckAttributes | None = None
    """With it, tables are checked for their columns, rows and lakes."""
    increments: Sequence[IncrementAttributes] = ()
    resource_key: str = "fluss"
    define_resource: bool = True
    """False when something else than a component defines it already."""
    translation: (
        Annotated[
            TranslationFn[Mapping[str, Any]],
            TranslationFnResolver(template_vars_for_translation_fn=lambda data: {"table": data}),
        ]
        | None
    ) = None
    defs_state: ResolvedDefsStateConfig = field(
        default_factory=DefsStateConfigArgs.local_filesystem
    )

    @property
    def defs_state_config(self) -> DefsStateConfig:
        """Where the state is kept."""
        where = self.connection.cluster_alias or "fluss"
        tables = "+".join(self.databases)
        if list(self.include) != ["*"] or self.exclude:
            tables += f":{','.join(self.include)}!{','.join(self.exclude)}"
        key = f"FlussDatabaseComponent[{where}:{tables}]"
        return DefsStateConfig.from_args(self.defs_state, default_key=key)

    def build_defs(self, context: dg.ComponentLoadContext) -> dg.Definitions:
        """Definitions from the state, which is brought up to date first if the cluster answers."""
        self._is_loading = True
        try:
            return super().build_defs(context)
        finally:
            self._is_loading = False

    def write_state_to_path(self, state_path: Path) -> None:
        """Ask the cluster once, and write down what it has.

        While a project is loaded, the state stays as it is if the cluster does not answer.
        """
        fluss = self.connection.resource().process_config_and_initialize()
        try:
            tables = describe_tables(fluss.connection, self.databases, self.include, self.exclude)
        except FlussError as error:
            loading = getattr(self, "_is_loading", False)
            if isinstance(error, ConfigError) or not loading or not state_is_local(self.defs_state):
                raise
            kept = (
                "the tables as they were last seen are used"
                if state_path.exists()
                else ("no tables are known of it, so there are no assets of them")
            )
            _log.warning("%s does not answer (%s); %s", fluss.bootstrap_servers, error, kept)
            return
        write_state(state_path, tables)

    def get_asset_spec(self, table: FlussTableProps) -> dg.AssetSpec:
        """The asset of a table."""
        # YAML reads 20261101 as a number.
        start = None if self.partitions_start is None else str(self.partitions_start)
        spec = DagsterFlussTranslator(start).get_asset_spec(table)
        if self.translation is None:
            return spec
        database, name = table.names
        return self.translation(spec, {"name": name, "database": database, "path": table.table})

    def build_defs_from_state(
        self, context: dg.ComponentLoadContext, state_path: Path | None
    ) -> dg.Definitions:
        """Definitions from what was written down; nobody is called."""
        tables = [] if state_path is None else read_state(state_path)
        translator = _Translator(self, tables)
        increments = [(i, i.asset(self.resource_key, translator)) for i in self.increments]
        lakes = [table for table in tables if table.has_lake] if self.lake_assets else []
        checks = self._table_checks(tables, translator)
        checks += [c for i, asset in increments for c in i.lag_checks(asset, self.resource_key)]
        jobs = []
        if increments:
            assets = [asset for _, asset in increments]
            jobs.append(dg.define_asset_job(self._named("increments"), assets))
        sensors = [i.sensor(asset, self.resource_key) for i, asset in increments]
        cron = None if self.checks is None else self.checks.cron
        name = self._named("checks")
        return dg.Definitions(
            assets=[
                *(translator.get_asset_spec(table) for table in tables),
                *(translator.get_lake_asset_spec(table) for table in lakes),
                *(asset for _, asset in increments),
            ],
            asset_checks=checks,
            jobs=jobs,
            schedules=[build_fluss_check_schedule(checks, cron, name=name)]
            if checks and cron
            else [],
            sensors=[
                *(sensor for sensor in sensors if sensor is not None),
                *self._table_sensors(tables, lakes, translator),
                *([self._check_sensor(checks, name)] if checks and not cron else []),
            ],
            resources={self.resource_key: self.connection.resource()}
            if self.define_resource
            else {},
        )

    def _named(self, what: str) -> str:
        return valid_name(f"fluss_{'_'.join(self.databases)}_{what}")

    def _table_checks(
        self, tables: Sequence[FlussTableProps], translator: DagsterFlussTranslator
    ) -> list[dg.AssetChecksDefinition]:
        if self.checks is None:
            return []
        return build_fluss_checks(
            tables,
            min_rows=self.checks.min_rows,
            lake_lag_factor=self.checks.lake_lag_factor,
            translator=translator,
            resource_key=self.resource_key,
        )

    def _check_sensor(
        self, checks: Sequence[dg.AssetChecksDefinition], name: str
    ) -> dg.SensorDefinition:
        every_s = CHECK_INTERVAL_S if self.checks is None else self.checks.interval_s
        return build_fluss_check_sensor(checks, name=name, interval_s=every_s)

    def _table_sensors(
        self,
        tables: Sequence[FlussTableProps],
        lakes: Sequence[FlussTableProps],
        translator: DagsterFlussTranslator,
    ) -> list[dg.SensorDefinition]:
        key = self.resource_key
        made = []
        if tables and self.observe:
            made.append(
                build_fluss_table_sensor(
                    [table.table for table in tables],
                    name=self._named("tables"),
                    translator=translator,
                    resource_key=key,
                )
            )
        if lakes:
            made.append(
                build_fluss_lake_snapshot_sensor(
                    [table.table for table in lakes],
                    name=self._named("lake_snapshots"),
                    translator=translator,
                    resource_key=key,
                )
            )
        for table in tables:
            found = translator.get_asset_spec(table).partitions_def
            if isinstance(found, dg.DynamicPartitionsDefinition):
                made.append(build_fluss_partition_sensor(table.table, found, resource_key=key))
        return made


class _Translator(DagsterFlussTranslator):
    """What a component says of tables, with all that its state knows of them."""

    def __init__(
        self, component: FlussDatabaseComponent, tables: Sequence[FlussTableProps]
    ) -> None:
        super().__init__()
        self._component = component
        self._tables = {table.table: table for table in tables}

    def get_asset_spec(self, table: FlussTableProps) -> dg.AssetSpec:
        return self._component.get_asset_spec(self._tables.get(table.table, table))
