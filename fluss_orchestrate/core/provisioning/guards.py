"""Guards keep a partition from being dropped while readers or the lake still need its rows."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import Protocol

from fluss_client import (
    FlussAdmin,
    FlussConnection,
    OffsetSpec,
    PartitionInfo,
    TableBucket,
    TableInfo,
)
from fluss_client.errors import LakeSnapshotNotExistError
from fluss_orchestrate.core.checkpoints import CheckpointStore, FlussCheckpointStore
from fluss_orchestrate.core.checkpoints.events import Event, EventKind, IntervalName
from fluss_orchestrate.core.checkpoints.position import TablePosition
from fluss_orchestrate.core.identity import TableIdentity

LAKE_ENABLED = "table.datalake.enabled"
_AFTER_A_PLAN = (EventKind.COMMIT, EventKind.ABANDON, EventKind.ADOPT)


class PartitionGuard(Protocol):
    """Says why a partition must be kept, if so."""

    def reason_to_keep(self, table: TableInfo, partition: PartitionInfo) -> str | None:
        """Return why the partition must not be dropped yet, or None."""


def usual_guards(
    connection: FlussConnection,
    store: CheckpointStore | None = None,
    retired: set[str] | None = None,
) -> Sequence[PartitionGuard]:
    """Return the guards of the lake and of the checkpoints of `store`, or of the default store.

    `retired` keeps the names of retired checkpoints from one call to the next, so that a check
    before each of many drops does not read thousands of finished intervals every time.
    """
    admin = connection.get_admin().result()
    guards: list[PartitionGuard] = [LakeGuard(admin)]
    found = store_or_default(connection, store)
    if found is not None:
        alias = connection.config.resolved_alias()
        guards.append(CheckpointGuard(admin, found, alias, retired))
    return guards


def store_or_default(
    connection: FlussConnection, store: CheckpointStore | None
) -> CheckpointStore | None:
    """Return the given store, or the default one if it exists; nothing is created."""
    if store is not None:
        return store
    default = FlussCheckpointStore(connection)
    admin = connection.get_admin().result()
    return default if admin.table_exists(default.path).result() else None


def first_reason(
    guards: Sequence[PartitionGuard], table: TableInfo, partition: PartitionInfo
) -> str | None:
    """Return the first reason to keep a partition; None if no guard has one."""
    reasons = (guard.reason_to_keep(table, partition) for guard in guards)
    return next((reason for reason in reasons if reason is not None), None)


class LakeGuard:
    """Keeps partitions of tiered tables until the lake has every row."""

    def __init__(self, admin: FlussAdmin) -> None:
        self._admin = admin

    def reason_to_keep(self, table: TableInfo, partition: PartitionInfo) -> str | None:
        """Return why the lake still needs the partition, or None."""
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
    """Keeps partitions that a checkpoint of the store has not read to their end.

    Retired checkpoints keep nothing. An interval keeps the partitions of its own plan until that
    is committed. The store is read once: make a new guard to look again.
    """

    def __init__(
        self,
        admin: FlussAdmin,
        store: CheckpointStore,
        cluster_alias: str,
        retired: set[str] | None = None,
    ) -> None:
        self._admin = admin
        self._store = store
        self._alias = cluster_alias
        self._retired = set() if retired is None else retired

    @cached_property
    def _heads(self) -> list[tuple[Event, Event | None]]:
        """Return the checkpoints that are in use; for an interval, with the event of its plan."""
        names = [name for name in self._store.names() if name not in self._retired]
        heads = [self._store.require(name) for name in names]
        self._retired.update(head.name for head in heads if head.state.retired)
        used = [h for h in heads if h.state.position is not None and not h.state.retired]
        return [(head, _interval_plan(self._store, head)) for head in used]

    def reason_to_keep(self, table: TableInfo, partition: PartitionInfo) -> str | None:
        """Return which checkpoint still needs the partition, or None."""
        identity = TableIdentity.of(self._alias, table)
        positions: list[tuple[str, TablePosition]] = []
        for head, interval in self._heads:
            position = head.state.position
            if position is None or position.table != identity:
                continue
            if interval is None:
                positions.append((head.name, position))
                continue
            reason = _interval_reason(head, interval, partition)
            if reason is not None:
                return reason
        if not positions:
            return None
        for bucket, end in _ends(self._admin, table, partition).items():
            for name, position in positions:
                read = position.offsets.get((partition.partition_id, bucket), 0)
                if read < end:
                    return f"checkpoint '{name}' has read bucket {bucket} up to {read} of {end}"
        return None


def _interval_plan(store: CheckpointStore, head: Event) -> Event | None:
    """Return the event of an interval's last plan; None for other checkpoints."""
    if IntervalName.of(head.name) is None:
        return None
    event: Event | None = head
    while event is not None and event.kind in _AFTER_A_PLAN:
        event = store.log.event(head.name, event.sequence - 1)
    if event is None or event.kind is not EventKind.PLAN or "until_ms" not in event.details:
        return None
    return event


def _interval_reason(head: Event, plan: Event, partition: PartitionInfo) -> str | None:
    """Return why an interval needs the partition: its plan is pending, or will be planned again.

    Intervals of earlier versions were not retired by their commit.
    """
    pending = plan.state.pending
    if head.kind is EventKind.COMMIT or pending is None:
        return None
    for r in pending.ranges:
        if r.partition_id == partition.partition_id:
            return f"interval '{head.name}' has not read bucket {r.bucket} [{r.start}, {r.stop})"
    return None


def _ends(admin: FlussAdmin, table: TableInfo, partition: PartitionInfo) -> dict[int, int]:
    buckets = list(range(table.bucket_count_of(partition)))
    asked = admin.list_partition_offsets(
        table.table_path, partition.partition_name, buckets, OffsetSpec.latest()
    )
    ends: dict[int, int] = asked.result()
    return ends
