"""Runs of length-delimited fields: where they begin, and what their headers say.

A run is a chain: only the length of one field tells where the next begins. So a short loop follows
the lengths and notes where the fields begin, and NumPy reads all headers at once. The beginning of
a field is the last byte of its tag.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator

import numpy as np
import numpy.typing as npt

from fluss_client.errors import CorruptDataError
from fluss_client.wire.hot.reader import SHORT_VARINT_BYTES_MAX, Reader

Bytes = npt.NDArray[np.uint8]
Offsets = npt.NDArray[np.int64]

# How many headers are read at once, so that what NumPy keeps meanwhile stays small.
CHUNK_FIELDS = 65_536

# The length of a header that is none; added to any offset it stays negative.
_NO_LENGTH = -(2**62)


def follow(view: memoryview, pos: int, end: int, tag: int, starts: array[int]) -> int:
    """Note where each field of a run with this one-byte tag begins; returns where the run ends."""
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
                # Bit 7 of the first byte is no part of the length: 3 bytes of header less 128.
                pos += length + (second << 7) - 125
                continue
            pos = Reader(view, pos + 1, end).span()[1]
    except IndexError:
        pos = end + 1
    if pos > end:
        raise CorruptDataError("a value ends behind its message")
    return pos


def follow_noted(reader: Reader, tag: int, starts: array[int]) -> None:
    """Note the field of which the tag was just read, and the run behind it; go behind both.

    A tag may be written with more bytes than it needs, which `follow` does not see.
    """
    starts.append(reader.pos - 1)
    reader.span()
    reader.pos = follow(reader.view, reader.pos, reader.end, tag, starts)


def chunks(starts: array[int]) -> Iterator[Offsets]:
    """The noted places, `CHUNK_FIELDS` at a time."""
    for at in range(0, len(starts), CHUNK_FIELDS):
        yield np.array(starts[at : at + CHUNK_FIELDS], np.int64)


def headers(raw: Bytes, starts: Offsets) -> tuple[Offsets, Offsets]:
    """Where the payload of each field begins, and its length.

    Behind the end the last byte is read again and again, and a header that is none has a very
    negative length: a caller that did not follow the chain checks where payloads end.
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
