"""A resource for embedded and a real cluster, a database per test, and a Dagster instance."""

from __future__ import annotations

import itertools
import os
from collections.abc import Iterator
from pathlib import Path

import dagster as dg
import pytest

from fluss_client import FlussConnection
from fluss_orchestrate.dagster import FlussResource, close_connections

os.environ["DAGSTER_DISABLE_TELEMETRY"] = "1"
# Dagster calls its own deprecated property whenever a resource is nested in another.
OWN_FAULT = "ignore:InitResourceContext.dagster_run is deprecated:DeprecationWarning"
_numbers = itertools.count()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if Path(__file__).parent in item.path.parents:
            item.add_marker(pytest.mark.filterwarnings(OWN_FAULT))
            item.add_marker(pytest.mark.filterwarnings("ignore::dagster.BetaWarning"))
        spec = getattr(item, "callspec", None)
        if spec is not None and spec.params.get("fluss_kind") == "cluster":
            item.add_marker("cluster")
            # Named openly, so that its start does not count against the test's own time.
            item.fixturenames.insert(0, "plain_cluster")  # type: ignore[attr-defined]


@pytest.fixture(scope="session", params=["embedded", "cluster"])
def fluss_kind(request: pytest.FixtureRequest) -> str:
    """Which Fluss the test runs on."""
    kind: str = request.param
    return kind


@pytest.fixture(scope="session")
def fluss_address(
    request: pytest.FixtureRequest, fluss_kind: str, tmp_path_factory: pytest.TempPathFactory
) -> str:
    """How to reach it."""
    if fluss_kind == "embedded":
        return f"embedded:{tmp_path_factory.mktemp('fluss')}"
    return str(request.getfixturevalue("plain_cluster").info.bootstrap_servers)


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
    name = f"dagster_{os.getpid()}_{next(_numbers)}"
    admin = connection.get_admin().result(30)
    admin.create_database(name).result(30)
    yield name
    admin.drop_database(name, ignore_if_not_exists=True, cascade=True).result(30)


@pytest.fixture
def instance() -> Iterator[dg.DagsterInstance]:
    """Dagster's own state, in memory."""
    with dg.DagsterInstance.ephemeral() as made:
        yield made


@pytest.fixture(scope="session", autouse=True)
def no_connection_is_left() -> Iterator[None]:
    yield
    close_connections()
