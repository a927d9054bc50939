"""A connection for the sinks that write into Fluss: embedded, and a real cluster."""

from __future__ import annotations

import itertools
import os
from collections.abc import Iterator

import pytest

from fluss_client import Config, FlussConnection

_numbers = itertools.count()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        spec = getattr(item, "callspec", None)
        if spec is not None and spec.params.get("sink_kind") == "cluster":
            item.add_marker("cluster")
            # Named openly, so that its start does not count against the test's own time.
            item.fixturenames.insert(0, "plain_cluster")  # type: ignore[attr-defined]


@pytest.fixture(scope="session", params=["embedded", "cluster"])
def sink_kind(request: pytest.FixtureRequest) -> str:
    """Which backend the sink writes to."""
    kind: str = request.param
    return kind


@pytest.fixture(scope="session")
def sink_address(
    request: pytest.FixtureRequest, sink_kind: str, tmp_path_factory: pytest.TempPathFactory
) -> str:
    """How to reach it."""
    if sink_kind == "embedded":
        return f"embedded:{tmp_path_factory.mktemp('sink')}"
    return str(request.getfixturevalue("plain_cluster").info.bootstrap_servers)


@pytest.fixture(scope="session")
def sink_connection(sink_address: str) -> Iterator[FlussConnection]:
    """A connection that these tests share."""
    with FlussConnection.create(Config({"bootstrap.servers": sink_address})).result(60) as made:
        yield made


@pytest.fixture
def sink_database(sink_connection: FlussConnection) -> Iterator[str]:
    """A database of this test's own, gone afterwards."""
    name = f"sinks_{os.getpid()}_{next(_numbers)}"
    admin = sink_connection.get_admin().result(30)
    admin.create_database(name).result(30)
    yield name
    admin.drop_database(name, ignore_if_not_exists=True, cascade=True).result(30)
