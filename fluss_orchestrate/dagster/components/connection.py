"""A component that defines the connection, for all that use it."""

# Dagster reads the types of fields as a component is made, so they are no strings here.
from functools import lru_cache

import dagster as dg
from pydantic import Field

from fluss_orchestrate import deprecated
from fluss_orchestrate.dagster.components.scaffolding import FlussConnectionScaffolder
from fluss_orchestrate.dagster.resource import FlussResource

CONNECTIONS_MAX = 256


class ConnectionAttributes(dg.Model, dg.Resolvable):
    """How to reach Fluss, in YAML. A password has no place here, only the name of its variable."""

    bootstrap_servers: str = Field(
        description="host:port[,host:port] of a cluster, or embedded:PATH for a local folder."
    )
    cluster_alias: str = Field(default="", description="The cluster's name in URIs.")
    sasl_username: str = Field(default="", description="The user; SASL is used when it is set.")
    sasl_password_env: str = Field(
        default="", description="The environment variable that holds the password."
    )
    client_options: dict[str, str] = Field(
        default={}, description="Further keys of the client's configuration; no secrets."
    )
    console_url: str = Field(
        default="", description="Where a console of the cluster is; assets then link to its pages."
    )
    options: dict[str, str] = Field(default={}, description="Deprecated: use client_options.")

    def resource(self) -> FlussResource:
        """The resource; nothing is connected yet. Equal connections are one resource."""
        if self.options:
            deprecated.warn(deprecated.renamed("FlussConnectionComponent")["options"])
        further = {**self.options, **self.client_options}
        return _resource(
            self.bootstrap_servers,
            self.cluster_alias,
            self.sasl_username,
            self.sasl_password_env,
            tuple(sorted(further.items())),
            self.console_url,
        )


@lru_cache(maxsize=CONNECTIONS_MAX)
def _resource(
    servers: str,
    alias: str,
    username: str,
    password_env: str,
    options: tuple[tuple[str, str], ...],
    console_url: str,
) -> FlussResource:
    """One object for equal settings: Dagster merges components only if they have the same one."""
    return FlussResource(
        bootstrap_servers=servers,
        cluster_alias=alias,
        sasl_username=username,
        sasl_password=dg.EnvVar(password_env) if password_env else "",
        client_options=dict(options),
        console_url=console_url,
    )


@dg.scaffold_with(FlussConnectionScaffolder)
class FlussConnectionComponent(dg.Component, ConnectionAttributes):
    """Defines a `FlussResource` under a key, from YAML."""

    resource_key: str = Field(default="fluss", description="The resource's key.")

    def build_defs(self, context: dg.ComponentLoadContext) -> dg.Definitions:
        """The resource alone."""
        return dg.Definitions(resources={self.resource_key: self.resource()})
