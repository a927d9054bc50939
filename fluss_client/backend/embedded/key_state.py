"""The rows of `kv`: finding the values of many keys at once, and writing them."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from fluss_client.codec.blobs import Blobs
from fluss_client.codec.value_batch import SchemaIds, decode_values

KEYS_PER_QUESTION = 500
_FIND = "SELECT key, {} FROM kv WHERE bucket = ? AND key IN ({})"


@dataclass(frozen=True, slots=True)
class OldValues:
    """What the key state holds for some keys: `position[i]` is key i's row, or -1."""

    position: npt.NDArray[np.int64]
    schema_ids: SchemaIds
    rows: Blobs

    @property
    def found(self) -> npt.NDArray[np.bool_]:
        """Which keys have a row."""
        return self.position >= 0


def find_values(
    connection: sqlite3.Connection, bucket: int, keys: Sequence[bytes], *, column: str = "value"
) -> dict[bytes, bytes]:
    """The values of those keys that have one; a few hundred keys per statement."""
    found: dict[bytes, bytes] = {}
    for first in range(0, len(keys), KEYS_PER_QUESTION):
        part = keys[first : first + KEYS_PER_QUESTION]
        marks = ",".join("?" * len(part))
        found.update(connection.execute(_FIND.format(column, marks), (bucket, *part)))
    return found


def find_old(
    connection: sqlite3.Connection, bucket: int, keys: Sequence[bytes], *, with_values: bool
) -> OldValues:
    """The rows of some keys; only whether there are any when the values do not matter."""
    column = "value" if with_values else "NULL"
    held = find_values(connection, bucket, keys, column=column)
    position = np.full(len(keys), -1, np.int64)
    values: list[bytes] = []
    for at, key in enumerate(keys):
        if key in held:
            position[at] = len(values)
            values.append(held[key])
    if not with_values:
        return OldValues(position, np.empty(0, np.int16), Blobs.from_list([]))
    schema_ids, rows = decode_values(Blobs.from_list(values))
    return OldValues(position, schema_ids, rows)


def put_values(
    connection: sqlite3.Connection, bucket: int, pairs: Iterable[tuple[bytes, bytes]]
) -> None:
    """Write values whose keys may be there or not."""
    connection.executemany(
        "INSERT INTO kv VALUES (?, ?, ?) ON CONFLICT DO UPDATE SET value = excluded.value",
        ((bucket, key, value) for key, value in pairs),
    )


def insert_values(
    connection: sqlite3.Connection, bucket: int, pairs: Iterable[tuple[bytes, bytes]]
) -> None:
    """Write values of keys that are not there."""
    connection.executemany(
        "INSERT INTO kv VALUES (?, ?, ?)", ((bucket, key, value) for key, value in pairs)
    )


def update_values(
    connection: sqlite3.Connection, bucket: int, pairs: Iterable[tuple[bytes, bytes]]
) -> None:
    """Write values of keys that are there."""
    connection.executemany(
        "UPDATE kv SET value = ? WHERE bucket = ? AND key = ?",
        ((value, bucket, key) for key, value in pairs),
    )


def delete_keys(connection: sqlite3.Connection, bucket: int, keys: Iterable[bytes]) -> None:
    """Remove keys."""
    connection.executemany(
        "DELETE FROM kv WHERE bucket = ? AND key = ?", ((bucket, key) for key in keys)
    )


def prefix_end(prefix: bytes) -> bytes | None:
    """The first key behind all keys with this prefix; None when there is no such key."""
    stem = prefix.rstrip(b"\xff")
    return None if not stem else stem[:-1] + bytes([stem[-1] + 1])
