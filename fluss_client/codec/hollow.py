"""Empty arrays inside nested columns, as Java leaves them: without the offsets they must have.

Arrow asks for one offset in an empty list, map or text array; Java's writer leaves the buffer out.
pyarrow takes such an array and validates it, and then its `nbytes` reads the offset that is not
there. So every empty child is replaced by a whole one before anybody sees it.
"""

from __future__ import annotations

import pyarrow as pa
import pyarrow.types as pt


def fill_hollow(batch: pa.RecordBatch) -> pa.RecordBatch:
    """The batch with whole arrays where nested columns hold empty ones; data is shared."""
    if not any(pt.is_nested(field.type) for field in batch.schema):
        return batch
    columns = batch.columns
    filled = [_filled(column) for column in columns]
    if all(new is old for new, old in zip(filled, columns, strict=True)):
        return batch
    return pa.RecordBatch.from_arrays(filled, schema=batch.schema)


def _filled(array: pa.Array) -> pa.Array:
    kind = array.type
    if not pt.is_nested(kind):
        return array
    if not len(array):
        return pa.array([], kind)
    if pt.is_struct(kind):
        children = [array.field(at) for at in range(kind.num_fields)]
    elif pt.is_map(kind):
        fields = [kind.key_field, kind.item_field]
        children = [pa.StructArray.from_arrays([array.keys, array.items], fields=fields)]
    else:
        children = [array.values]
    filled = [_filled(child) if len(child) else pa.array([], child.type) for child in children]
    if all(new is old for new, old in zip(filled, children, strict=True)) and not pt.is_map(kind):
        return array
    buffers = array.buffers()[: 1 if pt.is_struct(kind) else 2]
    return pa.Array.from_buffers(kind, len(array), buffers, array.null_count, array.offset, filled)
