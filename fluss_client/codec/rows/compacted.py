"""The COMPACTED row.

Layout: null bits, one per field, lowest bit of the first byte first, in ceil(n / 8) bytes; then
the fields that are not null, in order, without padding:

    RAW      1, 2, 4 or 8 bytes, little endian
    INT32    varint of the 32-bit pattern, 1 to 5 bytes
    INT64    varint of the 64-bit pattern, 1 to 10 bytes
    INSTANT  INT64 milliseconds, INT32 nanoseconds of the millisecond
    others   varint length, bytes (CHAR and BINARY too: no padding)

Where a field lies depends on all fields before it, so reading walks the columns from left to right
with one position per row.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from fluss_client.codec.binary.blobs import Blobs, Bools, Bytes, Ints, join, load, offsets_of
from fluss_client.codec.binary.varints import (
    MAX_INT32_BYTES,
    MAX_INT64_BYTES,
    decode_varints,
    encode_varints,
)
from fluss_client.codec.rows.physical import (
    Found,
    NullBits,
    Physical,
    Spans,
    bytes_for_bits,
    null_bits,
    refuse,
)
from fluss_client.model.types import DataType
from fluss_client.model.types.layout import Kind, Layout


def encode(count: int, columns: Sequence[Physical], types: Sequence[DataType]) -> Blobs:
    """Return `count` rows of these columns."""
    parts: list[Blobs | Bytes] = [null_bits(count, [column.nulls for column in columns])]
    for column, data_type in zip(columns, types, strict=True):
        parts.extend(field_parts(column, data_type.layout.kind))
    return join(parts)


def field_parts(column: Physical, kind: Kind) -> list[Blobs | Bytes]:
    """Return the bytes of one column for each row, empty where it is null, in one or two parts."""
    if kind is Kind.RAW:
        assert column.numbers is not None
        return [fixed_part(column.numbers, column.nulls)]
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


def fixed_part(numbers: npt.NDArray[Any], nulls: Bools | None) -> Blobs | Bytes:
    """Return numbers as little-endian bytes, empty where null."""
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
    """Return the columns of the rows from `starts` to `ends` in `data`, None if not wanted.

    Args:
        data: The rows, with SLACK bytes behind the last one.
        starts: Where each row begins.
        ends: Where each row ends.
        types: The types of all columns of the rows.
        wanted: The indexes of the columns to return.

    Raises:
        CorruptDataError: A row is too short for its fields, or longer than all of them.
    """
    header = NullBits(data, starts, ends, len(types))
    positions = starts + bytes_for_bits(len(types))
    last = max(wanted, default=-1)
    found: list[Found | None] = []
    for index, data_type in enumerate(types):
        if index > last:
            return found + [None] * (len(types) - index)
        nulls = header.of(index, data_type)
        column, positions = _find_column(data, positions, ends, data_type.layout, nulls)
        refuse(positions > ends, f"field {index} goes past the end")
        found.append(column if index in wanted else None)
    refuse(positions < ends, "there are bytes behind the last field")
    return found


def _find_column(
    data: Bytes, positions: Ints, ends: Ints, layout: Layout, nulls: Bools | None
) -> tuple[Found, Ints]:
    kind = layout.kind
    if kind is Kind.RAW:
        numbers = load(data, layout.dtype, positions)
        return Found(nulls, numbers), advance(positions, layout.packing.size, nulls)
    if kind is Kind.INT32:
        words, sizes = decode_varints(data, positions, MAX_INT32_BYTES, nulls)
        return Found(nulls, words.astype(np.uint32).view(np.int32)), positions + sizes
    if kind is Kind.INT64:
        words, sizes = decode_varints(data, positions, MAX_INT64_BYTES, nulls)
        return Found(nulls, words.view(np.int64)), positions + sizes
    if kind is Kind.INSTANT:
        words, sizes = decode_varints(data, positions, MAX_INT64_BYTES, nulls)
        positions = positions + sizes
        # A row may end here: its nanoseconds must not be read from behind the data.
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
    """Return the positions behind a field of this width; a null has no bytes."""
    return positions + width if nulls is None else positions + width * ~nulls
