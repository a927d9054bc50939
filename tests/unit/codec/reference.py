"""Rows and keys one value at a time, written from the protocol's description alone.

Values are those of `strategies`: whole numbers for dates (days), times and timestamps (ticks of the
unit that Arrow uses for the precision), Decimal, str, bytes, lists, pairs, tuples of fields.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from decimal import Decimal
from typing import Any

import pyarrow as pa

from fluss_client.errors import UnsupportedError
from fluss_client.model.types import DataType, Root

TICKS_PER_SECOND = (1, 1000, 1000, 1000, 10**6, 10**6, 10**6, 10**9, 10**9, 10**9)
PACKED = {
    Root.BOOLEAN: "<?",
    Root.TINYINT: "<b",
    Root.SMALLINT: "<h",
    Root.FLOAT: "<f",
    Root.DOUBLE: "<d",
}
SLOT = {
    **PACKED,
    Root.INTEGER: "<i",
    Root.DATE: "<i",
    Root.TIME: "<i",
    Root.BIGINT: "<q",
}


def varint(value: int, bits: int) -> bytes:
    value %= 1 << bits
    out = b""
    while value >= 0x80:
        out += bytes([value % 0x80 + 0x80])
        value //= 0x80
    return out + bytes([value])


def unscaled(value: Decimal, data_type: DataType) -> int:
    sign, digits, exponent = value.as_tuple()
    assert isinstance(exponent, int)
    number = int("".join(map(str, digits))) * 10 ** (exponent + data_type.scale)
    return -number if sign else number


def shortest(number: int) -> bytes:
    size = 1
    while not -(1 << (8 * size - 1)) <= number < 1 << (8 * size - 1):
        size += 1
    return number.to_bytes(size, "big", signed=True)


def instant(ticks: int, data_type: DataType) -> tuple[int, int]:
    """Milliseconds and nanoseconds of the millisecond."""
    return divmod(ticks * (10**9 // TICKS_PER_SECOND[data_type.precision]), 10**6)


def stored(value: Any, data_type: DataType, fmt: str) -> Any:
    """Numbers, pairs (millis, nanos) or bytes."""
    root = data_type.root
    if root in (Root.CHAR, Root.STRING):
        return value.encode()
    if root is Root.DECIMAL:
        number = unscaled(value, data_type)
        return number if data_type.precision <= 18 else shortest(number)
    if root is Root.TIME:
        return instant(value, data_type)[0]
    if root in (Root.TIMESTAMP, Root.TIMESTAMP_LTZ):
        pair = instant(value, data_type)
        return pair[0] if data_type.precision <= 3 else pair
    if root is Root.ARRAY:
        return array_block(value, data_type.element, fmt)
    if root is Root.MAP:
        keys = array_block([k for k, _ in value], data_type.key, fmt)
        values = array_block([v for _, v in value], data_type.element, fmt)
        return struct.pack("<i", len(keys)) + keys + values
    if root is Root.ROW:
        fields = data_type.fields
        return encode_row([value[f.name] for f in fields], [f.type for f in fields], fmt)
    return value


def null_bits(flags: list[bool], size: int) -> bytes:
    return sum(1 << i for i, flag in enumerate(flags) if flag).to_bytes(size, "little")


def encode_row(values: list[Any], types: list[DataType], fmt: str) -> bytes:
    head = null_bits([v is None for v in values], -(-len(types) // 8))
    fields = [(stored(v, t, fmt), t) for v, t in zip(values, types, strict=True) if v is not None]
    if fmt == "compacted":
        return head + b"".join(compacted(value, t) for value, t in fields)
    variable = [t for t in types if is_variable(t)]
    lengths = [len(value) for value, t in fields if is_variable(t)]
    lengths += [0] * (len(variable) - len(lengths))
    head += b"".join(struct.pack("<i", length) for length in lengths)
    return head + b"".join(indexed(value, t) for value, t in fields)


def is_variable(data_type: DataType) -> bool:
    root = data_type.root
    if root is Root.DECIMAL:
        return data_type.precision > 18
    return root in (Root.STRING, Root.BYTES, Root.ARRAY, Root.MAP, Root.ROW)


def compacted(value: Any, data_type: DataType) -> bytes:
    root = data_type.root
    if root in PACKED:
        return struct.pack(PACKED[root], value)
    if isinstance(value, bytes):
        return varint(len(value), 32) + value
    if isinstance(value, tuple):
        return varint(value[0], 64) + varint(value[1], 32)
    return varint(value, 32 if root in (Root.INTEGER, Root.DATE, Root.TIME) else 64)


def indexed(value: Any, data_type: DataType) -> bytes:
    root = data_type.root
    if root in (Root.CHAR, Root.BINARY):
        return value.ljust(data_type.length, b"\0")
    if isinstance(value, bytes):
        return value
    if isinstance(value, tuple):
        return struct.pack("<qi", *value)
    return struct.pack(SLOT.get(root, "<q"), value)


def array_block(values: list[Any], element: DataType | None, fmt: str) -> bytes:
    assert element is not None
    width = struct.calcsize(SLOT.get(element.root, "<q"))
    head = struct.pack("<i", len(values))
    head += null_bits([v is None for v in values], -(-len(values) // 32) * 4)
    fixed = -(-(len(head) + width * len(values)) // 8) * 8
    slots, items = b"", b""
    for value in values:
        if value is None:
            slots += bytes(width)
            continue
        slot, item = slot_and_item(stored(value, element, fmt), element, fixed + len(items))
        slots += slot
        items += item
    return (head + slots).ljust(fixed, b"\0") + items


def slot_and_item(value: Any, data_type: DataType, offset: int) -> tuple[bytes, bytes]:
    root = data_type.root
    if isinstance(value, tuple):
        return struct.pack("<ii", value[1], offset), struct.pack("<q", value[0])
    if not isinstance(value, bytes):
        return struct.pack(SLOT.get(root, "<q"), value), b""
    if root is Root.DECIMAL:
        return struct.pack("<ii", len(value), offset), value.ljust(16, b"\0")
    if len(value) <= 7 and root not in (Root.ARRAY, Root.MAP, Root.ROW):
        return value.ljust(7, b"\0") + bytes([0x80 + len(value)]), b""
    return struct.pack("<ii", len(value), offset), value + bytes(-len(value) % 8)


def encode_key(values: list[Any], types: list[DataType], encoding: str) -> bytes:
    fields = [(stored(v, t, "compacted"), t) for v, t in zip(values, types, strict=True)]
    if encoding == "compacted":
        return b"".join(compacted(value, t) for value, t in fields)
    if encoding == "paimon":
        head = bytes(-(-(len(types) + 8) // 64) * 8)
        end = len(head) + 8 * len(types)
        items = b""
        for value, data_type in fields:
            slot, item = slot_and_item(value, data_type, end + len(items))
            head += slot.ljust(8, b"\0")
            items += item
        return head + items
    ((value, data_type),) = fields
    if data_type.root is Root.DECIMAL:
        return shortest(unscaled(values[0], data_type))
    if data_type.root in (Root.TIME, Root.TIMESTAMP):
        millis, nanos = value if isinstance(value, tuple) else (value, 0)
        return struct.pack("<q", millis * 1000 + nanos // 1000)
    if data_type.root in PACKED:
        return struct.pack(PACKED[data_type.root], value)
    return value if isinstance(value, bytes) else struct.pack("<q", value)


def shown(batch: pa.RecordBatch) -> list[dict[str, Any]] | type[UnsupportedError]:
    """The batch as Python values; the error's class where only pandas could hold nanoseconds."""
    try:
        return batch.to_pylist()
    except ValueError:
        return UnsupportedError


def shown_by(read: Callable[[], Any]) -> Any:
    """What a reader gives, or the class of the error where only pandas could help."""
    try:
        return read()
    except UnsupportedError:
        return UnsupportedError
