"""Encodes the keys of whole batches.

compacted   the compacted fields of the columns one after the other, without null bits
Iceberg     one column; the bytes that Iceberg hashes:
            INTEGER, DATE, BIGINT  8 bytes, little endian
            TIME, TIMESTAMP        8 bytes of microseconds, little endian
            FLOAT, DOUBLE          4 and 8 bytes, little endian
            DECIMAL                the unscaled value, shortest big-endian two's complement
            text, bytes            as they are
Paimon      8 * ceil((n + 8) / 64) bytes of zeros (row kind and null bits)
            an 8-byte slot per column, numbers in its low bytes
            the items of the slots (`rows.slots`); offsets count from the key's start
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from fluss_client.codec.binary.blobs import Blobs, Bytes, join, offsets_of
from fluss_client.codec.keys.encoding import KeyEncoding, check_key_columns
from fluss_client.codec.rows.columns import as_wire, read_column, shortest_bytes
from fluss_client.codec.rows.compacted import field_parts
from fluss_client.codec.rows.physical import Physical
from fluss_client.codec.rows.slots import HALF, slots_of
from fluss_client.errors import RowError
from fluss_client.model.types import DataType
from fluss_client.model.types.layout import IcebergKey

CHUNK_ROWS = 32_768
"""Rows handled at a time, so that intermediate arrays stay in the processor's cache."""


def encode_keys(
    columns: Sequence[pa.Array],
    types: Sequence[DataType],
    names: Sequence[str],
    encoding: KeyEncoding,
) -> Blobs:
    """Return the key of each row.

    Args:
        columns: The key columns, in the order of the key.
        types: Their types.
        names: Their names, for errors.
        encoding: The encoding of the key.

    Raises:
        RowError: A key column has a null.
        UnsupportedError: The encoding has no form for a type, or for several columns.
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
    parts: list[Blobs | Bytes] = []
    for value, data_type in zip(values, types, strict=True):
        parts.extend(field_parts(value, data_type.layout.kind))
    return join(parts)


def _iceberg(column: pa.Array, data_type: DataType, name: str) -> Blobs:
    form = data_type.layout.iceberg_key
    if form is IcebergKey.UNSCALED:
        return shortest_bytes(as_wire(column, data_type, name), None)
    value = read_column(column, data_type, name)
    if value.blobs is not None:
        return value.blobs
    assert value.numbers is not None
    numbers = value.numbers
    if form is IcebergKey.MICROSECONDS:
        numbers = numbers.astype("<i8") * 1000
        if value.nanos is not None:
            numbers += value.nanos // 1000
    elif form is IcebergKey.INT64:
        numbers = numbers.astype("<i8", copy=False)
    width = numbers.dtype.itemsize
    return Blobs.from_matrix(np.ascontiguousarray(numbers).view(np.uint8).reshape(-1, width))


def paimon_header_size(column_count: int) -> int:
    """Return the bytes before the first slot."""
    return (column_count + 8 + 63) // 64 * 8


def _paimon(count: int, values: Sequence[Physical], types: Sequence[DataType]) -> Blobs:
    header = paimon_header_size(len(types))
    fixed = np.zeros((count, header // 8 + len(types)), "<u8")
    ends = np.full(count, header + 8 * len(types), np.int64)
    parts: list[Blobs | Bytes] = [fixed.view(np.uint8)]
    for index, (value, data_type) in enumerate(zip(values, types, strict=True)):
        slots, items = slots_of(value, data_type)
        words = slots.view(f"<u{slots.dtype.itemsize}").astype(np.uint64)
        if items.owners.size:
            words[items.owners] |= ends[items.owners].astype(np.uint64) << HALF
            ends += items.sizes
            parts.append(Blobs(items.blobs.data, offsets_of(items.sizes)))
        fixed[:, header // 8 + index] = words
    return join(parts)
