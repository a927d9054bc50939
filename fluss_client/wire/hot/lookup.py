"""Look-ups: requests from one buffer of keys, responses as positions in the frame.

    LookupRequest         1 table_id, 2 bucket*, 3 insert_if_not_exists?, 4 acks?, 5 timeout_ms?
    PrefixLookupRequest   1 table_id, 2 bucket*
    bucket of a request   1 partition_id?, 2 bucket_id, 3 key*, routing_bucket_count? (5 of a
                          look-up, 4 of a prefix look-up)

    LookupResponse        1 bucket*
    PrefixLookupResponse  1 bucket*
    bucket of a response  1 partition_id?, 2 bucket_id, 3 error_code?, 4 error_message?,
                          5 per key: { 1 value? } for a look-up, { 1 value* } for a prefix look-up

Keys come as in an Arrow binary column: all bytes in one buffer, and n + 1 offsets. The first offset
need not be 0, so keys sorted by bucket are slices of the offsets over the same bytes. NumPy writes
the headers of all keys at once, without a Python loop per key.

In a response only the length of one field tells where the next one begins. So a short loop follows
the lengths and notes where each field begins (the last byte of its tag), and NumPy reads all
headers at once.
"""

from __future__ import annotations

import itertools
from array import array
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from fluss_client.errors import CorruptDataError, FlussError
from fluss_client.wire.hot.fields import (
    SHORT_VARINT_BYTES_MAX,
    Reader,
    check_bucket_count,
    need,
    number_field,
    varint,
)
from fluss_client.wire.messages import Buffer, part_error

Bytes = npt.NDArray[np.uint8]
Offsets = npt.NDArray[np.int64]

# For so few keys a Python loop is faster than NumPy's calls.
FEW_KEYS = 8
NOT_FOUND = -1
# Headers are read in chunks, so that NumPy's temporary arrays stay small.
CHUNK_FIELDS = 65_536

# The length of an invalid header; the sum with any offset is negative.
_NO_LENGTH = -(2**62)

# Tags. Those of partition and bucket id are the same in requests and responses.
_TABLE_ID, _REQUEST_BUCKET, _INSERT, _ACKS, _TIMEOUT_MS = 0x08, 0x12, 0x18, 0x20, 0x28
_PARTITION_ID, _BUCKET_ID, _REQUEST_KEY = 0x08, 0x10, 0x1A
_ANSWER_BUCKET, _ERROR_CODE, _ERROR_MESSAGE, _ANSWER_KEY = 0x0A, 0x18, 0x22, 0x2A
_VALUE = 0x0A
_LOOKUP_COUNT, _PREFIX_COUNT = 0x28, 0x20


@dataclass(frozen=True, slots=True, eq=False)
class BucketKeys:
    """The keys for one bucket: key i is `data[offsets[i]:offsets[i + 1]]`."""

    bucket_id: int
    data: Bytes
    offsets: Offsets
    partition_id: int | None = None
    routing_bucket_count: int | None = None


def encode_lookup(
    table_id: int,
    buckets: Sequence[BucketKeys],
    *,
    insert_if_not_exists: bool | None = None,
    acks: int | None = None,
    timeout_ms: int | None = None,
) -> list[Buffer]:
    """Encode a LookupRequest as buffers; `acks` and `timeout_ms` belong to inserts."""
    parts = _with_buckets(table_id, buckets, _LOOKUP_COUNT)
    tail = b""
    if insert_if_not_exists is not None:
        tail += number_field(_INSERT, int(insert_if_not_exists))
    if acks is not None:
        tail += number_field(_ACKS, acks)
    if timeout_ms is not None:
        tail += number_field(_TIMEOUT_MS, timeout_ms)
    return [*parts, tail] if tail else parts


def encode_prefix_lookup(table_id: int, buckets: Sequence[BucketKeys]) -> list[Buffer]:
    """Encode a PrefixLookupRequest as buffers."""
    return _with_buckets(table_id, buckets, _PREFIX_COUNT)


def _with_buckets(table_id: int, buckets: Sequence[BucketKeys], count_tag: int) -> list[Buffer]:
    parts: list[Buffer] = []
    head = number_field(_TABLE_ID, table_id)
    for bucket in buckets:
        keys = _key_fields(bucket.data, np.asarray(bucket.offsets, np.int64))
        inner = number_field(_BUCKET_ID, bucket.bucket_id)
        if bucket.partition_id is not None:
            inner = number_field(_PARTITION_ID, bucket.partition_id) + inner
        tail = b""
        if bucket.routing_bucket_count is not None:
            tail = number_field(count_tag, bucket.routing_bucket_count)
        length = len(inner) + len(keys) + len(tail)
        parts.append(head + bytes([_REQUEST_BUCKET]) + varint(length) + inner)
        if len(keys):
            parts.append(keys.data)
        # The tail of a bucket is sent with the head of the next one.
        head = tail
    if head and parts:
        parts.append(head)
    return parts if parts else [head]


def _key_fields(data: Bytes, offsets: Offsets) -> Bytes:
    """Encode every key as a field: write all headers, then the key bytes between them."""
    lengths = np.diff(offsets)
    if not len(lengths):
        return np.empty(0, np.uint8)
    if offsets[0] < 0 or offsets[-1] > len(data) or lengths.min() < 0:
        raise ValueError("the offsets of the keys do not fit their bytes")
    if len(lengths) <= FEW_KEYS:
        return _few_key_fields(data, offsets.tolist())
    header_bytes = np.full(len(lengths), 2, np.int64)
    for group in range(1, SHORT_VARINT_BYTES_MAX):
        header_bytes += lengths >= 1 << 7 * group
    ends = np.cumsum(header_bytes + lengths)
    starts = ends - lengths - header_bytes
    fields = np.empty(int(ends[-1]), np.uint8)
    free = np.ones(len(fields), np.bool_)
    fields[starts] = _REQUEST_KEY
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
        fields.append(_REQUEST_KEY)
        fields += varint(stop - start)
        fields += whole[start - first : stop - first]
    return np.frombuffer(fields, np.uint8)


@dataclass(frozen=True, slots=True, eq=False)
class LookedUp:
    """The answers for one bucket in the order of its keys.

    Value i is `data[offsets[i] : offsets[i] + lengths[i]]`; the length is `NOT_FOUND` where the key
    has no row. `data` is the body of the response and keeps the frame alive.
    """

    bucket_id: int
    partition_id: int | None
    error: FlussError | None
    data: memoryview
    offsets: Offsets
    lengths: Offsets


@dataclass(frozen=True, slots=True, eq=False)
class PrefixLookedUp:
    """As `LookedUp`, but key i has the values `list_offsets[i]` to `list_offsets[i + 1]`."""

    bucket_id: int
    partition_id: int | None
    error: FlussError | None
    data: memoryview
    list_offsets: Offsets
    offsets: Offsets
    lengths: Offsets


def decode_lookup(body: Buffer) -> list[LookedUp]:
    """Return the buckets of a LookupResponse; raise `CorruptDataError` for other bytes."""
    return [LookedUp(*head, data, *_single_values(data, keys)) for head, data, keys in _read(body)]


def decode_prefix_lookup(body: Buffer) -> list[PrefixLookedUp]:
    """Return the buckets of a PrefixLookupResponse; raise `CorruptDataError` for other bytes."""
    return [
        PrefixLookedUp(*head, data, *_value_lists(data, keys)) for head, data, keys in _read(body)
    ]


_Head = tuple[int, int | None, FlussError | None]


def _read(body: Buffer) -> Iterator[tuple[_Head, memoryview, array[int]]]:
    """Yield for each bucket its head, the whole body, and the start of each key's field."""
    reader = Reader.over(body)
    count = 0
    while reader.more():
        tag = reader.tag()
        if tag != _ANSWER_BUCKET:
            reader.skip(tag)
            continue
        count += 1
        check_bucket_count(count)
        head, keys = _read_bucket(reader.inner())
        yield head, reader.view, keys


def _read_bucket(reader: Reader) -> tuple[_Head, array[int]]:
    partition_id: int | None = None
    bucket_id: int | None = None
    error_code = 0
    error_message: str | None = None
    keys = array("q")
    while reader.more():
        tag = reader.tag()
        if tag == _ANSWER_KEY:
            follow_noted(reader, _ANSWER_KEY, keys)
        elif tag == _PARTITION_ID:
            partition_id = reader.int64()
        elif tag == _BUCKET_ID:
            bucket_id = reader.int32()
        elif tag == _ERROR_CODE:
            error_code = reader.int32()
        elif tag == _ERROR_MESSAGE:
            error_message = reader.text()
        else:
            reader.skip(tag)
    error = part_error(error_code, error_message)
    return (need(bucket_id, "bucket_id"), partition_id, error), keys


def _single_values(data: memoryview, keys: array[int]) -> tuple[Offsets, Offsets]:
    """Return offset and length of the value of each key."""
    if len(keys) <= FEW_KEYS:
        return _few_values(data, keys)
    raw = np.frombuffer(data, np.uint8)
    offsets, lengths = np.empty(len(keys), np.int64), np.empty(len(keys), np.int64)
    done = 0
    for starts in chunks(keys):
        here = slice(done, done + len(starts))
        offsets[here], lengths[here] = _single_values_of(raw, data, starts)
        done += len(starts)
    return offsets, lengths


def _few_values(data: memoryview, keys: array[int]) -> tuple[Offsets, Offsets]:
    places = []
    for start in keys:
        outer = Reader(data, start + 1, len(data)).inner()
        place = (outer.pos, NOT_FOUND)
        while outer.more():
            tag = outer.tag()
            if tag == _VALUE:
                begin, stop = outer.span()
                place = (begin, stop - begin)
            else:
                outer.skip(tag)
        places.append(place)
    found = np.array(places, np.int64).reshape(-1, 2)
    return found[:, 0], found[:, 1]


def _single_values_of(raw: Bytes, data: memoryview, starts: Offsets) -> tuple[Offsets, Offsets]:
    offsets, sizes = headers(raw, starts)
    lengths = np.full(len(starts), NOT_FOUND, np.int64)
    holds = np.flatnonzero(sizes)
    outer, ends = offsets[holds], offsets[holds] + sizes[holds]
    inner, inner_lengths = headers(raw, outer)
    # Nearly always the field of a key holds one value and nothing else.
    plain = (raw[outer] == _VALUE) & (inner + inner_lengths == ends)
    offsets[holds[plain]] = inner[plain]
    lengths[holds[plain]] = inner_lengths[plain]
    odd = ~plain
    for row, start, stop in zip(holds[odd], outer[odd].tolist(), ends[odd].tolist(), strict=True):
        values = array("q")
        _note_values(data, start, stop, values)
        if values:
            offset, length = headers(raw, np.array(values[-1:], np.int64))
            offsets[row], lengths[row] = offset[0], length[0]
    return offsets, lengths


def _value_lists(data: memoryview, keys: array[int]) -> tuple[Offsets, Offsets, Offsets]:
    """Return list offsets per key, and the offset and length of every value."""
    raw = np.frombuffer(data, np.uint8)
    values = array("q")
    list_offsets = array("q", [0])
    for starts in chunks(keys):
        outer, sizes = headers(raw, starts)
        for start, stop in zip(outer.tolist(), (outer + sizes).tolist(), strict=True):
            _note_values(data, start, stop, values)
            list_offsets.append(len(values))
    offsets, lengths = np.empty(len(values), np.int64), np.empty(len(values), np.int64)
    done = 0
    for starts in chunks(values):
        here = slice(done, done + len(starts))
        offsets[here], lengths[here] = headers(raw, starts)
        done += len(starts)
    return np.array(list_offsets, np.int64), offsets, lengths


def _note_values(data: memoryview, start: int, stop: int, values: array[int]) -> None:
    """Append the start of each value field of one key; skip other fields."""
    pos = follow(data, start, stop, _VALUE, values)
    if pos == stop:
        return
    reader = Reader(data, pos, stop)
    while reader.more():
        tag = reader.tag()
        if tag == _VALUE:
            follow_noted(reader, _VALUE, values)
        else:
            reader.skip(tag)


def follow(view: memoryview, pos: int, end: int, tag: int, starts: array[int]) -> int:
    """Append the start of each consecutive field with this one-byte tag; return the end."""
    note = starts.append
    try:
        while pos < end and view[pos] == tag:
            note(pos)
            length = view[pos + 1]
            if length < 0x80:
                pos += length + 2
                continue
            second = view[pos + 2]
            if second < 0x80:
                # Bit 7 of the first byte is not part of the length: 3 header bytes minus 128.
                pos += length + (second << 7) - 125
                continue
            pos = Reader(view, pos + 1, end).span()[1]
    except IndexError:
        pos = end + 1
    if pos > end:
        raise CorruptDataError("a value ends behind its message")
    return pos


def follow_noted(reader: Reader, tag: int, starts: array[int]) -> None:
    """Append the field whose tag was just read and those that follow it, and skip them.

    A tag may be encoded with more bytes than it needs, which `follow` does not recognize.
    """
    starts.append(reader.pos - 1)
    reader.span()
    reader.pos = follow(reader.view, reader.pos, reader.end, tag, starts)


def chunks(starts: array[int]) -> Iterator[Offsets]:
    """Yield the starts, `CHUNK_FIELDS` at a time."""
    for at in range(0, len(starts), CHUNK_FIELDS):
        yield np.array(starts[at : at + CHUNK_FIELDS], np.int64)


def headers(raw: Bytes, starts: Offsets) -> tuple[Offsets, Offsets]:
    """Return start and length of the payload of each field.

    After the end of the data the last byte is read again, and an invalid header has a very negative
    length. A caller that did not use `follow` checks where the payloads end.
    """
    places = starts + 1
    lengths = np.zeros(len(starts), np.int64)
    goes_on = np.ones(len(starts), np.bool_)
    for group in range(SHORT_VARINT_BYTES_MAX):
        bytes_here = raw.take(places, mode="clip")
        lengths |= ((bytes_here & 0x7F).astype(np.int64) << 7 * group) * goes_on
        places += goes_on
        goes_on &= bytes_here >= 0x80
        if not goes_on.any():
            break
    lengths[goes_on] = _NO_LENGTH
    return places, lengths
