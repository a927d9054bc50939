"""Offsets pinned once under a producer id: the first to register wins until the entry expires."""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping

from fluss_client.backend.embedded.bucket_maps import offsets_from_text, offsets_to_text
from fluss_client.backend.embedded.catalog import now_ms
from fluss_client.errors import InvalidProducerIdError, SchemaError
from fluss_client.model.lake import ProducerOffsets
from fluss_client.model.table import TableBucket, check_name

TTL_DEFAULT_MS = 86_400_000


def register(
    connection: sqlite3.Connection,
    producer_id: str,
    offsets: Mapping[TableBucket, int],
    ttl_ms: int | None,
) -> bool:
    """Whether this call made the entry; an expired one is replaced."""
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
    """The entry, also when it has expired and was not swept away yet."""
    _check_id(producer_id)
    row = connection.execute(
        "SELECT expires, offsets FROM producer WHERE id = ?", (producer_id,)
    ).fetchone()
    if row is None:
        return None
    return ProducerOffsets(producer_id, offsets_from_text(row[1]), row[0])


def delete(connection: sqlite3.Connection, producer_id: str) -> None:
    """Remove the entry; none is fine, too."""
    _check_id(producer_id)
    connection.execute("DELETE FROM producer WHERE id = ?", (producer_id,))


def sweep(connection: sqlite3.Connection) -> None:
    """Remove all entries that have expired."""
    connection.execute("DELETE FROM producer WHERE expires < ?", (now_ms(),))


def _check_id(producer_id: str) -> None:
    # The reserved prefix of other names is allowed here, as on the server.
    try:
        check_name("producer", producer_id.removeprefix("__") or producer_id)
    except SchemaError as error:
        raise InvalidProducerIdError(str(error)) from None
