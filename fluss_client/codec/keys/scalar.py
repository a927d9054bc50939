"""One key from Python values: the same bytes as `keys.batch` makes, without its start-up costs."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Any

from fluss_client.codec.keys.batch import paimon_header_size
from fluss_client.codec.keys.encoding import KeyEncoding, check_key_columns
from fluss_client.codec.rows.physical import Kind, kind_of
from fluss_client.codec.rows.python_values import (
    RAW_STRUCTS,
    physical_value,
    shortest_bytes,
    unscaled_value,
)
from fluss_client.codec.rows.slots import INLINE_MAX
from fluss_client.codec.varints import encode_varint
from fluss_client.errors import RowError
from fluss_client.model.types import DataType, Root

_DECIMAL_AREA = 16
_MASKS = {Kind.INT32: (1 << 32) - 1, Kind.INT64: (1 << 64) - 1}


def encode_key_scalar(
    values: Sequence[Any],
    types: Sequence[DataType],
    names: Sequence[str],
    encoding: KeyEncoding,
) -> bytes:
    """The key of these values, in the key's order; the same errors as for a batch."""
    check_key_columns(names, types, encoding)
    stored = []
    for value, data_type, name in zip(values, types, names, strict=True):
        if value is None:
            raise RowError(f"column '{name}' is part of the key and is null")
        stored.append(physical_value(value, data_type, name))
    if encoding is KeyEncoding.COMPACTED:
        return b"".join(map(_compacted, stored, types))
    if encoding is KeyEncoding.ICEBERG:
        return _iceberg(stored[0], types[0])
    return _paimon(stored, types)


def _compacted(value: Any, data_type: DataType) -> bytes:
    kind = kind_of(data_type)
    mask = _MASKS.get(kind)
    if mask is not None:
        return encode_varint(value & mask)
    if kind is Kind.BYTES:
        return encode_varint(len(value)) + value  # type: ignore[no-any-return]
    if kind is Kind.RAW:
        return RAW_STRUCTS[data_type.root].pack(value)
    millis, nanos = value
    return encode_varint(millis & _MASKS[Kind.INT64]) + encode_varint(nanos)


def _iceberg(value: Any, data_type: DataType) -> bytes:
    root = data_type.root
    if root is Root.DECIMAL:
        return shortest_bytes(unscaled_value(value))
    kind = kind_of(data_type)
    if kind is Kind.BYTES:
        return bytes(value)
    if kind is Kind.RAW:
        return RAW_STRUCTS[root].pack(value)
    if kind is Kind.INSTANT:
        value = value[0] * 1000 + value[1] // 1000
    elif root in (Root.TIME, Root.TIMESTAMP):
        value *= 1000
    # Beyond the years that microseconds can express, the Java clients wrap around too.
    return (value & _MASKS[Kind.INT64]).to_bytes(8, "little")  # type: ignore[no-any-return]


def _paimon(values: Sequence[Any], types: Sequence[DataType]) -> bytes:
    slots = bytearray(paimon_header_size(len(types)))
    end = len(slots) + 8 * len(types)
    items = bytearray()
    for value, data_type in zip(values, types, strict=True):
        kind = kind_of(data_type)
        item = b""
        if kind is Kind.RAW:
            slots += RAW_STRUCTS[data_type.root].pack(value).ljust(8, b"\0")
        elif kind in _MASKS:
            slots += (value & _MASKS[kind]).to_bytes(8, "little")
        elif kind is Kind.BYTES and data_type.root is not Root.DECIMAL and len(value) <= INLINE_MAX:
            slots += value.ljust(INLINE_MAX, b"\0") + bytes([0x80 | len(value)])
        else:
            if kind is Kind.INSTANT:
                low, item = value[1], struct.pack("<q", value[0])
            elif data_type.root is Root.DECIMAL:
                low, item = len(value), value.ljust(_DECIMAL_AREA, b"\0")
            else:
                low, item = len(value), value.ljust((len(value) + 7) & ~7, b"\0")
            slots += struct.pack("<II", low, end + len(items))
        items += item
    return bytes(slots + items)
