"""Servers, offsets and lake snapshots as values."""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass, field

from fluss_client.model.table import TableBucket

EARLIEST_OFFSET = -2
LATEST_OFFSET = -1


@dataclass(frozen=True, slots=True)
class ServerNode:
    """A server of the cluster."""

    id: int
    host: str
    port: int
    server_type: str
    """`CoordinatorServer` or `TabletServer`."""

    @property
    def uid(self) -> str:
        """Unique among all servers: `cs-0`, `ts-1`."""
        return f"{'cs' if self.server_type == 'CoordinatorServer' else 'ts'}-{self.id}"


class ChangeType(enum.IntEnum):
    """What happened to a row; the value is its byte in a changelog."""

    AppendOnly = 0
    Insert = 1
    UpdateBefore = 2
    UpdateAfter = 3
    Delete = 4

    def short_string(self) -> str:
        """`+A`, `+I`, `-U`, `+U` or `-D`."""
        return ("+A", "+I", "-U", "+U", "-D")[self.value]


@dataclass(frozen=True, slots=True)
class OffsetSpec:
    """Which offset `list_offsets` is asked for."""

    kind: str
    timestamp_ms: int | None = None

    @staticmethod
    def earliest() -> OffsetSpec:
        """The first offset that can still be read."""
        return OffsetSpec("earliest")

    @staticmethod
    def latest() -> OffsetSpec:
        """The next offset to be written, as far as every replica has it."""
        return OffsetSpec("latest")

    @staticmethod
    def timestamp(ts: int) -> OffsetSpec:
        """The first offset committed at or after `ts` (ms), approximately: see the docs."""
        return OffsetSpec("timestamp", int(ts))

    def __repr__(self) -> str:
        inner = "" if self.timestamp_ms is None else str(self.timestamp_ms)
        return f"OffsetSpec.{self.kind}({inner})"


@dataclass(frozen=True)
class LakeSnapshot:
    """What the lake holds: a snapshot, and per bucket the first offset that is not in it."""

    snapshot_id: int
    table_buckets_offset: Mapping[TableBucket, int] = field(default_factory=dict)

    def get_bucket_offset(self, bucket: TableBucket) -> int | None:
        """The first offset of the bucket that is not in the lake; None if it was never tiered."""
        return self.table_buckets_offset.get(bucket)

    def get_table_buckets(self) -> list[TableBucket]:
        """The buckets that were tiered."""
        return list(self.table_buckets_offset)


@dataclass(frozen=True, slots=True)
class KvSnapshot:
    """The newest snapshot of one bucket's key state; None where there is none yet."""

    bucket: TableBucket
    snapshot_id: int | None
    log_offset: int | None


@dataclass(frozen=True, slots=True)
class ConfigEntry:
    """One setting of the cluster and where it comes from."""

    key: str
    value: str | None
    source: str


@dataclass(frozen=True, slots=True)
class Acl:
    """One permission: who may do what on which resource."""

    resource_type: str
    resource_name: str
    principal: str
    operation: str
    permission: str = "allow"
    principal_type: str = "User"
    host: str = "*"
