"""Remote logs and KV snapshots that a cluster keeps on S3."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc
import pytest

import fluss_client as fluss
from fluss_client.engine import BlockingState, async_connection, table_info
from fluss_client.errors import StorageRefusedError
from fluss_client.testing import LocalCluster
from tests.fix_storage import FaultyStore
from tests.storage.conftest import MakeTable, rows, until

ROWS = 50_000
REMOTE = {
    "table__log__tiered__local_segments": "1",
    "table__log__arrow__compression__type": "NONE",
}


def remote_bytes(connection: fluss.FlussConnection) -> float:
    return connection.metrics().get("remote_log.bytes", 0)


def first_rows(table: fluss.FlussTable) -> int:
    with table.new_scan().create_record_batch_log_scanner().result(30) as scanner:
        scanner.subscribe(0, 0)
        return int(scanner.poll_arrow(10_000).num_rows)


def all_ids(table: fluss.FlussTable, count: int) -> list[int]:
    found: list[pa.Table] = []
    with table.new_scan().create_record_batch_log_scanner().result(30) as scanner:
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
            writer.flush().result(60)

    def from_remote() -> bool:
        before = remote_bytes(connection)
        first_rows(table)
        return remote_bytes(connection) > before

    until(from_remote, "no segment went to S3")
    return table


@pytest.mark.timeout(240)
def test_a_log_is_read_through_failing_requests_and_ending_tokens(
    connection: fluss.FlussConnection,
    storage_cluster: LocalCluster,
    make_table: MakeTable,
    store: FaultyStore,
    long_form: bool,
) -> None:
    """The region and the keys come from the servers; tokens end while the scan goes on."""
    storage_cluster.set_token_life(2.0)
    try:
        table = tiered(connection, make_table, ROWS)
        assert store.tokens, "the proxy was not used"
        store.chance = 0.05
        before = len(store.tokens)
        rounds = 0
        while rounds < (40 if long_form else 3) or len(store.tokens) - before < 2:
            assert all_ids(table, ROWS) == list(range(ROWS))
            rounds += 1
        assert store.struck or not long_form
    finally:
        storage_cluster.set_token_life(3600.0)


@pytest.mark.timeout(240)
def test_a_token_that_the_store_refuses_is_renewed(
    storage_cluster: LocalCluster,
    make_table: MakeTable,
    store: FaultyStore,
    monkeypatch: pytest.MonkeyPatch,
    connection: fluss.FlussConnection,
) -> None:
    """A process that stood still uses a token after its end: the answer renews it."""
    from fluss_client.backend.cluster import remote_files

    table = tiered(connection, make_table, 20_000)
    monkeypatch.setattr(remote_files, "TOKEN_LIFE_FRACTION", 100.0)
    storage_cluster.set_token_life(1.0)
    try:
        config = fluss.Config({"bootstrap.servers": storage_cluster.info.bootstrap_servers})
        with fluss.FlussConnection.create(config).result(60) as late:
            again = late.get_table(table.get_table_path()).result(30)
            assert first_rows(again) > 0
            until(lambda: first_rows(again) > 0 and store.refused_tokens, "no token was refused")
    finally:
        storage_cluster.set_token_life(3600.0)


@pytest.mark.timeout(240)
def test_the_state_of_keys_is_read_from_snapshots_on_s3(
    connection: fluss.FlussConnection, make_table: MakeTable, store: FaultyStore
) -> None:
    count = 20_000
    table = make_table(["id"])
    with table.new_upsert().create_writer() as writer:
        writer.write_arrow(rows(0, count))
    admin = connection.get_admin().result(30)
    path = table.get_table_path()
    until(
        lambda: admin.list_kv_snapshots(path).result(30)[0].log_offset == count,
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


def test_what_the_store_refuses_is_told(
    connection: fluss.FlussConnection, make_table: MakeTable, store: FaultyStore
) -> None:
    table = tiered(connection, make_table, 20_000)
    store.answer = (403, "AccessDenied", "Access Denied")
    with pytest.raises(StorageRefusedError, match=r"cannot read s3://fluss/.*have no permission"):
        first_rows(table)
