"""One array or map block as a Python list; the layouts are those of `nested` and `slots`."""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Any

from fluss_client.codec.rows.physical import Kind, kind_of
from fluss_client.codec.rows.python_makers import Maker
from fluss_client.codec.rows.python_values import RAW_STRUCTS
from fluss_client.codec.rows.slots import INLINE_MAX
from fluss_client.errors import CorruptDataError
from fluss_client.model.types import DataType, Root

ListParser = Callable[[bytes], list[Any]]

_COUNT = struct.Struct("<i")
_COUNT_BYTES = 4
_SLOT = struct.Struct("<Q")
_SLOT_BYTES = 8


def array_parser(data_type: DataType, make: Maker) -> ListParser:
    """A function from an array block to its elements; `make` takes stored values."""
    kind = kind_of(data_type)
    if kind is Kind.RAW:
        return _number_parser(data_type, RAW_STRUCTS[data_type.root].format[1:], make)
    if kind in (Kind.INT32, Kind.INT64):
        return _number_parser(data_type, "i" if kind is Kind.INT32 else "q", make)
    inline = kind is Kind.BYTES and data_type.root is not Root.DECIMAL

    def parse(block: bytes) -> list[Any]:
        count, slots_at, nulls = _open(block, data_type, _SLOT_BYTES)
        values: list[Any] = []
        total = 0
        for index in range(count):
            if nulls >> index & 1:
                values.append(None)
                continue
            at = slots_at + _SLOT_BYTES * index
            (slot,) = _SLOT.unpack_from(block, at)
            offset, low = slot >> 32, slot & 0xFFFFFFFF
            if kind is Kind.INSTANT:
                low = low - (1 << 32) if low >> 31 else low
                values.append(make((struct.unpack_from("<q", block, offset)[0], low)))
                continue
            if inline and slot >> 63:
                offset, low = at, (slot >> 56) & 0x7F
                if low > INLINE_MAX:
                    raise CorruptDataError("a slot holds more than seven bytes")
            total += low
            if offset + low > len(block) or total > len(block):
                raise CorruptDataError("an array's items leave the array")
            values.append(make(block[offset : offset + low]))
        return values

    return parse


def _number_parser(data_type: DataType, letter: str, make: Maker) -> ListParser:
    width = struct.calcsize("<" + letter)

    def parse(block: bytes) -> list[Any]:
        count, slots_at, nulls = _open(block, data_type, width)
        numbers = struct.unpack_from(f"<{count}{letter}", block, slots_at)
        if not nulls:
            return [make(number) for number in numbers]
        return [None if nulls >> i & 1 else make(number) for i, number in enumerate(numbers)]

    return parse


def _open(block: bytes, data_type: DataType, width: int) -> tuple[int, int, int]:
    """The count, where the slots begin, and the null bits as one number."""
    (count,) = _COUNT.unpack_from(block)
    slots_at = _COUNT_BYTES + 4 * ((count + 31) // 32)
    if count < 0 or slots_at + count * width > len(block):
        raise CorruptDataError("an array is too short for its elements")
    nulls = int.from_bytes(block[_COUNT_BYTES:slots_at], "little") & ((1 << count) - 1)
    if nulls and not data_type.nullable:
        raise CorruptDataError("an array holds a null and its element type says NOT NULL")
    return count, slots_at, nulls


def map_parser(parse_keys: ListParser, parse_values: ListParser) -> Callable[[bytes], list[Any]]:
    """A function from a map block to its (key, value) pairs."""

    def parse(block: bytes) -> list[Any]:
        (key_size,) = _COUNT.unpack_from(block)
        end = _COUNT_BYTES + key_size
        if key_size < 0 or end > len(block):
            raise CorruptDataError("a map is too short for its keys")
        keys, values = parse_keys(block[_COUNT_BYTES:end]), parse_values(block[end:])
        if len(keys) != len(values):
            raise CorruptDataError("a map has more keys than values, or fewer")
        return list(zip(keys, values, strict=True))

    return parse
