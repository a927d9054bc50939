"""Increments in YAML: which table is read, into which sink, and what starts a run.

The models of the sinks are made from their declarations (`core/sinks/registry.py`). A secret is
never given in YAML: a key that ends with `_env` has the name of its environment variable.
"""

# Dagster reads the types of fields when a component is made, so they must not be strings here.
import typing
import warnings
from collections.abc import Iterable, Mapping
from dataclasses import fields
from typing import Annotated, Any, ClassVar

import dagster as dg
from pydantic import Field, create_model

from fluss_client import FlussConnection
from fluss_client.errors import ConfigError
from fluss_orchestrate.core.incremental.planning.settings import ScanSettings
from fluss_orchestrate.core.sinks.base import Sink, SinkForm
from fluss_orchestrate.core.sinks.registry import (
    REQUIRED,
    FieldKind,
    SinkDeclaration,
    SinkField,
    declarations,
    environment_value,
)
from fluss_orchestrate.dagster.checks import build_fluss_lag_check
from fluss_orchestrate.dagster.compat import valid_name
from fluss_orchestrate.dagster.components.connection import ConnectionAttributes
from fluss_orchestrate.dagster.incremental import incremental_fluss_asset
from fluss_orchestrate.dagster.mirrors import fluss_mirror_asset
from fluss_orchestrate.dagster.options import AssetOptions, suggestion
from fluss_orchestrate.dagster.partitions import fluss_time_partitions
from fluss_orchestrate.dagster.sensors.offsets import build_fluss_offset_sensor
from fluss_orchestrate.dagster.tables import DagsterFlussTranslator

SECRET_WORDS = ("password", "secret", "token", "credential")
_TYPES: dict[FieldKind, Any] = {
    FieldKind.TEXT: str,
    FieldKind.FLAG: bool,
    FieldKind.NAMES: list[str],
    FieldKind.PROPERTIES: dict[str, str],
    FieldKind.CLUSTER: ConnectionAttributes,
}


class SinkAttributes(dg.Model, dg.Resolvable):
    """What the models of all declared sinks share."""

    declaration: ClassVar[SinkDeclaration]

    def check(self) -> None:
        """Refuse secrets that are given in clear.

        Raises:
            ConfigError: A property looks like a secret.
        """
        for field in self.declaration.fields:
            if field.kind is not FieldKind.PROPERTIES:
                continue
            for key in getattr(self, field.name):
                if any(word in key.lower() for word in SECRET_WORDS):
                    raise ConfigError(
                        f"sink {self.declaration.name}: '{key}' does not belong in {field.name}: "
                        f"name its environment variable in {field.name}_env"
                    )

    def open(self, connection: FlussConnection) -> Sink:
        """Open the sink.

        Args:
            connection: The connection that the rows are read with.

        Raises:
            ConfigError: An environment variable is not set.
        """
        values = {field.name: self._value(field) for field in self.declaration.fields}
        return self.declaration.open(values, connection)

    def _value(self, field: SinkField) -> Any:
        if field.is_secret:
            variable = getattr(self, f"{field.name}_env")
            return None if variable is None else environment_value(variable)
        value = getattr(self, field.name)
        if field.kind is FieldKind.PROPERTIES:
            secrets = getattr(self, f"{field.name}_env")
            return value | {key: environment_value(name) for key, name in secrets.items()}
        if field.kind is FieldKind.CLUSTER and value is not None:
            return value.resource().process_config_and_initialize().connection
        return value


class PartitionAttributes(dg.Model, dg.Resolvable):
    """Time partitions of an increment."""

    unit: str = Field(description="hour, day, month or year")
    start: str | int = Field(description="The first partition, such as 20261101.")
    time_zone: str = Field(default="UTC", description="The zone in which partitions begin.")

    def definition(self) -> dg.TimeWindowPartitionsDefinition:
        """The partitions; YAML reads 20261101 as a number."""
        return fluss_time_partitions(self.unit, str(self.start), time_zone=self.time_zone)


class LagCheckAttributes(dg.Model, dg.Resolvable):
    """How far a checkpoint may be behind its table; at least one of both."""

    max_offsets: int | None = Field(default=None, description="So many offsets.")
    max_age_s: float | None = Field(
        default=None, description="The age of the oldest unread row, in seconds."
    )


class Increment(dg.Model, dg.Resolvable):
    """The part of an increment that does not depend on the sink."""

    sinks: ClassVar[Mapping[str, type[SinkAttributes]]]

    table: str = Field(description="database.table")
    key: str = Field(description="The asset's key, with / between its parts.")
    checkpoint: str | None = Field(default=None, description="The asset's key if not given.")
    max_offsets: int | None = Field(default=None, description="At most so many per run.")
    min_offsets: int | None = Field(
        default=None, description="A sensor starts a run when the table has so many more."
    )
    columns: list[str] | None = Field(default=None, description="The columns; all if not given.")
    metadata_columns: list[str] = Field(
        default=[],
        description="What is read beside them, such as _change_type, _offset or _timestamp.",
    )
    until: str = Field(default="latest", description="Where a run ends: latest, lake or a time.")
    scan_options: dict[str, Any] = Field(
        default={}, description="Further arguments of the scan, such as start."
    )
    partitions: PartitionAttributes | None = Field(
        default=None,
        description="Time partitions: each takes the rows that were committed in its window.",
    )
    checks: LagCheckAttributes | None = Field(
        default=None, description="How far the checkpoint may be behind."
    )
    verify: bool = Field(
        default=False, description="Compare a mirror with its table after each run."
    )

    @property
    def checkpoint_name(self) -> str:
        """The checkpoint's name."""
        return self.checkpoint or f"dagster/{self.key}"

    def asset(
        self, resource_key: str, translator: DagsterFlussTranslator | None = None
    ) -> dg.AssetsDefinition:
        """Make the asset.

        Args:
            resource_key: The key of the `FlussResource`.
            translator: Which asset the table is.

        Raises:
            ConfigError: Not exactly one sink is given, a secret is given in clear, an option of the
                scan is unknown, or `verify` is given without a mirror.
        """
        sink = self._sink()
        sink.check()
        options: AssetOptions = {"kinds": {sink.declaration.name}}
        if self.partitions is not None:
            options["partitions_def"] = self.partitions.definition()
        if getattr(sink, "form", None) in (SinkForm.MIRROR, SinkForm.HISTORY):
            scan_options = self._scan_options()
            return fluss_mirror_asset(
                self.key.split("/"),
                table=self.table,
                sink=sink.open,
                checkpoint=self.checkpoint_name,
                until=self.until,
                max_offsets=self.max_offsets,
                columns=scan_options.pop("columns", None),
                scan_options=scan_options,
                verify=self.verify,
                translator=translator,
                resource_key=resource_key,
                **options,
            )
        if self.verify:
            raise ConfigError(
                f"increment {self.key}: `verify` compares a mirror with its table: give the sink "
                "`form: mirror`, or leave it out"
            )
        return incremental_fluss_asset(
            self.key.split("/"),
            table=self.table,
            sink=sink.open,
            checkpoint=self.checkpoint_name,
            until=self.until,
            max_offsets=self.max_offsets,
            scan_options=self._scan_options(),
            translator=translator,
            resource_key=resource_key,
            **options,
        )

    def _scan_options(self) -> dict[str, Any]:
        known = {f.name for f in fields(ScanSettings)} - {"name", "path"}
        for name in self.scan_options:
            if name not in known:
                what = f"increment {self.key}: a scan has no option '{name}'"
                raise ConfigError(f"{what}{suggestion(name, known)}")
        own: dict[str, Any] = {}
        if self.columns is not None:
            own["columns"] = self.columns
        if self.metadata_columns:
            own["metadata_columns"] = self.metadata_columns
        return {**own, **self.scan_options}

    def lag_checks(
        self, asset: dg.AssetsDefinition, resource_key: str
    ) -> list[dg.AssetChecksDefinition]:
        """Make the check of the checkpoint's lag; none if `checks` is not given."""
        if self.checks is None:
            return []
        check = build_fluss_lag_check(
            asset,
            self.checkpoint_name,
            max_offsets=self.checks.max_offsets,
            max_age_s=self.checks.max_age_s,
            resource_key=resource_key,
        )
        return [check]

    def sensor(self, asset: dg.AssetsDefinition, resource_key: str) -> dg.SensorDefinition | None:
        """Make the sensor that starts runs; None if `min_offsets` is not given."""
        if self.min_offsets is None:
            return None
        return build_fluss_offset_sensor(
            self.table,
            self.checkpoint_name,
            name=valid_name(f"fluss_offsets_{self.key}"),
            asset_selection=[asset],
            min_offsets=self.min_offsets,
            resource_key=resource_key,
        )

    def _sink(self) -> SinkAttributes:
        given = [name for name in self.sinks if getattr(self, name) is not None]
        if len(given) != 1:
            *others, last = self.sinks
            raise ConfigError(
                f"increment {self.key}: give exactly one of {', '.join(others)} and {last}"
            )
        (name,) = given
        value, model = getattr(self, name), self.sinks[name]
        if isinstance(value, SinkAttributes):
            return value
        return model(**{model.declaration.fields[0].name: value})


def sink_model(declared: SinkDeclaration) -> type[SinkAttributes]:
    """Make the model of a sink from its declaration."""
    keys: dict[str, Any] = {}
    for field in declared.fields:
        if field.is_secret:
            doc = f"The environment variable that holds: {field.doc}"
            keys[f"{field.name}_env"] = _field(_optional(str, field), doc, field.default)
            continue
        keys[field.name] = _field(_optional(_TYPES[field.kind], field), field.doc, field.default)
        if field.kind is FieldKind.PROPERTIES:
            doc = "Secret entries: the environment variable of each."
            keys[f"{field.name}_env"] = _field(dict[str, str], doc, {})
    with warnings.catch_warnings():
        # A field may have the name of a deprecated method of pydantic's models, such as `schema`.
        warnings.filterwarnings("ignore", "Field name .* shadows an attribute")
        model = create_model(
            f"{declared.camel_name}Attributes",
            __base__=SinkAttributes,
            __module__=__name__,
            __doc__=declared.summary,
            **keys,
        )
        model.declaration = declared
        model.model()  # Dagster derives a second model, with the same warning, and keeps it.
    return model


def increment_model(sinks: Iterable[SinkDeclaration]) -> Any:
    """Make the model of an increment with one key per sink.

    Args:
        sinks: The declarations of the sinks.
    """
    models = {sink.name: sink_model(sink) for sink in sinks}
    keys: dict[str, Any] = {}
    for name, model in models.items():
        declared = model.declaration
        kind: Any = str | model if declared.needs_only_a_place else model
        keys[name] = _field(kind | None, declared.summary, None)
    made = create_model(
        "IncrementAttributes",
        __base__=Increment,
        __module__=__name__,
        __doc__="An asset that writes what is new in a table into exactly one of the sinks.",
        **keys,
    )
    made.sinks = models
    return made


def _optional(kind: Any, field: SinkField) -> Any:
    return kind | None if field.default is None else kind


def _field(kind: Any, doc: str, default: Any) -> tuple[Any, Any]:
    if default is REQUIRED:
        return (kind, Field(description=doc))
    # Dagster drops the description of a field with a default, unless its resolver has it, too.
    annotated = Annotated[kind, dg.Resolver.default(description=doc)]
    if default is None or isinstance(default, (str, bool)):
        return (annotated, Field(default=default, description=doc))
    # pydantic copies it for each model. Dagster before 1.12.15 takes no factories of defaults.
    return (annotated, Field(default=typing.get_origin(kind)(), description=doc))


class IncrementAttributes(increment_model(declarations().values())):  # type: ignore[misc]
    """An asset that writes what is new in a table into exactly one of the sinks."""
