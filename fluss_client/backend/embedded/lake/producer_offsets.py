"""Offsets registered under a producer id: the first registration counts until it expires.

Offsets are stored as JSON text: [[table id, partition id or null, bucket, offset], ...].
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Mapping

from fluss_client.backend.embedded.store.catalog import now_ms
from fluss_client.errors import InvalidProducerIdError, SchemaError
from fluss_client.model.cluster import ProducerOffsets
from fluss_client.model.table import TableBucket, check_name

TTL_DEFAULT_MS = 86_400_000


def offsets_to_text(offsets: Mapping[TableBucket, int]) -> str:
    """Encode offsets by bucket as text."""
    return json.dumps(
        [[b.table_id, b.partition_id, b.bucket_id, offset] for b, offset in offsets.items()]
    )


def offsets_from_text(text: str) -> dict[TableBucket, int]:
    """Decode offsets by bucket from text."""
    return {
        TableBucket(table_id, bucket_id, partition_id=partition_id): offset
        for table_id, partition_id, bucket_id, offset in json.loads(text)
    }


def register(
    connection: sqlite3.Connection,
    producer_id: str,
    offsets: Mapping[TableBucket, int],
    ttl_ms: int | None,
) -> bool:
    """Return whether this call created the entry; an expired entry is replaced."""
    _check_id(producer_id)
    now = now_ms()
    connection.execute("DELETE FROM producer WHERE id = ? AND expires < ?", (producer_id, now))
    expires = now + (TTL_DEFAULT_MS if ttl_ms is None else ttl_ms)
    made = connection.execute(
        "INSERT INTO producer VALUES (?, ?, ?) ON CONFLICT DO NOTHING",
        (producer_id, expires, offsets_to_text(offsets)),
    ).rowcount
    return made == 1


def find(connection: sqlite3.Connection, producer_id: str) -> ProducerOffsets | None:
    """Return the entry, also an expired one that is not deleted yet, as the server does."""
    _check_id(producer_id)
    row = connection.execute(
        "SELECT expires, offsets FROM producer WHERE id = ?", (producer_id,)
    ).fetchone()
    if row is None:
        return None
    return ProducerOffsets(producer_id, offsets_from_text(row[1]), row[0])


def delete(connection: sqlite3.Connection, producer_id: str) -> None:
    """Delete the entry, if there is one."""
    _check_id(producer_id)
    connection.execute("DELETE FROM producer WHERE id = ?", (producer_id,))


def sweep(connection: sqlite3.Connection) -> None:
    """Delete all expired entries."""
    connection.execute("DELETE FROM producer WHERE expires < ?", (now_ms(),))


def _check_id(producer_id: str) -> None:
    # The server allows the prefix `__` here, which is reserved in other names.
    try:
        check_name("producer", producer_id.removeprefix("__") or producer_id)
    except SchemaError as error:
        raise InvalidProducerIdError(str(error)) from None
