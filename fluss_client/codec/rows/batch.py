"""Encodes Arrow batches as rows and decodes rows, in either format, nested types included.

The recursion follows the type, never the data: the children of a nested column are flattened and
handled as one column each. A nested value is stored as a block, the same in both row formats. All
numbers are little endian:

    array block   i32 count
                  null bits in 4-byte words, lowest bit first
                  one slot per element: 1 (BOOLEAN, TINYINT), 2 (SMALLINT), 4 (INTEGER, FLOAT, DATE,
                  TIME) or 8 bytes (all others); then zeros up to a multiple of 8
                  the items, each padded to a multiple of 8; offsets count from the block's start
    map block     i32 size of the key array, array block of the keys, array block of the values
    row block     a row in the format of the outer row

`slots` describes slots and items.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence

import numpy as np
import pyarrow as pa

from fluss_client.codec.binary.blobs import (
    SLACK,
    Blobs,
    Bools,
    Bytes,
    Ints,
    join,
    load,
    null_mask,
    offsets_of,
    splice,
    store,
    validity,
    with_slack,
)
from fluss_client.codec.rows import compacted, indexed
from fluss_client.codec.rows.columns import as_wire, build_column, read_column
from fluss_client.codec.rows.physical import Found, Physical, RowFormat, Spans, refuse
from fluss_client.codec.rows.slots import HALF, INLINE_MAX, LOW_HALF, round_up, slot_width, slots_of
from fluss_client.errors import RowError, UnsupportedError
from fluss_client.model.arrow import arrow_field, arrow_type
from fluss_client.model.types import DataType
from fluss_client.model.types.layout import Kind

_COUNT_BYTES = 4


def header_size(counts: Ints) -> Ints:
    """Return the size of the count and the null bits."""
    return _COUNT_BYTES + 4 * ((counts + 31) // 32)


def encode_arrays(counts: Ints, elements: Physical, data_type: DataType) -> Blobs:
    """Return array blocks: the first `counts[0]` elements belong to the first block, and so on."""
    firsts = offsets_of(counts)
    width = slot_width(data_type)
    headers = header_size(counts)
    fixed = round_up(headers + width * counts)
    block_of = np.repeat(np.arange(counts.size), counts)
    place = np.arange(firsts[-1]) - firsts[block_of]
    slots, items = slots_of(elements, data_type)
    running = offsets_of(items.sizes)
    far = items.owners
    if far.size:
        in_block = running[:-1] - running[firsts[block_of]]
        slots[far] |= (fixed[block_of[far]] + in_block[far]).astype(np.uint64) << HALF
    # All bytes but the items, which are inserted behind the fixed part of each block afterwards.
    starts = offsets_of(fixed)
    template = np.zeros(int(starts[-1]) + SLACK, np.uint8)
    store(template, "<i4", starts[:-1], counts.astype(np.int32))
    slot_at = (starts[:-1] + headers)[block_of] + place * width
    store(template, f"V{width}", slot_at, slots.view(f"V{width}"))
    if elements.nulls is not None:
        at = place[elements.nulls]
        base = starts[block_of[elements.nulls]] + _COUNT_BYTES
        bits = np.left_shift(1, at % 8).astype(np.uint8)
        np.bitwise_or.at(template, base + at // 8, bits)
    template = template[: starts[-1]]
    totals = fixed + running[firsts[1:]] - running[firsts[:-1]]
    if not far.size:
        return Blobs(template, offsets_of(totals))
    return Blobs(splice(template, starts[1:][block_of[far]], items.blobs), offsets_of(totals))


def encode_maps(keys: Blobs, values: Blobs) -> Blobs:
    """Return map blocks from the array blocks of their keys and values."""
    sizes = keys.lengths.astype("<i4").view(np.uint8).reshape(-1, 4)
    return join([sizes, keys, values])


def find_arrays(blocks: Spans, data_type: DataType) -> tuple[Ints, Found]:
    """Return the element count of each array block, and all elements as one column.

    `blocks.data` has SLACK bytes behind the last block.

    Raises:
        CorruptDataError: A count, an offset or a size points out of its block; this is checked
            before anything larger than the blocks is allocated.
    """
    data, starts, sizes = blocks.data, blocks.starts, blocks.lengths
    width = slot_width(data_type)
    refuse(sizes < _COUNT_BYTES, "an array has no count")
    counts = load(data, "<i4", starts).astype(np.int64)
    refuse(counts < 0, "an array has a negative count")
    headers = header_size(counts)
    refuse(headers + counts * width > sizes, "an array is too short for its elements")
    firsts = offsets_of(counts)
    block_of = np.repeat(np.arange(counts.size), counts)
    place = np.arange(firsts[-1]) - firsts[block_of]
    bytes_at = data[starts[block_of] + _COUNT_BYTES + place // 8]
    nulls: Bools | None = (bytes_at >> (place % 8).astype(np.uint8)) & 1 != 0
    if nulls is not None and not nulls.any():
        nulls = None
    if nulls is not None and not data_type.nullable:
        refuse(nulls, "an array holds a null and its element type says NOT NULL")
    slot_at = (starts + headers)[block_of] + place * width
    elements = _find_elements(blocks, data_type, slot_at, block_of, firsts, nulls)
    return counts, elements


def _find_elements(
    blocks: Spans,
    data_type: DataType,
    slot_at: Ints,
    block_of: Ints,
    firsts: Ints,
    nulls: Bools | None,
) -> Found:
    layout = data_type.layout
    kind = layout.kind
    if kind in (Kind.RAW, Kind.INT32, Kind.INT64):
        return Found(nulls, load(blocks.data, layout.dtype, slot_at))
    slots = load(blocks.data, "<u8", slot_at).astype(np.uint64, copy=False)
    if nulls is not None:
        slots[nulls] = 0
    offsets = (slots >> HALF).view(np.int64)
    lengths = (slots & LOW_HALF).view(np.int64)
    room = blocks.lengths[block_of]
    if kind is Kind.INSTANT:
        outside = offsets + 8 > room
        refuse(outside if nulls is None else outside & ~nulls, "an offset leaves its array")
        at = blocks.starts[block_of] + (offsets if nulls is None else np.where(nulls, 0, offsets))
        return Found(nulls, load(blocks.data, "<i8", at), lengths.astype(np.int32))
    starts = blocks.starts[block_of] + offsets
    if kind is Kind.BYTES:
        inline = slots >> np.uint64(63) != 0
        starts = np.where(inline, slot_at, starts)
        inline_lengths = ((slots >> np.uint64(56)) & np.uint64(0x7F)).view(np.int64)
        refuse(inline & (inline_lengths > INLINE_MAX), "a slot holds more than seven bytes")
        lengths = np.where(inline, inline_lengths, lengths)
        offsets = np.where(inline, 0, offsets)
    refuse(offsets + lengths > room, "an offset leaves its array")
    # Items may share bytes only as far as their sum stays within the block: this bounds memory.
    running = offsets_of(lengths)
    total = running[firsts[1:]] - running[firsts[:-1]]
    refuse(total > blocks.lengths, "an array's items are larger than the array")
    if nulls is not None:
        starts = np.where(nulls, slot_at, starts)
    return Found(nulls, spans=Spans(blocks.data, starts, lengths))


def find_maps(blocks: Spans) -> tuple[Spans, Spans]:
    """Return the key array and the value array of each map block."""
    data, starts, sizes = blocks.data, blocks.starts, blocks.lengths
    refuse(sizes < _COUNT_BYTES, "a map has no key size")
    key_sizes = load(data, "<i4", starts).astype(np.int64)
    refuse((key_sizes < 0) | (key_sizes + _COUNT_BYTES > sizes), "a map is too short for its keys")
    keys = Spans(data, starts + _COUNT_BYTES, key_sizes)
    values = Spans(data, keys.starts + key_sizes, sizes - _COUNT_BYTES - key_sizes)
    return keys, values


CHUNK_ROWS = 32_768
"""Rows handled at a time, so that intermediate arrays stay in the processor's cache."""
MAX_DECODE_BYTES = (1 << 31) - 64
"""The bytes that one Arrow column can hold."""

_Encode = Callable[[int, Sequence[Physical], Sequence[DataType]], Blobs]
_Find = Callable[[Bytes, Ints, Ints, Sequence[DataType], Collection[int]], list[Found | None]]
_ENCODE: dict[RowFormat, _Encode] = {
    RowFormat.COMPACTED: compacted.encode,
    RowFormat.INDEXED: indexed.encode,
}
_FIND: dict[RowFormat, _Find] = {
    RowFormat.COMPACTED: compacted.find,
    RowFormat.INDEXED: indexed.find,
}


def encode_rows(batch: pa.RecordBatch, types: Sequence[DataType], kv_format: RowFormat) -> Blobs:
    """Return each row of the batch as the bytes of a row.

    Args:
        batch: The rows; column i has the Arrow form of `types[i]`, zones are ignored.
        types: The types of the columns.
        kv_format: The row format.

    Raises:
        RowError: A NOT NULL column has a null, or a row cannot hold a value.
    """
    if batch.num_columns != len(types):
        raise RowError(f"the batch has {batch.num_columns} columns, the row {len(types)}")
    names = batch.schema.names
    parts = [
        _encode(chunk.num_rows, chunk.columns, types, names, kv_format) for chunk in _chunks(batch)
    ]
    return Blobs.concat(parts)


def decode_rows(
    rows: Blobs,
    types: Sequence[DataType],
    names: Sequence[str],
    fmt: RowFormat,
    columns: Sequence[int] | None = None,
) -> pa.RecordBatch:
    """Return the rows as a batch.

    The memory used is in proportion to the bytes of the rows.

    Args:
        rows: The bytes of each row.
        types: The types of the columns of the schema that the rows were written with.
        names: The names of these columns.
        fmt: The row format.
        columns: The indexes of the columns to return, in this order; all by default.

    Raises:
        CorruptDataError: The bytes are no such rows.
        UnsupportedError: The rows have more than 2 GiB.
    """
    chosen = list(range(len(types))) if columns is None else list(columns)
    if rows.data.size > MAX_DECODE_BYTES:
        raise UnsupportedError("decode at most 2 GiB of rows at once; split them")
    schema = pa.schema([arrow_field(names[i], types[i]) for i in chosen])
    batches = []
    for first in range(0, len(rows), CHUNK_ROWS):
        offsets = rows.offsets[first : first + CHUNK_ROWS + 1]
        data = with_slack(rows.data[offsets[0] : offsets[-1]])
        offsets = offsets - offsets[0]
        found = _FIND[fmt](data, offsets[:-1], offsets[1:], types, set(chosen))
        arrays = [_build(found[i], types[i], fmt) for i in chosen]
        batches.append(pa.RecordBatch.from_arrays(arrays, schema=schema))
    if len(batches) == 1:
        return batches[0]
    if not batches:
        empty = [pa.array([], field.type) for field in schema]
        return pa.RecordBatch.from_arrays(empty, schema=schema)
    joined = [pa.concat_arrays([b.column(i) for b in batches]) for i in range(len(chosen))]
    return pa.RecordBatch.from_arrays(joined, schema=schema)


def _chunks(batch: pa.RecordBatch) -> list[pa.RecordBatch]:
    if batch.num_rows <= CHUNK_ROWS:
        return [batch]
    return [batch.slice(first, CHUNK_ROWS) for first in range(0, batch.num_rows, CHUNK_ROWS)]


def _encode(
    count: int,
    arrays: Sequence[pa.Array],
    types: Sequence[DataType],
    names: Sequence[str],
    fmt: RowFormat,
) -> Blobs:
    columns = [
        _read(array, data_type, name, fmt)
        for array, data_type, name in zip(arrays, types, names, strict=True)
    ]
    if fmt is RowFormat.INDEXED:
        for column, data_type, name in zip(columns, types, names, strict=True):
            indexed.check_fits(column, data_type, name)
    return _ENCODE[fmt](count, columns, types)


def _read(array: pa.Array, data_type: DataType, name: str, fmt: RowFormat) -> Physical:
    if not data_type.is_nested:
        return read_column(array, data_type, name)
    array = as_wire(array, data_type, name)
    nulls = null_mask(array)
    if nulls is None:
        return Physical(None, blobs=_blocks(array, data_type, name, fmt))
    if not data_type.nullable:
        raise RowError(f"column '{name}' is NOT NULL and has {array.null_count} nulls")
    present = _blocks(array.drop_null(), data_type, name, fmt)
    lengths = np.zeros(len(array), np.int64)
    lengths[~nulls] = present.lengths
    return Physical(nulls, blobs=Blobs(present.data, offsets_of(lengths)))


def _blocks(array: pa.Array, data_type: DataType, name: str, fmt: RowFormat) -> Blobs:
    """Return the blocks of a nested column that has no nulls."""
    if data_type.layout.kind is Kind.ROW:
        types = [field.type for field in data_type.fields]
        names = [f"{name}.{field.name}" for field in data_type.fields]
        children = array.flatten()
        if len(children) != len(types):
            raise RowError(f"column '{name}' has {len(children)} fields, its type {len(types)}")
        return _encode(len(array), children, types, names, fmt)
    offsets = _list_offsets(array)
    values = array.values.slice(offsets[0], offsets[-1] - offsets[0])
    counts = np.diff(offsets)
    if data_type.layout.kind is Kind.ARRAY:
        (element,) = data_type.children
        return _array_blocks(counts, values, element, f"{name}.element", fmt)
    key, value = data_type.children
    keys, items = values.flatten()
    return encode_maps(
        _array_blocks(counts, keys, key, f"{name}.key", fmt),
        _array_blocks(counts, items, value, f"{name}.value", fmt),
    )


def _array_blocks(
    counts: Ints, values: pa.Array, data_type: DataType, name: str, fmt: RowFormat
) -> Blobs:
    return encode_arrays(counts, _read(values, data_type, name, fmt), data_type)


def _list_offsets(array: pa.Array) -> Ints:
    buffer = array.buffers()[1]
    if buffer is None:
        return np.zeros(1, np.int64)
    return np.frombuffer(buffer, np.int32)[array.offset : array.offset + len(array) + 1].astype(
        np.int64
    )


def _build(found: Found | None, data_type: DataType, fmt: RowFormat) -> pa.Array:
    assert found is not None
    if not data_type.is_nested:
        return build_column(found, data_type)
    assert found.spans is not None
    if data_type.layout.kind is Kind.ROW:
        return _build_rows(found, data_type, fmt)
    present = found.spans if found.nulls is None else found.spans.where(~found.nulls)
    if data_type.layout.kind is Kind.ARRAY:
        (element,) = data_type.children
        counts, elements = find_arrays(present, element)
        child = _build(elements, element, fmt)
    else:
        key, value = data_type.children
        key_blocks, value_blocks = find_maps(present)
        counts, keys = find_arrays(key_blocks, key)
        value_counts, values = find_arrays(value_blocks, value)
        refuse(counts != value_counts, "a map has more keys than values, or fewer")
        child = pa.StructArray.from_arrays(
            [_build(keys, key, fmt), _build(values, value, fmt)],
            fields=[arrow_field("key", key), arrow_field("value", value)],
        )
    total = len(found.spans.starts)
    if found.nulls is not None:
        all_counts = np.zeros(total, np.int64)
        all_counts[~found.nulls] = counts
        counts = all_counts
    offsets = pa.py_buffer(offsets_of(counts).astype(np.int32))
    buffers = [validity(found.nulls), offsets]
    return pa.Array.from_buffers(arrow_type(data_type), total, buffers, children=[child])


def _build_rows(found: Found, data_type: DataType, fmt: RowFormat) -> pa.Array:
    assert found.spans is not None
    spans: Spans = found.spans if found.nulls is None else found.spans.where(~found.nulls)
    types = [field.type for field in data_type.fields]
    ends = spans.starts + spans.lengths
    columns = _FIND[fmt](spans.data, spans.starts, ends, types, range(len(types)))
    children = [_build(c, t, fmt) for c, t in zip(columns, types, strict=True)]
    count = spans.starts.size
    array = pa.Array.from_buffers(arrow_type(data_type), count, [None], children=children)
    if found.nulls is None:
        return array
    places = np.cumsum(~found.nulls) - 1
    return array.take(pa.array(places, mask=found.nulls))
