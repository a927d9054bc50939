"""A connection for the sinks that write into Fluss: embedded, and a real cluster."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from fluss_client import Config, FlussConnection
from fluss_orchestrate.core.loading import sending, units
from tests.fix_either import own_database


@pytest.fixture(scope="session")
def sink_connection(fluss_address: str) -> Iterator[FlussConnection]:
    """A connection that these tests share."""
    with FlussConnection.create(Config({"bootstrap.servers": fluss_address})).result() as made:
        yield made


@pytest.fixture
def sink_database(sink_connection: FlussConnection) -> Iterator[str]:
    """A database of this test's own, gone afterwards."""
    with own_database(sink_connection, "sinks") as name:
        yield name


@pytest.fixture
def small_units(monkeypatch: pytest.MonkeyPatch) -> None:
    """So that a few hundred rows have many units."""
    monkeypatch.setattr(units, "BATCH_ROWS_MAX", 7)
    monkeypatch.setattr(sending, "BLOCK_UNITS", 3)
