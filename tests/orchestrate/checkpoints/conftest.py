"""Every kind of checkpoint store, for the contract suite over all of them."""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from fluss_client import Config, FlussConnection
from fluss_client.errors import LeaderNotAvailableError
from fluss_orchestrate.core.checkpoints import (
    CheckpointStore,
    FlussCheckpointStore,
    SqlCheckpointStore,
)
from tests.orchestrate.checkpoints.memory_log import MemoryEventLog

KINDS = ["memory", "sqlite", "postgres", "embedded", "plain"]
CLUSTERS = {"plain": "plain_cluster"}

_numbers = itertools.count()

Opener = Callable[[], CheckpointStore]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        spec = getattr(item, "callspec", None)
        kind = spec.params.get("store_kind") if spec is not None else None
        if kind in CLUSTERS:
            item.add_marker("cluster")
            item.fixturenames.insert(0, CLUSTERS[kind])  # type: ignore[attr-defined]


@pytest.fixture(scope="session", params=KINDS)
def store_kind(request: pytest.FixtureRequest) -> str:
    kind: str = request.param
    return kind


@pytest.fixture(scope="session")
def store_config(
    request: pytest.FixtureRequest, store_kind: str, tmp_path_factory: pytest.TempPathFactory
) -> dict[str, Any]:
    """How to reach the Fluss that a store of this kind lives in; empty for the others."""
    if store_kind == "embedded":
        folder = tmp_path_factory.mktemp("store")
        return {"bootstrap.servers": f"embedded:{folder}", "embedded.synchronous": "off"}
    if store_kind in CLUSTERS:
        cluster = request.getfixturevalue(CLUSTERS[store_kind])
        return {"bootstrap.servers": cluster.info.bootstrap_servers}
    return {}


@pytest.fixture(scope="session")
def store_connection(store_config: dict[str, Any]) -> Iterator[FlussConnection | None]:
    if not store_config:
        yield None
        return
    with FlussConnection.create(Config(store_config)).result() as connected:
        yield connected


@pytest.fixture(scope="session")
def store_path(
    store_connection: FlussConnection | None, store_kind: str
) -> Iterator[tuple[str, str]]:
    """Database and table of the one store in Fluss that all tests of a kind share."""
    database = f"checkpoints_{store_kind}_{os.getpid()}"
    if store_connection is None:
        yield database, "events"
        return
    yield database, working_table(store_connection, database)
    admin = store_connection.get_admin().result()
    admin.drop_database(database, ignore_if_not_exists=True, cascade=True).result()


def working_table(connection: FlussConnection, database: str) -> str:
    """A checkpoint table that has a leader.

    Fluss 0.9 may miss the creation of a table, which then never gets one; another one will.
    """
    for attempt in range(5):
        table = f"events_{attempt}"
        store = FlussCheckpointStore(connection, database, table, replicas=1)
        try:
            store.head("nobody")
            return table
        except LeaderNotAvailableError:
            continue
    raise AssertionError("no table got a leader")


@pytest.fixture
def open_store(
    request: pytest.FixtureRequest,
    store_kind: str,
    store_connection: FlussConnection | None,
    store_path: tuple[str, str],
    tmp_path: Path,
) -> Iterator[Opener]:
    """Opens one store as often as wanted; each time it knows nothing yet."""
    memory = MemoryEventLog()
    opened: list[CheckpointStore] = []

    def make() -> CheckpointStore:
        if store_kind == "memory":
            return CheckpointStore(memory)
        if store_kind == "sqlite":
            return SqlCheckpointStore(f"sqlite:///{tmp_path / 'checkpoints.db'}")
        if store_kind == "postgres":
            return SqlCheckpointStore(request.getfixturevalue("postgres_url"), table=store_path[0])
        assert store_connection is not None
        return FlussCheckpointStore(store_connection, *store_path, replicas=1)

    def open_one() -> CheckpointStore:
        opened.append(make())
        return opened[-1]

    yield open_one
    for store in opened:
        store.close()


@pytest.fixture
def name() -> str:
    """The name of a checkpoint that no other test uses."""
    return f"orders-{next(_numbers)}"


@pytest.fixture
def store(open_store: Opener) -> CheckpointStore:
    return open_store()
