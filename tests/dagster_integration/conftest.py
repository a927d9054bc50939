"""A resource for embedded and a real cluster, a database per test, and a Dagster instance."""

from __future__ import annotations

import itertools
import os
from collections.abc import Iterator
from pathlib import Path

import dagster as dg
import pytest

from fluss_client import FlussConnection, TablePath
from fluss_orchestrate.dagster import FlussResource, close_connections
from tests.dagster_integration.tables import make_table
from tests.fix_either import own_database
from tests.leftovers import no_process_is_left  # noqa: F401

os.environ["DAGSTER_DISABLE_TELEMETRY"] = "1"
# Dagster calls its own deprecated property for a nested resource, and other
# people's deprecated names in its components' test kit.
OWN_FAULTS = (
    "ignore:InitResourceContext.dagster_run is deprecated:DeprecationWarning",
    "ignore:`parse_obj_as` is deprecated",
    "ignore:Accessing `{{automation_condition",
    "ignore:AssetExecutionContext.run_id is deprecated:DeprecationWarning",
    "ignore:Function `PipesMessageReader.expected_writer_count`",
    "ignore::dagster.BetaWarning",
)
_numbers = itertools.count()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if Path(__file__).parent in item.path.parents:
            for each in OWN_FAULTS:
                item.add_marker(pytest.mark.filterwarnings(each))


@pytest.fixture
def fluss(fluss_address: str) -> FlussResource:
    """The resource."""
    return FlussResource(bootstrap_servers=fluss_address, cluster_alias="tests")


@pytest.fixture
def connection(fluss: FlussResource) -> FlussConnection:
    """The connection that the resource uses too."""
    return fluss.connection


@pytest.fixture
def database(connection: FlussConnection) -> Iterator[str]:
    """A database of this test's own, gone afterwards."""
    with own_database(connection, "dagster") as name:
        yield name


@pytest.fixture(scope="session")
def lake_fluss(lake_address: str) -> FlussResource:
    """A resource whose tables may have a lake."""
    return FlussResource(bootstrap_servers=lake_address, cluster_alias="lakes")


@pytest.fixture
def lake_table(lake_fluss: FlussResource) -> Iterator[TablePath]:
    """A log table with a lake, gone afterwards."""
    path = TablePath(f"dagster_{os.getpid()}_{next(_numbers)}", "events")
    properties = {"table.datalake.enabled": "true"}
    yield make_table(lake_fluss.connection, path, properties=properties)
    admin = lake_fluss.connection.get_admin().result()
    admin.drop_database(path.database_name, ignore_if_not_exists=True, cascade=True).result()


@pytest.fixture
def instance() -> Iterator[dg.DagsterInstance]:
    """Dagster's own state, in memory."""
    with dg.DagsterInstance.ephemeral() as made:
        yield made


@pytest.fixture(scope="session", autouse=True)
def no_connection_is_left() -> Iterator[None]:
    yield
    close_connections()
