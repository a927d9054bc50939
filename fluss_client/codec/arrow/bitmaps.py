"""Arrow's bitmaps as NumPy arrays: one bit per value, the lowest bit of a byte first."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pyarrow as pa

Bools = npt.NDArray[np.bool_]


def null_mask(array: pa.Array) -> Bools | None:
    """Return True where the array is null; None if it has no nulls."""
    if array.null_count == 0:
        return None
    validity = array.buffers()[0]
    if validity is None:
        return np.ones(len(array), np.bool_)
    nulls: Bools = unpack_bits(validity, array.offset, len(array)) == 0
    return nulls


def unpack_bits(bitmap: pa.Buffer, offset: int, count: int) -> npt.NDArray[np.uint8]:
    """Return bits `offset` to `offset + count` of a bitmap as bytes of 0 and 1."""
    first = offset // 8
    packed = np.frombuffer(bitmap, np.uint8)[first : (offset + count + 7) // 8]
    bits = np.unpackbits(packed, bitorder="little")
    return bits[offset - first * 8 : offset - first * 8 + count]


def pack_bits(bits: npt.NDArray[np.generic]) -> pa.Buffer:
    """Return a bitmap with a one where `bits` is not zero."""
    return pa.py_buffer(np.packbits(bits.astype(np.bool_, copy=False), bitorder="little"))


def validity(nulls: Bools | None) -> pa.Buffer | None:
    """Return the validity bitmap of an array with these nulls."""
    return None if nulls is None else pack_bits(~nulls)
