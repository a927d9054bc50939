"""A connection for mirrors: embedded, and a real cluster."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from fluss_client import Config, FlussConnection
from tests.fix_either import own_database


@pytest.fixture(scope="session")
def mirror_connection(fluss_address: str) -> Iterator[FlussConnection]:
    """A connection that these tests share."""
    with FlussConnection.create(Config({"bootstrap.servers": fluss_address})).result() as made:
        yield made


@pytest.fixture
def mirror_database(mirror_connection: FlussConnection) -> Iterator[str]:
    """A database of this test's own, gone afterwards."""
    with own_database(mirror_connection, "mirrors") as name:
        yield name
