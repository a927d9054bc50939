"""What the examples need: a cluster's address and a database of their own."""

from __future__ import annotations

import itertools
import os
from collections.abc import Iterator

import pytest

import fluss_client as fluss
from fluss_client.testing import LocalCluster

_numbers = itertools.count()


@pytest.fixture(scope="session")
def address(plain_cluster: LocalCluster) -> str:
    """Where a real cluster answers."""
    return plain_cluster.info.bootstrap_servers


@pytest.fixture
def database(address: str) -> Iterator[str]:
    """A database for one example."""
    config = fluss.Config({"bootstrap.servers": address})
    name = f"example_{os.getpid()}_{next(_numbers)}"
    with fluss.FlussConnection.create(config).result() as connection:
        admin = connection.get_admin().result()
        admin.create_database(name).result()
        yield name
        admin.drop_database(name, cascade=True).result()
