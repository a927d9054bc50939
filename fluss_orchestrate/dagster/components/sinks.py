"""Sinks of increments in YAML. What is secret is named by its environment variable."""

# Dagster reads the types of fields as a component is made, so they are no strings here.
import os

import dagster as dg
from pydantic import Field

from fluss_client.errors import ConfigError
from fluss_orchestrate.core.sinks.base import Sink

SECRET_WORDS = ("password", "secret", "token", "credential")


class IcebergAttributes(dg.Model, dg.Resolvable):
    """A table of an Iceberg catalog; it is created with the first increment."""

    table: str = Field(description="namespace.table")
    catalog: dict[str, str] = Field(
        default_factory=dict, description="pyiceberg's properties; no secrets."
    )
    catalog_env: dict[str, str] = Field(
        default_factory=dict, description="Further ones: the environment variable of each."
    )
    partition_by: list[str] = Field(
        default_factory=list, description="Such as region, day(at) or bucket(16, id)."
    )
    schema_policy: str = Field(default="error", description="error or add_columns.")

    def check(self) -> None:
        """Refuse secrets where people would read them."""
        for key in self.catalog:
            if any(word in key.lower() for word in SECRET_WORDS):
                raise ConfigError(
                    f"{self.table}: '{key}' does not belong in catalog: name its environment "
                    "variable in catalog_env"
                )

    def open(self) -> Sink:
        """The sink."""
        from fluss_orchestrate.core.sinks import IcebergSink

        secrets = {key: variable(name) for key, name in self.catalog_env.items()}
        return IcebergSink(
            {**self.catalog, **secrets},
            self.table,
            partition_by=self.partition_by,
            schema_policy=self.schema_policy,
        )


class SqlAttributes(dg.Model, dg.Resolvable):
    """A table of an SQL database; it is created with the first increment."""

    table: str = Field(description="The table's name.")
    url_env: str = Field(description="The environment variable with SQLAlchemy's URL.")
    schema_policy: str = Field(default="error", description="error or add_columns.")
    replace_nul: str | None = Field(
        default=None,
        description="What stands in the place of U+0000 in PostgreSQL's text; null refuses it.",
    )

    def open(self) -> Sink:
        """The sink."""
        from fluss_orchestrate.core.sinks import SqlSink

        return SqlSink(
            variable(self.url_env),
            self.table,
            schema_policy=self.schema_policy,
            replace_nul=self.replace_nul,
        )


def variable(name: str) -> str:
    """The value of an environment variable that has to be there."""
    value = os.environ.get(name)
    if value is None:
        raise ConfigError(f"the environment variable {name} is not set: set it where runs execute")
    return value
