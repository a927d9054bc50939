"""The contract suite's subject: one client, on every kind of backend.

A test that names `backend_kind`, `config`, `connection` or `database` runs once per kind. Adding a
backend is one entry in `KINDS`, and the whole suite runs over it.
"""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from fluss_client.config import Config

# The same servers as with SASL, but for the log-in.
KINDS = ("embedded", pytest.param("plain", marks=pytest.mark.long), "sasl", "lake")

_numbers = itertools.count()


def _plain(request: pytest.FixtureRequest) -> dict[str, Any]:
    cluster = request.getfixturevalue("plain_cluster")
    return {"bootstrap.servers": cluster.info.bootstrap_servers}


def _sasl(request: pytest.FixtureRequest) -> dict[str, Any]:
    info = request.getfixturevalue("plain_cluster").info
    return {
        "bootstrap.servers": info.sasl_bootstrap_servers,
        "security.protocol": "sasl",
        "security.sasl.username": "admin",
        "security.sasl.password": info.users["admin"],
    }


def _lake(request: pytest.FixtureRequest) -> dict[str, Any]:
    cluster = request.getfixturevalue("lake_cluster")
    return {"bootstrap.servers": cluster.info.bootstrap_servers}


def _embedded(request: pytest.FixtureRequest) -> dict[str, Any]:
    folder = request.getfixturevalue("tmp_path_factory").mktemp("embedded")
    # Tests of what survives a power cut make directories of their own.
    return {"bootstrap.servers": f"embedded:{folder}", "embedded.synchronous": "off"}


_SETTINGS: dict[str, Callable[[pytest.FixtureRequest], dict[str, Any]]] = {
    "embedded": _embedded,
    "plain": _plain,
    "sasl": _sasl,
    "lake": _lake,
}
_NEEDS = {"plain": "plain_cluster", "sasl": "plain_cluster", "lake": "lake_cluster"}


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        spec = getattr(item, "callspec", None)
        kind = spec.params.get("backend_kind") if spec is not None else None
        if kind in _NEEDS:
            item.add_marker("cluster")
            # Named openly, so that its start does not count against the test's own time.
            item.fixturenames.insert(0, _NEEDS[kind])  # type: ignore[attr-defined]


@pytest.fixture(scope="session", params=KINDS)
def backend_kind(request: pytest.FixtureRequest) -> str:
    """Which backend this test runs on."""
    kind: str = request.param
    return kind


def settings_of(request: pytest.FixtureRequest, kind: str) -> dict[str, Any]:
    """The keys that reach a backend."""
    return _SETTINGS[kind](request)


@contextmanager
def connected(settings: dict[str, Any]) -> Iterator[Any]:
    """A connection to a backend."""
    from fluss_client import FlussConnection

    with FlussConnection.create(Config(settings)).result() as connection:
        yield connection


@pytest.fixture(scope="session")
def settings(request: pytest.FixtureRequest, backend_kind: str) -> dict[str, Any]:
    """The keys that reach this backend."""
    return settings_of(request, backend_kind)


@pytest.fixture
def config(settings: dict[str, Any]) -> Config:
    """A configuration that reaches this backend."""
    return Config(settings)


@pytest.fixture(scope="session")
def connection(settings: dict[str, Any]) -> Iterator[Any]:
    """A connection shared by the tests of one backend."""
    with connected(settings) as shared:
        yield shared


@pytest.fixture
def admin(connection: Any) -> Any:
    """The administration of this backend."""
    return connection.get_admin().result()


@pytest.fixture
def database(admin: Any) -> Iterator[str]:
    """A database of this test's own, gone afterwards."""
    name = f"t{os.getpid()}_{next(_numbers)}"
    admin.create_database(name).result()
    yield name
    admin.drop_database(name, ignore_if_not_exists=True, cascade=True).result()
