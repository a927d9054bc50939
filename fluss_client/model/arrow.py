"""Logical types and Arrow types, both ways.

Fluss keeps no zone with a timestamp; a TIMESTAMP_LTZ is shown as UTC. `wire_type` gives the
zone-less form that travels in record batches, `arrow_type` the form that users see.
"""

from __future__ import annotations

import pyarrow as pa

from fluss_client.errors import SchemaError
from fluss_client.model.types import DataType, Field, Root

_PLAIN: dict[Root, pa.DataType] = {
    Root.BOOLEAN: pa.bool_(),
    Root.TINYINT: pa.int8(),
    Root.SMALLINT: pa.int16(),
    Root.INTEGER: pa.int32(),
    Root.BIGINT: pa.int64(),
    Root.FLOAT: pa.float32(),
    Root.DOUBLE: pa.float64(),
    Root.CHAR: pa.string(),
    Root.STRING: pa.string(),
    Root.BYTES: pa.binary(),
    Root.DATE: pa.date32(),
}
_UNITS = ("s", "ms", "ms", "ms", "us", "us", "us", "ns", "ns", "ns")
_PRECISION_OF_UNIT = {"s": 0, "ms": 3, "us": 6, "ns": 9}


def arrow_type(data_type: DataType) -> pa.DataType:
    """The Arrow type that users see for a logical type."""
    return _to_arrow(data_type, zone="UTC")


def wire_type(data_type: DataType) -> pa.DataType:
    """The Arrow type inside a record batch on the wire: no zone anywhere."""
    return _to_arrow(data_type, zone=None)


def arrow_field(name: str, data_type: DataType) -> pa.Field:
    """A field with the type's nullability, as users see it."""
    return pa.field(name, arrow_type(data_type), nullable=data_type.nullable)


def _to_arrow(data_type: DataType, zone: str | None) -> pa.DataType:
    root = data_type.root
    plain = _PLAIN.get(root)
    if plain is not None:
        return plain
    if root is Root.BINARY:
        return pa.binary(data_type.length)
    if root is Root.DECIMAL:
        return pa.decimal128(data_type.precision, data_type.scale)
    if root is Root.TIME:
        unit = _UNITS[data_type.precision]
        return pa.time32(unit) if unit in ("s", "ms") else pa.time64(unit)
    if root is Root.TIMESTAMP:
        return pa.timestamp(_UNITS[data_type.precision])
    if root is Root.TIMESTAMP_LTZ:
        return pa.timestamp(_UNITS[data_type.precision], tz=zone)
    if root is Root.ARRAY:
        assert data_type.element is not None
        element = data_type.element
        # The name that Arrow itself and the official client give to the elements of a list.
        return pa.list_(pa.field("item", _to_arrow(element, zone), nullable=element.nullable))
    if root is Root.MAP:
        assert data_type.key is not None
        assert data_type.element is not None
        value = data_type.element
        return pa.map_(
            pa.field("key", _to_arrow(data_type.key, zone), nullable=False),
            pa.field("value", _to_arrow(value, zone), nullable=value.nullable),
        )
    return pa.struct(
        [
            pa.field(f.name, _to_arrow(f.type, zone), nullable=f.type.nullable)
            for f in data_type.fields
        ]
    )


def from_arrow(arrow: pa.DataType, nullable: bool = True, name: str = "") -> DataType:
    """The logical type for an Arrow type; `name` is the column to name in an error."""
    for root, plain in _PLAIN.items():
        if root is not Root.CHAR and arrow.equals(plain):
            return DataType(root, nullable)
    if pa.types.is_large_string(arrow) or pa.types.is_string_view(arrow):
        return DataType(Root.STRING, nullable)
    if pa.types.is_fixed_size_binary(arrow):
        return DataType(Root.BINARY, nullable, length=arrow.byte_width)
    if pa.types.is_large_binary(arrow) or pa.types.is_binary_view(arrow):
        return DataType(Root.BYTES, nullable)
    if pa.types.is_decimal128(arrow):
        return DataType(Root.DECIMAL, nullable, precision=arrow.precision, scale=arrow.scale)
    if pa.types.is_time(arrow):
        return DataType(Root.TIME, nullable, precision=_PRECISION_OF_UNIT[arrow.unit])
    if pa.types.is_timestamp(arrow):
        root = Root.TIMESTAMP if arrow.tz is None else Root.TIMESTAMP_LTZ
        return DataType(root, nullable, precision=_PRECISION_OF_UNIT[arrow.unit])
    if pa.types.is_map(arrow):
        return DataType(
            Root.MAP,
            nullable,
            key=from_arrow(arrow.key_type, False, name),
            element=from_arrow(arrow.item_type, arrow.item_field.nullable, name),
        )
    if pa.types.is_list(arrow) or pa.types.is_large_list(arrow):
        element = from_arrow(arrow.value_type, arrow.value_field.nullable, name)
        return DataType(Root.ARRAY, nullable, element=element)
    if pa.types.is_struct(arrow):
        fields = tuple(Field(f.name, from_arrow(f.type, f.nullable, f.name)) for f in arrow)
        return DataType(Root.ROW, nullable, fields=fields)
    where = f"column '{name}': " if name else ""
    raise SchemaError(f"{where}Fluss has no type for Arrow's {arrow}")
