"""Converts batches between the Arrow types that users see and those on the wire.

Types that differ in labels only (zones, field names, nullability) have the same memory layout, and
the data is not copied. Arrow's own cast and view cannot be used for that: they refuse a NOT NULL
field whose parent is null in some rows, which a nullable ROW column with such a field has.
"""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa
import pyarrow.types as pt

from fluss_client.errors import CorruptDataError, RowError
from fluss_client.model.schema import Schema


def same_layout(source: pa.DataType, target: pa.DataType) -> bool:
    """Return whether the types differ in labels only."""
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
    """Return the array as `target`, which has the same layout; data buffers are shared."""
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


def to_wire(batch: pa.RecordBatch, wire_schema: pa.Schema) -> pa.RecordBatch:
    """Return the batch with the columns, order and types of `wire_schema`, matched by name.

    Zones are dropped, the instants stay the same. Other encodings of the same kind (large, view
    and dictionary types, other widths and units) are cast.

    Raises:
        RowError: A column is missing, unknown or of another kind, would lose data, or has nulls
            where none are allowed.
    """
    found = as_wire(batch, wire_schema)
    for column, field in zip(found.columns, wire_schema, strict=True):
        _refuse_nulls(column, field, field.name)
    return found


def _refuse_nulls(column: pa.Array, field: pa.Field, path: str) -> None:
    if not field.nullable and column.null_count:
        raise RowError(f"column '{path}' is NOT NULL and has {column.null_count} nulls")
    kind = field.type
    if _has_not_null(kind):
        # Values inside a null are ignored.
        column = column.drop_null()
        if pt.is_struct(kind):
            for at, inner in enumerate(kind):
                _refuse_nulls(column.field(at), inner, f"{path}.{inner.name}")
        elif len(column):
            first, last = column.offsets[0].as_py(), column.offsets[-1].as_py()
            is_map = pt.is_map(kind)
            values = column.items if is_map else column.values
            inner = kind.item_field if is_map else kind.value_field
            _refuse_nulls(values.slice(first, last - first), inner, f"{path}[]")


def _has_not_null(kind: pa.DataType) -> bool:
    if pt.is_map(kind):
        return not kind.item_field.nullable or _has_not_null(kind.item_type)
    if pt.is_list(kind):
        return not kind.value_field.nullable or _has_not_null(kind.value_type)
    return bool(pt.is_struct(kind)) and any(
        not inner.nullable or _has_not_null(inner.type) for inner in kind
    )


def as_wire(batch: pa.RecordBatch, wire_schema: pa.Schema) -> pa.RecordBatch:
    """Return what `to_wire` does, without a check of nulls: for rows that were checked before."""
    if batch.schema.equals(wire_schema):
        return batch
    names = batch.schema.names
    if sorted(names) != sorted(wire_schema.names):
        raise RowError(f"the table's columns are {wire_schema.names}, the batch has {names}")
    columns = [_as_wire(batch.column(field.name), field) for field in wire_schema]
    return pa.RecordBatch.from_arrays(columns, schema=wire_schema)


def _as_wire(column: pa.Array, field: pa.Field) -> pa.Array:
    if isinstance(column, pa.ExtensionArray):
        column = column.storage
    source, target = column.type, field.type
    if same_layout(source, target):
        return relabel(column, target)
    if not _same_kind(source, target):
        raise RowError(f"column '{field.name}' holds {target}, not {source}")
    try:
        return column.cast(target)
    except pa.ArrowException as error:
        raise RowError(f"column '{field.name}' does not fit {target}: {error}") from error


def _same_kind(source: pa.DataType, target: pa.DataType) -> bool:
    """Return whether a cast keeps the meaning; Arrow would also turn text into numbers and back."""
    if pt.is_null(source):
        return True
    if pt.is_dictionary(source):
        return _same_kind(source.value_type, target)
    if _is_list(source) and _is_list(target):
        return _same_kind(source.value_type, target.value_type)
    if pt.is_map(source) and pt.is_map(target):
        return _same_kind(source.key_type, target.key_type) and _same_kind(
            source.item_type, target.item_type
        )
    if pt.is_struct(source) and pt.is_struct(target):
        ours = {f.name: f.type for f in source}
        theirs = {f.name: f.type for f in target}
        return ours.keys() == theirs.keys() and all(
            _same_kind(ours[name], theirs[name]) for name in ours
        )
    kind = _kind(source)
    return kind is not None and kind == _kind(target)


def _is_list(kind: pa.DataType) -> bool:
    return bool(pt.is_list(kind) or pt.is_large_list(kind) or pt.is_fixed_size_list(kind))


def _kind(data_type: pa.DataType) -> str | None:
    if pt.is_boolean(data_type):
        return "boolean"
    if pt.is_integer(data_type) or pt.is_floating(data_type) or pt.is_decimal(data_type):
        return "number"
    if pt.is_string(data_type) or pt.is_large_string(data_type) or pt.is_string_view(data_type):
        return "text"
    if (
        pt.is_binary(data_type)
        or pt.is_large_binary(data_type)
        or pt.is_binary_view(data_type)
        or pt.is_fixed_size_binary(data_type)
    ):
        return "bytes"
    if pt.is_date(data_type):
        return "date"
    if pt.is_time(data_type):
        return "time"
    return "timestamp" if pt.is_timestamp(data_type) else None


def align_to(
    batch: pa.RecordBatch,
    from_schema: Schema,
    to_schema: Schema,
    columns: Sequence[int] | None = None,
) -> pa.RecordBatch:
    """Return a batch written with `from_schema` with the types of `to_schema`, zones included.

    Columns are matched by id, so that a renamed column is found; a column that the batch does not
    have becomes null.

    Args:
        batch: The rows.
        from_schema: The schema that the batch was written with.
        to_schema: The schema to return.
        columns: Positions in `to_schema`; all by default.
    """
    fields = to_schema.arrow
    wanted = range(len(fields)) if columns is None else columns
    shown = fields if columns is None else pa.schema([fields.field(i) for i in wanted])
    held = {from_schema.column(name).id: at for at, name in enumerate(batch.schema.names)}
    in_place = list(held) == [to_schema.columns[position].id for position in wanted]
    if in_place and batch.schema.equals(shown, check_metadata=True):
        return batch
    aligned = []
    for position in wanted:
        target = fields.field(position).type
        at = held.get(to_schema.columns[position].id)
        if at is None:
            aligned.append(pa.nulls(batch.num_rows, target))
        else:
            aligned.append(_as_shown(batch.column(at), target, fields.field(position).name))
    return pa.RecordBatch.from_arrays(aligned, schema=shown)


def _as_shown(column: pa.Array, target: pa.DataType, name: str) -> pa.Array:
    source = column.type
    if same_layout(source, target):
        return relabel(column, target)
    try:
        return column.cast(target)
    except pa.ArrowException as error:
        message = f"column '{name}' holds {source}, which {target} cannot show: {error}"
        raise CorruptDataError(message) from error
