"""The log of a bucket: appending batches and finding offsets."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from dataclasses import dataclass

import pyarrow as pa

from fluss_client.backend.contract import NO_WRITER, BucketAck, BucketWrite
from fluss_client.backend.embedded import writers
from fluss_client.backend.embedded.batches import Encoded, encode_batch, stored_compression
from fluss_client.backend.embedded.catalog import (
    Bucket,
    all_or_nothing,
    find_bucket,
    now_ms,
)
from fluss_client.backend.embedded.ddl import OFFSET_BITS, OFFSET_MAX
from fluss_client.codec.columns import to_wire
from fluss_client.errors import (
    FlussError,
    InvalidTimestampError,
    LogStorageError,
    UnsupportedError,
)
from fluss_client.model.cluster import OffsetSpec
from fluss_client.model.table import TableInfo


@dataclass(frozen=True, slots=True)
class AppendPayload:
    """A batch of rows, ready to be stored."""

    encoded: Encoded
    schema_id: int
    row_count: int

    @property
    def nbytes(self) -> int:
        return self.encoded.nbytes


def encode_append(table: TableInfo, batch: pa.RecordBatch) -> AppendPayload:
    """The CPU work of an append."""
    if table.has_primary_key():
        raise UnsupportedError(f"{table.table_path} has a primary key: upsert, do not append")
    wire = to_wire(batch, table.schema.wire)
    encoded = encode_batch(wire, stored_compression(table.properties))
    return AppendPayload(encoded, table.schema_id, batch.num_rows)


def batch_id(bucket_number: int, offset: int) -> int:
    """The row of `log` that a batch with this base offset has."""
    return bucket_number << OFFSET_BITS | offset


def append(connection: sqlite3.Connection, writes: Sequence[BucketWrite]) -> list[BucketAck]:
    """Append each batch to its bucket; each is answered by itself."""
    acks = []
    for write in writes:
        try:
            with all_or_nothing(connection):
                acks.append(BucketAck(write.bucket, _append_one(connection, write)))
        except FlussError as error:
            acks.append(BucketAck(write.bucket, error=error))
    return acks


def _append_one(connection: sqlite3.Connection, write: BucketWrite) -> int:
    payload = write.payload
    assert isinstance(payload, AppendPayload)
    bucket = find_bucket(connection, write.bucket)
    now = max(now_ms(), bucket.max_time)
    if write.writer_id != NO_WRITER:
        duplicate = writers.find_duplicate(
            connection, bucket.no, write.writer_id, write.sequence, now
        )
        if duplicate is not None:
            return duplicate.base_offset
    add_batch(connection, bucket, payload.encoded, payload.schema_id, payload.row_count, now)
    if write.writer_id != NO_WRITER:
        end = bucket.log_end + max(payload.row_count, 1)
        written = writers.Written(write.sequence, bucket.log_end, end)
        writers.remember(connection, bucket.no, write.writer_id, written, now)
    return bucket.log_end


def add_batch(
    connection: sqlite3.Connection,
    bucket: Bucket,
    encoded: Encoded,
    schema_id: int,
    row_count: int,
    now: int,
    changes: bytes | None = None,
    rows_added: int = 0,
) -> int:
    """Put a batch at the end of a bucket's log; the log's new end. No rows take one offset."""
    end = bucket.log_end + max(row_count, 1)
    if end > OFFSET_MAX:
        raise LogStorageError(f"bucket {bucket.bucket_id} has no offsets left")
    first_column = _add_columns(connection, encoded) if encoded.by_column else 0
    whole = encoded.messages[0] if encoded.messages and not encoded.by_column else None
    connection.execute(
        "INSERT INTO log VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
        (
            batch_id(bucket.no, bucket.log_end),
            end,
            now,
            schema_id,
            row_count,
            encoded.nbytes,
            first_column,
            len(encoded.messages) if encoded.by_column else 0,
            0 if whole is None else whole.crc,
            changes,
            None if whole is None else whole.body,
        ),
    )
    connection.execute(
        "UPDATE bucket SET log_end = ?, max_time = ?, row_count = row_count + ? WHERE no = ?",
        (end, now, rows_added, bucket.no),
    )
    return end


def _add_columns(connection: sqlite3.Connection, encoded: Encoded) -> int:
    """The columns of a batch in rows that follow each other; the id of the first."""
    (last,) = connection.execute("SELECT coalesce(max(id), 0) FROM log_column").fetchone()
    connection.executemany(
        "INSERT INTO log_column VALUES (?, ?, ?)",
        ((last + 1 + m.position, m.crc, m.body) for m in encoded.messages),
    )
    return int(last) + 1


def offset_of(connection: sqlite3.Connection, bucket: Bucket, spec: OffsetSpec) -> int:
    """The offset that is asked for; error 38 for a time that has not come."""
    if spec.kind == "earliest":
        return bucket.log_start
    if spec.kind == "latest":
        return bucket.log_end
    wanted = spec.timestamp_ms or 0
    if wanted > bucket.max_time:
        if wanted > now_ms():
            raise InvalidTimestampError(f"the time {wanted} lies in the future")
        return bucket.log_end
    return _first_at_or_after(connection, bucket, wanted)


def _first_at_or_after(connection: sqlite3.Connection, bucket: Bucket, wanted: int) -> int:
    # Commit times never fall within a bucket, so the place is found by halving.
    low, high = bucket.log_start, bucket.log_end
    while low < high:
        middle = (low + high) // 2
        row = connection.execute(
            "SELECT id, next_offset, commit_time FROM log WHERE id <= ? ORDER BY id DESC LIMIT 1",
            (batch_id(bucket.no, middle),),
        ).fetchone()
        base = row[0] & OFFSET_MAX
        if row[2] >= wanted:
            high = base
        else:
            low = row[1]
    return low
