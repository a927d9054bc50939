"""Appends batches to the log of a bucket, once each, and finds offsets.

The last five batches of each idempotent writer are kept per bucket, as on the server. If one of
them comes again, the answer is its first offset and nothing is stored. The next one in sequence is
stored; any other raises error 31. The state of a writer expires after a week without a batch.
"""

from __future__ import annotations

import sqlite3
import struct
from collections.abc import Sequence
from dataclasses import dataclass

import pyarrow as pa

from fluss_client.backend.contract import NO_WRITER, BucketAck, BucketWrite
from fluss_client.backend.embedded.log.batches import Encoded, encode_batch, stored_compression
from fluss_client.backend.embedded.store.catalog import (
    Bucket,
    all_or_nothing,
    check_placed,
    end_statements,
    find_bucket,
    now_ms,
)
from fluss_client.backend.embedded.store.layout import OFFSET_BITS, OFFSET_MAX
from fluss_client.codec.arrow_columns import as_wire
from fluss_client.errors import (
    FlussError,
    InvalidTimestampError,
    LogStorageError,
    OutOfOrderSequenceError,
    UnsupportedError,
)
from fluss_client.model.cluster import OffsetSpec
from fluss_client.model.table import TableInfo

BATCHES_KEPT = 5
SEQUENCE_MAX = (1 << 31) - 1
EXPIRES_AFTER_MS = 7 * 86_400_000
_BATCH = struct.Struct("<iqq")


@dataclass(frozen=True, slots=True)
class Written:
    """A batch in the log: its first offset and the next one after it."""

    sequence: int
    base_offset: int
    next_offset: int


def find_duplicate(
    connection: sqlite3.Connection, bucket: int, writer_id: int, sequence: int, now: int
) -> Written | None:
    """Return the batch if it is stored already, None if it is the next; else raise error 31."""
    batches = _read(connection, bucket, writer_id, now)
    for batch in batches:
        if batch.sequence == sequence:
            return batch
    last = batches[-1].sequence if batches else -1
    if sequence == last + 1 or (sequence == 0 and last == SEQUENCE_MAX):
        return None
    raise OutOfOrderSequenceError(
        f"writer {writer_id} sent batch {sequence}, the last one here is {last}"
    )


def remember(
    connection: sqlite3.Connection, bucket: int, writer_id: int, batch: Written, now: int
) -> None:
    """Record a batch that was just written; the oldest record is removed."""
    batches = [*_read(connection, bucket, writer_id, now), batch][-BATCHES_KEPT:]
    packed = b"".join(_BATCH.pack(b.sequence, b.base_offset, b.next_offset) for b in batches)
    connection.execute(
        "INSERT INTO writer VALUES (?, ?, ?, ?) ON CONFLICT (bucket, writer_id) "
        "DO UPDATE SET last_time = excluded.last_time, batches = excluded.batches",
        (bucket, writer_id, now, packed),
    )


def forget_expired(connection: sqlite3.Connection, now: int) -> None:
    """Delete the state of writers that were idle for too long."""
    connection.execute("DELETE FROM writer WHERE last_time < ?", (now - EXPIRES_AFTER_MS,))


def _read(connection: sqlite3.Connection, bucket: int, writer_id: int, now: int) -> list[Written]:
    row = connection.execute(
        "SELECT last_time, batches FROM writer WHERE bucket = ? AND writer_id = ?",
        (bucket, writer_id),
    ).fetchone()
    if row is None or row[0] < now - EXPIRES_AFTER_MS:
        return []
    return unpack(row[1])


def unpack(packed: bytes) -> list[Written]:
    """Decode the batches in a writer's row, oldest first."""
    return [Written(*fields) for fields in _BATCH.iter_unpack(packed)]


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
    """Encode a batch of rows; CPU work for a worker thread."""
    if table.has_primary_key():
        raise UnsupportedError(f"{table.table_path} has a primary key: upsert, do not append")
    wire = as_wire(batch, table.schema.wire)  # the writer has checked the values
    encoded = encode_batch(wire, stored_compression(table.properties))
    return AppendPayload(encoded, table.schema_id, batch.num_rows)


def batch_id(bucket_number: int, offset: int) -> int:
    """Return the id in `log` of the batch with this base offset."""
    return bucket_number << OFFSET_BITS | offset


def append(connection: sqlite3.Connection, writes: Sequence[BucketWrite]) -> list[BucketAck]:
    """Append each batch to its bucket; return one answer per batch."""
    acks = []
    for write in writes:
        try:
            with all_or_nothing(connection):
                acks.append(BucketAck(write.bucket, _append_one(connection, write)))
        except FlussError as error:
            end_statements(error)
            acks.append(BucketAck(write.bucket, error=error))
    return acks


def _append_one(connection: sqlite3.Connection, write: BucketWrite) -> int:
    payload = write.payload
    assert isinstance(payload, AppendPayload)
    bucket = find_bucket(connection, write.bucket)
    check_placed(connection, write.bucket, write.bucket_count)
    # The clock may be set back, but commit times of a bucket must not decrease.
    now = max(now_ms(), bucket.max_time)
    if write.writer_id != NO_WRITER:
        duplicate = find_duplicate(connection, bucket.no, write.writer_id, write.sequence, now)
        if duplicate is not None:
            return duplicate.base_offset
    add_batch(connection, bucket, payload.encoded, payload.schema_id, payload.row_count, now)
    if write.writer_id != NO_WRITER:
        end = bucket.log_end + max(payload.row_count, 1)
        written = Written(write.sequence, bucket.log_end, end)
        remember(connection, bucket.no, write.writer_id, written, now)
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
    """Add a batch at the end of a bucket's log; return the new end of the log.

    A batch without rows takes one offset, as on the server.
    """
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
    """Store the columns of a batch in consecutive rows; return the id of the first."""
    (last,) = connection.execute("SELECT coalesce(max(id), 0) FROM log_column").fetchone()
    connection.executemany(
        "INSERT INTO log_column VALUES (?, ?, ?)",
        ((last + 1 + m.position, m.crc, m.body) for m in encoded.messages),
    )
    return int(last) + 1


def offset_of(connection: sqlite3.Connection, bucket: Bucket, spec: OffsetSpec) -> int:
    """Return the offset of a specification; error 38 for a time in the future."""
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
    # Commit times never decrease within a bucket, so a binary search finds the offset.
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
