"""Decodes one row to Python values, for single look-ups.

The values are those that `decode_rows` and `to_pylist` give. A schema is compiled once into one
reader per column; a row then costs a few calls instead of the start-up of a hundred array
operations. `compacted` and `indexed` describe the byte layout of rows, `batch` and `slots` that of
array and map blocks.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any

from fluss_client.codec.binary.blobs import Blobs
from fluss_client.codec.binary.varints import MAX_INT32_BYTES, MAX_INT64_BYTES, decode_varint
from fluss_client.codec.rows import indexed
from fluss_client.codec.rows.batch import decode_rows
from fluss_client.codec.rows.physical import RowFormat, bytes_for_bits
from fluss_client.codec.rows.slots import INLINE_MAX, SLOT_BYTES
from fluss_client.errors import CorruptDataError, UnsupportedError
from fluss_client.model.types import DataType
from fluss_client.model.types.base import Maker
from fluss_client.model.types.layout import Kind

ListParser = Callable[[bytes], list[Any]]

_COUNT = struct.Struct("<i")
_COUNT_BYTES = 4
_SLOT = struct.Struct("<Q")


def array_parser(data_type: DataType, make: Maker) -> ListParser:
    """Return a function from an array block to its elements; `make` takes stored values."""
    kind = data_type.layout.kind
    if kind in (Kind.RAW, Kind.INT32, Kind.INT64):
        return _number_parser(data_type, data_type.layout.packing.format[1:], make)
    inline = kind is Kind.BYTES

    def parse(block: bytes) -> list[Any]:
        count, slots_at, nulls = _open(block, data_type, SLOT_BYTES)
        values: list[Any] = []
        total = 0
        for index in range(count):
            if nulls >> index & 1:
                values.append(None)
                continue
            at = slots_at + SLOT_BYTES * index
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
    """Return the count, where the slots begin, and the null bits as one number."""
    (count,) = _COUNT.unpack_from(block)
    slots_at = _COUNT_BYTES + 4 * ((count + 31) // 32)
    if count < 0 or slots_at + count * width > len(block):
        raise CorruptDataError("an array is too short for its elements")
    nulls = int.from_bytes(block[_COUNT_BYTES:slots_at], "little") & ((1 << count) - 1)
    if nulls and not data_type.nullable:
        raise CorruptDataError("an array holds a null and its element type says NOT NULL")
    return count, slots_at, nulls


def map_parser(parse_keys: ListParser, parse_values: ListParser) -> Callable[[bytes], list[Any]]:
    """Return a function from a map block to its (key, value) pairs."""

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


Reader = Callable[[bytes, int], tuple[Any, int]]
"""From a row and a position in it: the value there, and the position behind it."""
Parser = Callable[[bytes], Any]
"""From all the bytes of a row or block: its value."""

_CACHED_SCHEMAS = 256
_INT32 = struct.Struct("<i")
_NOT_A_ROW = (IndexError, struct.error, UnicodeDecodeError, OverflowError, ValueError)


def decode_row_scalar(
    row: bytes, types: Sequence[DataType], names: Sequence[str], fmt: RowFormat
) -> dict[str, Any]:
    """Return the values of one row by column name.

    It is fastest if `types` and `names` are the same tuples at each call.

    Args:
        row: The encoded row.
        types: The types of its columns.
        names: The names of its columns.
        fmt: The format of the row.

    Raises:
        CorruptDataError: The bytes are no such row, or Python's classes cannot express a time.
        UnsupportedError: A column has nanoseconds, which need pandas, as in Arrow.
    """
    parser = _parser_of(types, names, fmt)
    try:
        return parser(row)  # type: ignore[no-any-return]
    except _NOT_A_ROW as error:
        raise CorruptDataError(f"not a row of this schema: {error}") from error


_known: dict[tuple[int, int, RowFormat], tuple[object, object, Parser]] = {}


def _parser_of(types: Sequence[DataType], names: Sequence[str], fmt: RowFormat) -> Parser:
    # Hashing a wide schema costs more than reading a row: tuples, which cannot change, are known
    # by their identity. The entry keeps them alive, so that no other object gets their id.
    key = (id(types), id(names), fmt)
    entry = _known.get(key)
    if entry is not None:
        return entry[2]
    parser = row_parser(tuple(types), tuple(names), fmt)
    if isinstance(types, tuple) and isinstance(names, tuple):
        if len(_known) >= _CACHED_SCHEMAS:
            _known.clear()
        _known[key] = (types, names, parser)
    return parser


@lru_cache(maxsize=_CACHED_SCHEMAS)
def row_parser(types: tuple[DataType, ...], names: tuple[str, ...], fmt: RowFormat) -> Parser:
    """Return a function from a row's bytes to its values by name; it raises `_NOT_A_ROW` too."""
    if any(data_type.needs_arrow for data_type in types):
        return lambda row: _through_arrow(row, types, names, fmt)
    make = _compacted_parser if fmt is RowFormat.COMPACTED else _indexed_parser
    return make(types, names)


def _through_arrow(
    row: bytes, types: Sequence[DataType], names: Sequence[str], fmt: RowFormat
) -> Any:
    """Decode with Arrow, which decides what class holds nanoseconds: Python has none."""
    batch = decode_rows(Blobs.from_list([row]), types, names, fmt)
    try:
        return batch.to_pylist()[0]
    except ValueError as error:
        raise UnsupportedError(
            f"Python alone cannot hold nanoseconds: install pandas, or read as Arrow ({error})"
        ) from error


def _compacted_parser(types: Sequence[DataType], names: Sequence[str]) -> Parser:
    header = bytes_for_bits(len(types))
    columns = [
        (name, i // 8, 1 << i % 8, data_type.nullable, _compacted_reader(data_type))
        for i, (name, data_type) in enumerate(zip(names, types, strict=True))
    ]

    def parse(row: bytes) -> dict[str, Any]:
        values: dict[str, Any] = {}
        position = header
        for name, byte, bit, nullable, read in columns:
            if not row[byte] & bit:
                values[name], position = read(row, position)
            elif nullable:
                values[name] = None
            else:
                raise CorruptDataError(f"column '{name}' is null and its type says NOT NULL")
        if position != len(row):
            raise CorruptDataError(f"the row has {len(row)} bytes, its columns {position}")
        return values

    return parse


def _compacted_reader(data_type: DataType) -> Reader:
    kind = data_type.layout.kind
    if kind in (Kind.INT32, Kind.INT64):
        return _varint_reader(kind, data_type.maker())
    if kind is Kind.RAW:
        return _fixed_reader(data_type.layout.packing, data_type.maker())
    if kind is Kind.INSTANT:
        make_instant = data_type.maker()

        def read_instant(row: bytes, position: int) -> tuple[Any, int]:
            millis, position = decode_varint(row, position, MAX_INT64_BYTES)
            nanos, position = decode_varint(row, position, MAX_INT32_BYTES)
            return make_instant((_signed(millis, 64), _signed(nanos, 32))), position

        return read_instant
    make = block_maker(data_type, RowFormat.COMPACTED)

    def read_bytes(row: bytes, position: int) -> tuple[Any, int]:
        length, position = decode_varint(row, position, MAX_INT32_BYTES)
        end = position + (length & 0xFFFFFFFF)
        if end > len(row):
            raise CorruptDataError("a length goes past the end")
        return make(row[position:end]), end

    return read_bytes


def _varint_reader(kind: Kind, make: Maker) -> Reader:
    max_bytes, bits = (MAX_INT32_BYTES, 32) if kind is Kind.INT32 else (MAX_INT64_BYTES, 64)

    def read(row: bytes, position: int) -> tuple[Any, int]:
        number, position = decode_varint(row, position, max_bytes)
        return make(_signed(number, bits)), position

    return read


def _fixed_reader(layout: struct.Struct, make: Maker) -> Reader:
    size = layout.size
    pair = len(layout.format) > len("<i")

    def read(row: bytes, position: int) -> tuple[Any, int]:
        numbers = layout.unpack_from(row, position)
        return make(numbers if pair else numbers[0]), position + size

    return read


def _indexed_parser(types: Sequence[DataType], names: Sequence[str]) -> Parser:
    lengths_at = bytes_for_bits(len(types))
    header = lengths_at + 4 * sum(map(indexed.is_variable, types))
    columns = [
        (name, i // 8, 1 << i % 8, t.nullable, indexed.is_variable(t), _indexed_reader(t))
        for i, (name, t) in enumerate(zip(names, types, strict=True))
    ]

    def parse(row: bytes) -> dict[str, Any]:
        values: dict[str, Any] = {}
        position, listed = header, lengths_at
        for name, byte, bit, nullable, variable, read in columns:
            if row[byte] & bit:
                if not nullable:
                    raise CorruptDataError(f"column '{name}' is null and its type says NOT NULL")
                values[name] = None
            elif variable:
                end = position + _INT32.unpack_from(row, listed)[0]
                listed += 4
                if not position <= end <= len(row):
                    raise CorruptDataError("a length goes past the end")
                values[name], position = read(row[position:end], 0)[0], end
            else:
                values[name], position = read(row, position)
        if position != len(row):
            raise CorruptDataError(f"the row has {len(row)} bytes, its columns {position}")
        return values

    return parse


def _indexed_reader(data_type: DataType) -> Reader:
    """Return the reader of a column; a variable-length one gets all its bytes and no position."""
    if indexed.is_variable(data_type):
        make = block_maker(data_type, RowFormat.INDEXED)
        return lambda row, position: (make(row), 0)
    make = data_type.maker()
    if data_type.layout.padded:
        length, strips = data_type.length, data_type.layout.strips_padding

        def read_padded(row: bytes, position: int) -> tuple[Any, int]:
            end = position + length
            if end > len(row):
                raise CorruptDataError("a column goes past the end")
            value = row[position:end]
            return make(value.rstrip(b"\0") if strips else value), end

        return read_padded
    return _fixed_reader(data_type.layout.packing, make)


def block_maker(data_type: DataType, fmt: RowFormat) -> Parser:
    """Return a function from a stored value to the Python value; blocks nest to any depth."""
    kind = data_type.layout.kind
    if kind is Kind.ROW:
        fields = data_type.fields
        return row_parser(tuple(f.type for f in fields), tuple(f.name for f in fields), fmt)
    if kind in (Kind.ARRAY, Kind.MAP):
        lists = [array_parser(child, block_maker(child, fmt)) for child in data_type.children]
        return lists[0] if kind is Kind.ARRAY else map_parser(*lists)
    return data_type.maker()


def _signed(number: int, bits: int) -> int:
    number &= (1 << bits) - 1
    return number - (1 << bits) if number >> bits - 1 else number
