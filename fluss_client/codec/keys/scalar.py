"""Encodes one key from Python values.

The bytes are those that `keys.batch` makes, without the start-up of array operations. A value of
the usual Python class of its type is converted by the type itself; any other one (another class
that Arrow can convert, nanosecond precision) goes through Arrow and gives what a column would.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Any

import pyarrow as pa

from fluss_client.codec.binary.varints import encode_varint
from fluss_client.codec.keys.batch import paimon_header_size
from fluss_client.codec.keys.encoding import KeyEncoding, check_key_columns
from fluss_client.codec.rows.columns import read_column
from fluss_client.codec.rows.slots import DECIMAL_AREA, INLINE_MAX
from fluss_client.errors import RowError
from fluss_client.model.arrow import arrow_type
from fluss_client.model.types import DataType
from fluss_client.model.types.base import UNUSUAL
from fluss_client.model.types.layout import IcebergKey, Kind
from fluss_client.model.types.numeric import shortest_bytes

_MASKS = {Kind.INT32: (1 << 32) - 1, Kind.INT64: (1 << 64) - 1}
_MASK64 = (1 << 64) - 1


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
        return b"".join(map(_compacted, stored, types))
    if encoding is KeyEncoding.ICEBERG:
        return _iceberg(stored[0], types[0])
    return _paimon(stored, types)


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


def _compacted(value: Any, data_type: DataType) -> bytes:
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


def _iceberg(value: Any, data_type: DataType) -> bytes:
    layout = data_type.layout
    form = layout.iceberg_key
    if form is IcebergKey.STORED:
        return layout.packing.pack(value) if layout.is_number else bytes(value)
    if form is IcebergKey.UNSCALED:
        return shortest_bytes(value) if layout.is_number else bytes(value)
    if layout.kind is Kind.INSTANT:
        value = value[0] * 1000 + value[1] // 1000
    elif form is IcebergKey.MICROSECONDS:
        value *= 1000
    # Beyond the years that microseconds can express, the Java clients wrap around too.
    return (value & _MASK64).to_bytes(8, "little")  # type: ignore[no-any-return]


def _paimon(values: Sequence[Any], types: Sequence[DataType]) -> bytes:
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
