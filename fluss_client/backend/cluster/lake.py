"""Lake snapshots, the tiering heartbeat and producer offsets, which the coordinator stores."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from fluss_client.backend.cluster.admin import AdminCalls
from fluss_client.backend.cluster.calls import path_pb
from fluss_client.errors import CorruptDataError, error_for
from fluss_client.model.cluster import (
    BucketCommit,
    HeartbeatResult,
    LakeSnapshot,
    ProducerOffsets,
    TieringTable,
)
from fluss_client.model.table import TableBucket, TableInfo, TablePath
from fluss_client.wire import apis
from fluss_client.wire import fluss_pb2 as pb

CREATED = 0


class LakeCalls(AdminCalls):
    """Calls of tiering services, and of readers that wait for the lake."""

    async def get_lake_snapshot(
        self, path: TablePath, snapshot_id: int | None, readable: bool
    ) -> LakeSnapshot:
        request = pb.GetLakeSnapshotRequest(table_path=path_pb(path))
        if snapshot_id is not None:
            request.snapshot_id = snapshot_id
        if readable:
            request.readable = True
        answer = await self.on_any(apis.GET_LAKE_SNAPSHOT, request)
        offsets = {}
        for part in answer.bucket_snapshots:
            if part.HasField("log_offset"):
                partition = part.partition_id if part.HasField("partition_id") else None
                place = TableBucket(answer.table_id, part.bucket_id, partition_id=partition)
                offsets[place] = part.log_offset
        return LakeSnapshot(answer.snapshotId, offsets)

    async def prepare_lake_snapshot(
        self, table: TableInfo, offsets: Mapping[TableBucket, int], ignore_previous: bool
    ) -> str:
        request = pb.PrepareLakeTableSnapshotRequest()
        if ignore_previous:
            request.ignore_previous_table_offsets = True
        entry = request.bucket_offsets.add(
            table_id=table.table_id, table_path=path_pb(table.table_path)
        )
        for bucket, offset in offsets.items():
            _set_place(entry.bucket_offsets.add(log_end_offset=offset), bucket)
        answer = await self.on_coordinator(apis.PREPARE_LAKE_TABLE_SNAPSHOT, request)
        if not answer.prepare_lake_table_resp:
            raise CorruptDataError("the coordinator did not answer for the table")
        part = answer.prepare_lake_table_resp[0]
        if part.error_code:
            raise error_for(part.error_code, part.error_message)
        return part.lake_table_offsets_path

    async def commit_lake_snapshot(
        self,
        table: TableInfo,
        snapshot_id: int,
        offsets_path: str,
        buckets: Sequence[BucketCommit],
        earliest_snapshot_to_keep: int | None,
    ) -> None:
        request = pb.CommitLakeTableSnapshotRequest()
        info = request.tables_req.add(table_id=table.table_id, snapshot_id=snapshot_id)
        for commit in buckets:
            part = info.buckets_req.add(log_end_offset=commit.log_end_offset)
            if commit.max_timestamp >= 0:
                part.max_timestamp = commit.max_timestamp
            _set_place(part, commit.bucket)
        # Readers of lake and log together use the readable path only.
        metadata = request.lake_table_snapshot_metadata.add(
            table_id=table.table_id,
            snapshot_id=snapshot_id,
            tiered_bucket_offsets_file_path=offsets_path,
            readable_bucket_offsets_file_path=offsets_path,
        )
        if earliest_snapshot_to_keep is not None:
            metadata.earliest_snapshot_id_to_keep = earliest_snapshot_to_keep
        answer = await self.on_coordinator(apis.COMMIT_LAKE_TABLE_SNAPSHOT, request)
        for result in answer.table_resp:
            if result.error_code:
                raise error_for(result.error_code, result.error_message)

    async def lake_tiering_heartbeat(
        self,
        tiering: Sequence[TieringTable],
        finished: Sequence[TieringTable],
        failed: Sequence[TieringTable],
        request_table: bool,
        force_finished: Sequence[int],
    ) -> HeartbeatResult:
        request = pb.LakeTieringHeartbeatRequest(
            tiering_tables=[_tiering_pb(t) for t in tiering],
            finished_tables=[_tiering_pb(t) for t in finished],
            failed_tables=[_tiering_pb(t) for t in failed],
            request_table=request_table,
            force_finished_tables=force_finished,
        )
        answer = await self.on_coordinator(apis.LAKE_TIERING_HEARTBEAT, request)
        table = None
        if answer.HasField("tiering_table"):
            given = answer.tiering_table
            path = TablePath(given.table_path.database_name, given.table_path.table_name)
            table = TieringTable(
                given.table_id, given.tiering_epoch, answer.coordinator_epoch, path
            )
        errors = {
            part.table_id: error_for(part.error.error_code, part.error.error_message)
            for group in (
                answer.tiering_table_resp,
                answer.finished_table_resp,
                answer.failed_table_resp,
            )
            for part in group
            if part.HasField("error") and part.error.error_code
        }
        return HeartbeatResult(answer.coordinator_epoch, table, errors)

    async def register_producer_offsets(
        self, producer_id: str, offsets: Mapping[TableBucket, int], ttl_ms: int | None
    ) -> bool:
        request = pb.RegisterProducerOffsetsRequest(producer_id=producer_id)
        if ttl_ms is not None:
            request.ttl_ms = ttl_ms
        tables: dict[int, pb.PbProducerTableOffsets] = {}
        for bucket, offset in offsets.items():
            table = tables.get(bucket.table_id)
            if table is None:
                table = request.table_offsets.add(table_id=bucket.table_id)
                tables[bucket.table_id] = table
            _set_place(table.bucket_offsets.add(log_end_offset=offset), bucket)
        answer = await self.on_coordinator(apis.REGISTER_PRODUCER_OFFSETS, request)
        return answer.result == CREATED

    async def get_producer_offsets(self, producer_id: str) -> ProducerOffsets | None:
        request = pb.GetProducerOffsetsRequest(producer_id=producer_id)
        answer = await self.on_coordinator(apis.GET_PRODUCER_OFFSETS, request, repeatable=True)
        if not answer.HasField("producer_id"):
            return None
        offsets = {}
        for table in answer.table_offsets:
            for part in table.bucket_offsets:
                partition = part.partition_id if part.HasField("partition_id") else None
                place = TableBucket(table.table_id, part.bucket_id, partition_id=partition)
                offsets[place] = part.log_end_offset
        expires = answer.expiration_time if answer.HasField("expiration_time") else -1
        return ProducerOffsets(answer.producer_id, offsets, expires)

    async def delete_producer_offsets(self, producer_id: str) -> None:
        request = pb.DeleteProducerOffsetsRequest(producer_id=producer_id)
        await self.on_coordinator(apis.DELETE_PRODUCER_OFFSETS, request, repeatable=True)


def _set_place(
    part: pb.PbBucketOffset | pb.PbLakeTableOffsetForBucket, bucket: TableBucket
) -> None:
    part.bucket_id = bucket.bucket_id
    if bucket.partition_id is not None:
        part.partition_id = bucket.partition_id


def _tiering_pb(table: TieringTable) -> pb.PbHeartbeatReqForTable:
    return pb.PbHeartbeatReqForTable(
        table_id=table.table_id,
        coordinator_epoch=table.coordinator_epoch,
        tiering_epoch=table.tiering_epoch,
    )
