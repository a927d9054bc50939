"""The embedded engine and a real cluster by turns, for tests of what stands on the client.

A test that names `fluss_kind` or `fluss_address` runs on both, one that names `lake_kind` or
`lake_address` on both with a lake. (The client's own contract has more kinds: `fix_backend`.)
"""

from __future__ import annotations

import itertools
import os
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from fluss_client import FlussConnection

KINDS = ("embedded", "cluster")
CLUSTER_FIRST = ("cluster", pytest.param("embedded", marks=pytest.mark.long))
"""For tests that start many processes: a real cluster always, the other in the long form."""
_CLUSTERS = {"fluss_kind": "plain_cluster", "lake_kind": "lake_cluster"}
_numbers = itertools.count()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        params = getattr(getattr(item, "callspec", None), "params", {})
        for kind, cluster in _CLUSTERS.items():
            if params.get(kind) == "cluster":
                item.add_marker("cluster")
                # Named openly, so that its start does not count against the test's own time.
                item.fixturenames.insert(0, cluster)  # type: ignore[attr-defined]


@pytest.fixture(scope="session", params=KINDS)
def fluss_kind(request: pytest.FixtureRequest) -> str:
    """Where the test runs."""
    return str(request.param)


@pytest.fixture(scope="session", params=KINDS)
def lake_kind(request: pytest.FixtureRequest) -> str:
    """Where the test runs, with a lake."""
    return str(request.param)


@pytest.fixture(scope="session")
def fluss_address(
    request: pytest.FixtureRequest, fluss_kind: str, tmp_path_factory: pytest.TempPathFactory
) -> str:
    """How to reach it."""
    return _address(request, "plain_cluster", fluss_kind, tmp_path_factory)


@pytest.fixture(scope="session")
def lake_address(
    request: pytest.FixtureRequest, lake_kind: str, tmp_path_factory: pytest.TempPathFactory
) -> str:
    """How to reach it."""
    return _address(request, "lake_cluster", lake_kind, tmp_path_factory)


def _address(
    request: pytest.FixtureRequest, cluster: str, kind: str, folders: pytest.TempPathFactory
) -> str:
    if kind == "embedded":
        return f"embedded:{folders.mktemp('fluss')}"
    return str(request.getfixturevalue(cluster).info.bootstrap_servers)


@contextmanager
def own_database(connection: FlussConnection, prefix: str) -> Iterator[str]:
    """A database that nobody else has, gone afterwards."""
    name = f"{prefix}_{os.getpid()}_{next(_numbers)}"
    admin = connection.get_admin().result()
    admin.create_database(name).result()
    yield name
    admin.drop_database(name, ignore_if_not_exists=True, cascade=True).result()
