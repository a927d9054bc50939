"""What keeps a partition from being dropped: readers and a lake that still need its rows."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import Protocol

from fluss_client import FlussAdmin, FlussConnection, OffsetSpec
from fluss_client.errors import LakeSnapshotNotExistError
from fluss_client.model.table import PartitionInfo, TableBucket, TableInfo
from fluss_orchestrate.core.checkpoints import CheckpointStore, FlussCheckpointStore
from fluss_orchestrate.core.checkpoints.position import TablePosition
from fluss_orchestrate.core.identity import TableIdentity

LAKE_ENABLED = "table.datalake.enabled"


class PartitionGuard(Protocol):
    """Says why a partition must stay, or None."""

    def reason_to_keep(self, table: TableInfo, partition: PartitionInfo) -> str | None:
        """Why the partition must not be dropped yet."""


def usual_guards(
    connection: FlussConnection, store: CheckpointStore | None = None
) -> Sequence[PartitionGuard]:
    """The lake, and the checkpoints of `store`; of the default store where there is one."""
    admin = connection.get_admin().result()
    guards: list[PartitionGuard] = [LakeGuard(admin)]
    if store is None:
        default = FlussCheckpointStore(connection)
        store = default if admin.table_exists(default.path).result() else None
    if store is not None:
        guards.append(CheckpointGuard(admin, store, connection.config.resolved_alias()))
    return guards


class LakeGuard:
    """Keeps partitions of tiered tables until the lake holds every row."""

    def __init__(self, admin: FlussAdmin) -> None:
        self._admin = admin

    def reason_to_keep(self, table: TableInfo, partition: PartitionInfo) -> str | None:
        """Why the lake needs the partition still."""
        if table.properties.get(LAKE_ENABLED, "false").lower() != "true":
            return None
        try:
            snapshot = self._admin.get_latest_lake_snapshot(table.table_path).result()
            tiered = snapshot.table_buckets_offset
        except LakeSnapshotNotExistError:
            tiered = {}
        for bucket, end in _ends(self._admin, table, partition).items():
            place = TableBucket(table.table_id, bucket, partition_id=partition.partition_id)
            if tiered.get(place, 0) < end:
                return f"the lake holds bucket {bucket} up to {tiered.get(place, 0)} of {end}"
        return None


class CheckpointGuard:
    """Keeps partitions that a checkpoint of the store has not read to their end."""

    def __init__(self, admin: FlussAdmin, store: CheckpointStore, cluster_alias: str) -> None:
        self._admin = admin
        self._store = store
        self._alias = cluster_alias

    @cached_property
    def _positions(self) -> list[tuple[str, TablePosition]]:
        heads = [self._store.require(name) for name in self._store.names()]
        return [
            (head.name, head.state.position)
            for head in heads
            if head.state.position is not None and not head.state.retired
        ]

    def reason_to_keep(self, table: TableInfo, partition: PartitionInfo) -> str | None:
        """Which checkpoint needs the partition still."""
        identity = TableIdentity.of(self._alias, table)
        mine = [(name, p) for name, p in self._positions if p.table == identity]
        if not mine:
            return None
        for bucket, end in _ends(self._admin, table, partition).items():
            for name, position in mine:
                read = position.offsets.get((partition.partition_id, bucket), 0)
                if read < end:
                    return f"checkpoint '{name}' has read bucket {bucket} up to {read} of {end}"
        return None


def _ends(admin: FlussAdmin, table: TableInfo, partition: PartitionInfo) -> dict[int, int]:
    buckets = list(range(table.num_buckets))
    asked = admin.list_partition_offsets(
        table.table_path, partition.partition_name, buckets, OffsetSpec.latest()
    )
    ends: dict[int, int] = asked.result()
    return ends
