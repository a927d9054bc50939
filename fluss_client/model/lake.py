"""Messages that a tiering worker exchanges with the coordinator, as values."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from fluss_client.errors import FlussError
from fluss_client.model.table import TableBucket, TablePath


@dataclass(frozen=True, slots=True)
class BucketCommit:
    """How far one bucket is in the lake: the first offset not in it, the newest commit time."""

    bucket: TableBucket
    log_end_offset: int
    max_timestamp: int = -1


@dataclass(frozen=True, slots=True)
class TieringTable:
    """A table that the coordinator handed out for tiering; the epochs fence stale workers."""

    table_id: int
    tiering_epoch: int
    coordinator_epoch: int
    table_path: TablePath | None = None


@dataclass(frozen=True, slots=True)
class HeartbeatResult:
    """The coordinator's answer: a table to tier now, and the errors by table id."""

    coordinator_epoch: int
    table: TieringTable | None = None
    errors: Mapping[int, FlussError] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class ProducerOffsets:
    """Offsets pinned once under a producer id."""

    producer_id: str
    offsets: Mapping[TableBucket, int]
    expiration_time: int = -1
