"""Reading of look-up responses as places in the frame, not as objects.

LookupResponse        1 bucket*
PrefixLookupResponse  1 bucket*
bucket                1 partition_id?, 2 bucket_id, 3 error_code?, 4 error_message?,
                      5 per key: { 1 value? } for a look-up, { 1 value* } for a prefix look-up
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from fluss_client.errors import FlussError
from fluss_client.wire.buffers import Buffer
from fluss_client.wire.hot.chain import Bytes, Offsets, chunks, follow, follow_noted, headers
from fluss_client.wire.hot.keys import FEW_KEYS
from fluss_client.wire.hot.reader import Reader, check_bucket_count, need
from fluss_client.wire.messages import part_error

_BUCKET = 0x0A
_PARTITION_ID, _BUCKET_ID, _ERROR_CODE, _ERROR_MESSAGE, _KEY = 0x08, 0x10, 0x18, 0x22, 0x2A
_VALUE = 0x0A

NOT_FOUND = -1


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
    """The buckets of a LookupResponse; `CorruptDataError` for anything else."""
    return [LookedUp(*head, data, *_single_values(data, keys)) for head, data, keys in _read(body)]


def decode_prefix_lookup(body: Buffer) -> list[PrefixLookedUp]:
    """The buckets of a PrefixLookupResponse; `CorruptDataError` for anything else."""
    return [
        PrefixLookedUp(*head, data, *_value_lists(data, keys)) for head, data, keys in _read(body)
    ]


_Head = tuple[int, int | None, FlussError | None]


def _read(body: Buffer) -> Iterator[tuple[_Head, memoryview, array[int]]]:
    """Per bucket: its head, the whole body, and where the field of each key begins."""
    reader = Reader.over(body)
    count = 0
    while reader.more():
        tag = reader.tag()
        if tag != _BUCKET:
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
        if tag == _KEY:
            follow_noted(reader, _KEY, keys)
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
    """Offset and length of the value of each key."""
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
    # Nearly always a key's field holds the one value and nothing else.
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
    """Where the values of each key end in the list of all values; their offsets and lengths."""
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
    """Note where each value field of one key begins; other fields are skipped."""
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
