"""Computes which bucket a key belongs to.

All three functions are a 32-bit Murmur3 over the key's bytes and a remainder:

    word:   k = word * C1, rotated left by 15, * C2; h ^= k; h = rotated left by 13, * 5 + N
    finish: h ^= length; then five steps of xor-shift and multiplication

Fluss and Paimon start with 42 and put each byte behind the last whole word (little endian) through
the word step on its own, *sign extended*. Fluss then applies the word step to the hash itself,
starting with 0, finishes with length 4, and takes the absolute value. Paimon takes the absolute
value of the remainder. Iceberg's is the standard Murmur3 (x86, 32 bits, seed 0) without its sign
bit: the tail is one word, of which only k goes into h.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from fluss_client.codec.binary.blobs import Blobs, Bytes, Ints, load, with_slack
from fluss_client.codec.keys import KeyEncoding
from fluss_client.errors import RowError

CHUNK_ROWS = 32_768
"""Keys hashed at a time, so that intermediate arrays stay in the processor's cache."""

_FEW = 4
_SEED = 42
_C1 = 0xCC9E2D51
_C2 = 0x1B873593
_N = 0xE6546B64
_F1 = 0x85EBCA6B
_F2 = 0xC2B2AE35
_MASK = 0xFFFFFFFF
_SIGN = 0x80000000

Hashes = npt.NDArray[np.uint32]


Counts = int | npt.NDArray[np.int64]
"""A bucket count for all keys, or one for each key."""


def assign_buckets(
    keys: Blobs, bucket_count: Counts, encoding: KeyEncoding
) -> npt.NDArray[np.int32]:
    """Return the bucket of each key, which must be in this encoding.

    Raises:
        RowError: A key is empty, for which Iceberg has no bucket.
    """
    buckets = np.empty(len(keys), np.int32)
    if encoding is KeyEncoding.ICEBERG and len(keys) and int(keys.lengths.min()) == 0:
        raise RowError("Iceberg has no bucket for an empty key")
    for first in range(0, len(keys), CHUNK_ROWS):
        offsets = keys.offsets[first : first + CHUNK_ROWS + 1]
        data = with_slack(keys.data[offsets[0] : offsets[-1]])
        chunk = buckets[first : first + CHUNK_ROWS]
        counts = bucket_count
        if not isinstance(counts, int):
            counts = counts[first : first + CHUNK_ROWS]
        chunk[:] = _buckets(data, offsets - offsets[0], counts, encoding)
    return buckets


def _buckets(
    data: Bytes, offsets: Ints, bucket_count: Counts, encoding: KeyEncoding
) -> npt.NDArray[Any]:
    starts, lengths = offsets[:-1], np.diff(offsets)
    if encoding is KeyEncoding.ICEBERG:
        hashes = _hash_words(data, starts, lengths, 0)
        hashes ^= _scramble(_packed_tail(data, starts, lengths))
        hashes ^= lengths.astype(np.uint32)
        divisor = np.asarray(bucket_count, np.uint32)
        return (_finish(hashes) & np.uint32(~_SIGN & _MASK)) % divisor
    hashes = _hash_words(data, starts, lengths, _SEED)
    _hash_tail(data, starts, lengths, hashes)
    hashes ^= lengths.astype(np.uint32)
    signed = _finish(hashes).view(np.int32).astype(np.int64)
    if encoding is KeyEncoding.PAIMON:
        return np.abs(np.fmod(signed, bucket_count))
    again = _word_step(np.zeros_like(hashes), signed.astype(np.uint32))
    spread = np.abs(_finish(again ^ np.uint32(4)).view(np.int32).astype(np.int64))
    spread[spread == _SIGN] = 0
    return spread % bucket_count


def _hash_words(data: Bytes, starts: Ints, lengths: Ints, seed: int) -> Hashes:
    hashes = np.full(starts.size, seed, np.uint32)
    words = lengths // 4
    longest = int(words.max(initial=0))
    rows: Ints | None = None
    for index in range(longest):
        if rows is None and int(words.min()) > index:
            hashes = _word_step(hashes, load(data, "<u4", starts + 4 * index))
            continue
        rows = np.flatnonzero(words > index) if rows is None else rows[words[rows] > index]
        if rows.size <= _FEW and longest - index > _FEW:
            # Few long keys: array operations for each of their words would cost more than a loop.
            for row in rows.tolist():
                rest = data[starts[row] + 4 * index : starts[row] + 4 * words[row]].tobytes()
                hashes[row] = _words_of(rest, int(hashes[row]))
            break
        hashes[rows] = _word_step(hashes[rows], load(data, "<u4", starts[rows] + 4 * index))
    return hashes


def _hash_tail(data: Bytes, starts: Ints, lengths: Ints, hashes: Hashes) -> None:
    tail = lengths & 3
    at = starts + lengths - tail
    for index in range(3):
        rows = np.flatnonzero(tail > index)
        if not rows.size:
            return
        signed = data[at[rows] + index].view(np.int8).astype(np.int32).view(np.uint32)
        hashes[rows] = _word_step(hashes[rows], signed)


def _packed_tail(data: Bytes, starts: Ints, lengths: Ints) -> Hashes:
    tail = (lengths & 3).astype(np.uint32)
    words = load(data, "<u4", starts + lengths - tail)
    packed: Hashes = words & ((np.uint32(1) << (np.uint32(8) * tail)) - np.uint32(1))
    return packed


def _word_step(hashes: Hashes, words: Hashes) -> Hashes:
    mixed = hashes ^ _scramble(words)
    mixed = (mixed << np.uint32(13)) | (mixed >> np.uint32(19))
    return mixed * np.uint32(5) + np.uint32(_N)


def _scramble(words: Hashes) -> Hashes:
    mixed = words * np.uint32(_C1)
    mixed = (mixed << np.uint32(15)) | (mixed >> np.uint32(17))
    return mixed * np.uint32(_C2)


def _finish(hashes: Hashes) -> Hashes:
    hashes = (hashes ^ (hashes >> np.uint32(16))) * np.uint32(_F1)
    hashes = (hashes ^ (hashes >> np.uint32(13))) * np.uint32(_F2)
    return hashes ^ (hashes >> np.uint32(16))


def bucket_of(key: bytes, bucket_count: int, encoding: KeyEncoding) -> int:
    """Return the bucket of one key; the same as `assign_buckets` gives."""
    if encoding is KeyEncoding.ICEBERG:
        if not key:
            raise RowError("Iceberg has no bucket for an empty key")
        return (_standard_hash(key) & ~_SIGN) % bucket_count
    signed = _fluss_hash(key)
    if encoding is KeyEncoding.PAIMON:
        return abs(signed) % bucket_count
    spread = _finish_one(_word_of(signed & _MASK, 0) ^ 4)
    spread = min(spread, (1 << 32) - spread)
    return (0 if spread == _SIGN else spread) % bucket_count


def _fluss_hash(key: bytes) -> int:
    whole = len(key) & ~3
    state = _words_of(key[:whole], _SEED)
    for byte in key[whole:]:
        state = _word_of(byte if byte < 0x80 else byte | 0xFFFFFF00, state)
    state = _finish_one(state ^ len(key))
    return state - (1 << 32) if state & _SIGN else state


def _standard_hash(key: bytes) -> int:
    whole = len(key) & ~3
    state = _words_of(key[:whole], 0) ^ _scramble_one(int.from_bytes(key[whole:], "little"))
    return _finish_one(state ^ len(key))


def _words_of(data: bytes, state: int) -> int:
    for at in range(0, len(data), 4):
        state = _word_of(int.from_bytes(data[at : at + 4], "little"), state)
    return state


def _word_of(word: int, state: int) -> int:
    state ^= _scramble_one(word)
    return ((state << 13 | state >> 19) * 5 + _N) & _MASK


def _scramble_one(word: int) -> int:
    word = word * _C1 & _MASK
    return (word << 15 | word >> 17) * _C2 & _MASK


def _finish_one(state: int) -> int:
    state = (state ^ state >> 16) * _F1 & _MASK
    state = (state ^ state >> 13) * _F2 & _MASK
    return state ^ state >> 16
