"""Records that lie back to back, each behind its own i32 length."""

from __future__ import annotations

import struct

import numpy as np

from fluss_client.codec.blobs import Ints
from fluss_client.errors import CorruptDataError

LENGTH_SIZE = 4
_LENGTH = struct.Struct("<i")


def record_spans(data: memoryview, count: int, size_min: int) -> tuple[Ints, Ints]:
    """Starts (behind the length) and lengths of `count` records that fill `data` exactly.

    Every record has at least `size_min` bytes. CorruptDataError when the lengths do not fit;
    `count` is held against the size of `data` before anything is allocated for it.
    """
    if count < 0 or count * (LENGTH_SIZE + size_min) > data.nbytes:
        raise CorruptDataError(f"{count} records cannot lie in {data.nbytes} bytes")
    starts = []
    lengths = []
    at, end = 0, data.nbytes
    unpack = _LENGTH.unpack_from
    # Each record tells only where the next one starts, so this walk is a loop.
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
