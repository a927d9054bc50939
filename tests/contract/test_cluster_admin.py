"""What concerns the cluster: servers, counts, snapshots, settings, permissions."""

from __future__ import annotations

import pyarrow as pa
import pytest

import fluss_client as fluss
from fluss_client import errors
from tests.contract.tables import Tables, done, eventually

ROW = {"id": pa.int32(), "v": pa.string()}


@pytest.mark.supports("Admin.getServerNodes")
def test_the_coordinator_comes_first(
    admin: fluss.FlussAdmin, offers: fluss.Capabilities, backend_kind: str
) -> None:
    nodes = done(admin.get_server_nodes())
    if offers.local_directory is not None:
        assert len(nodes) >= 1
        return
    assert [node.server_type for node in nodes][:2] == ["CoordinatorServer", "TabletServer"]
    tablets = [node for node in nodes if node.server_type == "TabletServer"]
    assert len(tablets) == (1 if backend_kind == "lake" else 3)
    assert [node.uid for node in tablets] == [f"ts-{node.id}" for node in tablets]
    assert nodes[0].uid.startswith("cs-")
    assert all(node.host == "127.0.0.1" and 0 < node.port < 65536 for node in nodes)
    assert len({node.port for node in nodes}) == len(nodes)


@pytest.mark.supports("Admin.getTableStats")
def test_rows_are_counted(tables: Tables) -> None:
    log = tables.create(ROW, buckets=2, bucket_keys=["id"])
    assert set(done(tables.admin.get_table_stats(log.get_table_path())).values()) == {0}
    tables.append(log, [(i, "x") for i in range(50)])
    stats = done(tables.admin.get_table_stats(log.get_table_path()))
    assert sorted(bucket.bucket_id for bucket in stats) == [0, 1]
    assert sum(stats.values()) == 50

    keyed = tables.create(
        {"id": pa.int32(), "day": pa.string()},
        ["id", "day"],
        partition_keys=["day"],
        partitions=[{"day": "a"}, {"day": "b"}],
    )
    tables.upsert(keyed, [(i % 10, "a") for i in range(30)] + [(1, "b")])
    tables.delete(keyed, [(0, "a")])
    path = keyed.get_table_path()
    stats = done(tables.admin.get_table_stats(path))
    assert sorted(stats.values()) == [1, 9]
    partition = {
        i.partition_name: i.partition_id for i in done(tables.admin.list_partition_infos(path))
    }
    one = fluss.TableBucket.with_partition(keyed.get_table_info().table_id, partition["a"], 0)
    assert done(tables.admin.get_table_stats(path, [one])) == {one: 9}


@pytest.mark.supports("Admin.getLatestKvSnapshots")
def test_key_snapshots_are_listed(tables: Tables, offers: fluss.Capabilities) -> None:
    table = tables.create(ROW, ["id"], buckets=2)
    path = table.get_table_path()
    if not offers.kv_snapshots:
        with pytest.raises(errors.UnsupportedError):
            done(tables.admin.list_kv_snapshots(path))
        return
    tables.upsert(table, [(1, "a")])
    snapshots = done(tables.admin.list_kv_snapshots(path))
    assert sorted(s.bucket.bucket_id for s in snapshots) == [0, 1]
    # The servers take one every ten minutes; a table this young has none.
    assert {(s.snapshot_id, s.log_offset) for s in snapshots} == {(None, None)}


@pytest.mark.supports("Admin.getLatestLakeSnapshot")
def test_a_table_that_was_never_tiered_has_no_lake_snapshot(tables: Tables) -> None:
    path = tables.create(ROW).get_table_path()
    for ask in (
        lambda: tables.admin.get_latest_lake_snapshot(path),
        lambda: tables.admin.get_lake_snapshot(path, readable=True),
        lambda: tables.admin.get_lake_snapshot(path, snapshot_id=7),
    ):
        with pytest.raises(errors.LakeSnapshotNotExistError) as raised:
            done(ask())
        assert raised.value.error_code == fluss.ErrorCode.LAKE_SNAPSHOT_NOT_EXIST


@pytest.mark.supports(
    "Admin.getLatestLakeSnapshot",
    "Admin.getLakeSnapshot",
    "Admin.getReadableLakeSnapshot",
    "Tiering (prepare and commit a snapshot)",
)
def test_a_lake_snapshot_is_prepared_committed_and_read(tables: Tables) -> None:
    table = tables.create(ROW, buckets=2, bucket_keys=["id"])
    tables.append(table, [(i, "x") for i in range(20)])
    info = table.get_table_info()
    admin, path = tables.admin, info.table_path
    offsets = done(admin.list_offsets(path, [0, 1], fluss.OffsetSpec.latest()))
    first = {fluss.TableBucket(info.table_id, 0): offsets[0]}
    second = {fluss.TableBucket(info.table_id, 1): offsets[1]}
    for snapshot_id, part in ((101, first), (102, second)):
        prepared = done(admin.prepare_lake_snapshot(info, part))
        commits = [fluss.BucketCommit(bucket, offset) for bucket, offset in part.items()]
        done(admin.commit_lake_snapshot(info, snapshot_id, prepared, commits, -1))

    latest = done(admin.get_latest_lake_snapshot(path))
    assert latest.snapshot_id == 102
    assert dict(latest.table_buckets_offset) == first | second
    assert latest.get_bucket_offset(fluss.TableBucket(info.table_id, 0)) == offsets[0]
    assert sorted(latest.get_table_buckets()) == sorted(first | second)
    assert latest.get_bucket_offset(fluss.TableBucket(info.table_id, 9)) is None
    assert done(admin.get_lake_snapshot(path, readable=True)) == latest
    older = done(admin.get_lake_snapshot(path, snapshot_id=101))
    assert (older.snapshot_id, dict(older.table_buckets_offset)) == (101, first)


@pytest.mark.usefixtures("only_tierer")
@pytest.mark.supports("Tiering (heartbeat)")
def test_a_heartbeat_hands_out_a_table(tables: Tables, backend_kind: str) -> None:
    if backend_kind in ("plain", "sasl"):
        beat = done(tables.admin.lake_tiering_heartbeat(request_table=True))
        assert beat.table is None, "no lake, nothing to tier"
        return
    table = tables.create(
        ROW,
        properties={"table.datalake.enabled": "true", "table.datalake.freshness": "100ms"},
    )
    wanted = table.get_table_info().table_id
    others: list[fluss.TieringTable] = []

    def ask() -> fluss.HeartbeatResult:
        beat: fluss.HeartbeatResult = done(tables.admin.lake_tiering_heartbeat(request_table=True))
        if beat.table is not None and beat.table.table_id != wanted:
            others.append(beat.table)
        return beat

    beat = eventually(ask, lambda b: b.table is not None and b.table.table_id == wanted)
    assert beat.table is not None
    assert beat.table.table_path == table.get_table_path()
    renewed = done(tables.admin.lake_tiering_heartbeat(tiering=[beat.table]))
    assert not renewed.errors
    stale = fluss.TieringTable(wanted, beat.table.tiering_epoch + 7, beat.table.coordinator_epoch)
    refused = done(tables.admin.lake_tiering_heartbeat(tiering=[stale]))
    assert isinstance(refused.errors[wanted], errors.FencedTieringEpochError)
    done(tables.admin.lake_tiering_heartbeat(finished=[beat.table], failed=others))


@pytest.mark.supports(
    "Admin.registerProducerOffsets", "Admin.getProducerOffsets", "Admin.deleteProducerOffsets"
)
def test_offsets_are_pinned_once(tables: Tables) -> None:
    table_id = tables.create(ROW, buckets=2).get_table_info().table_id
    admin, name = tables.admin, f"producer-{tables.database}"
    first = {fluss.TableBucket(table_id, 0): 5, fluss.TableBucket(table_id, 1): 0}
    assert done(admin.get_producer_offsets(name)) is None
    assert done(admin.register_producer_offsets(name, first, ttl_ms=3_600_000)) is True
    assert done(admin.register_producer_offsets(name, {fluss.TableBucket(table_id, 0): 9})) is False
    found = done(admin.get_producer_offsets(name))
    assert found.producer_id == name
    assert dict(found.offsets) == first
    assert found.expiration_time > 0
    done(admin.delete_producer_offsets(name))
    assert done(admin.get_producer_offsets(name)) is None


@pytest.mark.supports("Admin.describeClusterConfigs", "Admin.alterClusterConfigs")
def test_settings_of_the_cluster(
    admin: fluss.FlussAdmin, offers: fluss.Capabilities, backend_kind: str
) -> None:
    entries = {entry.key: entry.value for entry in done(admin.describe_cluster_configs())}
    if backend_kind in ("lake", "embedded"):
        assert entries["datalake.format"] == "iceberg"
    if not offers.cluster_configs:
        with pytest.raises(errors.UnsupportedError):
            done(admin.alter_cluster_configs(set_configs={"a": "b"}))
        return
    key = "kv.rocksdb.shared-rate-limiter.bytes-per-sec"

    def value() -> str | None:
        entries = {entry.key: entry for entry in done(admin.describe_cluster_configs())}
        return entries[key].value if key in entries else None

    before = value()
    done(admin.alter_cluster_configs(set_configs={key: "200mb"}))
    assert value() == "200mb"
    done(admin.alter_cluster_configs(reset_configs=[key]))
    assert value() == before
    with pytest.raises(fluss.FlussError) as raised:
        done(admin.alter_cluster_configs(set_configs={"zookeeper.address": "elsewhere:1"}))
    assert "\n" not in raised.value.message


def test_where_nobody_authorizes_there_are_no_permissions(admin: fluss.FlussAdmin) -> None:
    acl = fluss.Acl("table", "db.t", "alice", "read")
    for call in (
        lambda: admin.list_acls(principal="alice"),
        lambda: admin.create_acls([acl]),
        lambda: admin.drop_acls([{"principal": "alice"}]),
    ):
        with pytest.raises(errors.SecurityDisabledError) as raised:
            done(call())
        assert raised.value.error_code == fluss.ErrorCode.SECURITY_DISABLED_EXCEPTION


def test_a_filter_that_permissions_do_not_have(
    admin: fluss.FlussAdmin, offers: fluss.Capabilities
) -> None:
    if offers.acls:
        with pytest.raises(errors.SchemaError, match="principal"):
            done(admin.list_acls(who="alice"))
        with pytest.raises(errors.SchemaError, match="read"):
            done(admin.create_acls([fluss.Acl("table", "db.t", "alice", "reed")]))
