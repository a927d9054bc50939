"""One row as Python values, for single look-ups: what `decode_rows` and `to_pylist` would give.

A schema is compiled once into one reader per column; a row then costs a few calls instead of the
start-up of a hundred array operations. The layouts are those of `compacted`, `indexed`, `nested`.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any

from fluss_client.codec.blobs import Blobs
from fluss_client.codec.rows import indexed
from fluss_client.codec.rows.batch import decode_rows
from fluss_client.codec.rows.header import bytes_for_bits
from fluss_client.codec.rows.physical import Kind, RowFormat, kind_of
from fluss_client.codec.rows.python_makers import Maker, value_maker
from fluss_client.codec.rows.python_values import MICRO_PRECISION, RAW_STRUCTS
from fluss_client.codec.rows.scalar_blocks import array_parser, map_parser
from fluss_client.codec.varints import MAX_INT32_BYTES, MAX_INT64_BYTES, decode_varint
from fluss_client.errors import CorruptDataError, UnsupportedError
from fluss_client.model.types import DataType, Root

Reader = Callable[[bytes, int], tuple[Any, int]]
"""From a row and a position in it: the value there, and the position behind it."""
Parser = Callable[[bytes], Any]
"""From all the bytes of a row or block: its value."""

_CACHED_SCHEMAS = 256
_INT32 = struct.Struct("<i")
_INT64 = struct.Struct("<q")
_INSTANT = struct.Struct("<qi")
_NOT_A_ROW = (IndexError, struct.error, UnicodeDecodeError, OverflowError, ValueError)


def decode_row_scalar(
    row: bytes, types: Sequence[DataType], names: Sequence[str], fmt: RowFormat
) -> dict[str, Any]:
    """The row's values by column name.

    Bytes that are no such row raise CorruptDataError, and so does a time that Python's classes
    cannot express; nanoseconds need pandas, as in Arrow, or raise UnsupportedError. Fastest when
    `types` and `names` are the same tuples every time.
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
    """A function from a row's bytes to its values by name; errors are not translated yet."""
    if any(map(_needs_arrow, types)):
        return lambda row: _through_arrow(row, types, names, fmt)
    make = _compacted_parser if fmt is RowFormat.COMPACTED else _indexed_parser
    return make(types, names)


def _through_arrow(
    row: bytes, types: Sequence[DataType], names: Sequence[str], fmt: RowFormat
) -> Any:
    """Nanoseconds have no class in Python itself: Arrow decides what stands for them."""
    batch = decode_rows(Blobs.from_list([row]), types, names, fmt)
    try:
        return batch.to_pylist()[0]
    except ValueError as error:
        raise UnsupportedError(
            f"Python alone cannot hold nanoseconds: install pandas, or read as Arrow ({error})"
        ) from error


def _needs_arrow(data_type: DataType) -> bool:
    if data_type.root in (Root.TIMESTAMP, Root.TIMESTAMP_LTZ):
        return data_type.precision > MICRO_PRECISION
    inside = [data_type.element, data_type.key, *(field.type for field in data_type.fields)]
    return any(_needs_arrow(child) for child in inside if child is not None)


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
    kind = kind_of(data_type)
    if kind in (Kind.INT32, Kind.INT64):
        return _varint_reader(kind, value_maker(data_type))
    if kind is Kind.RAW:
        return _fixed_reader(RAW_STRUCTS[data_type.root], value_maker(data_type))
    if kind is Kind.INSTANT:
        make_instant = value_maker(data_type)

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
    """For a variable-length column, from all its bytes; its second result means nothing."""
    if indexed.is_variable(data_type):
        make = block_maker(data_type, RowFormat.INDEXED)
        return lambda row, position: (make(row), 0)
    make = value_maker(data_type)
    kind = kind_of(data_type)
    if kind is Kind.BYTES:
        length, char = data_type.length, data_type.root is Root.CHAR

        def read_padded(row: bytes, position: int) -> tuple[Any, int]:
            end = position + length
            if end > len(row):
                raise CorruptDataError("a column goes past the end")
            value = row[position:end]
            return make(value.rstrip(b"\0") if char else value), end

        return read_padded
    layouts = {Kind.INT32: _INT32, Kind.INT64: _INT64, Kind.INSTANT: _INSTANT}
    return _fixed_reader(layouts[kind] if kind in layouts else RAW_STRUCTS[data_type.root], make)


def block_maker(data_type: DataType, fmt: RowFormat) -> Parser:
    """A function from a variable-length value's bytes to the value; blocks nest to any depth."""
    if data_type.root is Root.ROW:
        fields = data_type.fields
        return row_parser(tuple(f.type for f in fields), tuple(f.name for f in fields), fmt)
    if data_type.root is Root.ARRAY:
        assert data_type.element is not None
        return array_parser(data_type.element, _element_maker(data_type.element, fmt))
    if data_type.root is Root.MAP:
        assert data_type.key is not None
        assert data_type.element is not None
        return map_parser(
            array_parser(data_type.key, _element_maker(data_type.key, fmt)),
            array_parser(data_type.element, _element_maker(data_type.element, fmt)),
        )
    return value_maker(data_type)


def _element_maker(data_type: DataType, fmt: RowFormat) -> Maker:
    return block_maker(data_type, fmt) if data_type.is_nested else value_maker(data_type)


def _signed(number: int, bits: int) -> int:
    number &= (1 << bits) - 1
    return number - (1 << bits) if number >> bits - 1 else number
