"""What a catalog refuses, and its failures: one sentence with what to do, wherever it is used."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import fluss_client as fluss
from fluss_orchestrate.core.checkpoints import CheckpointStore
from fluss_orchestrate.core.incremental import IncrementalScan
from fluss_orchestrate.core.job import run_increment
from fluss_orchestrate.core.lake import (
    CatalogError,
    CatalogUnreachableError,
    CommitUnknownError,
    maintain_lake,
    pin_lake,
    read_table,
    tier_table,
)
from fluss_orchestrate.core.lake.catalog import explained_by_catalog, open_catalog
from fluss_orchestrate.core.mirror.table import mirror_table
from fluss_orchestrate.core.overview.lakes import read_lake_table
from fluss_orchestrate.core.sinks import IcebergSink, SinkError
from tests.fix_storage import FaultyStore
from tests.orchestrate.checkpoints.memory_log import MemoryEventLog
from tests.storage.conftest import LAKE, MakeTable, write

ANSWERS = {
    "401": ((401, "NotAuthorized", "no"), CatalogError, "refuses the credentials: set token"),
    "403": ((403, "Forbidden", "no"), CatalogError, "does not allow it: give these credentials"),
    "404": ((404, "NoSuchWarehouse", "no"), CatalogError, "check its uri and warehouse"),
    "500": ((500, "Internal", "no"), CatalogUnreachableError, "fails: look into its log"),
    "502": ((502, "BadGateway", "no"), CatalogUnreachableError, "fails: look into its log"),
    "503": ((503, "Unavailable", "no"), CatalogUnreachableError, "fails: look into its log"),
    "429": ((429, "TooMany", "no"), CatalogUnreachableError, "fails: look into its log"),
    "200": ((200, "Hello", "a page"), CatalogError, "does not answer as a catalog does"),
    "cut": (None, CatalogUnreachableError, "does not answer: check its uri"),
}


@pytest.fixture
def before(catalog: dict[str, str], make_store: Callable[..., FaultyStore]) -> FaultyStore:
    """A proxy before the catalog."""
    return make_store(catalog["uri"])


def fail(proxy: FaultyStore, answer: tuple[int, str, str] | None) -> None:
    proxy.answer = answer
    proxy.kinds = ("cut",)
    proxy.chance = 0.0 if answer else 1.0


def is_one_sentence(error: CatalogError, proxy: FaultyStore, says: str) -> None:
    text = str(error)
    assert says in text
    assert proxy.endpoint in text
    assert "\n" not in text
    assert "hidden" not in text
    assert len(text) < 700
    assert error.retriable is isinstance(error, CatalogUnreachableError)


@pytest.mark.parametrize("case", ANSWERS)
def test_a_catalog_that_cannot_be_opened(
    catalog: dict[str, str], before: FaultyStore, case: str
) -> None:
    answer, kind, says = ANSWERS[case]
    fail(before, answer)
    with pytest.raises(CatalogError) as told:
        open_catalog({**catalog, "uri": before.endpoint, "token": "hidden"})
    assert type(told.value) is kind
    is_one_sentence(told.value, before, says)


@pytest.mark.timeout(240)
def test_a_catalog_that_fails_later(
    connection: fluss.FlussConnection,
    make_table: MakeTable,
    catalog: dict[str, str],
    before: FaultyStore,
    lake_keys: None,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It was opened before: sinks, mirrors, tiering, maintenance, pins and reads say the same."""
    monkeypatch.setenv("FLUSS_LAKE_DEFAULT__URI", before.endpoint)
    log, keyed = make_table(**LAKE), make_table(["id"])
    for table in (log, keyed):
        write(table, 0, 50)
    path = log.get_table_path()
    tier_table(connection, path, allow_tiering=True)
    write(log, 50, 60)
    through = {**catalog, "uri": before.endpoint}
    sink = IcebergSink(through, f"failures.{path.table_name}")
    mirror = IcebergSink(through, f"failures.{keyed.get_table_path().table_name}", form="mirror")
    scan = IncrementalScan(connection, str(path), str(path), CheckpointStore(MemoryEventLog()))
    store = CheckpointStore(MemoryEventLog())
    info = log.get_table_info()

    def pinned() -> None:
        with pin_lake(connection, path):
            pass

    calls: dict[str, Callable[[], Any]] = {
        "sink": lambda: run_increment(scan, sink, "one"),
        "position": lambda: sink.position("one"),
        "reset_position": lambda: sink.reset_position("one"),
        "mirror": lambda: mirror_table(
            connection, keyed.get_table_path(), mirror, "one", checkpoint="one", store=store
        ),
        "tiering": lambda: tier_table(connection, path, allow_tiering=True),
        "maintenance": lambda: maintain_lake(connection, path),
        "pin": pinned,
        "read": lambda: read_table(connection, path, read="lake").read_all(),
        "overview": lambda: read_lake_table(connection, info),
    }
    for case, (answer, kind, says) in ANSWERS.items():
        if case == "404":
            continue  # there is no such table, which is no failure here
        for name, call in calls.items():
            fail(before, answer)
            with pytest.raises(CatalogError) as told:
                call()
            assert type(told.value) is kind, (name, answer, told.value)
            is_one_sentence(told.value, before, says)
    before.answer, before.chance = None, 0.0
    for call in calls.values():
        call()
    assert sorted(read_table(connection, path, read="lake").read_all()["id"].to_pylist()) == list(
        range(60)
    )


@pytest.mark.timeout(240)
def test_a_commit_whose_catalog_goes_away(
    connection: fluss.FlussConnection,
    make_table: MakeTable,
    catalog: dict[str, str],
    before: FaultyStore,
) -> None:
    """Whether it landed is not known: no file is deleted, and the next run looks."""
    table = make_table()
    path = table.get_table_path()
    target = f"failures.{path.table_name}"
    scan = IncrementalScan(connection, str(path), str(path), CheckpointStore(MemoryEventLog()))
    sink = IcebergSink({**catalog, "uri": before.endpoint}, target)
    for number in range(3):
        write(table, number * 50, number * 50 + 50)
        if number:
            before.last = r"POST \S*/tables/\S+ "
            with pytest.raises(CommitUnknownError, match="does not say whether it landed") as told:
                run_increment(scan, sink, f"run-{number}")
            assert "\n" not in str(told.value)
            before.last, before.answer = None, None
        run_increment(scan, sink, f"run-{number}")
        found = open_catalog(catalog).load_table(target)
        assert sorted(found.scan().to_arrow()["id"].to_pylist()) == list(range(number * 50 + 50))
    assert len(found.snapshots()) == 3


def test_names_that_a_catalog_does_not_have(
    connection: fluss.FlussConnection,
    make_table: MakeTable,
    catalog: dict[str, str],
    lake_keys: None,
) -> None:
    table = make_table(**LAKE)
    path = table.get_table_path()
    write(table, 0, 5)
    scan = IncrementalScan(connection, str(path), str(path), CheckpointStore(MemoryEventLog()))
    sink = IcebergSink(catalog, "nowhere.orders", create=False)
    with pytest.raises(SinkError, match=r"nowhere\.orders: there is no such Iceberg table"):
        run_increment(scan, sink, "one")
    opened = open_catalog(catalog)
    opened.drop_table((path.database_name, path.table_name))
    with pytest.raises(CatalogError, match=r"has no table storage\.\w+: the servers created it"):
        tier_table(connection, path, allow_tiering=True)
    with pytest.raises(CatalogError, match="has no such namespace"), explained_by_catalog(opened):
        opened.list_tables("nowhere")
