"""Connections to the cluster whose remote storage is on S3, and tables there."""

from __future__ import annotations

import os
import uuid
from collections.abc import Callable, Iterator

import pyarrow as pa
import pytest

import fluss_client as fluss
from fluss_client.testing import LocalCluster
from fluss_orchestrate.core.lake.catalog import open_catalog
from tests.fix_storage import FaultyStore
from tests.waiting import wait_until

LAKE = {"table__datalake__enabled": "true", "table__datalake__freshness": "1min"}
"""The properties of a table with a lake, for `make_table`."""
SCHEMA = pa.schema([("id", pa.int64()), ("text", pa.string())])
VARIABLE = "FLUSS_STORAGE__S3__"
DEADLINE_S = 100.0


def rows(start: int, stop: int) -> pa.Table:
    """Rows of about 70 bytes."""
    texts = [f"{at:060}" for at in range(start, stop)]
    return pa.table({"id": pa.array(range(start, stop), pa.int64()), "text": texts}, SCHEMA)


def write(table: fluss.FlussTable, start: int, stop: int) -> None:
    """Write rows into a log table or a key table."""
    create = table.new_upsert if table.has_primary_key() else table.new_append
    with create().create_writer() as writer:
        writer.write_arrow(rows(start, stop))


def ids_of(catalog: dict[str, str], table: str) -> list[int]:
    """The ids in an Iceberg table, by who reads all its files."""
    found: list[int] = open_catalog(catalog).load_table(table).scan().to_arrow()["id"].to_pylist()
    return sorted(found)


@pytest.fixture(autouse=True)
def no_other_credentials(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing of the machine's own environment decides who reads."""
    for name in list(os.environ):
        if name.startswith(("AWS_", "FLUSS_STORAGE_")):
            monkeypatch.delenv(name)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")


@pytest.fixture
def connection(storage_cluster: LocalCluster) -> Iterator[fluss.FlussConnection]:
    config = fluss.Config({"bootstrap.servers": storage_cluster.info.bootstrap_servers})
    with fluss.FlussConnection.create(config).result() as connected:
        admin = connected.get_admin().result()
        admin.create_database("storage", ignore_if_exists=True).result()
        yield connected


@pytest.fixture
def store(
    storage_cluster: LocalCluster,
    make_store: Callable[..., FaultyStore],
    monkeypatch: pytest.MonkeyPatch,
) -> FaultyStore:
    """A proxy before the S3 server, through which this process reads and writes."""
    assert storage_cluster.info.storage is not None
    made = make_store(storage_cluster.info.storage["s3.endpoint"], seed=20261118)
    monkeypatch.setenv(f"{VARIABLE}ENDPOINT", made.endpoint)
    return made


@pytest.fixture
def own_keys(storage_cluster: LocalCluster, monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """The environment of this process opens the store."""
    storage = dict(storage_cluster.info.storage or {})
    for key, value in storage.items():
        name = VARIABLE + key.removeprefix("s3.").replace("-", "_").upper()
        if name not in os.environ:
            monkeypatch.setenv(name, value)
    return storage


@pytest.fixture
def catalog(storage_cluster: LocalCluster) -> dict[str, str]:
    """The properties of the catalog and of its storage."""
    return dict(storage_cluster.info.lake or {})


@pytest.fixture
def lake_keys(catalog: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    """How to sign requests to the lake comes from the environment."""
    for key, value in catalog.items():
        if key.startswith("s3."):
            name = key.replace(".", "__").replace("-", "_").upper()
            monkeypatch.setenv(f"FLUSS_LAKE_DEFAULT__{name}", value)


@pytest.fixture
def folder(storage_cluster: LocalCluster) -> str:
    """A new folder on S3."""
    return f"{storage_cluster.info.bucket}/tests/{uuid.uuid4().hex}"


MakeTable = Callable[..., fluss.FlussTable]


@pytest.fixture
def make_table(connection: fluss.FlussConnection) -> Iterator[MakeTable]:
    """Create a table: `make_table(keys, buckets, **properties)`."""
    admin = connection.get_admin().result()
    made: list[fluss.TablePath] = []

    def make(
        keys: list[str] | None = None, buckets: int = 1, **properties: str
    ) -> fluss.FlussTable:
        path = fluss.TablePath("storage", f"t_{uuid.uuid4().hex[:12]}")
        schema = fluss.Schema(SCHEMA, primary_keys=keys)
        named = {key.replace("__", ".").replace("_", "-"): v for key, v in properties.items()}
        descriptor = fluss.TableDescriptor(schema, bucket_count=buckets, properties=named)
        admin.create_table(path, descriptor).result()
        made.append(path)
        return connection.get_table(path).result()

    yield make
    for path in made:
        admin.drop_table(path).result()


def until(true: Callable[[], object], what: str) -> None:
    """Wait until something is true."""
    wait_until(what, true, DEADLINE_S, pause_s=0.1)
