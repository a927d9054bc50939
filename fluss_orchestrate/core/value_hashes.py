"""64-bit hashes of the values of Arrow columns, computed for whole columns.

Equal values of one type have equal hashes, whatever batch, slice or encoding they come in. Null
has a hash of its own, which no value has except by chance: null and an empty text differ. All NaN
are equal, and so are 0.0 and -0.0, as databases compare them. The entries of a map have no order.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pt

UInt64 = npt.NDArray[np.uint64]

_NULL = np.uint64(0)
_FNV_PRIME = 0x100000001B3


def row_hashes(columns: Sequence[UInt64], count: int, seed: int = 0) -> UInt64:
    """Combine the hashes of some columns in one hash per row. The order of the columns counts.

    Args:
        columns: The hashes of each column.
        count: The number of rows.
        seed: Another seed is another hash.
    """
    found: UInt64 = np.full(count, seed + 1, np.uint64)
    for column in columns:
        found = mixed(found ^ column)
    return found


def mixed(numbers: UInt64) -> UInt64:
    """Spread the bits of numbers (the finaliser of SplitMix64)."""
    numbers = numbers + np.uint64(0x9E3779B97F4A7C15)
    numbers = (numbers ^ (numbers >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    numbers = (numbers ^ (numbers >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return numbers ^ (numbers >> np.uint64(31))


def value_hashes(column: pa.Array) -> UInt64:
    """Return a hash per value, the same for equal values.

    Args:
        column: The values, of any type.
    """
    kind = column.type
    if pt.is_dictionary(kind):
        return value_hashes(column.cast(kind.value_type))
    if pt.is_null(kind):
        return np.zeros(len(column), np.uint64)
    found = _hashes(column, kind)
    if column.null_count:
        found[column.is_null().to_numpy(zero_copy_only=False)] = _NULL
    return found


def _hashes(column: pa.Array, kind: pa.DataType) -> UInt64:
    """Return a hash per value; those of nulls are arbitrary."""
    if pt.is_boolean(kind):
        return _fixed_hashes(column.cast(pa.uint8()), 1)
    if pt.is_struct(kind):
        fields = [value_hashes(column.field(at)) for at in range(kind.num_fields)]
        return row_hashes(fields, len(column))
    if pt.is_map(kind) or pt.is_list(kind) or pt.is_large_list(kind) or pt.is_fixed_size_list(kind):
        return _list_hashes(column)
    if pt.is_floating(kind):
        return _float_hashes(column)
    try:
        width = kind.bit_width
    except ValueError:
        return _byte_hashes(column.cast(pa.large_binary()))
    return _fixed_hashes(column, width // 8)


def _list_hashes(column: pa.Array) -> UInt64:
    """Return a hash of the items of each list; the order of items counts except in maps."""
    is_map = pt.is_map(column.type)
    if is_map:
        entry = pa.struct([("key", column.type.key_type), ("value", column.type.item_type)])
        column = column.cast(pa.list_(entry))
    lengths = pc.fill_null(pc.list_value_length(column), 0).to_numpy().astype(np.int64)
    items = value_hashes(column.flatten())
    starts = np.cumsum(lengths) - lengths
    if not is_map:
        places = np.arange(len(items), dtype=np.int64) - np.repeat(starts, lengths)
        items = mixed(items ^ (places.astype(np.uint64) + np.uint64(1)))
    found = lengths.astype(np.uint64)
    filled = lengths > 0
    if filled.any():
        found[filled] += np.add.reduceat(items, starts[filled])
    return mixed(found)


def _float_hashes(column: pa.Array) -> UInt64:
    # A null slot may hold anything. Adding 0.0 turns -0.0 into 0.0.
    if pt.is_float16(column.type):
        column = column.cast(pa.float32())
    values = column.fill_null(0).to_numpy(zero_copy_only=False) + 0
    values[np.isnan(values)] = np.nan
    return mixed(values.view(f"u{values.dtype.itemsize}").astype(np.uint64))


def _fixed_hashes(column: pa.Array, width: int) -> UInt64:
    data = column.buffers()[1]
    count = len(column)
    if data is None or not count:
        return np.zeros(count, np.uint64)
    values = np.frombuffer(data, np.uint8)[column.offset * width : (column.offset + count) * width]
    words = -(-width // 8)
    padded = np.zeros((count, words * 8), np.uint8)
    padded[:, :width] = values.reshape(count, width)
    found = np.zeros(count, np.uint64)
    for word in padded.view(np.uint64).T:
        found = mixed(found ^ word)
    return found


def _byte_hashes(column: pa.LargeBinaryArray) -> UInt64:
    """Return a polynomial of the bytes of each value."""
    count = len(column)
    if not count:
        return np.zeros(0, np.uint64)
    _, offsets, data = column.buffers()
    bounds = np.frombuffer(offsets, np.int64)[column.offset : column.offset + count + 1]
    lengths = np.diff(bounds)
    found = lengths.astype(np.uint64)
    filled = lengths > 0
    if data is not None and filled.any():
        values = np.frombuffer(data, np.uint8)[bounds[0] : bounds[-1]].astype(np.uint64)
        powers = np.cumprod(np.full(int(lengths.max()), _FNV_PRIME, np.uint64))
        places = np.arange(len(values)) - np.repeat(bounds[:-1] - bounds[0], lengths)
        starts = (bounds[:-1] - bounds[0])[filled]
        found[filled] += np.add.reduceat((values + np.uint64(1)) * powers[places], starts)
    return mixed(found)
