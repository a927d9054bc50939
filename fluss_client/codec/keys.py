"""Keys: which encoding a table uses, and keys in that encoding, one or a whole batch.

The encoding of a table's keys:

| `table.datalake.format` | kv format 1, or bucket key = physical primary key | other bucket key |
|-------------------------|----------------------------------------------------|------------------|
| none, lance             | compacted                                          | compacted        |
| iceberg, paimon         | the lake's                                         | compacted        |

The physical primary key is the primary key without the partition columns. The bucket key is always
in the lake's encoding, or compacted without a lake. Bucket keys for Hudi are not supported.

The encodings:

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

`encode_key_scalar` makes the bytes that `encode_keys` makes, without the start-up of array
operations. A value of the usual Python class of its type is converted by the type itself; any other
one (another class that Arrow can convert, nanosecond precision) goes through Arrow and gives what a
column would.
"""

from __future__ import annotations

import enum
import struct
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from fluss_client.codec.binary.blobs import Blobs, Bytes, join, offsets_of
from fluss_client.codec.binary.varints import encode_varint
from fluss_client.codec.rows.columns import as_wire, read_column, shortest_bytes
from fluss_client.codec.rows.compacted import field_parts
from fluss_client.codec.rows.physical import Physical
from fluss_client.codec.rows.slots import DECIMAL_AREA, HALF, INLINE_MAX, slots_of
from fluss_client.errors import RowError, UnsupportedError
from fluss_client.model.arrow import arrow_type
from fluss_client.model.types import DataType
from fluss_client.model.types.base import UNUSUAL
from fluss_client.model.types.layout import IcebergKey, Kind
from fluss_client.model.types.numeric import shortest_bytes as shortest_scalar

LAKE_FORMAT_OPTION = "table.datalake.format"
KV_VERSION_OPTION = "table.kv.format-version"
CHUNK_ROWS = 32_768
"""Rows handled at a time, so that intermediate arrays stay in the processor's cache."""
_MASKS = {Kind.INT32: (1 << 32) - 1, Kind.INT64: (1 << 64) - 1}
_MASK64 = (1 << 64) - 1


class KeyEncoding(enum.Enum):
    """How the bytes of a key are made; it decides too which hash finds the bucket."""

    COMPACTED = "compacted"
    ICEBERG = "iceberg"
    PAIMON = "paimon"


_OF_LAKE = {
    "": KeyEncoding.COMPACTED,
    "lance": KeyEncoding.COMPACTED,
    "iceberg": KeyEncoding.ICEBERG,
    "paimon": KeyEncoding.PAIMON,
}


def key_encoding_for(
    properties: Mapping[str, str],
    bucket_keys: Sequence[str],
    physical_primary_keys: Sequence[str],
    types: Mapping[str, DataType] | None = None,
) -> tuple[KeyEncoding, KeyEncoding]:
    """Return the encodings of a table's primary key and of its bucket key.

    A log table has no primary key: its first encoding has no meaning.

    Args:
        properties: The options of the table.
        bucket_keys: The bucket key; empty if it is the physical primary key.
        physical_primary_keys: The primary key without the partition columns.
        types: The types of the columns by name; they are checked if given.

    Raises:
        UnsupportedError: A server creates such a table, but no client can write it: Iceberg takes
            one key column, of some types only.
    """
    lake = properties.get(LAKE_FORMAT_OPTION, "").strip().lower()
    if lake not in _OF_LAKE:
        raise UnsupportedError(
            f"{LAKE_FORMAT_OPTION}={lake}: this client writes keys for paimon, iceberg and lance"
        )
    version = properties.get(KV_VERSION_OPTION, "1").strip()
    if version not in ("1", "2"):
        raise UnsupportedError(f"{KV_VERSION_OPTION}={version}: this client knows 1 and 2")
    bucket_keys = bucket_keys or physical_primary_keys
    bucket = _OF_LAKE[lake]
    own = version == "1" or list(bucket_keys) == list(physical_primary_keys)
    primary = bucket if own else KeyEncoding.COMPACTED
    for names, encoding in ((bucket_keys, bucket), (physical_primary_keys, primary)):
        if names:
            known = None if types is None else [types[name] for name in names]
            check_key_columns(names, known, encoding)
    return primary, bucket


def check_key_columns(
    names: Sequence[str], types: Sequence[DataType] | None, encoding: KeyEncoding
) -> None:
    """Raise UnsupportedError if this encoding has no form for these columns."""
    if encoding is KeyEncoding.ICEBERG and len(names) != 1:
        raise UnsupportedError(
            f"Iceberg buckets by one column, not by ({', '.join(names)}): Fluss clients cannot "
            "write this table; create it with a bucket key of one column"
        )
    if types is None:
        return
    iceberg = encoding is KeyEncoding.ICEBERG
    for name, data_type in zip(names, types, strict=True):
        if data_type.is_nested or (iceberg and data_type.layout.iceberg_key is None):
            raise UnsupportedError(
                f"column '{name}': {data_type.text} cannot be a key in {encoding.value} encoding"
            )


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


def encode_key_scalar(
    values: Sequence[Any],
    types: Sequence[DataType],
    names: Sequence[str],
    encoding: KeyEncoding,
) -> bytes:
    """Return the key of these values, in the key's order; the errors are those of `encode_keys`."""
    check_key_columns(names, types, encoding)
    stored = []
    for value, data_type, name in zip(values, types, names, strict=True):
        if value is None:
            raise RowError(f"column '{name}' is part of the key and is null")
        found = data_type.to_stored(value)
        stored.append(_through_arrow(value, data_type, name) if found is UNUSUAL else found)
    if encoding is KeyEncoding.COMPACTED:
        return b"".join(map(_compacted_scalar, stored, types))
    if encoding is KeyEncoding.ICEBERG:
        return _iceberg_scalar(stored[0], types[0])
    return _paimon_scalar(stored, types)


def _through_arrow(value: Any, data_type: DataType, name: str) -> Any:
    try:
        array = pa.array([value], arrow_type(data_type))
    except (pa.ArrowException, TypeError, ValueError, OverflowError) as error:
        message = f"column '{name}': {value!r} is no {data_type.text}: {error}"
        raise RowError(message) from error
    column = read_column(array, data_type, name)
    if column.blobs is not None:
        return column.blobs[0]
    assert column.numbers is not None
    number = column.numbers[0].item()
    return number if column.nanos is None else (number, column.nanos[0].item())


def _compacted_scalar(value: Any, data_type: DataType) -> bytes:
    layout = data_type.layout
    mask = _MASKS.get(layout.kind)
    if mask is not None:
        return encode_varint(value & mask)
    if not layout.is_number:
        return encode_varint(len(value)) + value  # type: ignore[no-any-return]
    if layout.kind is Kind.RAW:
        return layout.packing.pack(value)
    millis, nanos = value
    return encode_varint(millis & _MASK64) + encode_varint(nanos)


def _iceberg_scalar(value: Any, data_type: DataType) -> bytes:
    layout = data_type.layout
    form = layout.iceberg_key
    if form is IcebergKey.STORED:
        return layout.packing.pack(value) if layout.is_number else bytes(value)
    if form is IcebergKey.UNSCALED:
        return shortest_scalar(value) if layout.is_number else bytes(value)
    if layout.kind is Kind.INSTANT:
        value = value[0] * 1000 + value[1] // 1000
    elif form is IcebergKey.MICROSECONDS:
        value *= 1000
    # Beyond the years that microseconds can express, the Java clients wrap around too.
    return (value & _MASK64).to_bytes(8, "little")  # type: ignore[no-any-return]


def _paimon_scalar(values: Sequence[Any], types: Sequence[DataType]) -> bytes:
    slots = bytearray(paimon_header_size(len(types)))
    end = len(slots) + 8 * len(types)
    items = bytearray()
    for value, data_type in zip(values, types, strict=True):
        layout = data_type.layout
        kind = layout.kind
        item = b""
        if kind is Kind.RAW:
            slots += layout.packing.pack(value).ljust(8, b"\0")
        elif kind in _MASKS:
            slots += (value & _MASKS[kind]).to_bytes(8, "little")
        elif kind is Kind.BYTES and len(value) <= INLINE_MAX:
            slots += value.ljust(INLINE_MAX, b"\0") + bytes([0x80 | len(value)])
        else:
            if kind is Kind.INSTANT:
                low, item = value[1], struct.pack("<q", value[0])
            elif kind is Kind.DECIMAL:
                low, item = len(value), value.ljust(DECIMAL_AREA, b"\0")
            else:
                low, item = len(value), value.ljust((len(value) + 7) & ~7, b"\0")
            slots += struct.pack("<II", low, end + len(items))
        items += item
    return bytes(slots + items)
