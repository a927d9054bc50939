"""The messages of Fluss 1.0 against the official client jars: bytes in, bytes out.

A message with every new field is decoded and encoded again by the jar. The jar of 1.0.0 must return
the same bytes: it knows each field under our number and type. The jar of 0.9.1 must return the
message without the new fields: an older peer ignores them.
"""

from __future__ import annotations

import pytest
from google.protobuf.message import Message

from fluss_client.wire import fluss_pb2 as pb
from tests.interop.jars import output_of

PATH = pb.PbTablePath(database_name="d", table_name="t")
SPEC = pb.PbPartitionSpec(partition_key_values=[pb.PbKeyValue(key="day", value="1")])
LEAF = pb.PbPredicate(
    type=0,
    leaf=pb.PbLeafPredicate(
        function=4,
        field_id=3,
        literals=[pb.PbLiteralValue(literal_type=4, is_null=False, bigint_value=200)],
    ),
)
LITERALS = {
    "boolean_value": True,
    "int_value": -3,
    "bigint_value": 1 << 40,
    "float_value": 0.5,
    "double_value": -0.25,
    "string_value": "text",
    "binary_value": b"\x00\xff",
    "decimal_value": 12345,
    "timestamp_millis_value": 1_700_000_000_000,
    "timestamp_nano_of_millis_value": 999_999,
    "decimal_bytes": b"\x7f\x80",
}

# Each message with its new fields set, and the same one as 0.9.1 has it (None: unknown to 0.9.1).
MESSAGES: list[tuple[Message, Message | None]] = [
    (
        pb.AlterTableRequest(
            table_path=PATH,
            ignore_if_not_exists=False,
            modify_bucket_count=pb.PbModifyBucketCount(new_bucket_count=8),
        ),
        pb.AlterTableRequest(table_path=PATH, ignore_if_not_exists=False),
    ),
    (
        pb.AlterTableRequest(
            table_path=PATH,
            ignore_if_not_exists=True,
            add_columns=[
                pb.PbAddColumn(
                    column_name="c",
                    data_type_json=b"{}",
                    column_position_type=0,
                    agg_function_type="sum",
                    agg_function_params=[pb.PbKeyValue(key="k", value="v")],
                )
            ],
        ),
        pb.AlterTableRequest(
            table_path=PATH,
            ignore_if_not_exists=True,
            add_columns=[
                pb.PbAddColumn(column_name="c", data_type_json=b"{}", column_position_type=0)
            ],
        ),
    ),
    (
        pb.FetchLogRequest(
            follower_server_id=-1,
            max_bytes=1 << 20,
            read_preference=1,
            tables_req=[
                pb.PbFetchLogReqForTable(
                    table_id=7,
                    projection_pushdown_enabled=True,
                    projected_fields=[0, 2],
                    filter_predicate=pb.PbPredicate(
                        type=1, compound=pb.PbCompoundPredicate(function=0, children=[LEAF, LEAF])
                    ),
                    filter_schema_id=2,
                    buckets_req=[
                        pb.PbFetchLogReqForBucket(
                            partition_id=5,
                            bucket_id=1,
                            fetch_offset=9,
                            max_fetch_bytes=10,
                            routing_bucket_count=4,
                        )
                    ],
                )
            ],
        ),
        pb.FetchLogRequest(
            follower_server_id=-1,
            max_bytes=1 << 20,
            tables_req=[
                pb.PbFetchLogReqForTable(
                    table_id=7,
                    projection_pushdown_enabled=True,
                    projected_fields=[0, 2],
                    buckets_req=[
                        pb.PbFetchLogReqForBucket(
                            partition_id=5, bucket_id=1, fetch_offset=9, max_fetch_bytes=10
                        )
                    ],
                )
            ],
        ),
    ),
    (
        pb.PbFetchLogRespForBucket(bucket_id=1, filtered_end_offset=300, min_retain_offset=17),
        pb.PbFetchLogRespForBucket(bucket_id=1),
    ),
    *[
        (
            kind(
                partition_id=5,
                bucket_id=1,
                records=b"r" * 40,
                original_partition_name="day1",
                routing_bucket_count=300,
            ),
            kind(partition_id=5, bucket_id=1, records=b"r" * 40),
        )
        for kind in (pb.PbProduceLogReqForBucket, pb.PbPutKvReqForBucket)
    ],
    (
        pb.PbProduceLogRespForBucket(bucket_id=1, base_offset=3, original_partition_name="d"),
        pb.PbProduceLogRespForBucket(bucket_id=1, base_offset=3),
    ),
    (
        pb.PbPutKvRespForBucket(
            bucket_id=1, log_end_offset=3, pressure=0.5, original_partition_name="d"
        ),
        pb.PbPutKvRespForBucket(bucket_id=1, log_end_offset=3),
    ),
    (
        pb.PbLookupReqForBucket(
            partition_id=5,
            bucket_id=1,
            keys=[b"k", b"l"],
            original_partition_name="d",
            routing_bucket_count=4,
        ),
        pb.PbLookupReqForBucket(partition_id=5, bucket_id=1, keys=[b"k", b"l"]),
    ),
    (
        pb.PbLookupRespForBucket(bucket_id=1, original_partition_name="d"),
        pb.PbLookupRespForBucket(bucket_id=1),
    ),
    (
        pb.PbPrefixLookupReqForBucket(bucket_id=1, keys=[b"k"], routing_bucket_count=4),
        pb.PbPrefixLookupReqForBucket(bucket_id=1, keys=[b"k"]),
    ),
    (
        pb.LimitScanRequest(table_id=7, bucket_id=1, limit=5, routing_bucket_count=4),
        pb.LimitScanRequest(table_id=7, bucket_id=1, limit=5),
    ),
    (
        pb.ListOffsetsRequest(
            follower_server_id=-1,
            offset_type=1,
            table_id=7,
            partition_id=5,
            bucket_id=[0, 1],
            routing_bucket_count=4,
        ),
        pb.ListOffsetsRequest(
            follower_server_id=-1, offset_type=1, table_id=7, partition_id=5, bucket_id=[0, 1]
        ),
    ),
    (
        pb.PbTableStatsReqForBucket(partition_id=5, bucket_id=1, routing_bucket_count=4),
        pb.PbTableStatsReqForBucket(partition_id=5, bucket_id=1),
    ),
    (
        pb.PbPartitionInfo(
            partition_id=5, partition_spec=SPEC, remote_data_dir="file:/r", bucket_count=4
        ),
        pb.PbPartitionInfo(partition_id=5, partition_spec=SPEC),
    ),
    (
        pb.ListPartitionInfosRequest(table_path=PATH, include_system_partitions=True),
        pb.ListPartitionInfosRequest(table_path=PATH),
    ),
    (
        pb.ListPartitionInfosResponse(system_partitions_included=True),
        pb.ListPartitionInfosResponse(),
    ),
    (
        pb.PbPartitionMetadata(table_id=7, partition_name="d", partition_id=5, bucket_count=4),
        pb.PbPartitionMetadata(table_id=7, partition_name="d", partition_id=5),
    ),
    (
        pb.PbTableMetadata(
            table_path=PATH,
            table_id=7,
            schema_id=1,
            table_json=b"{}",
            created_time=1,
            modified_time=2,
            remote_data_dir="r",
            bucket_count_epoch=3,
        ),
        pb.PbTableMetadata(
            table_path=PATH,
            table_id=7,
            schema_id=1,
            table_json=b"{}",
            created_time=1,
            modified_time=2,
        ),
    ),
    (
        pb.GetTableInfoResponse(
            table_id=7,
            schema_id=1,
            table_json=b"{}",
            created_time=1,
            modified_time=2,
            remote_data_dir="r",
            bucket_count_epoch=3,
        ),
        pb.GetTableInfoResponse(
            table_id=7, schema_id=1, table_json=b"{}", created_time=1, modified_time=2
        ),
    ),
    (
        pb.PbBucketMetadata(
            bucket_id=1, leader_id=2, replica_id=[2, 3], leader_epoch=4, bucket_epoch=5, isr=[2]
        ),
        pb.PbBucketMetadata(bucket_id=1, leader_id=2, replica_id=[2, 3], leader_epoch=4),
    ),
    (
        pb.PbHeartbeatReqForTable(
            table_id=7,
            coordinator_epoch=1,
            tiering_epoch=2,
            lake_tiering_stats=pb.PbLakeTieringStats(file_size=10, record_count=3),
        ),
        pb.PbHeartbeatReqForTable(table_id=7, coordinator_epoch=1, tiering_epoch=2),
    ),
    (
        pb.ScanKvRequest(
            bucket_scan_req=pb.PbScanReqForBucket(
                table_id=7, partition_id=5, bucket_id=1, limit=9, routing_bucket_count=4
            ),
            call_seq_id=0,
            batch_size_bytes=1024,
        ),
        None,
    ),
    (pb.ScanKvRequest(scanner_id=b"s", call_seq_id=3, close_scanner=True), None),
    (
        pb.ScanKvResponse(scanner_id=b"s", has_more_results=True, records=b"rr", log_offset=4),
        None,
    ),
    (pb.ScanKvResponse(error_code=66, error_message="expired"), None),
    (
        pb.AlterDatabaseRequest(database_name="d", ignore_if_not_exists=True, comment="c"),
        None,
    ),
    (
        pb.AlterDatabaseRequest(
            database_name="d",
            ignore_if_not_exists=False,
            config_changes=[pb.PbAlterConfig(config_key="k", config_value="v", op_type=0)],
        ),
        None,
    ),
    (
        pb.PbLeafPredicate(
            function=10,
            field_id=3,
            literals=[
                pb.PbLiteralValue(literal_type=n, is_null=False, **{name: value})
                for n, (name, value) in enumerate(LITERALS.items())
            ],
        ),
        None,
    ),
    (pb.AddServerTagByRackRequest(racks=["r1", "r2"], server_tag=1), None),
    (pb.RemoveServerTagByRackRequest(racks=["r1"], server_tag=0), None),
    (pb.ListRemoteLogManifestsRequest(table_id=7, partition_id=5), None),
    (
        pb.ListRemoteLogManifestsResponse(
            manifests=[
                pb.PbRemoteLogManifestEntry(
                    table_bucket=pb.PbTableBucket(table_id=7, partition_id=5, bucket_id=1),
                    remote_log_manifest_path="m",
                    remote_log_end_offset=8,
                )
            ]
        ),
        None,
    ),
    (pb.ListKvSnapshotsRequest(table_id=7, partition_id=5), None),
    (
        pb.ListKvSnapshotsResponse(
            table_id=7,
            partition_id=5,
            active_snapshots=[pb.PbKvSnapshot(bucket_id=1, snapshot_id=2, log_offset=3)],
        ),
        None,
    ),
    (
        pb.GetClusterHealthResponse(
            num_replicas=3,
            in_sync_replicas=2,
            num_leader_replicas=3,
            active_leader_replicas=3,
            status=1,
        ),
        None,
    ),
]


def reencoded(version: str, messages: list[Message]) -> list[str]:
    """What a client jar makes of each message: hex, or `absent` for a message unknown to it."""
    asked = "".join(f"{type(m).__name__} {m.SerializeToString().hex()}\n" for m in messages)
    return output_of("Reencode.java", version, asked)


@pytest.mark.parametrize("version", ["1.0.0", "0.9.1-incubating"])
def test_client_jar_encodes_the_same_bytes(version: str) -> None:
    answers = reencoded(version, [new for new, _ in MESSAGES])
    assert len(answers) == len(MESSAGES)
    wrong = []
    for (new, old), answer in zip(MESSAGES, answers, strict=True):
        expected = new if version == "1.0.0" else old
        wanted = "absent" if expected is None else expected.SerializeToString().hex()
        if answer != wanted:
            wrong.append((type(new).__name__, wanted, answer))
    assert not wrong
