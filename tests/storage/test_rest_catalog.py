"""Sinks, tiering and lake reads through a REST catalog with the warehouse on S3."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

import fluss_client as fluss
from fluss_client.errors import StorageError, StorageRefusedError
from fluss_client.storage import filesystems
from fluss_client.testing import LocalCluster
from fluss_orchestrate.core.checkpoints import CheckpointStore, FlussCheckpointStore
from fluss_orchestrate.core.incremental import IncrementalScan
from fluss_orchestrate.core.job import run_increment
from fluss_orchestrate.core.lake import CatalogError, read_table, tier_table
from fluss_orchestrate.core.lake.catalog import open_catalog
from fluss_orchestrate.core.sinks import IcebergSink
from tests.faults.recording import FaultRecorder, parts_of
from tests.fix_storage import CUT_SIZE, FaultyStore
from tests.orchestrate.checkpoints.memory_log import MemoryEventLog
from tests.orchestrate.incremental.crasher import STAGES
from tests.orchestrate.incremental.test_crashes import Crashers
from tests.storage.conftest import LAKE, MakeTable, ids_of, write
from tests.storage.kills import KILLS_LONG, Killing
from tests.storage.tiering_crasher import STAGES as TIERING_STAGES


@pytest.mark.timeout(240)
def test_increments_into_iceberg_through_failing_requests(
    connection: fluss.FlussConnection,
    make_table: MakeTable,
    catalog: dict[str, str],
    store: FaultyStore,
    long_form: bool,
) -> None:
    """The files are on S3, where 5 % of the requests fail; the commits go to the catalog."""
    table = make_table(buckets=2)
    path = table.get_table_path()
    kept = FlussCheckpointStore(connection, "storage", "checkpoints", replicas=1)
    faulty = {**catalog, "s3.endpoint": store.endpoint}
    store.chance = 0.05
    rounds = 100 if long_form else 4
    for number in range(rounds):
        write(table, number * 50, number * 50 + 50)
        scan = IncrementalScan(connection, str(path), str(path), CheckpointStore(kept.log))
        for _ in range(20):  # a run that fails is repeated under its key
            try:
                run_increment(
                    scan, IcebergSink(faulty, f"sinks.{path.table_name}"), f"run-{number}"
                )
                break
            except StorageError:
                continue
    assert store.requests["PUT"] > 0
    assert ids_of(catalog, f"sinks.{path.table_name}") == list(range(rounds * 50))


def test_what_the_store_refuses_is_one_sentence(
    connection: fluss.FlussConnection,
    make_table: MakeTable,
    catalog: dict[str, str],
    lake_keys: None,
    store: FaultyStore,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The sink, tiering, and a read of the lake; the store speaks as AWS does."""
    monkeypatch.setattr(filesystems, "S3_ATTEMPTS_MAX", 1)
    table = make_table(**LAKE)
    name = str(table.get_table_path())
    write(table, 0, 50)
    tier_table(connection, name, allow_tiering=True)
    monkeypatch.setenv("FLUSS_LAKE_DEFAULT__S3__ENDPOINT", store.endpoint)
    write(table, 50, 60)
    sink = IcebergSink(
        {**catalog, "s3.endpoint": store.endpoint}, f"refused.{table.get_table_path().table_name}"
    )
    scan = IncrementalScan(connection, name, name, CheckpointStore(MemoryEventLog()))
    store.answer = (403, "AccessDenied", "Access Denied")
    said = r"s3://fluss/warehouse\S*: the credentials have no permission"
    with pytest.raises(StorageRefusedError, match=f"cannot write {said}"):
        run_increment(scan, sink, "one")
    with pytest.raises(StorageRefusedError, match=f"cannot write {said}"):
        tier_table(connection, name, allow_tiering=True)
    with pytest.raises(StorageRefusedError, match=f"cannot read {said}"):
        read_table(connection, name, read="lake").read_all()
    store.answer = None
    store.kinds, store.chance = (CUT_SIZE,), 1.0
    with pytest.raises(StorageError, match=r"s3://fluss/\S+: an answer of the store was cut off"):
        read_table(connection, name, read="lake").read_all()
    store.chance = 0.0
    run_increment(scan, sink, "one")
    tier_table(connection, name, allow_tiering=True)
    assert read_table(connection, name, read="lake").read_all().num_rows == 60


@pytest.fixture
def crashers(own_keys: dict[str, str]) -> Iterator[Crashers]:
    made = Crashers()
    yield made
    made.close()


@pytest.mark.timeout(1800)
@pytest.mark.parametrize("part", parts_of(KILLS_LONG))
def test_every_row_once_through_kills_of_the_sink(
    connection: fluss.FlussConnection,
    storage_cluster: LocalCluster,
    make_table: MakeTable,
    catalog: dict[str, str],
    crashers: Crashers,
    store: FaultyStore,
    long_form: bool,
    part: int,
    record_fault: FaultRecorder,
) -> None:
    """In the long form 5 % of the requests to S3 fail, too; a run that fails is repeated."""
    table = make_table(buckets=3)
    name = str(table.get_table_path())
    target = f"kills.{table.get_table_path().table_name}"
    spec = {
        "config": {"bootstrap.servers": storage_cluster.info.bootstrap_servers},
        "table": name,
        "database": "storage",
        "store_table": "crashes",
        "name": name,
        "sink": "iceberg",
        "folder": target,
        "catalog": {**catalog, "s3.endpoint": store.endpoint},
    }
    killing = Killing(table, crashers, store, spec, part, long_form)
    killing.run(STAGES, STAGES[3:7])
    killing.judge(
        lambda: ids_of(catalog, target),
        record_fault,
        "kill -9 of incremental jobs (Iceberg by a REST catalog, on S3)",
    )


@pytest.fixture
def tierers(
    lake_keys: None,
    own_keys: dict[str, str],
    store: FaultyStore,
    monkeypatch: pytest.MonkeyPatch,
) -> Iterator[Crashers]:
    """Processes that tier, through the proxy before the store."""
    monkeypatch.setenv("FLUSS_LAKE_DEFAULT__S3__ENDPOINT", store.endpoint)
    made = Crashers("tests.storage.tiering_crasher")
    yield made
    made.close()


@pytest.mark.timeout(1800)
@pytest.mark.parametrize("part", parts_of(KILLS_LONG))
@pytest.mark.parametrize("keys", [None, ["id"]], ids=["log", "keys"])
def test_every_row_once_through_kills_of_tiering(
    connection: fluss.FlussConnection,
    storage_cluster: LocalCluster,
    make_table: MakeTable,
    tierers: Crashers,
    store: FaultyStore,
    keys: list[str] | None,
    long_form: bool,
    part: int,
    record_fault: FaultRecorder,
) -> None:
    table = make_table(keys, 2, **LAKE)
    name = str(table.get_table_path())
    config = {"bootstrap.servers": storage_cluster.info.bootstrap_servers}
    spec = {"config": config, "table": name}
    killing = Killing(table, tierers, store, spec, part, long_form)
    killing.run(TIERING_STAGES, TIERING_STAGES[1:3])
    killing.judge(
        lambda: read_table(connection, name, read="lake").read_all()["id"].to_pylist(),
        record_fault,
        f"kill -9 of tiering by a REST catalog, on S3 ({'key table' if keys else 'log table'})",
    )


@pytest.mark.timeout(240)
def test_a_table_is_tiered_and_read_with_keys_from_the_environment(
    connection: fluss.FlussConnection, make_table: MakeTable, lake_keys: None
) -> None:
    """The table says where the catalog is; how to sign requests comes from the environment."""
    table = make_table(**LAKE)
    write(table, 0, 500)
    path = str(table.get_table_path())
    tier_table(connection, path, allow_tiering=True)
    write(table, 500, 600)
    found = read_table(connection, path)
    assert sorted(found.read_all()["id"].to_pylist()) == list(range(600))


@pytest.mark.parametrize(
    ("properties", "header"),
    [
        ({"token": "given-token"}, "Bearer given-token"),
        (
            {"credential": "client:word", "oauth2-server-uri": "/v1/oauth/tokens"},
            r"Bearer client-credentials-token:sub=client",
        ),
    ],
)
def test_a_catalog_takes_tokens(
    catalog: dict[str, str],
    make_store: Callable[..., FaultyStore],
    properties: dict[str, str],
    header: str,
) -> None:
    """With a token that was given, and with one that the catalog's OAuth2 endpoint gave."""
    guarded = make_store(catalog["uri"])
    guarded.bearer = header
    if "oauth2-server-uri" in properties:
        properties = {**properties, "oauth2-server-uri": guarded.endpoint + "/v1/oauth/tokens"}
    made = open_catalog({**catalog, **properties, "uri": guarded.endpoint})
    made.create_namespace_if_not_exists("tokens")
    assert ("tokens",) in made.list_namespaces()


def test_a_catalog_that_refuses_is_one_sentence(
    catalog: dict[str, str], make_store: Callable[..., FaultyStore]
) -> None:
    guarded = make_store(catalog["uri"])
    guarded.bearer = "Bearer right"
    with pytest.raises(CatalogError, match=r"refuses the credentials: set token") as told:
        open_catalog({**catalog, "token": "wrong", "uri": guarded.endpoint})
    assert "\n" not in str(told.value)
