"""Arrow arrays under another type of the same memory layout: zones, field names, nullability.

Arrow's own cast and view refuse a NOT NULL field whose parent is null in some rows, which is
what every ROW column with such a field holds.
"""

from __future__ import annotations

import pyarrow as pa
import pyarrow.types as pt


def same_layout(source: pa.DataType, target: pa.DataType) -> bool:
    """Whether the types differ in labels only."""
    if pt.is_timestamp(source) and pt.is_timestamp(target):
        return bool(source.unit == target.unit)
    if source.id != target.id:
        return False
    if pt.is_map(source):
        return same_layout(source.key_type, target.key_type) and same_layout(
            source.item_type, target.item_type
        )
    if pt.is_list(source):
        return same_layout(source.value_type, target.value_type)
    if pt.is_struct(source):
        ours, theirs = list(source), list(target)
        return [f.name for f in ours] == [f.name for f in theirs] and all(
            same_layout(a.type, b.type) for a, b in zip(ours, theirs, strict=True)
        )
    return bool(source.equals(target))


def relabel(array: pa.Array, target: pa.DataType) -> pa.Array:
    """The array as `target`, which has the same layout; data buffers are shared."""
    source = array.type
    if source.equals(target):
        return array
    if pt.is_struct(source):
        children = [relabel(array.field(i), field.type) for i, field in enumerate(target)]
        if not children:
            return array
        mask = array.is_null() if array.null_count else None
        return pa.StructArray.from_arrays(children, fields=list(target), mask=mask)
    if pt.is_map(source):
        children = [relabel(array.keys, target.key_type), relabel(array.items, target.item_type)]
        fields = [target.key_field, target.item_field]
        return _with_child(array, target, pa.StructArray.from_arrays(children, fields=fields))
    if pt.is_list(source):
        return _with_child(array, target, relabel(array.values, target.value_type))
    return array.view(target)


def _with_child(array: pa.Array, target: pa.DataType, child: pa.Array) -> pa.Array:
    buffers = array.buffers()[:2]
    return pa.Array.from_buffers(
        target, len(array), buffers, array.null_count, array.offset, [child]
    )
