"""The rows of `kv`: the values of many keys found, written and removed in one statement each.

Calling SQLite once per row costs more than all it does for the row. So a batch goes in as two
parameters: the keys and values back to back as one blob, and a JSON array with one number per
record that says where it starts and how long its key and value are, in as many bits as the batch
needs; `substr` cuts them out again.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from fluss_client.codec.blobs import Blobs, join
from fluss_client.codec.value_batch import SchemaIds, decode_values

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


@dataclass(frozen=True, slots=True)
class OldValues:
    """What the key state holds for some keys: `position[i]` is key i's row, or -1."""

    position: Ints
    schema_ids: SchemaIds
    rows: Blobs

    @property
    def found(self) -> npt.NDArray[np.bool_]:
        """Which keys have a row."""
        return self.position >= 0


def bucket_prefix(bucket: int) -> bytes:
    """What all keys of a bucket start with."""
    return bucket.to_bytes(BUCKET_BYTES, "big")


def bucket_keys(bucket: int, keys: Blobs) -> Blobs:
    """Keys as `kv` has them: behind the number of their bucket."""
    front = np.frombuffer(bucket_prefix(bucket), np.uint8)
    return join([np.broadcast_to(front, (len(keys), BUCKET_BYTES)), keys])


def bucket_range(bucket: int) -> tuple[bytes, bytes]:
    """The first possible key of a bucket, and of the next one."""
    return bucket_prefix(bucket), bucket_prefix(bucket + 1)


def prefix_end(prefix: bytes) -> bytes | None:
    """The first key behind all keys with this prefix; None when there is no such key."""
    stem = prefix.rstrip(b"\xff")
    return None if not stem else stem[:-1] + bytes([stem[-1] + 1])


def _statements(
    keys: Blobs, values: Blobs | None = None
) -> Iterator[tuple[int, dict[str, object]]]:
    """Parameters for one statement after the other, with the number of its first record."""
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
    """Some records as parameters; None when their numbers need too many bits. One never does."""
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
    """Which of the keys have a value, in ascending order, and those values."""
    places: list[Ints] = []
    values: list[bytes] = []
    for first, parameters in _statements(keys):
        pairs = connection.execute(_FIND.format("kv.value"), parameters).fetchall()
        places.append(first + np.fromiter((at for at, _ in pairs), np.int64, len(pairs)))
        values += [value for _, value in pairs]
    return np.concatenate(places) if places else np.empty(0, np.int64), values


def find_old(connection: sqlite3.Connection, keys: Blobs, *, with_values: bool) -> OldValues:
    """The rows of some keys; only whether there are any when the values do not matter."""
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
    """Write values, over older ones where there are any. No key is empty."""
    for _, parameters in _statements(keys, values):
        connection.execute(_PUT, parameters)


def delete_keys(connection: sqlite3.Connection, keys: Blobs) -> None:
    """Remove keys."""
    for _, parameters in _statements(keys):
        connection.execute(_DELETE, parameters)
