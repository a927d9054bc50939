"""The key state of a bucket, exact at an offset, on every backend.

The cluster with a lake makes a KV snapshot every second; there the state comes from snapshots and
the changelog after them. The other cluster makes none within a test; there it comes from the
changelog alone.
"""

from __future__ import annotations

import asyncio
import gc
import logging
import random
from typing import Any

import pyarrow as pa
import pytest

import fluss_client as fluss
from fluss_client.aio.state.changes import Changes
from fluss_client.backend.contract import STATE_READ_BYTES_MAX
from fluss_client.engine import StateReader, StateSource, run_blocking
from fluss_client.errors import StorageError, UnsupportedError
from tests.disk import full_disk
from tests.waiting import wait_until

SCHEMA = pa.schema([("id", pa.int64()), ("name", pa.string()), ("amount", pa.float64())])
State = dict[int, tuple[str | None, float | None]]


class Table:
    """A key table of one bucket, and a dict that must hold the same."""

    def __init__(
        self, connection: Any, path: fluss.TablePath, snapshots: bool, **options: Any
    ) -> None:
        self.connection = connection
        self.snapshots = snapshots
        self.path = path
        schema = fluss.Schema(SCHEMA, primary_keys=["id"])
        descriptor = fluss.TableDescriptor(schema, bucket_count=1, **options)
        connection.get_admin().result().create_table(path, descriptor).result()
        self.table = connection.get_table(path).result()
        self.rows: State = {}

    def write(self, random_numbers: random.Random, count: int, keys: int) -> None:
        with self.table.new_upsert().create_writer() as writer:
            for _ in range(count):
                key = random_numbers.randrange(keys)
                if random_numbers.random() < 0.3:
                    writer.delete({"id": key})
                    self.rows.pop(key, None)
                else:
                    row = (f"name {random_numbers.random()}", float(key))
                    writer.upsert({"id": key, "name": row[0], "amount": row[1]})
                    self.rows[key] = row

    def read(self, stop: int | None = None, **options: Any) -> tuple[int, StateSource, pa.Table]:
        core = self.connection.core

        async def read() -> tuple[int, StateSource, pa.Table]:
            info = await core.backend.get_table_info(self.path)
            bucket = fluss.TableBucket(info.table_id, 0)
            reader = StateReader(core.backend, info, bucket, core.config, stop=stop, **options)
            await reader.open()
            try:
                batches = [batch async for batch in reader.batches()]
            finally:
                await reader.close()
            names = options.get("columns") or info.get_column_names()
            schema = pa.schema([info.schema.arrow.field(name) for name in names])
            return reader.stop, reader.source, pa.Table.from_batches(batches, schema)

        return run_blocking(read())

    def state(self, stop: int | None = None, **options: Any) -> tuple[int, StateSource, State]:
        stop, source, table = self.read(stop, **options)
        ids = table["id"].to_pylist()
        assert len(ids) == len(set(ids))
        rows = zip(table["name"].to_pylist(), table["amount"].to_pylist(), strict=True)
        return stop, source, dict(zip(ids, rows, strict=True))


@pytest.fixture
def snapshots(backend_kind: str) -> bool:
    """Whether the backend makes KV snapshots while a test runs."""
    return backend_kind == "lake"


@pytest.fixture
def table(connection: Any, database: str, snapshots: bool) -> Table:
    """A table for this test."""
    return Table(connection, fluss.TablePath(database, "state"), snapshots)


def wait_for_snapshot(table: Table, after: int) -> None:
    """Wait until a KV snapshot covers an offset, where the backend makes snapshots."""
    if not table.snapshots:
        return
    admin = table.connection.get_admin().result()

    def is_there() -> bool:
        [snapshot] = admin.list_kv_snapshots(table.path).result()
        return snapshot.log_offset is not None and snapshot.log_offset >= after

    wait_until(f"a snapshot of offset {after}", is_there)


def test_current_and_earlier_states(table: Table, backend_kind: str) -> None:
    numbers = random.Random(7)
    seen: list[tuple[int, State]] = []
    kinds = set()
    for round_number in range(4):
        table.write(numbers, 400, 300)
        stop, source, state = table.state()
        assert state == table.rows
        kinds.add(source.kind)
        seen.append((stop, dict(table.rows)))
        if round_number < 3:
            wait_for_snapshot(table, stop)
    for stop, wanted in seen:
        found_stop, _, state = table.state(stop)
        assert (found_stop, state) == (stop, wanted)
    wanted_kinds = {"embedded": {"local"}, "lake": {"log", "snapshot"}}
    assert kinds == wanted_kinds.get(backend_kind, {"log"})


def test_rows_come_in_key_order_in_small_batches(table: Table) -> None:
    table.write(random.Random(3), 500, 400)
    wait_for_snapshot(table, 1)
    table.write(random.Random(4), 100, 400)
    _, _, small = table.read(batch_rows=7)
    _, _, large = table.read()
    assert small.equals(large)
    assert len(small) == len(table.rows)


def test_some_columns(table: Table) -> None:
    table.write(random.Random(5), 50, 40)
    _, _, found = table.read(columns=["amount"])
    assert found.schema.names == ["amount"]
    assert sorted(found["amount"].to_pylist()) == sorted(float(key) for key in table.rows)


def test_an_empty_bucket(table: Table) -> None:
    stop, _, found = table.read()
    assert (stop, found.num_rows) == (0, 0)


def test_columns_that_were_added_later_are_null(table: Table) -> None:
    table.write(random.Random(6), 30, 20)
    wait_for_snapshot(table, 1)
    admin = table.connection.get_admin().result()
    admin.alter_table(table.path, add_columns=[pa.field("note", pa.string())]).result()
    _, _, found = table.read()
    assert found["note"].null_count == found.num_rows == len(table.rows)


def test_a_changelog_without_old_rows_goes_forward_only(
    connection: Any, database: str, snapshots: bool
) -> None:
    path = fluss.TablePath(database, "wal")
    table = Table(connection, path, snapshots, properties={"table.changelog.image": "WAL"})
    table.write(random.Random(8), 60, 30)
    wait_for_snapshot(table, 1)
    first_stop, _, state = table.state()
    assert state == table.rows
    table.write(random.Random(9), 60, 30)
    latest, _, state = table.state()
    assert state == table.rows
    wait_for_snapshot(table, latest)
    if snapshots or connection.core.backend.capabilities.local_directory:
        with pytest.raises(UnsupportedError, match="has no old rows"):
            table.state(first_stop)


def test_large_rows_come_in_small_batches(table: Table) -> None:
    """What is in memory at once depends on bytes, not on the number of rows alone."""
    text = "x" * (512 << 10)
    with table.table.new_upsert().create_writer() as writer:
        for key in range(60):
            writer.upsert({"id": key, "name": f"{key} {text}", "amount": 0.0})
    wait_for_snapshot(table, 60)
    _, source, found = table.read()
    assert found.num_rows == 60
    if source.kind != "log":
        sizes = [chunk.nbytes for chunk in found["name"].chunks]
        assert max(sizes) <= STATE_READ_BYTES_MAX + (512 << 10) + 1000


@pytest.mark.parametrize("way", ["leave", "cancel"])
def test_a_read_that_ends_early_leaves_nothing_at_work(
    table: Table, way: str, caplog: pytest.LogCaptureFixture
) -> None:
    """The next rows are read ahead on a thread; the files stay open until it has ended."""
    table.write(random.Random(2), 2000, 1500)
    wait_for_snapshot(table, 1)
    core = table.connection.core

    async def read() -> None:
        info = await core.backend.get_table_info(table.path)
        bucket = fluss.TableBucket(info.table_id, 0)
        for _ in range(20):
            reader = StateReader(core.backend, info, bucket, core.config, batch_rows=500)
            await reader.open()
            batches = reader.batches()
            first = await anext(batches)
            assert first.num_rows
            if way == "cancel":
                following = asyncio.ensure_future(anext(batches))
                await asyncio.sleep(0)
                following.cancel()
                await asyncio.wait([following])
            await reader.close()

    with caplog.at_level(logging.WARNING):
        run_blocking(read())
        gc.collect()
    assert not caplog.records


@pytest.mark.parametrize("backend_kind", ["embedded"], indirect=True)
def test_changes_on_a_full_disk(table: Table, monkeypatch: pytest.MonkeyPatch) -> None:
    """Changes that do not fit into memory have no room: one sentence with the way out."""
    defaults = Changes.__init__.__kwdefaults__
    monkeypatch.setitem(defaults, "memory_bytes_max", 32 << 10)
    table.write(random.Random(3), 2000, 2000)
    with (
        full_disk(file_bytes_max=8 << 10),
        pytest.raises(StorageError, match=r"^cannot write changes .* Set scanner.state.folder"),
    ):
        table.state(stop=1)  # The base is taken back by all changes after the first.
    assert table.state()[2] == table.rows
