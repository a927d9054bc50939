"""Lakes for tests: of the embedded engine and of the real cluster, by the same tests."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from fluss_client import Config, FlussConnection, TablePath
from fluss_client.errors import LakeTableAlreadyExistError, TableNotReadyError
from tests.fix_either import own_database
from tests.orchestrate.lake.tables import make_table

CREATE_ATTEMPTS_MAX = 5


@pytest.fixture(scope="session")
def connection(lake_address: str) -> Iterator[FlussConnection]:
    """A connection that these tests share."""
    with FlussConnection.create(Config({"bootstrap.servers": lake_address})).result() as made:
        yield made


@pytest.fixture
def database(connection: FlussConnection) -> Iterator[str]:
    """A database of this test's own, gone afterwards."""
    with own_database(connection, "lake") as name:
        yield name


@pytest.fixture
def new_table(connection: FlussConnection, database: str) -> Callable[..., TablePath]:
    """Make a lake table of this test's own."""

    def make(**options: Any) -> TablePath:
        for attempt in range(CREATE_ATTEMPTS_MAX):
            path = TablePath(database, f"t{attempt}")
            try:
                make_table(connection, path, **options)
            except (LakeTableAlreadyExistError, TableNotReadyError):
                # The coordinator missed the table; its Iceberg table is in the way of another try.
                continue
            return path
        raise AssertionError("no lake table could be created")

    return make
