"""What needs a cluster of its own: permissions, remote log, key snapshots, replicas, a crash."""

from __future__ import annotations

import threading
from collections.abc import Callable

import pyarrow as pa
import pytest

import fluss_client as fluss
from fluss_client import errors
from fluss_client.runtime import runtime
from fluss_client.testing import LocalCluster
from tests.contract.tables import Tables, done, eventually

pytestmark = pytest.mark.cluster
ROW = {"id": pa.int64(), "text": pa.string()}


def _rows(start: int, stop: int, width: int = 100) -> pa.Table:
    ids = range(start, stop)
    # Text that does not compress, so that segments fill.
    text = [f"{i * 2654435761 % 2**64:016x}" * (width // 16) for i in ids]
    return pa.table({"id": pa.array(ids, pa.int64()), "text": text})


@pytest.mark.supports("Admin.createAcls", "Admin.listAcls", "Admin.dropAcls", "SASL/PLAIN")
def test_permissions_are_granted_listed_and_taken_back(
    strict_tables: Tables, strict: Callable[[str], fluss.Config]
) -> None:
    table = strict_tables.create({"id": pa.int32()})
    path = table.get_table_path()
    admin = strict_tables.admin
    with done(fluss.FlussConnection.create(strict("alice"))) as hers:
        with pytest.raises(errors.AuthorizationError) as raised:
            done(done(hers.get_admin()).create_database("alices"))
        assert raised.value.error_code == fluss.ErrorCode.AUTHORIZATION_EXCEPTION
        assert "alice" in raised.value.message

        grants = [
            fluss.Acl("table", str(path), "alice", operation)
            for operation in ("describe", "read", "write")
        ]
        done(admin.create_acls(grants))
        listed = done(admin.list_acls(principal="alice"))
        assert sorted(acl.operation for acl in listed) == ["describe", "read", "write"]
        assert set(listed) == set(grants)
        assert done(admin.list_acls(principal="alice", operation="read")) == [grants[1]]
        assert done(admin.list_acls(principal="nobody")) == []

        # The tablet servers hear of a grant a moment later.
        opened = eventually(lambda: _try(hers, path), lambda found: found is not None)
        assert opened is not None
        done(opened.new_append().create_writer().append((7,)).wait())
        assert strict_tables.log(table)["id"].to_pylist() == [7]

        dropped = done(admin.drop_acls([{"principal": "alice", "operation": "write"}]))
        assert dropped == [grants[2]]
        assert len(done(admin.list_acls(principal="alice"))) == 2
        done(admin.drop_acls([{"principal": "alice"}]))
        assert done(admin.list_acls()) == []


def _try(connection: fluss.FlussConnection, path: fluss.TablePath) -> fluss.FlussTable | None:
    try:
        table: fluss.FlussTable = done(connection.get_table(path))
        done(done(connection.get_admin()).list_offsets(path, [0], fluss.OffsetSpec.latest()))
    except (errors.AuthorizationError, errors.TableNotExistError):
        return None
    return table


@pytest.mark.supports("Scan of the remote log")
@pytest.mark.parametrize("columns", [None, ["text"], ["id"]])
def test_old_segments_are_read_from_where_they_went(
    strict_tables: Tables, columns: list[str] | None, remote: fluss.FlussTable
) -> None:
    before = strict_tables.connection.metrics().get("remote_log.bytes", 0)
    found = strict_tables.log(remote, columns)
    assert strict_tables.connection.metrics()["remote_log.bytes"] > before
    expected = _rows(0, REMOTE_ROWS)
    assert found.equals(expected if columns is None else expected.select(columns))


@pytest.mark.supports("Scan of the remote log")
def test_records_go_on_from_remote_to_local_segments(
    strict_tables: Tables, remote: fluss.FlussTable
) -> None:
    with done(remote.new_scan().create_log_scanner()) as scanner:
        scanner.subscribe(0, 1_234)
        following = 1_234
        while following < REMOTE_ROWS:
            for record in scanner.poll(5_000):
                assert (record.offset, record.row["id"]) == (following, following)
                following += 1


REMOTE_ROWS = 60_000


@pytest.fixture(scope="module")
def remote(strict_connection: fluss.FlussConnection) -> fluss.FlussTable:
    """A log whose older segments are not on its server any more."""
    tables = Tables(strict_connection, done(strict_connection.get_admin()), "strict")
    table = tables.create(
        ROW,
        properties={
            "table.log.tiered.local-segments": "1",
            "table.log.arrow.compression.type": "NONE",
        },
    )
    with table.new_append().create_writer() as writer:
        for start in range(0, REMOTE_ROWS, 4_000):
            writer.write_arrow(_rows(start, start + 4_000))
            done(writer.flush())

    def remote_bytes() -> float:
        before = strict_connection.metrics().get("remote_log.bytes", 0)
        with done(table.new_scan().create_record_batch_log_scanner()) as scanner:
            scanner.subscribe(0, 0)
            scanner.poll_arrow(2_000)
        return strict_connection.metrics().get("remote_log.bytes", 0) - before

    assert eventually(remote_bytes, lambda count: count > 0) > 0
    return table


@pytest.mark.supports("Admin.getLatestKvSnapshots")
def test_key_snapshots_show_when_they_are_taken(strict_tables: Tables) -> None:
    table = strict_tables.create(ROW, ["id"])
    strict_tables.upsert(table, _rows(0, 50))
    path = table.get_table_path()
    found = eventually(
        lambda: done(strict_tables.admin.list_kv_snapshots(path)),
        lambda snapshots: snapshots[0].log_offset == 50,
    )
    assert found[0].bucket == fluss.TableBucket(table.get_table_info().table_id, 0)
    assert found[0].snapshot_id is not None
    assert found[0].log_offset == 50


@pytest.mark.supports("Replication factor above 1")
def test_a_killed_leader_loses_nothing_and_doubles_nothing(
    strict_cluster: LocalCluster, strict_tables: Tables
) -> None:
    replicas = {"table.replication.factor": "3"}
    log = strict_tables.create(ROW, properties=replicas)
    keyed = strict_tables.create(ROW, ["id"], buckets=3, properties=replicas)
    info = log.get_table_info()
    bucket = fluss.TableBucket(info.table_id, 0)
    backend = strict_tables.connection.backend
    appends = log.new_append().create_writer()
    upserts = keyed.new_upsert().create_writer()

    def write(start: int, stop: int) -> None:
        appends.write_arrow(_rows(start, stop))
        upserts.write_arrow(_rows(start, stop))

    write(0, 100)
    done(appends.flush())
    done(upserts.flush())
    leader = runtime().call(backend.locate(info, bucket))
    killer = threading.Thread(target=strict_cluster.kill, args=(f"tablet-{leader}",))
    killer.start()
    for start in range(100, 3_000, 100):
        write(start, start + 100)
    done(appends.flush())
    done(upserts.flush())
    killer.join()
    try:
        assert runtime().call(backend.locate(info, bucket)) != leader
        # In the order of the writes, every row once.
        assert strict_tables.log(log)["id"].to_pylist() == list(range(3_000))
        changes = strict_tables.log(keyed)
        assert sorted(changes["id"].to_pylist()) == list(range(3_000))
        assert set(changes["_change_type"].to_pylist()) == {"insert"}
        keys = pa.table({"id": pa.array(range(3_000), pa.int64())})
        found = done(keyed.new_lookup().lookup_many(keys))
        assert found.equals(_rows(0, 3_000).cast(found.schema))
    finally:
        appends.close()
        upserts.close()
        strict_cluster.start(f"tablet-{leader}")
