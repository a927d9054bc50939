"""Whole batches to rows and back, in either format, nested types included.

Recursion follows the type, never the data: the children of a nested column are flattened and
handled as one column each.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence

import numpy as np
import pyarrow as pa

from fluss_client.codec.bitmaps import null_mask, validity
from fluss_client.codec.blobs import Blobs, Bytes, Ints, offsets_of
from fluss_client.codec.rows import compacted, indexed, nested
from fluss_client.codec.rows.columns import as_wire, build_column, read_column
from fluss_client.codec.rows.physical import Found, Physical, RowFormat, Spans, refuse
from fluss_client.codec.unaligned import with_slack
from fluss_client.errors import RowError, UnsupportedError
from fluss_client.model.arrow import arrow_field, arrow_type
from fluss_client.model.types import DataType, Root

CHUNK_ROWS = 32_768
"""Rows handled at a time, so that what is in between stays in the processor's cache."""
MAX_DECODE_BYTES = (1 << 31) - 64
"""What one Arrow column can hold."""

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
    """Each row of the batch as the bytes of a row.

    Column i has the Arrow form of `types[i]`, zones do not matter. A null in a NOT NULL column, or
    a value that the row cannot hold, raises RowError with the column's name.
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
    """The rows as a batch of the columns with these indexes (all by default), in that order.

    `types` and `names` are those of the schema that the rows were written with. Bytes that are no
    such rows raise CorruptDataError. Memory stays in proportion to the rows' bytes.
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
    """The blocks of a nested column that has no nulls."""
    if data_type.root is Root.ROW:
        types = [field.type for field in data_type.fields]
        names = [f"{name}.{field.name}" for field in data_type.fields]
        children = array.flatten()
        if len(children) != len(types):
            raise RowError(f"column '{name}' has {len(children)} fields, its type {len(types)}")
        return _encode(len(array), children, types, names, fmt)
    assert data_type.element is not None
    offsets = _list_offsets(array)
    values = array.values.slice(offsets[0], offsets[-1] - offsets[0])
    counts = np.diff(offsets)
    if data_type.root is Root.ARRAY:
        return _array_blocks(counts, values, data_type.element, f"{name}.element", fmt)
    assert data_type.key is not None
    keys, items = values.flatten()
    return nested.encode_maps(
        _array_blocks(counts, keys, data_type.key, f"{name}.key", fmt),
        _array_blocks(counts, items, data_type.element, f"{name}.value", fmt),
    )


def _array_blocks(
    counts: Ints, values: pa.Array, data_type: DataType, name: str, fmt: RowFormat
) -> Blobs:
    return nested.encode_arrays(counts, _read(values, data_type, name, fmt), data_type)


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
    if data_type.root is Root.ROW:
        return _build_rows(found, data_type, fmt)
    present = found.spans if found.nulls is None else found.spans.where(~found.nulls)
    assert data_type.element is not None
    if data_type.root is Root.ARRAY:
        counts, elements = nested.find_arrays(present, data_type.element)
        child = _build(elements, data_type.element, fmt)
    else:
        assert data_type.key is not None
        key_blocks, value_blocks = nested.find_maps(present)
        counts, keys = nested.find_arrays(key_blocks, data_type.key)
        value_counts, values = nested.find_arrays(value_blocks, data_type.element)
        refuse(counts != value_counts, "a map has more keys than values, or fewer")
        child = pa.StructArray.from_arrays(
            [_build(keys, data_type.key, fmt), _build(values, data_type.element, fmt)],
            fields=[arrow_field("key", data_type.key), arrow_field("value", data_type.element)],
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
