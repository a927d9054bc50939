"""Lake snapshots, the tiering heartbeat and producer offsets of the backend."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from fluss_client.backend.embedded import lake, producer_offsets
from fluss_client.backend.embedded.engine import Engine
from fluss_client.backend.embedded.tiering import heartbeat
from fluss_client.model.cluster import LakeSnapshot
from fluss_client.model.lake import BucketCommit, HeartbeatResult, ProducerOffsets, TieringTable
from fluss_client.model.table import TableBucket, TableInfo, TablePath


class LakePart(Engine):
    """What tiering and waiting on the lake need."""

    async def get_lake_snapshot(
        self, path: TablePath, snapshot_id: int | None, readable: bool
    ) -> LakeSnapshot:
        return await self._read(
            lambda c: lake.get_snapshot(c, self.catalog, path, snapshot_id, readable)
        )

    async def prepare_lake_snapshot(
        self, table: TableInfo, offsets: Mapping[TableBucket, int], ignore_previous: bool
    ) -> str:
        return await self._write(lambda c: lake.prepare(c, table, offsets, ignore_previous))

    async def commit_lake_snapshot(
        self,
        table: TableInfo,
        snapshot_id: int,
        offsets_path: str,
        buckets: Sequence[BucketCommit],
        earliest_snapshot_to_keep: int | None,
    ) -> None:
        await self._write(
            lambda c: lake.commit(
                c, table, snapshot_id, offsets_path, buckets, earliest_snapshot_to_keep
            )
        )

    async def lake_tiering_heartbeat(
        self,
        tiering: Sequence[TieringTable],
        finished: Sequence[TieringTable],
        failed: Sequence[TieringTable],
        request_table: bool,
        force_finished: Sequence[int],
    ) -> HeartbeatResult:
        return await self._write(
            lambda c: heartbeat(
                c, self.catalog, tiering, finished, failed, request_table, force_finished
            )
        )

    async def register_producer_offsets(
        self, producer_id: str, offsets: Mapping[TableBucket, int], ttl_ms: int | None
    ) -> bool:
        return await self._write(
            lambda c: producer_offsets.register(c, producer_id, offsets, ttl_ms)
        )

    async def get_producer_offsets(self, producer_id: str) -> ProducerOffsets | None:
        return await self._read(lambda c: producer_offsets.find(c, producer_id))

    async def delete_producer_offsets(self, producer_id: str) -> None:
        await self._write(lambda c: producer_offsets.delete(c, producer_id))
