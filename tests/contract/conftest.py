"""What the contract tests share: a database per kind of backend, and helpers for its tables."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

import fluss_client as fluss
from tests.contract.tables import Tables, done


@pytest.fixture(scope="session")
def shared_database(connection: fluss.FlussConnection, backend_kind: str) -> Iterator[str]:
    """One database for the tables of many tests; gone at the end of the run."""
    admin = done(connection.get_admin())
    name = f"contract_{backend_kind}_{os.getpid()}"
    done(admin.create_database(name))
    yield name
    done(admin.drop_database(name, ignore_if_not_exists=True, cascade=True))


@pytest.fixture
def tables(
    connection: fluss.FlussConnection, admin: fluss.FlussAdmin, shared_database: str
) -> Tables:
    """Makes and reads tables on this backend."""
    return Tables(connection, admin, shared_database)


@pytest.fixture
def offers(connection: fluss.FlussConnection) -> fluss.Capabilities:
    """What this backend says that it offers."""
    return connection.backend.capabilities


@pytest.fixture
def key_of_lake(backend_kind: str) -> bool:
    """Whether tables here use the lake's key encoding, which takes one key column only."""
    return backend_kind == "lake"
