"""What `dg scaffold defs` writes for Fluss's components."""

# Dagster and pydantic read these types at run time, so they are no strings here.
from typing import Any

import dagster as dg
from pydantic import BaseModel, Field


class ConnectionParams(BaseModel):
    """Asked for by `dg scaffold defs FlussConnectionComponent`."""

    bootstrap_servers: str = Field(
        default="{{ env.FLUSS_BOOTSTRAP_SERVERS }}",
        description="host:port of the cluster, or embedded:PATH.",
    )


class DatabaseParams(ConnectionParams):
    """Asked for by `dg scaffold defs FlussDatabaseComponent`."""

    database: str = Field(
        default="",
        description="The database whose tables are assets; by default the name of the folder.",
    )


class FlussConnectionScaffolder(dg.Scaffolder[ConnectionParams]):
    """Writes a connection component."""

    @classmethod
    def get_scaffold_params(cls) -> type[ConnectionParams]:
        """The questions."""
        return ConnectionParams

    def scaffold(self, request: dg.ScaffoldRequest[ConnectionParams]) -> None:
        """Write `defs.yaml`."""
        attributes: dict[str, Any] = {"bootstrap_servers": request.params.bootstrap_servers}
        dg.scaffold_component(request, attributes)


class FlussDatabaseScaffolder(dg.Scaffolder[DatabaseParams]):
    """Writes a database component."""

    @classmethod
    def get_scaffold_params(cls) -> type[DatabaseParams]:
        """The questions."""
        return DatabaseParams

    def scaffold(self, request: dg.ScaffoldRequest[DatabaseParams]) -> None:
        """Write `defs.yaml`."""
        dg.scaffold_component(
            request,
            {
                "connection": {"bootstrap_servers": request.params.bootstrap_servers},
                "databases": [request.params.database or request.target_path.name],
            },
        )
