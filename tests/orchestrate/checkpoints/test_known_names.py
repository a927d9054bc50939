"""The names of a store in Fluss: each pass reads what is new, and nothing that is old."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from fluss_client import Config, FlussConnection
from fluss_client.engine import async_connection, backend_of, run_blocking
from fluss_orchestrate.core.checkpoints import FlussCheckpointStore
from fluss_orchestrate.core.checkpoints import fluss_names as names_module
from fluss_orchestrate.core.checkpoints.fluss_names import NAMES
from fluss_orchestrate.core.checkpoints.fluss_rows import EVENT_COLUMNS, CheckpointTable
from tests.orchestrate.checkpoints.plans import step


@pytest.fixture
def connection(tmp_path: Path) -> Iterator[FlussConnection]:
    config = Config({"bootstrap.servers": f"embedded:{tmp_path}", "embedded.synchronous": "off"})
    with FlussConnection.create(config).result() as opened:
        yield opened


@pytest.fixture
def keys_read(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """The keys of all look-ups."""
    keys: list[Any] = []
    original = CheckpointTable.lookup

    async def counted(self: CheckpointTable, wanted: Any) -> Any:
        keys.extend(wanted)
        return await original(self, wanted)

    monkeypatch.setattr(CheckpointTable, "lookup", counted)
    return keys


def test_a_pass_reads_the_names_that_are_new(
    connection: FlussConnection, keys_read: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(names_module, "NAMES_AT_ONCE", 8)
    writer, reader = FlussCheckpointStore(connection), FlussCheckpointStore(connection)
    expected = [f"job-{n:02}" for n in range(30)]
    for name in expected:
        step(writer, name, "run", 5)
    assert reader.names() == expected
    keys_read.clear()
    assert reader.names() == expected
    # The last known slot, and a page of new ones.
    assert len(keys_read) == 1 + 8
    step(writer, "new", "run", 5)
    keys_read.clear()
    assert reader.names() == [*expected, "new"]
    assert len(keys_read) == 1 + 8 + 2


def test_a_name_counts_when_it_has_an_event(connection: FlussConnection) -> None:
    writer, reader = FlussCheckpointStore(connection), FlussCheckpointStore(connection)
    step(writer, "first", "run", 5)

    async def register(name: str, slot: int) -> None:
        """Do what a process does that dies before it writes the event."""
        core = async_connection(connection)
        table = await CheckpointTable.open(
            backend_of(core), core.config, writer.path, 1, EVENT_COLUMNS
        )
        row = {"name": NAMES, "seq": slot, "nonce": name, "body": name.encode()}
        await table.put([row])

    run_blocking(register("crashed", 1))
    assert reader.names() == ["first"]
    step(writer, "later", "run", 5)
    assert reader.names() == ["first", "later"]
    step(writer, "crashed", "run", 5)
    assert reader.names() == ["crashed", "first", "later"]


def test_a_table_that_was_created_again_has_its_own_names(connection: FlussConnection) -> None:
    store = FlussCheckpointStore(connection)
    for name in ("a", "b"):
        step(store, name, "run", 5)
    assert store.names() == ["a", "b"]
    admin = connection.get_admin().result()
    admin.drop_table(store.path).result()
    again = FlussCheckpointStore(connection)
    for name in ("c", "d", "e"):
        step(again, name, "run", 5)
    # The log keeps what it has read; its table is the new one.
    reader = FlussCheckpointStore(connection)
    known, unknown = store.log, reader.log
    known._table = unknown._opened()  # type: ignore[attr-defined]
    assert store.names() == ["c", "d", "e"]
