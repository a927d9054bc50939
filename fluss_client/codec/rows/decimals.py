"""Decimals: Arrow's 128-bit little-endian numbers, and the two forms that rows hold.

Precision up to 18: the unscaled value as a 64-bit number. Above: its shortest big-endian two's
complement, 1 to 16 bytes.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from fluss_client.codec.bitmaps import Bools, validity
from fluss_client.codec.blobs import Blobs, Bytes, Ints, join, offsets_of
from fluss_client.codec.rows.physical import Found, refuse
from fluss_client.codec.unaligned import load
from fluss_client.model.types import DataType

_BYTES = 16
# A number below limit k fits k + 1 bytes with its sign.
_BYTE_LIMITS = np.array([1 << (8 * k - 1) for k in range(1, 9)], np.uint64)


def halves(array: pa.Array) -> npt.NDArray[np.int64]:
    """A decimal128 array as pairs (low, high) of 64-bit words."""
    buffer = array.buffers()[1]
    words = np.frombuffer(buffer or b"", "<i8").reshape(-1, 2)
    return words[array.offset : array.offset + len(array)]


def shortest_bytes(array: pa.Array, nulls: Bools | None) -> Blobs:
    """Each unscaled value as its shortest big-endian two's complement, nothing where null."""
    pairs = halves(array)
    low, high = pairs[:, 0], pairs[:, 1]
    sign = high >> np.int64(63)
    low_size = (low ^ sign).view(np.uint64)
    high_size = (high ^ sign).view(np.uint64)
    lengths = 1 + np.where(
        high_size > 0,
        8 + np.searchsorted(_BYTE_LIMITS, high_size, "right"),
        np.searchsorted(_BYTE_LIMITS, low_size, "right"),
    )
    if nulls is not None:
        lengths[nulls] = 0
    swapped = np.empty((len(array), 2), ">i8")
    swapped[:, 0] = high
    swapped[:, 1] = low
    ends = np.arange(1, len(array) + 1) * _BYTES
    return Blobs.from_spans(swapped.view(np.uint8).reshape(-1), ends - lengths, lengths)


def from_int64(
    numbers: Ints, nulls: Bools | None, data_type: DataType, arrow: pa.DataType
) -> pa.Array:
    """A decimal array from unscaled 64-bit values."""
    limit = 10**data_type.precision
    refuse((numbers >= limit) | (numbers <= -limit), f"a number is too large for {data_type.text}")
    pairs = np.empty((numbers.size, 2), "<i8")
    pairs[:, 0] = numbers
    pairs[:, 1] = numbers >> np.int64(63)
    return pa.Array.from_buffers(arrow, numbers.size, [validity(nulls), pa.py_buffer(pairs)])


def from_bytes(found: Found, data_type: DataType, arrow: pa.DataType) -> pa.Array:
    """A decimal array from big-endian bytes of any length up to 16."""
    assert found.spans is not None
    spans, nulls = found.spans, found.nulls
    bad = (spans.lengths < 1) | (spans.lengths > _BYTES)
    refuse(bad if nulls is None else bad & ~nulls, "a decimal has no bytes, or more than 16")
    first = load(spans.data, "<i1", spans.starts)
    fill = np.where(first < 0, np.uint8(0xFF), np.uint8(0))
    whole = join([_repeated(fill, _BYTES - spans.lengths), spans.blobs()])
    pairs = whole.data.view(">i8").astype("<i8").reshape(-1, 2)[:, ::-1]
    buffers = [validity(nulls), pa.py_buffer(np.ascontiguousarray(pairs))]
    return pa.Array.from_buffers(arrow, spans.starts.size, buffers)


def _repeated(byte: Bytes, counts: Ints) -> Blobs:
    return Blobs(np.repeat(byte, counts), offsets_of(counts))
