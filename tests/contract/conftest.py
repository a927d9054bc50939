"""What the contract tests share: a database per kind of backend, and helpers for its tables."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator

import pytest

import fluss_client as fluss
from fluss_client import Config
from fluss_client.testing import LocalCluster
from tests.contract.tables import Tables, done
from tests.fix_cluster import discard


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


@pytest.fixture(scope="session")
def strict_cluster(
    server_jars: None, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[LocalCluster]:
    """Three servers that ask for permissions, move old log away soon and take key snapshots often;
    a test may kill one and must start it again."""
    cluster = LocalCluster(
        tmp_path_factory.mktemp("strict") / "cluster",
        tablet_servers=3,
        sasl=True,
        config={
            "authorizer.enabled": "true",
            "remote.log.task-interval-duration": "1s",
            "log.segment.file-size": "1mb",
            "kv.snapshot.interval": "1s",
            "max.partition.num": "4",
            "log.replica.high-watermark.checkpoint-interval": "100ms",
        },
    )
    cluster.up()
    yield cluster
    discard(cluster)


@pytest.fixture(scope="session")
def strict(strict_cluster: LocalCluster) -> Callable[[str], Config]:
    """The settings of one user of that cluster."""

    def settings(user: str) -> Config:
        info = strict_cluster.info
        return Config(
            {
                "bootstrap.servers": info.sasl_bootstrap_servers,
                "security.protocol": "sasl",
                "security.sasl.username": user,
                "security.sasl.password": info.users[user],
            }
        )

    return settings


@pytest.fixture(scope="session")
def strict_connection(
    strict: Callable[[str], Config],
) -> Iterator[fluss.FlussConnection]:
    """Its administrator's connection."""
    with done(fluss.FlussConnection.create(strict("admin"))) as connection:
        done(done(connection.get_admin()).create_database("strict"))
        yield connection


@pytest.fixture
def strict_tables(strict_connection: fluss.FlussConnection) -> Tables:
    """Makes and reads tables there."""
    return Tables(strict_connection, done(strict_connection.get_admin()), "strict")
