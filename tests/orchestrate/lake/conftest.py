"""Lakes for tests: of the embedded engine and of the real cluster, by the same tests."""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from fluss_client import Config, FlussConnection, TablePath
from fluss_client.errors import LakeTableAlreadyExistError
from tests.orchestrate.lake.tables import make_table

_numbers = itertools.count()
CREATE_ATTEMPTS_MAX = 5


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        spec = getattr(item, "callspec", None)
        if spec is not None and spec.params.get("lake_kind") == "cluster":
            item.add_marker("cluster")
            # Named openly, so that its start does not count against the test's own time.
            item.fixturenames.insert(0, "lake_cluster")  # type: ignore[attr-defined]


@pytest.fixture(scope="session", params=["embedded", "cluster"])
def lake_kind(request: pytest.FixtureRequest) -> str:
    """Which lake this test runs on."""
    kind: str = request.param
    return kind


@pytest.fixture(scope="session")
def address(
    request: pytest.FixtureRequest, lake_kind: str, tmp_path_factory: pytest.TempPathFactory
) -> str:
    """How to reach it."""
    if lake_kind == "embedded":
        return f"embedded:{tmp_path_factory.mktemp('lake')}"
    return str(request.getfixturevalue("lake_cluster").info.bootstrap_servers)


@pytest.fixture(scope="session")
def connection(address: str) -> Iterator[FlussConnection]:
    """A connection that these tests share."""
    with FlussConnection.create(Config({"bootstrap.servers": address})).result(60) as connected:
        yield connected


@pytest.fixture
def database(connection: FlussConnection) -> Iterator[str]:
    """A database of this test's own, gone afterwards."""
    name = f"lake_{os.getpid()}_{next(_numbers)}"
    admin = connection.get_admin().result(30)
    admin.create_database(name).result(30)
    yield name
    admin.drop_database(name, ignore_if_not_exists=True, cascade=True).result(30)


@pytest.fixture
def new_table(connection: FlussConnection, database: str) -> Callable[..., TablePath]:
    """Make a lake table of this test's own."""

    def make(**options: Any) -> TablePath:
        for attempt in range(CREATE_ATTEMPTS_MAX):
            path = TablePath(database, f"t{attempt}")
            try:
                make_table(connection, path, **options)
            except LakeTableAlreadyExistError:
                # The server forgot the table that it had just made, but not its Iceberg table.
                continue
            return path
        raise AssertionError("no lake table could be created")

    return make
