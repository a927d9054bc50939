"""Idempotent writers: the last batches of each, per bucket, as the server remembers them.

Five batches are kept. One of them that comes again is answered with its first place; the next one
in sequence is taken; everything else is out of order (31). A writer that was silent for a week is
forgotten.
"""

from __future__ import annotations

import sqlite3
import struct
from dataclasses import dataclass

from fluss_client.errors import OutOfOrderSequenceError

BATCHES_KEPT = 5
SEQUENCE_MAX = (1 << 31) - 1
EXPIRES_AFTER_MS = 7 * 86_400_000
_BATCH = struct.Struct("<iqq")


@dataclass(frozen=True, slots=True)
class Written:
    """A batch that is in the log: its first offset and the one behind it."""

    sequence: int
    base_offset: int
    next_offset: int


def find_duplicate(
    connection: sqlite3.Connection, bucket: int, writer_id: int, sequence: int, now: int
) -> Written | None:
    """The batch itself when it is there already, None when it is next; else error 31."""
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
    """Keep a batch that was just written; the oldest one is forgotten."""
    batches = [*_read(connection, bucket, writer_id, now), batch][-BATCHES_KEPT:]
    packed = b"".join(_BATCH.pack(b.sequence, b.base_offset, b.next_offset) for b in batches)
    connection.execute(
        "INSERT INTO writer VALUES (?, ?, ?, ?) ON CONFLICT (bucket, writer_id) "
        "DO UPDATE SET last_time = excluded.last_time, batches = excluded.batches",
        (bucket, writer_id, now, packed),
    )


def forget_expired(connection: sqlite3.Connection, now: int) -> None:
    """Drop the memory of writers that were silent for too long."""
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
    """The batches in a writer's row, oldest first."""
    return [Written(*fields) for fields in _BATCH.iter_unpack(packed)]
