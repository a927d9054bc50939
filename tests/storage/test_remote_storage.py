"""Remote logs and KV snapshots that a cluster keeps on S3."""

from __future__ import annotations

import asyncio
import json
import os
import time
from collections.abc import Callable, Mapping

import pyarrow as pa
import pyarrow.compute as pc
import pytest

import fluss_client as fluss
from fluss_client.backend.cluster import remote_files
from fluss_client.engine import BlockingState, async_connection, open_storage, table_info
from fluss_client.errors import StorageError, StorageRefusedError
from fluss_client.net.rate import RateLimit
from fluss_client.testing import LocalCluster
from fluss_client.wire import fluss_pb2 as pb
from fluss_orchestrate.core.lake.catalog import open_catalog
from tests.fix_storage import CUT_SIZE, FaultyStore
from tests.foundation.command import run
from tests.storage.conftest import MakeTable, rows, until
from tests.waiting import let_pass, scaled, wait_until

ROWS = 50_000
REMOTE = {
    "table__log__tiered__local_segments": "1",
    "table__log__arrow__compression__type": "NONE",
}


def remote_bytes(connection: fluss.FlussConnection) -> float:
    return connection.metrics().get("remote_log.bytes", 0)


def first_rows(table: fluss.FlussTable) -> int:
    with table.new_scan().create_record_batch_log_scanner().result() as scanner:
        scanner.subscribe(0, 0)
        return int(scanner.poll_arrow(10_000).num_rows)


def all_ids(table: fluss.FlussTable, count: int) -> list[int]:
    found: list[pa.Table] = []
    with table.new_scan().create_record_batch_log_scanner().result() as scanner:
        scanner.subscribe(0, 0)
        while sum(one.num_rows for one in found) < count:
            found.append(scanner.poll_arrow(10_000))
    ids: list[int] = pa.concat_tables(found)["id"].to_pylist()
    return ids


def tiered(
    connection: fluss.FlussConnection, make_table: MakeTable, count: int
) -> fluss.FlussTable:
    """A log whose older segments are on S3 only."""
    table = make_table(**REMOTE)
    with table.new_append().create_writer() as writer:
        for start in range(0, count, 5_000):
            writer.write_arrow(rows(start, start + 5_000))
            writer.flush().result()

    def from_remote() -> bool:
        before = remote_bytes(connection)
        first_rows(table)
        return remote_bytes(connection) > before

    until(from_remote, "no segment went to S3")
    return table


@pytest.mark.timeout(240)
def test_a_log_is_read_through_failing_requests(
    connection: fluss.FlussConnection, make_table: MakeTable, store: FaultyStore, long_form: bool
) -> None:
    """The region, the keys and the token come from the servers."""
    count = 200_000 if long_form else 40_000
    table = tiered(connection, make_table, count)
    assert store.tokens, "the proxy was not used"
    store.chance = 0.05
    rounds = 0
    while rounds < (40 if long_form else 3) or not store.struck:
        assert all_ids(table, count) == list(range(count))
        rounds += 1


@pytest.mark.timeout(240)
def test_an_answer_without_a_size_is_no_empty_file(
    connection: fluss.FlussConnection, make_table: MakeTable, store: FaultyStore
) -> None:
    """Arrow opens an object as empty if the answer was cut before its size; it is asked again."""
    table = tiered(connection, make_table, 40_000)
    store.kinds, store.chance = (CUT_SIZE,), 0.7
    with fluss.FlussConnection.create(connection.config).result() as other:
        again = other.get_table(table.get_table_path()).result()
        assert all_ids(again, 40_000) == list(range(40_000))
    assert store.struck[CUT_SIZE] > 0


@pytest.mark.long
@pytest.mark.timeout(600)
def test_tokens_end_in_the_middle_of_a_scan(
    connection: fluss.FlussConnection,
    storage_cluster: LocalCluster,
    make_table: MakeTable,
    store: FaultyStore,
) -> None:
    """A server keeps a token for a minute, so tokens that live for 70 s are used for 10 s at least.

    The store refuses a token that has ended.
    """
    table = tiered(connection, make_table, 40_000)
    storage_cluster.set_token_life(70.0)
    try:
        let_pass(61, "a server keeps a token for a minute")
        config = fluss.Config({"bootstrap.servers": storage_cluster.info.bootstrap_servers})
        with fluss.FlussConnection.create(config).result() as other:
            again = other.get_table(table.get_table_path()).result()
            store.tokens.clear()

            def read() -> bool:
                assert all_ids(again, 40_000) == list(range(40_000))
                return len(store.tokens) >= 3

            wait_until("the third token", read, 200)
    finally:
        storage_cluster.set_token_life(3600.0)


class TokenServers:
    """Servers that give a token of the local token service with a life of the test's choice."""

    def __init__(self, storage: Mapping[str, str], endpoint: str, life_s: float) -> None:
        self.config = fluss.Config({"bootstrap.servers": "nowhere:1"})
        self._storage = storage
        self._endpoint = endpoint
        self._life_s = life_s
        self.asked = 0

    async def on_any(self, api: object, request: object) -> pb.GetFileSystemSecurityTokenResponse:
        self.asked += 1
        ends_s = time.time() + self._life_s
        token = {
            "access_key_id": self._storage["s3.access-key-id"],
            "access_key_secret": self._storage["s3.secret-access-key"],
            "security_token": f"until-{ends_s:.3f}-{self.asked}",
        }
        answer = pb.GetFileSystemSecurityTokenResponse(
            schema="s3", token=json.dumps(token).encode(), expiration_time=int(ends_s * 1000)
        )
        said = {"fs.s3a.endpoint": self._endpoint, "fs.s3a.region": "us-east-1"}
        for key, value in said.items():
            answer.addition_info.add(key=key, value=value)
        return answer


@pytest.mark.parametrize("used_for", [0.75, 100.0])
def test_a_token_is_renewed_before_it_ends_and_when_the_store_refuses_it(
    storage_cluster: LocalCluster,
    make_store: Callable[..., FaultyStore],
    own_keys: dict[str, str],
    folder: str,
    monkeypatch: pytest.MonkeyPatch,
    used_for: float,
) -> None:
    """A process that stood still uses a token after its end; the answer of the store renews it."""
    place = open_storage(f"{folder}/segment")
    with place.filesystem.open_output_stream(place.path) as stream:
        stream.write(bytes(range(256)) * 40)
    for name in [name for name in os.environ if name.startswith("FLUSS_STORAGE_")]:
        monkeypatch.delenv(name)
    store = make_store(own_keys["s3.endpoint"])
    monkeypatch.setattr(remote_files, "TOKEN_LIFE_FRACTION", used_for)
    servers = TokenServers(own_keys, store.endpoint, life_s=scaled(1.0))

    async def read() -> None:
        files = remote_files.RemoteFiles(servers, RateLimit(0))  # type: ignore[arg-type]
        try:
            while servers.asked < 3 or (used_for > 1 and not store.refused_tokens):
                several = [files.read_range(f"{folder}/segment", at, 256) for at in (0, 256, 512)]
                for found in await asyncio.gather(*several):
                    assert bytes(found) == bytes(range(256))
        finally:
            files.close()

    asyncio.run(read())
    assert servers.asked <= 12, "one caller asks for all"
    assert (store.refused_tokens > 0) == (used_for > 1)


@pytest.mark.timeout(240)
def test_the_state_of_keys_is_read_from_snapshots_on_s3(
    connection: fluss.FlussConnection, make_table: MakeTable, store: FaultyStore
) -> None:
    count = 20_000
    table = make_table(["id"])
    with table.new_upsert().create_writer() as writer:
        writer.write_arrow(rows(0, count))
    admin = connection.get_admin().result()
    path = table.get_table_path()
    until(
        lambda: admin.list_kv_snapshots(path).result()[0].log_offset == count,
        "no snapshot was taken",
    )
    info = table_info(connection, path)
    bucket = fluss.TableBucket(info.table_id, 0)
    store.chance = 0.05
    requests = store.requests.total()
    with BlockingState(async_connection(connection), info, bucket) as state:
        assert state.source.kind == "snapshot"
        found = pa.Table.from_batches(list(state))
    assert store.requests.total() > requests
    assert pc.sum(found["id"]).as_py() == count * (count - 1) // 2
    assert found.num_rows == count
    # A copy of a file that seems to be empty is no part of a snapshot.
    store.kinds, store.chance = (CUT_SIZE,), 1.0
    with pytest.raises(StorageError, match="an answer of the store was cut off"):
        BlockingState(async_connection(connection), info, bucket)


def test_the_command_says_where_the_store_is(storage_cluster: LocalCluster) -> None:
    """What `cluster up` answers opens the bucket; a cluster that is up is left alone."""
    options = ("--remote", "s3", "--lake", "iceberg-rest", "--json")
    said = run("cluster", "up", "--dir", storage_cluster.info.dir, *options)
    assert said.returncode == 0, said.stderr
    found = json.loads(said.stdout.splitlines()[-1])
    assert found["pids"] == dict(storage_cluster.info.pids)
    place = open_storage(f"{found['bucket']}/said.txt", found["storage"])
    with place.filesystem.open_output_stream(place.path) as stream:
        stream.write(b"here")
    assert place.filesystem.get_file_info(place.path).size == 4
    assert open_catalog(found["lake"]).list_namespaces() is not None
    refused = run("cluster", "up", "--dir", storage_cluster.info.dir, "--remote", "gs")
    assert refused.returncode != 0
    assert "gs" in refused.stderr
    assert "\n" not in refused.stderr.strip()


def test_what_the_store_refuses_is_told(
    connection: fluss.FlussConnection, make_table: MakeTable, store: FaultyStore
) -> None:
    table = tiered(connection, make_table, 20_000)
    store.answer = (403, "AccessDenied", "Access Denied")
    with pytest.raises(StorageRefusedError, match=r"cannot read s3://fluss/.*have no permission"):
        first_rows(table)
