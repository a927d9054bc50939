"""Records back to back, each after its own i32 length (little endian)."""

from __future__ import annotations

import struct

import numpy as np

from fluss_client.codec.binary.blobs import Ints
from fluss_client.errors import CorruptDataError

LENGTH_SIZE = 4
_LENGTH = struct.Struct("<i")


def record_spans(data: memoryview, count: int, size_min: int) -> tuple[Ints, Ints]:
    """Return starts (behind the length) and lengths of `count` records that fill `data` exactly.

    Each record has at least `size_min` bytes.

    Raises:
        CorruptDataError: The lengths or the count do not fit `data`; the count is checked before
            anything is allocated for it.
    """
    if count < 0 or count * (LENGTH_SIZE + size_min) > data.nbytes:
        raise CorruptDataError(f"{count} records cannot lie in {data.nbytes} bytes")
    starts = []
    lengths = []
    at, end = 0, data.nbytes
    unpack = _LENGTH.unpack_from
    # Only a record's length says where the next one starts, so this must be a loop.
    for _ in range(count):
        if at + LENGTH_SIZE > end:
            raise CorruptDataError("the records end early")
        (length,) = unpack(data, at)
        at += LENGTH_SIZE
        if length < size_min or at + length > end:
            raise CorruptDataError(f"a record of {length} bytes does not fit")
        starts.append(at)
        lengths.append(length)
        at += length
    if at != end:
        raise CorruptDataError(f"{end - at} bytes follow the last record")
    return np.array(starts, np.int64), np.array(lengths, np.int64)
