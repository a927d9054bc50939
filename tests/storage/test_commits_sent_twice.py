"""Commits that a gateway before the catalog sends twice: the first lands, the second is refused.

The client gets to know the refusal only. What it has written is in the table and has to stay.
"""

from __future__ import annotations

from collections.abc import Callable

import pyarrow as pa
import pytest

import fluss_client as fluss
from fluss_orchestrate.core.checkpoints import CheckpointStore
from fluss_orchestrate.core.incremental import IncrementalScan
from fluss_orchestrate.core.job import run_increment
from fluss_orchestrate.core.lake import (
    MaintenanceSettings,
    known_lake,
    maintain_lake,
    pin_lake,
    read_table,
    tier_table,
)
from fluss_orchestrate.core.lake.catalog import open_catalog
from fluss_orchestrate.core.mirror.table import mirror_table
from fluss_orchestrate.core.sinks import IcebergSink
from tests.fix_storage import FaultyStore
from tests.orchestrate.checkpoints.memory_log import MemoryEventLog
from tests.orchestrate.lake.tables import lake_table
from tests.storage.conftest import LAKE, SCHEMA, MakeTable, ids_of, rows, write

EVERY_POST = r"POST "
NOW = MaintenanceSettings(snapshot_age_ms=0, keep_snapshots=1, remove_orphans=False)


@pytest.fixture
def gateway(catalog: dict[str, str], make_store: Callable[..., FaultyStore]) -> FaultyStore:
    """A proxy before the catalog."""
    return make_store(catalog["uri"])


@pytest.fixture
def through(catalog: dict[str, str], gateway: FaultyStore) -> dict[str, str]:
    """The properties of the catalog for who reaches it through the gateway, by another name."""
    return {**catalog, "uri": gateway.endpoint, "name": "gateway"}


@pytest.mark.timeout(240)
def test_an_increment_is_in_the_table_once(
    connection: fluss.FlussConnection,
    make_table: MakeTable,
    catalog: dict[str, str],
    through: dict[str, str],
    gateway: FaultyStore,
) -> None:
    gateway.twice = EVERY_POST
    table = make_table()
    name = str(table.get_table_path())
    target = f"twice.{table.get_table_path().table_name}"
    scan = IncrementalScan(connection, name, name, CheckpointStore(MemoryEventLog()))
    for number in range(3):
        write(table, number * 50, number * 50 + 50)
        sink = IcebergSink(through, target)
        done = run_increment(scan, sink, f"run-{number}")
        assert done.rows == 50
        assert ids_of(catalog, target) == list(range(number * 50 + 50))
    assert len(open_catalog(catalog).load_table(target).snapshots()) == 3
    assert gateway.struck["twice"] >= 4
    held = sink.position(name)
    # A column that the table gets is a commit of its own.
    admin = connection.get_admin().result()
    path = table.get_table_path()
    admin.alter_table(path, add_columns=[pa.field("more", pa.int64())]).result()
    with connection.get_table(path).result().new_append().create_writer() as writer:
        more = rows(150, 160).append_column("more", pa.array(range(10), pa.int64()))
        writer.write_arrow(more)
    scan = IncrementalScan(connection, name, name, scan.store)
    run_increment(scan, IcebergSink(through, target, schema_policy="add_columns"), "run-3")
    found = open_catalog(catalog).load_table(target).scan().to_arrow().sort_by("id")
    assert found["more"].to_pylist() == [None] * 150 + list(range(10))
    sink.reset_position(name)
    assert sink.position(name) is None
    sink.reset_position(name, held)
    assert sink.position(name) == held
    # Who reaches the catalog by another name finds the same plans there.
    direct = IcebergSink({**catalog, "name": "direct"}, target)
    assert direct.position(name) == IcebergSink(through, target).position(name)


@pytest.mark.timeout(240)
@pytest.mark.parametrize("mode", ["equality", "copy_on_write"])
def test_a_mirror_equals_its_table(
    connection: fluss.FlussConnection,
    make_table: MakeTable,
    through: dict[str, str],
    gateway: FaultyStore,
    mode: str,
) -> None:
    gateway.twice = EVERY_POST
    table = make_table(["id"])
    path = table.get_table_path()
    store = CheckpointStore(MemoryEventLog())
    for number in range(4):
        write(table, number * 20, number * 20 + 50)
        sink = IcebergSink(through, f"twice.{path.table_name}", form="mirror", write_mode=mode)
        mirror_table(connection, path, sink, f"run-{number}", checkpoint="twice", store=store)
        with sink.read_mirror("twice", SCHEMA) as found:
            assert found is not None
            assert sorted(found.rows.read_all()["id"].to_pylist()) == list(range(number * 20 + 50))
    assert gateway.struck["twice"] >= 4


@pytest.mark.timeout(240)
@pytest.mark.parametrize("keys", [None, ["id"]], ids=["log", "keys"])
def test_a_lake_is_tiered_and_maintained(
    connection: fluss.FlussConnection,
    make_table: MakeTable,
    through: dict[str, str],
    gateway: FaultyStore,
    lake_keys: None,
    monkeypatch: pytest.MonkeyPatch,
    keys: list[str] | None,
) -> None:
    monkeypatch.setattr(known_lake, "SNAPSHOTS_KEPT", 1)
    monkeypatch.setenv("FLUSS_LAKE_DEFAULT__URI", gateway.endpoint)
    gateway.twice = EVERY_POST
    table = make_table(keys, **LAKE)
    path = table.get_table_path()
    for number in range(3):
        write(table, number * 40, number * 40 + 40)
        assert tier_table(connection, path, allow_tiering=True).rows == 40
    wanted = list(range(120))

    def lake_ids() -> list[int]:
        found = read_table(connection, path, read="lake").read_all()["id"].to_pylist()
        return sorted(found)

    assert lake_ids() == wanted
    with pin_lake(connection, path) as pinned:
        assert pinned in {s.snapshot_id for s in lake_table(connection, path).snapshots()}
    assert not [ref for ref in lake_table(connection, path).refs() if ref != "main"]
    done = maintain_lake(connection, path, settings=NOW)
    assert done.files_after == 1
    assert min(done.snapshots_expired, done.files_deleted) > 0
    assert lake_ids() == wanted
    write(table, 120, 130)
    tier_table(connection, path, allow_tiering=True)
    assert lake_ids() == list(range(130))
