"""Increments in YAML: which table goes where, how often it is looked at."""

# Dagster reads the types of fields as a component is made, so they are no strings here.
from typing import Any

import dagster as dg
from pydantic import Field

from fluss_client import FlussConnection
from fluss_client.errors import ConfigError
from fluss_orchestrate.core.sinks.base import Sink
from fluss_orchestrate.dagster.components.sinks import IcebergAttributes, SqlAttributes
from fluss_orchestrate.dagster.incremental import incremental_fluss_asset
from fluss_orchestrate.dagster.offset_sensor import build_fluss_offset_sensor


class IncrementAttributes(dg.Model, dg.Resolvable):
    """An asset that takes what is new in a table into exactly one of the sinks."""

    table: str = Field(description="database.table")
    key: str = Field(description="The asset's key, with / between its parts.")
    parquet: str | None = Field(default=None, description="A folder of Parquet files.")
    fluss_table: str | None = Field(default=None, description="Another table of this cluster.")
    iceberg: IcebergAttributes | None = Field(default=None, description="An Iceberg table.")
    sql: SqlAttributes | None = Field(default=None, description="A table of an SQL database.")
    checkpoint: str | None = Field(default=None, description="The asset's key if not given.")
    max_offsets: int | None = Field(default=None, description="At most so many per run.")
    min_offsets: int | None = Field(
        default=None, description="A sensor starts a run when the table has so many more."
    )

    @property
    def checkpoint_name(self) -> str:
        """The checkpoint's name."""
        return self.checkpoint or f"dagster/{self.key}"

    def asset(self, resource_key: str, **options: Any) -> dg.AssetsDefinition:
        """The asset."""
        sinks = (self.parquet, self.fluss_table, self.iceberg, self.sql)
        if sum(sink is not None for sink in sinks) != 1:
            raise ConfigError(
                f"increment {self.key}: give exactly one of parquet, fluss_table, iceberg and sql"
            )
        if self.iceberg is not None:
            self.iceberg.check()
        return incremental_fluss_asset(
            self.key.split("/"),
            table=self.table,
            sink=self._sink,
            checkpoint=self.checkpoint_name,
            max_offsets=self.max_offsets,
            resource_key=resource_key,
            **options,
        )

    def sensor(self, asset: dg.AssetsDefinition, resource_key: str) -> dg.SensorDefinition | None:
        """The sensor that starts it, if one was asked for."""
        if self.min_offsets is None:
            return None
        return build_fluss_offset_sensor(
            self.table,
            self.checkpoint_name,
            name=f"fluss_offsets_{self.key.replace('/', '_')}",
            asset_selection=[asset],
            min_offsets=self.min_offsets,
            resource_key=resource_key,
        )

    def _sink(self, connection: FlussConnection) -> Sink:
        from fluss_orchestrate.core.sinks import FlussTableSink, ParquetSink

        if self.parquet is not None:
            return ParquetSink(self.parquet)
        if self.iceberg is not None:
            return self.iceberg.open()
        if self.sql is not None:
            return self.sql.open()
        assert self.fluss_table is not None
        return FlussTableSink(connection, self.fluss_table)
