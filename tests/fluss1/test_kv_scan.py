"""The key state read by the server's own scan, against a scripted 1.0 server."""

from __future__ import annotations

import itertools
from typing import Any

import pytest

import fluss_client as fluss
from fluss_client import errors
from fluss_client.backend.cluster import kv_scan
from fluss_client.engine import BlockingState, StateReader, async_connection, run_blocking
from fluss_client.wire import apis
from fluss_client.wire import fluss_pb2 as pb
from tests.contract.tables import done
from tests.fluss1.server import ScriptedServer, scripted
from tests.fluss1.test_bucket_counts import KEYED, PATH, opened

EXPIRED = pb.ScanKvResponse(error_code=66, error_message="idle for too long")


@pytest.fixture(autouse=True)
def small_pages(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kv_scan, "PAGE_BYTES", 100)


def upsert(connection: fluss.FlussConnection, rows: list[Any]) -> None:
    table = done(connection.get_table(PATH))
    with table.new_upsert().create_writer() as writer:
        for row in rows:
            writer.upsert(row)


def fill(connection: fluss.FlussConnection, count: int = 50) -> dict[int, str]:
    upsert(connection, [[n, 1, "a", f"v{n}"] for n in range(count)])
    return {n: f"v{n}" for n in range(count)}


def place_of(server: ScriptedServer, connection: fluss.FlussConnection) -> fluss.TableBucket:
    info = done(connection.get_table(PATH)).get_table_info()
    return fluss.TableBucket(info.table_id, 0, partition_id=server.partitions["a"])


def read(
    server: ScriptedServer, connection: fluss.FlussConnection, **details: Any
) -> tuple[dict[int, str], BlockingState]:
    info = done(connection.get_table(PATH)).get_table_info()
    state = BlockingState(
        async_connection(connection), info, place_of(server, connection), batch_rows=7, **details
    )
    with state:
        rows = [row for batch in state for row in batch.to_pylist()]
    assert len({row["id"] for row in rows}) == len(rows)
    return {row["id"]: row["v"] for row in rows}, state


def test_a_scan_returns_all_rows_and_is_counted_up() -> None:
    with scripted(KEYED, {"a": 1}) as server, opened(server) as connection:
        expected = fill(connection)
        found, state = read(server, connection)
        assert found == expected
        assert (state.source.kind, state.source.offset, state.stop) == ("scan", 50, 50)
        calls = server.sent(apis.SCAN_KV)
        assert [call.call_seq_id for call in calls] == list(range(len(calls)))
        assert len(calls) >= 5
        assert calls[0].bucket_scan_req.routing_bucket_count == 1
        assert all(call.scanner_id for call in calls[1:])
        assert done(connection.get_admin()).capabilities.scan_kv


def test_an_empty_bucket_has_no_rows() -> None:
    with scripted(KEYED, {"a": 1}) as server, opened(server) as connection:
        assert read(server, connection)[0] == {}


def test_changes_after_the_wanted_offset_are_taken_back() -> None:
    with scripted(KEYED, {"a": 1}) as server, opened(server) as connection:
        expected = fill(connection)
        upsert(connection, [[n, 1, "a", "later"] for n in range(40, 70)])
        found, state = read(server, connection, stop=50)
        assert found == expected
        assert state.source.offset > state.stop == 50


@pytest.mark.parametrize("code", [66, 67, 12])
@pytest.mark.parametrize("lost_at", [1, 3])
def test_a_scan_that_the_server_ends_goes_on_behind_the_last_key(code: int, lost_at: int) -> None:
    with scripted(KEYED, {"a": 1}) as server, opened(server) as connection:
        expected = fill(connection)
        place = (server.partitions["a"], 0)
        lost = itertools.count()

        def end(message: Any) -> Any:
            if message.call_seq_id != lost_at or next(lost):
                return None
            # Meanwhile keys are deleted: the new scan is exact at a later offset.
            server.scanners.clear()
            server.delete(place, [0, 20, 25, 49])
            return pb.ScanKvResponse(error_code=code, error_message="gone")

        server.on(apis.SCAN_KV, end)
        found, state = read(server, connection)
        assert found == expected
        assert state.stop == 50
        assert state.source.offset == 54
        assert len([c for c in server.sent(apis.SCAN_KV) if c.HasField("bucket_scan_req")]) == 2


def test_a_scan_that_always_ends_is_an_error_after_some_attempts() -> None:
    with scripted(KEYED, {"a": 1}) as server, opened(server) as connection:
        fill(connection)
        server.on(apis.SCAN_KV, lambda m: EXPIRED if m.call_seq_id == 2 else None)
        with pytest.raises(errors.StateScanLostError, match="Read again"):
            read(server, connection)


def test_too_many_scans_are_waited_for() -> None:
    with scripted(KEYED, {"a": 1}) as server, opened(server) as connection:
        expected = fill(connection)
        full = itertools.count()
        answer = pb.ScanKvResponse(error_code=69, error_message="too many")
        server.on(apis.SCAN_KV, lambda _: answer if next(full) < 3 else None)
        assert read(server, connection)[0] == expected


def test_a_scan_that_is_not_read_to_its_end_is_closed() -> None:
    with scripted(KEYED, {"a": 1}) as server, opened(server) as connection:
        fill(connection)
        core = async_connection(connection)
        info = done(connection.get_table(PATH)).get_table_info()
        place = place_of(server, connection)

        async def some() -> int:
            reader = StateReader(core.backend, info, place, core.config, batch_rows=3)
            await reader.open()
            async for batch in reader.batches():
                count: int = batch.num_rows
                break
            await reader.close()
            return count

        assert run_blocking(some()) == 3
        assert not server.scanners
        assert server.sent(apis.SCAN_KV)[-1].close_scanner


def test_a_wrong_bucket_count_is_corrected() -> None:
    with scripted(KEYED, {"a": 1}) as server, opened(server) as connection:
        expected = fill(connection)
        held = server.values[server.partitions["a"], 0]
        log = server.logs[server.partitions["a"], 0]
        server.redistribute("a", 3)
        server.values[server.partitions["a"], 0] = held
        server.logs[server.partitions["a"], 0] = log
        server.ends[server.partitions["a"], 0] = 50
        assert read(server, connection)[0] == expected


def test_the_new_calls_of_the_admin() -> None:
    with scripted(KEYED, {"a": 1}) as server, opened(server) as connection:
        admin = done(connection.get_admin())
        server.on(
            apis.GET_CLUSTER_HEALTH,
            lambda _: pb.GetClusterHealthResponse(
                num_replicas=9,
                in_sync_replicas=8,
                num_leader_replicas=3,
                active_leader_replicas=3,
                status=1,
            ),
        )
        assert done(admin.get_cluster_health()) == fluss.ClusterHealth("yellow", 9, 8, 3, 3)
        done(admin.alter_database("shop", set_properties={"a": 1}, reset_properties=["b"]))
        (changed,) = server.sent(apis.ALTER_DATABASE)
        assert [(c.config_key, c.config_value, c.op_type) for c in changed.config_changes] == [
            ("a", "1", 0),
            ("b", "", 1),
        ]
        assert not changed.HasField("comment")
        with pytest.raises(errors.SchemaError):
            done(admin.alter_database("shop"))
        partition = server.partitions["a"]

        def snapshots(message: Any) -> Any:
            assert message.partition_id == partition
            answer = pb.ListKvSnapshotsResponse(table_id=7, partition_id=partition)
            for number in (3, 4):
                answer.active_snapshots.add(bucket_id=0, snapshot_id=number, log_offset=number * 9)
            return answer

        server.on(apis.LIST_KV_SNAPSHOTS, snapshots)
        found = done(admin.list_kv_snapshots(PATH, "a", all_snapshots=True))
        assert [(s.bucket.partition_id, s.snapshot_id, s.log_offset) for s in found] == [
            (partition, 3, 27),
            (partition, 4, 36),
        ]

        def manifests(message: Any) -> Any:
            answer = pb.ListRemoteLogManifestsResponse()
            place = pb.PbTableBucket(table_id=7, partition_id=partition, bucket_id=0)
            answer.manifests.add(
                table_bucket=place, remote_log_manifest_path="/m", remote_log_end_offset=12
            )
            return answer

        server.on(apis.LIST_REMOTE_LOG_MANIFESTS, manifests)
        (listed,) = done(admin.list_remote_log_manifests(PATH, "a"))
        assert (listed.bucket.partition_id, listed.path, listed.end_offset) == (partition, "/m", 12)


def test_older_servers_do_not_have_them() -> None:
    with scripted(KEYED, {"a": 1}, old=True) as server, opened(server) as connection:
        admin = done(connection.get_admin())
        for call in (
            lambda: admin.get_cluster_health(),
            lambda: admin.alter_database("shop", comment="c"),
            lambda: admin.list_kv_snapshots(PATH, "a", all_snapshots=True),
            lambda: admin.list_remote_log_manifests(PATH, "a"),
        ):
            with pytest.raises(errors.UnsupportedByServerError):
                done(call())
        assert not admin.capabilities.scan_kv
