"""Key tables to mirror, on the embedded engine and on a real cluster."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from fluss_client import Config, FlussConnection
from tests.contract.tables import Tables
from tests.fix_either import own_database


@pytest.fixture(scope="session")
def source(fluss_address: str) -> Iterator[FlussConnection]:
    """A connection to the cluster of the tables that are mirrored."""
    with FlussConnection.create(Config({"bootstrap.servers": fluss_address})).result() as made:
        yield made


@pytest.fixture
def tables(source: FlussConnection) -> Iterator[Tables]:
    """Tables in a database of this test's own."""
    with own_database(source, "mirrors") as name:
        yield Tables(source, source.get_admin().result(), name)
