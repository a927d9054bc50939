"""Keys of whole batches.

Compacted: the columns' compacted fields one after the other, without null bits.

Iceberg, one column: INTEGER, DATE and BIGINT as 8 bytes; TIME and TIMESTAMP as 8 bytes of
microseconds; FLOAT and DOUBLE as 4 and 8; all little endian. DECIMAL as its shortest big-endian
bytes; text and bytes as they are. These are the bytes that Iceberg hashes.

Paimon: 8 * ceil((n + 8) / 64) bytes of zeros (row kind and null bits); an 8-byte slot per column,
numbers in its low bytes; the slots' items (`rows.slots`), whose offsets count from the key's start.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from fluss_client.codec.blobs import Blobs, Bytes, join, offsets_of
from fluss_client.codec.keys.encoding import KeyEncoding, check_key_columns
from fluss_client.codec.rows.columns import as_wire, read_column
from fluss_client.codec.rows.compacted import field_pieces
from fluss_client.codec.rows.decimals import shortest_bytes
from fluss_client.codec.rows.physical import Physical, kind_of
from fluss_client.codec.rows.slots import HALF, slots_of
from fluss_client.errors import RowError
from fluss_client.model.types import DataType, Root

CHUNK_ROWS = 32_768
"""Rows handled at a time, so that what is in between stays in the processor's cache."""


def encode_keys(
    columns: Sequence[pa.Array],
    types: Sequence[DataType],
    names: Sequence[str],
    encoding: KeyEncoding,
) -> Blobs:
    """The key of each row, from the key columns in the key's order.

    A null raises RowError with the column's name; a type or a number of columns that the encoding
    has no form for raises UnsupportedError.
    """
    check_key_columns(names, types, encoding)
    for column, name in zip(columns, names, strict=True):
        if column.null_count:
            raise RowError(f"column '{name}' is part of the key and has {column.null_count} nulls")
    count = len(columns[0])
    parts = [
        _encode([c.slice(first, CHUNK_ROWS) for c in columns], types, names, encoding)
        for first in range(0, max(count, 1), CHUNK_ROWS)
    ]
    return Blobs.concat(parts)


def _encode(
    columns: Sequence[pa.Array],
    types: Sequence[DataType],
    names: Sequence[str],
    encoding: KeyEncoding,
) -> Blobs:
    if encoding is KeyEncoding.ICEBERG:
        return _iceberg(columns[0], types[0], names[0])
    values = [read_column(c, t, n) for c, t, n in zip(columns, types, names, strict=True)]
    if encoding is KeyEncoding.PAIMON:
        return _paimon(len(columns[0]), values, types)
    pieces: list[Blobs | Bytes] = []
    for value, data_type in zip(values, types, strict=True):
        pieces.extend(field_pieces(value, kind_of(data_type)))
    return join(pieces)


def _iceberg(column: pa.Array, data_type: DataType, name: str) -> Blobs:
    if data_type.root is Root.DECIMAL:
        return shortest_bytes(as_wire(column, data_type, name), None)
    value = read_column(column, data_type, name)
    if value.blobs is not None:
        return value.blobs
    assert value.numbers is not None
    numbers = value.numbers
    if data_type.root in (Root.TIME, Root.TIMESTAMP):
        numbers = numbers.astype("<i8") * 1000
        if value.nanos is not None:
            numbers += value.nanos // 1000
    elif numbers.dtype.kind == "i":
        numbers = numbers.astype("<i8", copy=False)
    width = numbers.dtype.itemsize
    return Blobs.from_matrix(np.ascontiguousarray(numbers).view(np.uint8).reshape(-1, width))


def paimon_header_size(column_count: int) -> int:
    """The bytes before the first slot."""
    return (column_count + 8 + 63) // 64 * 8


def _paimon(count: int, values: Sequence[Physical], types: Sequence[DataType]) -> Blobs:
    header = paimon_header_size(len(types))
    fixed = np.zeros((count, header // 8 + len(types)), "<u8")
    ends = np.full(count, header + 8 * len(types), np.int64)
    pieces: list[Blobs | Bytes] = [fixed.view(np.uint8)]
    for index, (value, data_type) in enumerate(zip(values, types, strict=True)):
        slots, items = slots_of(value, data_type)
        words = slots.view(f"<u{slots.dtype.itemsize}").astype(np.uint64)
        if items.owners.size:
            words[items.owners] |= ends[items.owners].astype(np.uint64) << HALF
            ends += items.sizes
            pieces.append(Blobs(items.blobs.data, offsets_of(items.sizes)))
        fixed[:, header // 8 + index] = words
    return join(pieces)
