"""Sinks, tiering and lake reads through a REST catalog with the warehouse on S3."""

from __future__ import annotations

from collections.abc import Callable

import pytest

import fluss_client as fluss
from fluss_client.testing import LocalCluster
from fluss_orchestrate.core.checkpoints import CheckpointStore, FlussCheckpointStore
from fluss_orchestrate.core.incremental import IncrementalScan
from fluss_orchestrate.core.job import run_increment
from fluss_orchestrate.core.lake import read_table, tier_table
from fluss_orchestrate.core.lake.catalog import open_catalog
from fluss_orchestrate.core.sinks import IcebergSink
from tests.fix_storage import FaultyStore
from tests.storage.conftest import MakeTable, rows


@pytest.fixture
def catalog(storage_cluster: LocalCluster) -> dict[str, str]:
    """The properties of the catalog and of its storage."""
    return dict(storage_cluster.info.lake or {})


def ids_of(catalog: dict[str, str], table: str) -> list[int]:
    found: list[int] = open_catalog(catalog).load_table(table).scan().to_arrow()["id"].to_pylist()
    return sorted(found)


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
        with table.new_append().create_writer() as writer:
            writer.write_arrow(rows(number * 50, number * 50 + 50))
        scan = IncrementalScan(connection, str(path), str(path), CheckpointStore(kept.log))
        for _ in range(20):  # a run that fails is repeated under its key
            try:
                run_increment(
                    scan, IcebergSink(faulty, f"sinks.{path.table_name}"), f"run-{number}"
                )
                break
            except OSError:
                continue
    assert store.requests["PUT"] > 0
    assert ids_of(catalog, f"sinks.{path.table_name}") == list(range(rounds * 50))


@pytest.mark.timeout(240)
def test_a_table_is_tiered_and_read_with_keys_from_the_environment(
    connection: fluss.FlussConnection,
    make_table: MakeTable,
    catalog: dict[str, str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The table says where the catalog is; how to sign requests comes from the environment."""
    for key, value in catalog.items():
        if key.startswith("s3."):
            name = key.replace(".", "__").replace("-", "_").upper()
            monkeypatch.setenv(f"FLUSS_LAKE_DEFAULT__{name}", value)
    table = make_table(table__datalake__enabled="true", table__datalake__freshness="1min")
    with table.new_append().create_writer() as writer:
        writer.write_arrow(rows(0, 500))
    path = str(table.get_table_path())
    tier_table(connection, path, allow_tiering=True)
    with table.new_append().create_writer() as writer:
        writer.write_arrow(rows(500, 600))
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
