"""The INDEXED row.

Layout: null bits as in a compacted row; a list of 4-byte lengths, one place for each column of a
variable-length type: the lengths of the columns that are not null come first, the rest is zero;
then the fields that are not null, in order, without padding:

    RAW, INT32, INT64   1, 2, 4 or 8 bytes, little endian
    INSTANT             8 bytes milliseconds, 4 bytes nanoseconds of the millisecond
    CHAR(n), BINARY(n)  n bytes, padded with zeros
    all others          as many bytes as the length list says
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

import numpy as np

from fluss_client.codec.binary.blobs import Blobs, Bools, Bytes, Ints, join, load, padded_to
from fluss_client.codec.rows.compacted import advance, fixed_part
from fluss_client.codec.rows.physical import (
    Found,
    NullBits,
    Physical,
    Spans,
    bytes_for_bits,
    null_bits,
    refuse,
)
from fluss_client.errors import RowError
from fluss_client.model.types import DataType
from fluss_client.model.types.layout import Kind

_LENGTH_BYTES = 4
_MILLIS_BYTES = 8


def is_variable(data_type: DataType) -> bool:
    """Return whether a column of this type has a place in the length list."""
    layout = data_type.layout
    return not layout.padded and not layout.is_number


def check_fits(column: Physical, data_type: DataType, name: str) -> None:
    """Raise RowError for a CHAR or BINARY with more bytes than the row has room for."""
    if data_type.layout.padded and column.blobs is not None:
        longest = int(column.blobs.lengths.max(initial=0))
        if longest > data_type.length:
            raise RowError(
                f"column '{name}': {longest} bytes do not fit {data_type.text} in an indexed row"
            )


def encode(count: int, columns: Sequence[Physical], types: Sequence[DataType]) -> Blobs:
    """Return `count` rows of these columns."""
    parts: list[Blobs | Bytes] = [
        null_bits(count, [column.nulls for column in columns]),
        _length_list(count, columns, types),
    ]
    for column, data_type in zip(columns, types, strict=True):
        parts.extend(_field_parts(column, data_type))
    return join(parts)


def _length_list(count: int, columns: Sequence[Physical], types: Sequence[DataType]) -> Bytes:
    variable = [c for c, t in zip(columns, types, strict=True) if is_variable(t)]
    lengths = np.zeros((count, len(variable)), "<i4")
    rows = np.arange(count)
    filled = np.zeros(count, np.int64)
    for column in variable:
        assert column.blobs is not None
        if column.nulls is None:
            lengths[rows, filled] = column.blobs.lengths
            filled += 1
        else:
            present = ~column.nulls
            lengths[rows[present], filled[present]] = column.blobs.lengths[present]
            filled += present
    return lengths.view(np.uint8).reshape(count, len(variable) * _LENGTH_BYTES)


def _field_parts(column: Physical, data_type: DataType) -> list[Blobs | Bytes]:
    if column.blobs is None:
        assert column.numbers is not None
        parts = [fixed_part(column.numbers, column.nulls)]
        if column.nanos is not None:
            parts.append(fixed_part(column.nanos, column.nulls))
        return parts
    if not data_type.layout.padded:
        return [column.blobs]
    if column.nulls is None:
        return [padded_to(column.blobs, data_type.length)]
    return [padded_to(column.blobs, np.where(column.nulls, 0, data_type.length))]


def find(
    data: Bytes,
    starts: Ints,
    ends: Ints,
    types: Sequence[DataType],
    wanted: Collection[int],
) -> list[Found | None]:
    """Return the columns of the rows from `starts` to `ends` in `data`, None if not wanted.

    Arguments and errors are those of `compacted.find`.
    """
    header = NullBits(data, starts, ends, len(types))
    listed = starts + bytes_for_bits(len(types))
    positions = listed + _LENGTH_BYTES * sum(map(is_variable, types))
    refuse(positions > ends, "too short for its length list")
    last = max(wanted, default=-1)
    found: list[Found | None] = []
    for index, data_type in enumerate(types):
        if index > last:
            return found + [None] * (len(types) - index)
        nulls = header.of(index, data_type)
        if is_variable(data_type):
            lengths = load(data, "<i4", listed).astype(np.int64)
            listed = advance(listed, _LENGTH_BYTES, nulls)
            column = _variable(data, positions, lengths, nulls)
            refuse(lengths < 0, f"field {index} has a negative length")
            positions = positions + lengths
        else:
            column = _fixed(data, positions, data_type, nulls)
            positions = advance(positions, _width(data_type), nulls)
        refuse(positions > ends, f"field {index} goes past the end")
        if index in wanted and data_type.layout.strips_padding:
            column = _without_padding(column)
        found.append(column if index in wanted else None)
    refuse(positions < ends, "there are bytes behind the last field")
    return found


def _variable(data: Bytes, positions: Ints, lengths: Ints, nulls: Bools | None) -> Found:
    if nulls is not None:
        lengths[nulls] = 0
    return Found(nulls, spans=Spans(data, positions, lengths))


def _fixed(data: Bytes, positions: Ints, data_type: DataType, nulls: Bools | None) -> Found:
    if data_type.layout.padded:
        lengths = advance(np.zeros(positions.size, np.int64), data_type.length, nulls)
        return Found(nulls, spans=Spans(data, positions, lengths))
    numbers = load(data, data_type.layout.dtype, positions)
    if data_type.layout.kind is not Kind.INSTANT:
        return Found(nulls, numbers)
    return Found(nulls, numbers, load(data, "<i4", positions + _MILLIS_BYTES))


def _width(data_type: DataType) -> int:
    layout = data_type.layout
    return data_type.length if layout.padded else layout.packing.size


def _without_padding(column: Found) -> Found:
    """Return spans that end with the last byte that is not zero."""
    assert column.spans is not None
    spans = column.spans
    blobs = spans.blobs()
    # The place of the last byte that is not zero, carried to the right up to each string's end.
    places = np.where(blobs.data != 0, np.arange(1, blobs.data.size + 1), 0)
    np.maximum.accumulate(places, out=places)
    padded = np.concatenate((np.zeros(1, np.int64), places))
    lengths = np.maximum(padded[blobs.offsets[1:]] - blobs.offsets[:-1], 0)
    return Found(column.nulls, spans=Spans(spans.data, spans.starts, lengths))
