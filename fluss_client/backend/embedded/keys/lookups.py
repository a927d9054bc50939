"""Look-ups in the key state: by whole keys, by prefixes, and the first rows of a bucket."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Mapping, Sequence

import numpy as np
import pyarrow.compute as pc

from fluss_client.backend.contract import LookupAnswer
from fluss_client.backend.embedded.keys.state import (
    Ints,
    bucket_keys,
    bucket_prefix,
    bucket_range,
    find_values,
    prefix_end,
)
from fluss_client.backend.embedded.store.catalog import find_bucket, no_bucket
from fluss_client.codec.binary.blobs import Blobs
from fluss_client.errors import FlussError, NonPrimaryKeyTableError
from fluss_client.model.table import TableBucket, TableInfo

_KEY_IN_BUCKET = "SELECT kv.value FROM bucket LEFT JOIN kv ON kv.key = ? WHERE bucket.no = ?"
_Ask = Callable[[sqlite3.Connection, int, Blobs], tuple[Blobs, Ints]]


def lookup(
    connection: sqlite3.Connection, table: TableInfo, keys: Mapping[TableBucket, Blobs]
) -> dict[TableBucket, LookupAnswer]:
    """Return the values of complete keys."""
    return _answers(connection, table, keys, _point)


def prefix_lookup(
    connection: sqlite3.Connection, table: TableInfo, keys: Mapping[TableBucket, Blobs]
) -> dict[TableBucket, LookupAnswer]:
    """Return the values of all keys with some prefixes, in key order per prefix."""
    return _answers(connection, table, keys, _prefix)


def _answers(
    connection: sqlite3.Connection,
    table: TableInfo,
    keys: Mapping[TableBucket, Blobs],
    ask: _Ask,
) -> dict[TableBucket, LookupAnswer]:
    answers = {}
    for place, asked in keys.items():
        try:
            number = _bucket_number(connection, table, place)
            values, counts = ask(connection, number, asked)
            answers[place] = LookupAnswer(values, counts)
        except FlussError as error:
            answers[place] = LookupAnswer(Blobs.from_list([]), np.zeros(0, np.int64), error)
    return answers


def lookup_few(
    connection: sqlite3.Connection,
    table: TableInfo,
    keys: Sequence[tuple[TableBucket, bytes]],
    prefix: bool,
    numbers: dict[TableBucket, int],
) -> list[list[bytes] | FlussError]:
    """Look up a few keys one by one; `numbers` caches the numbers of buckets."""
    answers: list[list[bytes] | FlussError] = []
    for place, key in keys:
        try:
            if prefix:
                number = _bucket_number(connection, table, place)
                answers.append(_with_prefix(connection, number, key))
            else:
                answers.append(_of_key(connection, table, place, key, numbers))
        except FlussError as error:
            answers.append(error)
    return answers


def _bucket_number(connection: sqlite3.Connection, table: TableInfo, place: TableBucket) -> int:
    if not table.has_primary_key():
        raise NonPrimaryKeyTableError(f"{table.table_path} has no primary key")
    return find_bucket(connection, place).no


def _of_key(
    connection: sqlite3.Connection,
    table: TableInfo,
    place: TableBucket,
    key: bytes,
    numbers: dict[TableBucket, int],
) -> list[bytes]:
    """Read the value, and whether its bucket still exists, in one statement."""
    number = numbers.get(place)
    if number is None:
        number = numbers[place] = _bucket_number(connection, table, place)
    row = connection.execute(_KEY_IN_BUCKET, (bucket_prefix(number) + key, number)).fetchone()
    if row is None:
        numbers.pop(place, None)
        raise no_bucket(place)
    return [] if row[0] is None else [row[0]]


def _with_prefix(connection: sqlite3.Connection, bucket: int, prefix: bytes) -> list[bytes]:
    first = bucket_prefix(bucket) + prefix
    rows = connection.execute(
        "SELECT value FROM kv WHERE key >= ? AND key < ? ORDER BY key", (first, prefix_end(first))
    )
    return [row[0] for row in rows]


def _point(connection: sqlite3.Connection, bucket: int, asked: Blobs) -> tuple[Blobs, Ints]:
    # In key order SQLite walks its tree once, whatever the order of the request.
    order = pc.array_sort_indices(asked.to_arrow()).to_numpy().astype(np.int64)
    places, values = find_values(connection, bucket_keys(bucket, asked.take(order)))
    counts = np.zeros(len(asked), np.int64)
    counts[order[places]] = 1
    return Blobs.from_list(values).take(np.argsort(order[places], kind="stable")), counts


def _prefix(connection: sqlite3.Connection, bucket: int, asked: Blobs) -> tuple[Blobs, Ints]:
    groups = [_with_prefix(connection, bucket, prefix) for prefix in asked.to_list()]
    values = Blobs.from_list([value for group in groups for value in group])
    return values, np.array([len(group) for group in groups], np.int64)


def first_values(connection: sqlite3.Connection, place: TableBucket, limit: int) -> Blobs:
    """Return the values of the first `limit` keys of a bucket."""
    number = find_bucket(connection, place).no
    rows = connection.execute(
        "SELECT value FROM kv WHERE key >= ? AND key < ? ORDER BY key LIMIT ?",
        (*bucket_range(number), limit),
    ).fetchall()
    return Blobs.from_list([row[0] for row in rows])
