"""The COMPACTED row.

Layout: null bits, one per field, lowest bit of the first byte first, in ceil(n / 8) bytes; then
the fields that are not null, in order, without padding:

    RAW      1, 2, 4 or 8 bytes, little endian
    INT32    varint of the 32-bit pattern, 1 to 5 bytes
    INT64    varint of the 64-bit pattern, 1 to 10 bytes
    INSTANT  INT64 milliseconds, INT32 nanoseconds of the millisecond
    BYTES    varint length, bytes (CHAR and BINARY too: no padding)
    BLOCK    varint length, block

Where a field lies depends on all fields before it, so reading walks the columns from left to right
with one position per row.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from fluss_client.codec.bitmaps import Bools
from fluss_client.codec.blobs import Blobs, Bytes, Ints, join, offsets_of
from fluss_client.codec.rows.header import NullBits, bytes_for_bits, null_bits
from fluss_client.codec.rows.physical import (
    Found,
    Kind,
    Physical,
    Spans,
    kind_of,
    number_dtype,
    refuse,
)
from fluss_client.codec.unaligned import load
from fluss_client.codec.varints import (
    MAX_INT32_BYTES,
    MAX_INT64_BYTES,
    decode_varints,
    encode_varints,
)
from fluss_client.model.types import DataType


def encode(count: int, columns: Sequence[Physical], types: Sequence[DataType]) -> Blobs:
    """`count` rows of these columns."""
    pieces: list[Blobs | Bytes] = [null_bits(count, [column.nulls for column in columns])]
    for column, data_type in zip(columns, types, strict=True):
        pieces.extend(field_pieces(column, kind_of(data_type)))
    return join(pieces)


def field_pieces(column: Physical, kind: Kind) -> list[Blobs | Bytes]:
    """One column's bytes for each row, nothing where it is null; in one or two parts."""
    if kind is Kind.RAW:
        assert column.numbers is not None
        return [fixed_piece(column.numbers, column.nulls)]
    if kind in (Kind.INT32, Kind.INT64):
        assert column.numbers is not None
        return [encode_varints(column.numbers, column.nulls)]
    if kind is Kind.INSTANT:
        assert column.numbers is not None
        assert column.nanos is not None
        return [
            encode_varints(column.numbers, column.nulls),
            encode_varints(column.nanos, column.nulls),
        ]
    assert column.blobs is not None
    return [encode_varints(column.blobs.lengths, column.nulls), column.blobs]


def fixed_piece(numbers: npt.NDArray[Any], nulls: Bools | None) -> Blobs | Bytes:
    """Numbers as little-endian bytes, nothing where null."""
    width = numbers.dtype.itemsize
    if nulls is not None:
        kept = np.ascontiguousarray(numbers[~nulls])
        return Blobs(kept.view(np.uint8), offsets_of(np.where(nulls, 0, width)))
    return np.ascontiguousarray(numbers).view(np.uint8).reshape(-1, width)


def find(
    data: Bytes,
    starts: Ints,
    ends: Ints,
    types: Sequence[DataType],
    wanted: Collection[int],
) -> list[Found | None]:
    """The columns of the rows that lie from `starts` to `ends` in `data`, None if not wanted.

    `data` has SLACK bytes behind the last row. A row that is too short for its fields or too long
    for all of them raises CorruptDataError.
    """
    header = NullBits(data, starts, ends, len(types))
    positions = starts + bytes_for_bits(len(types))
    last = max(wanted, default=-1)
    found: list[Found | None] = []
    for index, data_type in enumerate(types):
        if index > last:
            return found + [None] * (len(types) - index)
        nulls = header.of(index, data_type)
        column, positions = _find_column(data, positions, ends, data_type, nulls)
        refuse(positions > ends, f"field {index} goes past the end")
        found.append(column if index in wanted else None)
    refuse(positions < ends, "there are bytes behind the last field")
    return found


def _find_column(
    data: Bytes, positions: Ints, ends: Ints, data_type: DataType, nulls: Bools | None
) -> tuple[Found, Ints]:
    kind = kind_of(data_type)
    if kind is Kind.RAW:
        dtype = number_dtype(data_type)
        numbers = load(data, dtype, positions)
        return Found(nulls, numbers), advance(positions, np.dtype(dtype).itemsize, nulls)
    if kind is Kind.INT32:
        words, sizes = decode_varints(data, positions, MAX_INT32_BYTES, nulls)
        return Found(nulls, words.astype(np.uint32).view(np.int32)), positions + sizes
    if kind is Kind.INT64:
        words, sizes = decode_varints(data, positions, MAX_INT64_BYTES, nulls)
        return Found(nulls, words.view(np.int64)), positions + sizes
    if kind is Kind.INSTANT:
        words, sizes = decode_varints(data, positions, MAX_INT64_BYTES, nulls)
        positions = positions + sizes
        # A row may end here; its nanoseconds must not be looked for behind the data.
        refuse(positions > ends, "a timestamp goes past the end")
        nanos, sizes = decode_varints(data, positions, MAX_INT32_BYTES, nulls)
        low = nanos.astype(np.uint32).view(np.int32)
        return Found(nulls, words.view(np.int64), low), positions + sizes
    words, sizes = decode_varints(data, positions, MAX_INT32_BYTES, nulls)
    begin = positions + sizes
    lengths = (words & np.uint64(0xFFFFFFFF)).view(np.int64)
    refuse(begin + lengths > ends, "a length goes past the end")
    return Found(nulls, spans=Spans(data, begin, lengths)), begin + lengths


def advance(positions: Ints, width: int, nulls: Bools | None) -> Ints:
    """The positions behind a field of this width, which nulls do not have."""
    return positions + width if nulls is None else positions + width * ~nulls
