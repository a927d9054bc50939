"""Tables to scan on the embedded engine and on real clusters, and stores to keep positions in."""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from fluss_client import FlussAdmin, FlussConnection
from fluss_orchestrate.core.checkpoints import CheckpointStore
from fluss_orchestrate.core.incremental import IncrementalScan
from tests.fix_backend import connected, settings_of
from tests.orchestrate.checkpoints.memory_log import MemoryEventLog
from tests.orchestrate.incremental.events import EventTables

_numbers = itertools.count()


@pytest.fixture(scope="session", params=("embedded", "plain"))
def backend_kind(request: pytest.FixtureRequest) -> str:
    """Which backend this test runs on."""
    kind: str = request.param
    return kind


# These two stand here because `backend_kind` does. Pytest keeps a session's fixture as long as the
# `backend_kind` that it was made of; the shared ones would keep that of another folder, and a test
# named "embedded" would run on a cluster.
@pytest.fixture(scope="session")
def settings(request: pytest.FixtureRequest, backend_kind: str) -> dict[str, Any]:
    """The keys that reach this backend."""
    return settings_of(request, backend_kind)


@pytest.fixture(scope="session")
def connection(settings: dict[str, Any]) -> Iterator[FlussConnection]:
    """A connection shared by the tests of one backend."""
    with connected(settings) as shared:
        yield shared


@pytest.fixture(scope="session")
def scan_database(connection: FlussConnection, backend_kind: str) -> Iterator[str]:
    admin = connection.get_admin().result()
    name = f"incremental_{backend_kind}_{os.getpid()}"
    admin.create_database(name).result()
    yield name
    admin.drop_database(name, ignore_if_not_exists=True, cascade=True).result()


@pytest.fixture
def tables(connection: FlussConnection, admin: FlussAdmin, scan_database: str) -> EventTables:
    return EventTables(connection, admin, scan_database)


@pytest.fixture
def store() -> CheckpointStore:
    """A store in memory; others are tested elsewhere, and a few tests here use the default."""
    return CheckpointStore(MemoryEventLog())


@pytest.fixture
def make_scan(
    connection: FlussConnection, store: CheckpointStore
) -> Callable[..., IncrementalScan]:
    """A scan of a table; its name stays the same within a test unless given."""
    name = f"scan-{next(_numbers)}"

    def make(table: Any, **options: Any) -> IncrementalScan:
        options.setdefault("store", store)
        options.setdefault("settle_ms", 0)
        path = table.get_table_path()
        return IncrementalScan(connection, path, options.pop("name", name), **options)

    return make
