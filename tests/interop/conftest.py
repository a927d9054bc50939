"""The other parties: the Java client in a process of its own, and the official Python client."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from typing import Any

import pytest

import fluss_client as fluss
from tests.contract.tables import Tables, done
from tests.interop.java_peer import JavaPeer, JavaTable

NEWEST, OLDER = "1.0.0", "0.9.1-incubating"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        spec = getattr(item, "callspec", None)
        kind = spec.params.get("address") if spec is not None else None
        if kind in ("plain", "lake"):
            item.add_marker("cluster")
            # Named openly, so that its start does not count against the test's own time.
            item.fixturenames.insert(0, f"{kind}_cluster")  # type: ignore[attr-defined]


@pytest.fixture(scope="session")
def java_peer(tmp_path_factory: pytest.TempPathFactory) -> Iterator[JavaPeer]:
    """The Java client's newest release."""
    peer = JavaPeer(NEWEST, tmp_path_factory.mktemp("java-peer"))
    yield peer
    peer.close()


@pytest.fixture(scope="session", params=[NEWEST, pytest.param(OLDER, marks=pytest.mark.long)])
def each_java_peer(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[JavaPeer]:
    """The newest release, and in the long form the one before it, too."""
    if request.param == NEWEST:
        yield request.getfixturevalue("java_peer")
        return
    peer = JavaPeer(request.param, tmp_path_factory.mktemp("older-java-peer"))
    yield peer
    peer.close()


@pytest.fixture(scope="session", params=["plain", "lake"])
def address(request: pytest.FixtureRequest) -> dict[str, str]:
    """A real cluster: one with Fluss's own key encoding, one with the lake's."""
    cluster = request.getfixturevalue(f"{request.param}_cluster")
    return {"bootstrap.servers": cluster.info.bootstrap_servers}


@pytest.fixture(scope="session")
def ours(address: dict[str, str]) -> Iterator[fluss.FlussConnection]:
    """This client on that cluster."""
    with fluss.FlussConnection.create(fluss.Config(address)).result() as connection:
        yield connection


@pytest.fixture(scope="session")
def home(ours: fluss.FlussConnection) -> Iterator[str]:
    """A database for the tables of these tests."""
    admin = done(ours.get_admin())
    name = f"interop_{os.getpid()}"
    done(admin.create_database(name))
    yield name
    done(admin.drop_database(name, cascade=True))


@pytest.fixture
def tables(ours: fluss.FlussConnection, home: str) -> Tables:
    """Makes and reads tables through this client."""
    return Tables(ours, done(ours.get_admin()), home)


@pytest.fixture
def in_java(
    each_java_peer: JavaPeer, address: dict[str, Any]
) -> Callable[[fluss.FlussTable], JavaTable]:
    """The same table in the Java client's hands."""
    return lambda table: JavaTable(each_java_peer, address, table)
