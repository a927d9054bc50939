"""Unsigned LEB128 numbers, many at once.

Layout: seven bits per byte, the lowest first; the top bit of a byte says that another follows. A
32-bit number takes 1 to 5 bytes, a 64-bit number 1 to 10. Signed numbers are written as the bits
of their two's complement, so negative ones take the most.

Up to eight bytes of a number are handled as one 64-bit word: three shifts spread its seven-bit
groups to bytes, or close them up again, for all rows together.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from fluss_client.codec.binary.blobs import (
    FEW,
    SLACK,
    Blobs,
    Bools,
    Bytes,
    Ints,
    load,
    offsets_of,
    store,
)
from fluss_client.errors import CorruptDataError

MAX_INT32_BYTES = 5
MAX_INT64_BYTES = 10

Words = npt.NDArray[np.uint64]

_WORD_BYTES = 8
_TOP_BITS = np.uint64(0x8080808080808080)
_LOW_BITS = np.uint64(0x7F7F7F7F7F7F7F7F)
# (mask of the groups that move, mask of those that stay, distance), from wide groups to narrow.
_SPREAD = tuple(
    (np.uint64(moving), np.uint64(staying), np.uint64(distance))
    for moving, staying, distance in (
        (0x00FFFFFFF0000000, 0x000000000FFFFFFF, 4),
        (0x0FFFC0000FFFC000, 0x00003FFF00003FFF, 2),
        (0x3F803F803F803F80, 0x007F007F007F007F, 1),
    )
)
# The continuation bits of a number of n bytes, as far as they are in its first word.
_CONTINUED = np.array(
    [0]
    + [0x8080808080808080 & ((1 << 8 * (n - 1)) - 1) for n in range(1, 9)]
    + [0x8080808080808080] * 2,
    np.uint64,
)
_ONE_BYTE = [bytes([value]) for value in range(0x80)]
# Times one shifted left by 8 k, the top byte is k + 1.
_COUNT_BYTES = np.uint64(0x0102030405060708)


def encode_varints(values: npt.NDArray[np.integer], absent: Bools | None = None) -> Blobs:
    """Return the bytes of each number, empty where `absent`; signed ones as bits of their width."""
    unsigned = values.view(f"u{values.dtype.itemsize}")
    count = unsigned.size
    if count <= FEW:
        single = list(map(encode_varint, unsigned.tolist()))
        if absent is not None:
            single = [b"" if skip else s for s, skip in zip(single, absent.tolist(), strict=True)]
        return Blobs.from_list(single)
    highest = int(unsigned.max()) if count else 0
    if highest < 0x80 and absent is None:
        return Blobs(unsigned.astype(np.uint8), np.arange(count + 1))
    words = unsigned.astype(np.uint64, copy=False)
    lengths = np.ones(count, np.int64)
    for byte in range(1, (highest.bit_length() + 6) // 7):
        lengths += words >= np.uint64(1 << 7 * byte)
    spread = words & np.uint64((1 << 56) - 1)
    for moving, staying, distance in _SPREAD:
        spread = (spread & staying) | ((spread & moving) << distance)
    spread |= _CONTINUED[lengths]
    if absent is not None:
        lengths[absent] = 0
    offsets = offsets_of(lengths)
    out = np.empty(int(offsets[-1]) + SLACK, np.uint8)
    # Each store writes a whole word; the bytes beyond the number are overwritten by the next one.
    if highest < 1 << 56:
        store(out, "<u8", offsets[:-1], spread)
    else:
        pairs = np.empty((count, 2), "<u8")
        pairs[:, 0] = spread
        last = words >> np.uint64(63)
        pairs[:, 1] = ((words >> np.uint64(56)) & np.uint64(0x7F)) | (last << np.uint64(7))
        pairs[:, 1] |= last << np.uint64(8)
        store(out, "V16", offsets[:-1], pairs.view("V16").reshape(-1))
    return Blobs(out[: offsets[-1]], offsets)


def decode_varints(
    data: Bytes, positions: Ints, max_bytes: int, absent: Bools | None = None
) -> tuple[Words, Ints]:
    """Return the numbers at these positions and their lengths in bytes; both 0 where `absent`.

    `data` has SLACK bytes behind the last position. Bits above the width are dropped.

    Raises:
        CorruptDataError: A number does not end within `max_bytes`.
    """
    first = data[positions]
    if not np.count_nonzero(first >= 0x80):
        values = first.astype(np.uint64)
        lengths = np.ones(positions.size, np.int64)
        long = None
    else:
        words = load(data, "<u8", positions).astype(np.uint64, copy=False)
        ends = ~words & _TOP_BITS
        lowest = ends & (~ends + np.uint64(1))
        values = words & (lowest | (lowest - np.uint64(1))) & _LOW_BITS
        for moving, staying, distance in reversed(_SPREAD):
            values = (values & staying) | ((values >> distance) & moving)
        lengths = (((lowest >> np.uint64(7)) * _COUNT_BYTES) >> np.uint64(56)).view(np.int64)
        long = lowest == 0
    if absent is not None:
        values[absent] = 0
        lengths[absent] = 0
        if long is not None:
            long &= ~absent
    if long is not None and max_bytes > _WORD_BYTES and np.count_nonzero(long):
        _decode_long(data, positions, np.flatnonzero(long), values, lengths)
    elif long is not None and np.count_nonzero(long | (lengths > max_bytes)):
        raise CorruptDataError(f"a number does not end within {max_bytes} bytes")
    return values, lengths


def _decode_long(data: Bytes, positions: Ints, rows: Ints, values: Words, lengths: Ints) -> None:
    """Complete the numbers of nine and ten bytes; `values` has their first eight."""
    tail = load(data, "<u2", positions[rows] + _WORD_BYTES).astype(np.uint64)
    ninth, tenth = tail & np.uint64(0xFF), tail >> np.uint64(8)
    two = ninth >= 0x80
    if (tenth[two] >= 0x80).any():
        raise CorruptDataError(f"a number does not end within {MAX_INT64_BYTES} bytes")
    high = (ninth & np.uint64(0x7F)) << np.uint64(56)
    values[rows] |= high | np.where(two, tenth << np.uint64(63), np.uint64(0))
    lengths[rows] = np.where(two, 10, 9)


def encode_varint(value: int) -> bytes:
    """Return the bytes of one number, which is not negative."""
    if value < 0x80:
        return _ONE_BYTE[value]
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def decode_varint(data: bytes, position: int, max_bytes: int) -> tuple[int, int]:
    """Return the number at a position and the position behind it.

    Raises:
        IndexError: The data ends within the number.
        CorruptDataError: The number does not end within `max_bytes`.
    """
    byte = data[position]
    if byte < 0x80:
        return byte, position + 1
    value = byte & 0x7F
    for index in range(1, max_bytes):
        byte = data[position + index]
        value |= (byte & 0x7F) << 7 * index
        if byte < 0x80:
            return value, position + index + 1
    raise CorruptDataError(f"a number does not end within {max_bytes} bytes")
