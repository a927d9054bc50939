"""The key state (table `kv`): finds, writes, deletes and streams many keys in one statement each.

It also answers look-ups: by whole keys, by prefixes, and the first rows of a bucket.

One SQLite call per row costs more than the work for the row. So a batch is passed as two
parameters: all keys and values in one blob, and a JSON array with one number per record. The number
holds where the record starts and how long its key and value are, in as many bits as the batch
needs; `substr` extracts them in SQL."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from operator import itemgetter

import numpy as np
import numpy.typing as npt
import pyarrow.compute as pc

from fluss_client.backend.contract import STATE_READ_BYTES_MAX, LookupAnswer
from fluss_client.backend.embedded.store.catalog import (
    check_exists,
    check_placed,
    end_statements,
    find_bucket,
    no_bucket,
)
from fluss_client.backend.embedded.store.database import Database
from fluss_client.codec.binary.blobs import Blobs, join
from fluss_client.codec.kv_batch import SchemaIds, decode_values
from fluss_client.errors import ClosedError, FlussError, NonPrimaryKeyTableError
from fluss_client.model.table import TableBucket, TableInfo

STATEMENT_BYTES_MAX = 32 << 20
STATEMENT_ROWS_MAX = 100_000
BUCKET_BYTES = 4
NUMBER_BITS = 63
_KEY = "substr(:data, j.value >> :start, (j.value >> :middle) & :key_mask)"
_VALUE = (
    "substr(:data, (j.value >> :start) + ((j.value >> :middle) & :key_mask), j.value & :value_mask)"
)
_FIND = f"SELECT j.key, {{}} FROM json_each(:spans) AS j CROSS JOIN kv ON kv.key = {_KEY}"
_PUT = (
    f"INSERT INTO kv SELECT {_KEY}, {_VALUE} FROM json_each(:spans) AS j WHERE true "
    "ON CONFLICT DO UPDATE SET value = excluded.value"
)
_DELETE = f"DELETE FROM kv WHERE key IN (SELECT {_KEY} FROM json_each(:spans) AS j)"
Ints = npt.NDArray[np.int64]
_KEY_IN_BUCKET = "SELECT kv.value FROM bucket LEFT JOIN kv ON kv.key = ? WHERE bucket.no = ?"
_Find = Callable[[sqlite3.Connection, int, Blobs], tuple[Blobs, Ints]]


@dataclass(frozen=True, slots=True)
class OldValues:
    """The stored rows of some keys: `position[i]` is the row of key i, or -1."""

    position: Ints
    schema_ids: SchemaIds
    rows: Blobs

    @property
    def found(self) -> npt.NDArray[np.bool_]:
        """Marks the keys that have a row."""
        return self.position >= 0


def bucket_prefix(bucket: int) -> bytes:
    """Return the prefix of all keys of a bucket."""
    return bucket.to_bytes(BUCKET_BYTES, "big")


def bucket_keys(bucket: int, keys: Blobs) -> Blobs:
    """Return keys as `kv` stores them: after the number of their bucket."""
    front = np.frombuffer(bucket_prefix(bucket), np.uint8)
    return join([np.broadcast_to(front, (len(keys), BUCKET_BYTES)), keys])


def bucket_range(bucket: int) -> tuple[bytes, bytes]:
    """Return the first possible key of a bucket, and of the next bucket."""
    return bucket_prefix(bucket), bucket_prefix(bucket + 1)


def prefix_end(prefix: bytes) -> bytes | None:
    """Return the first key after all keys with this prefix; None if there is none."""
    stem = prefix.rstrip(b"\xff")
    return None if not stem else stem[:-1] + bytes([stem[-1] + 1])


def _statements(
    keys: Blobs, values: Blobs | None = None
) -> Iterator[tuple[int, dict[str, object]]]:
    """Yield the parameters of each statement, with the index of its first record."""
    records = keys if values is None else join([keys, values])
    key_lengths = keys.lengths
    first, count = 0, len(keys)
    while first < count:
        limit = records.offsets[first] + STATEMENT_BYTES_MAX
        end = int(np.searchsorted(records.offsets, limit, "right")) - 1
        end = min(max(end, first + 1), first + STATEMENT_ROWS_MAX, count)
        while (packed := _packed(records, key_lengths, first, end)) is None:
            end = first + (end - first) // 2
        yield first, packed
        first = end


def _packed(records: Blobs, key_lengths: Ints, first: int, end: int) -> dict[str, object] | None:
    """Return records as parameters; None if their numbers need too many bits.

    The number of a single record always fits.
    """
    begin = int(records.offsets[first])
    starts = records.offsets[first:end] - begin + 1
    keys = key_lengths[first:end]
    values = records.lengths[first:end] - keys
    key_bits, value_bits = _bits(keys), _bits(values)
    if _bits(starts) + key_bits + value_bits > NUMBER_BITS:
        return None
    return {
        "data": records.data[begin : int(records.offsets[end])],
        "spans": str((starts << key_bits + value_bits | keys << value_bits | values).tolist()),
        "start": key_bits + value_bits,
        "middle": value_bits,
        "key_mask": (1 << key_bits) - 1,
        "value_mask": (1 << value_bits) - 1,
    }


def _bits(numbers: Ints) -> int:
    return int(numbers.max()).bit_length()


def find_values(connection: sqlite3.Connection, keys: Blobs) -> tuple[Ints, list[bytes]]:
    """Return the indexes of the keys that have a value, ascending, and the values."""
    places: list[Ints] = []
    values: list[bytes] = []
    for first, parameters in _statements(keys):
        pairs = connection.execute(_FIND.format("kv.value"), parameters).fetchall()
        places.append(first + np.fromiter((at for at, _ in pairs), np.int64, len(pairs)))
        values += [value for _, value in pairs]
    return np.concatenate(places) if places else np.empty(0, np.int64), values


def find_old(connection: sqlite3.Connection, keys: Blobs, *, with_values: bool) -> OldValues:
    """Return the stored rows of some keys, or only which keys have one."""
    position = np.full(len(keys), -1, np.int64)
    if with_values:
        places, values = find_values(connection, keys)
        position[places] = np.arange(places.size)
        return OldValues(position, *decode_values(Blobs.from_list(values)))
    for first, parameters in _statements(keys):
        for at, _ in connection.execute(_FIND.format("NULL"), parameters):
            position[first + at] = 0
    return OldValues(position, np.empty(0, np.int16), Blobs.from_list([]))


def put_values(connection: sqlite3.Connection, keys: Blobs, values: Blobs) -> None:
    """Insert or replace values. A key must not be empty."""
    for _, parameters in _statements(keys, values):
        connection.execute(_PUT, parameters)


def delete_keys(connection: sqlite3.Connection, keys: Blobs) -> None:
    """Delete keys."""
    for _, parameters in _statements(keys):
        connection.execute(_DELETE, parameters)


_IN_ORDER = "SELECT value FROM kv WHERE key >= ? AND key < ? ORDER BY key"


class LocalCursor:
    """The rows of one bucket at one moment, in key order. Making one blocks.

    They are read in one transaction of a connection of their own, so they belong to one moment
    while others write. The transaction keeps SQLite from reusing the pages of its write-ahead
    log, which is shortened after the cursor is closed.
    """

    kind = "local"
    snapshot_id = None
    made_ms = None
    bytes_fetched = 0

    def __init__(self, database: Database, table: TableInfo, bucket: TableBucket) -> None:
        self._thread = ThreadPoolExecutor(1, "fluss-state-read")
        self._connection: sqlite3.Connection | None = database.connect(writer=False)
        try:
            self._connection.execute("BEGIN")
            check_exists(self._connection, table, bucket.partition_id)
            found = find_bucket(self._connection, bucket)
            self.offset = found.log_end
            rows = self._connection.execute(_IN_ORDER, bucket_range(found.no))
            self._values: Iterator[bytes] = map(itemgetter(0), rows)
        except BaseException:
            self._connection.close()
            raise

    async def read(self, rows_max: int) -> Blobs | None:
        if self._connection is None:
            raise ClosedError("the cursor was closed")
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._thread, self._next, rows_max)

    def _next(self, rows_max: int) -> Blobs | None:
        values = Blobs.from_iterator(self._values, rows_max, STATE_READ_BYTES_MAX)
        return values if len(values) else None

    async def close(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            await asyncio.to_thread(connection.close)
            self._thread.shutdown(wait=False)


def lookup(
    connection: sqlite3.Connection,
    table: TableInfo,
    keys: Mapping[TableBucket, Blobs],
    placed: int | None,
) -> dict[TableBucket, LookupAnswer]:
    """Return the values of complete keys; error 74 if they were placed by another bucket count."""
    return _answers(connection, table, keys, placed, _point)


def prefix_lookup(
    connection: sqlite3.Connection,
    table: TableInfo,
    keys: Mapping[TableBucket, Blobs],
    placed: int | None,
) -> dict[TableBucket, LookupAnswer]:
    """Return the values of all keys with some prefixes, in key order per prefix."""
    return _answers(connection, table, keys, placed, _prefix)


def _answers(
    connection: sqlite3.Connection,
    table: TableInfo,
    keys: Mapping[TableBucket, Blobs],
    placed: int | None,
    find: _Find,
) -> dict[TableBucket, LookupAnswer]:
    answers = {}
    for place, wanted in keys.items():
        try:
            number = _bucket_number(connection, table, place)
            check_placed(connection, place, placed)
            values, counts = find(connection, number, wanted)
            answers[place] = LookupAnswer(values, counts)
        except FlussError as error:
            end_statements(error)
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
            end_statements(error)
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


def _point(connection: sqlite3.Connection, bucket: int, wanted: Blobs) -> tuple[Blobs, Ints]:
    # In key order SQLite walks its tree once, whatever the order of the request.
    order = pc.array_sort_indices(wanted.to_arrow()).to_numpy().astype(np.int64)
    places, values = find_values(connection, bucket_keys(bucket, wanted.take(order)))
    counts = np.zeros(len(wanted), np.int64)
    counts[order[places]] = 1
    return Blobs.from_list(values).take(np.argsort(order[places], kind="stable")), counts


def _prefix(connection: sqlite3.Connection, bucket: int, wanted: Blobs) -> tuple[Blobs, Ints]:
    groups = [_with_prefix(connection, bucket, prefix) for prefix in wanted.to_list()]
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
