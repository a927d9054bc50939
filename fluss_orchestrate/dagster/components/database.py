"""A component that makes the tables of databases assets, with their jobs and sensors.

What the cluster has is written down by `dg utils refresh-defs-state` (and by `dagster dev` when it
starts); loading definitions reads that file and calls nobody.
"""

# Dagster reads the types of fields as a component is made, so they are no strings here.
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any

import dagster as dg
from dagster.components import DefsStateConfig, DefsStateConfigArgs, ResolvedDefsStateConfig
from dagster.components.utils.translation import TranslationFn, TranslationFnResolver

from fluss_orchestrate.dagster.components.connection import ConnectionAttributes
from fluss_orchestrate.dagster.components.increments import IncrementAttributes
from fluss_orchestrate.dagster.components.scaffolding import FlussDatabaseScaffolder
from fluss_orchestrate.dagster.components.state import (
    TableState,
    describe_tables,
    read_state,
    write_state,
)
from fluss_orchestrate.dagster.partitions import partitions_from
from fluss_orchestrate.dagster.sensors.lake import (
    build_fluss_lake_snapshot_sensor,
    fluss_lake_asset,
)
from fluss_orchestrate.dagster.sensors.partitions import build_fluss_partition_sensor


@dg.scaffold_with(FlussDatabaseScaffolder)
@dataclass
class FlussDatabaseComponent(dg.StateBackedComponent, dg.Resolvable):
    """The tables of some databases as assets; increments, jobs and sensors beside them.

    Subclass it and override `get_asset_spec` for what YAML's `translation` cannot say.
    """

    connection: ConnectionAttributes
    databases: Sequence[str]
    include: Sequence[str] = ("*",)
    exclude: Sequence[str] = ()
    partitions_start: str | int | None = None
    """With a time, auto-partitioned tables have time partitions from there on."""
    lake_assets: bool = True
    increments: Sequence[IncrementAttributes] = ()
    resource_key: str = "fluss"
    define_resource: bool = True
    """False when a connection component defines it already."""
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
        key = f"FlussDatabaseComponent[{where}:{'+'.join(self.databases)}]"
        return DefsStateConfig.from_args(self.defs_state, default_key=key)

    def write_state_to_path(self, state_path: Path) -> None:
        """Ask the cluster once, and write down what it has."""
        fluss = self.connection.resource().process_config_and_initialize()
        tables = describe_tables(fluss.connection, self.databases, self.include, self.exclude)
        write_state(state_path, tables)

    def get_asset_spec(self, table: TableState) -> dg.AssetSpec:
        """The asset of a table."""
        database, name = table.names
        spec = dg.AssetSpec(
            [database, name],
            description=table.comment,
            group_name=database,
            kinds={"fluss"},
            metadata=table.metadata(),
            partitions_def=partitions_from(
                table.table, table.partition_keys, table.properties, self._start()
            ),
        )
        if self.translation is None:
            return spec
        return self.translation(spec, {"name": name, "database": database, "path": table.table})

    def build_defs_from_state(
        self, context: dg.ComponentLoadContext, state_path: Path | None
    ) -> dg.Definitions:
        """Definitions from what was written down; nobody is called."""
        tables = [] if state_path is None else read_state(state_path)
        resources = {self.resource_key: self.connection.resource()} if self.define_resource else {}
        increments = [(i, i.asset(self.resource_key)) for i in self.increments]
        sensors = [i.sensor(asset, self.resource_key) for i, asset in increments]
        lakes = [t.table for t in tables if t.has_lake] if self.lake_assets else []
        jobs = []
        if increments:
            assets = [asset for _, asset in increments]
            jobs.append(dg.define_asset_job(self._named("increments"), assets))
        return dg.Definitions(
            assets=[
                *(self.get_asset_spec(table) for table in tables),
                *(fluss_lake_asset(table) for table in lakes),
                *(asset for _, asset in increments),
            ],
            jobs=jobs,
            sensors=[
                *(sensor for sensor in sensors if sensor is not None),
                *self._lake_sensors(lakes),
                *self._partition_sensors(tables),
            ],
            resources=resources,
        )

    def _start(self) -> str | None:
        # YAML reads 20261101 as a number.
        return None if self.partitions_start is None else str(self.partitions_start)

    def _named(self, what: str) -> str:
        return f"fluss_{'_'.join(self.databases)}_{what}"

    def _lake_sensors(self, tables: Sequence[str]) -> list[dg.SensorDefinition]:
        if not tables:
            return []
        name = self._named("lake_snapshots")
        return [build_fluss_lake_snapshot_sensor(tables, name=name, resource_key=self.resource_key)]

    def _partition_sensors(self, tables: Sequence[TableState]) -> list[dg.SensorDefinition]:
        made = []
        for table in tables:
            found = self.get_asset_spec(table).partitions_def
            if isinstance(found, dg.DynamicPartitionsDefinition):
                made.append(
                    build_fluss_partition_sensor(table.table, found, resource_key=self.resource_key)
                )
        return made
