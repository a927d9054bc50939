"""Writing of look-up requests from one buffer of keys, without a step per key.

    LookupRequest        1 table_id, 2 bucket*, 3 insert_if_not_exists?, 4 acks?, 5 timeout_ms?
    PrefixLookupRequest  1 table_id, 2 bucket*
    bucket               1 partition_id?, 2 bucket_id, 3 key*

A key field is its tag 1a, its length as a varint and its bytes. Keys come as in an Arrow binary
column: all bytes in a row, and n + 1 offsets that cut them. The first offset need not be 0, so
keys sorted by bucket are passed as slices of the offsets, all over the same bytes.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from fluss_client.wire.buffers import Buffer
from fluss_client.wire.hot.chain import Bytes, Offsets
from fluss_client.wire.hot.reader import SHORT_VARINT_BYTES_MAX
from fluss_client.wire.hot.varint import number_field, varint

# Up to here a plain loop is faster than NumPy's calls.
FEW_KEYS = 8

_TABLE_ID, _BUCKET, _INSERT, _ACKS, _TIMEOUT_MS = 0x08, 0x12, 0x18, 0x20, 0x28
_PARTITION_ID, _BUCKET_ID, _KEY = 0x08, 0x10, 0x1A


@dataclass(frozen=True, slots=True, eq=False)
class BucketKeys:
    """The keys for one bucket: key i is `data[offsets[i]:offsets[i + 1]]`."""

    bucket_id: int
    data: Bytes
    offsets: Offsets
    partition_id: int | None = None


def encode_lookup(
    table_id: int,
    buckets: Sequence[BucketKeys],
    *,
    insert_if_not_exists: bool | None = None,
    acks: int | None = None,
    timeout_ms: int | None = None,
) -> list[Buffer]:
    """A LookupRequest as buffers; the last two are for `insert_if_not_exists` only."""
    parts = _with_buckets(table_id, buckets)
    tail = b""
    if insert_if_not_exists is not None:
        tail += number_field(_INSERT, int(insert_if_not_exists))
    if acks is not None:
        tail += number_field(_ACKS, acks)
    if timeout_ms is not None:
        tail += number_field(_TIMEOUT_MS, timeout_ms)
    return [*parts, tail] if tail else parts


def encode_prefix_lookup(table_id: int, buckets: Sequence[BucketKeys]) -> list[Buffer]:
    """A PrefixLookupRequest as buffers."""
    return _with_buckets(table_id, buckets)


def _with_buckets(table_id: int, buckets: Sequence[BucketKeys]) -> list[Buffer]:
    parts: list[Buffer] = []
    head = number_field(_TABLE_ID, table_id)
    for bucket in buckets:
        keys = _key_fields(bucket.data, np.asarray(bucket.offsets, np.int64))
        inner = number_field(_BUCKET_ID, bucket.bucket_id)
        if bucket.partition_id is not None:
            inner = number_field(_PARTITION_ID, bucket.partition_id) + inner
        parts.append(head + bytes([_BUCKET]) + varint(len(inner) + len(keys)) + inner)
        if len(keys):
            parts.append(keys.data)
        head = b""
    return parts if parts else [head]


def _key_fields(data: Bytes, offsets: Offsets) -> Bytes:
    """Every key as a field: the headers are scattered, the key bytes fill what is left."""
    lengths = np.diff(offsets)
    if not len(lengths):
        return np.empty(0, np.uint8)
    if offsets[0] < 0 or offsets[-1] > len(data) or lengths.min() < 0:
        raise ValueError("the offsets of the keys do not cut their bytes")
    if len(lengths) <= FEW_KEYS:
        return _few_key_fields(data, offsets.tolist())
    header_bytes = np.full(len(lengths), 2, np.int64)
    for group in range(1, SHORT_VARINT_BYTES_MAX):
        header_bytes += lengths >= 1 << 7 * group
    ends = np.cumsum(header_bytes + lengths)
    starts = ends - lengths - header_bytes
    fields = np.empty(int(ends[-1]), np.uint8)
    free = np.ones(len(fields), np.bool_)
    fields[starts] = _KEY
    free[starts] = False
    for group in range(int(header_bytes.max()) - 1):
        has = header_bytes > group + 1
        places = starts[has] + (group + 1)
        bits = (lengths[has] >> 7 * group) & 0x7F
        fields[places] = bits | np.where(header_bytes[has] > group + 2, 0x80, 0)
        free[places] = False
    fields[free] = data[offsets[0] : offsets[-1]]
    return fields


def _few_key_fields(data: Bytes, offsets: list[int]) -> Bytes:
    whole = data[offsets[0] : offsets[-1]].tobytes()
    first = offsets[0]
    fields = bytearray()
    for start, stop in itertools.pairwise(offsets):
        fields.append(_KEY)
        fields += varint(stop - start)
        fields += whole[start - first : stop - first]
    return np.frombuffer(fields, np.uint8)
