"""Messages that a tiering worker exchanges with the coordinator, as values."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from fluss_client.errors import FlussError
from fluss_client.model.table import TableBucket, TablePath


@dataclass(frozen=True, slots=True)
class BucketCommit:
    """How far one bucket is in the lake.

    Attributes:
        bucket: The bucket.
        log_end_offset: The first offset that is not in the lake.
        max_timestamp: The newest commit time in the lake, in milliseconds since 1970; -1 if not
            known.
    """

    bucket: TableBucket
    log_end_offset: int
    max_timestamp: int = -1


@dataclass(frozen=True, slots=True)
class TieringTable:
    """A table that the coordinator assigned to a tiering worker.

    Attributes:
        table_id: The id of the table.
        tiering_epoch: The epoch of the assignment. The coordinator refuses reports of an older one.
        coordinator_epoch: The epoch of the coordinator that assigned it.
        table_path: The table's database and name; None in reports.
    """

    table_id: int
    tiering_epoch: int
    coordinator_epoch: int
    table_path: TablePath | None = None


@dataclass(frozen=True, slots=True)
class HeartbeatResult:
    """The coordinator's answer to a heartbeat of a tiering worker.

    Attributes:
        coordinator_epoch: The epoch of the coordinator.
        table: The table to tier next; None if there is none.
        errors: The errors of reported tables, by table id.
    """

    coordinator_epoch: int
    table: TieringTable | None = None
    errors: Mapping[int, FlussError] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class ProducerOffsets:
    """Offsets that are stored once under a producer id.

    Attributes:
        producer_id: The id.
        offsets: The offset of each bucket.
        expiration_time: When the server deletes them, in milliseconds since 1970; -1 if not known.
    """

    producer_id: str
    offsets: Mapping[TableBucket, int]
    expiration_time: int = -1
