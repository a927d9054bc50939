"""The map of data types to Iceberg's types, by way of their Arrow types.

Most types name their class of PyIceberg themselves (`DataType.iceberg`). Here are those that are
made from their parts, and Arrow types that no data type has, such as unsigned integers. Iceberg has
fewer types: small integers become `int`, times and timestamps have microseconds.
PyIceberg is optional, so it is imported as a type is made.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

import pyarrow as pa
from pyarrow import lib

from fluss_client.errors import SchemaError
from fluss_client.model.types import registered_types, require_arrow_map

if TYPE_CHECKING:
    from pyiceberg.types import IcebergType

_Make = Callable[[pa.DataType, Iterator[int]], "IcebergType"]


def iceberg_type(kind: pa.DataType, ids: Iterator[int]) -> IcebergType:
    """Return the Iceberg type for an Arrow type.

    Args:
        kind: The Arrow type.
        ids: The field ids to give out; nested fields take theirs from it.

    Raises:
        SchemaError: Iceberg has no such type.
    """
    make = _MAKERS.get(kind.id)
    if make is None:
        raise SchemaError(f"Iceberg has no type for Arrow's {kind}")
    return make(kind, ids)


def _plain(name: str) -> _Make:
    def make(kind: pa.DataType, ids: Iterator[int]) -> IcebergType:
        from pyiceberg import types

        made: IcebergType = getattr(types, name)()
        return made

    return make


def _decimal(kind: pa.DataType, ids: Iterator[int]) -> IcebergType:
    from pyiceberg.types import DecimalType

    return DecimalType(kind.precision, kind.scale)


def _timestamp(kind: pa.DataType, ids: Iterator[int]) -> IcebergType:
    from pyiceberg.types import TimestampType, TimestamptzType

    return TimestampType() if kind.tz is None else TimestamptzType()


def _list(kind: pa.DataType, ids: Iterator[int]) -> IcebergType:
    from pyiceberg.types import ListType

    own = next(ids)
    inner = iceberg_type(kind.value_type, ids)
    return ListType(own, inner, element_required=not kind.value_field.nullable)


def _map(kind: pa.DataType, ids: Iterator[int]) -> IcebergType:
    from pyiceberg.types import MapType

    key_id, value_id = next(ids), next(ids)
    key, value = iceberg_type(kind.key_type, ids), iceberg_type(kind.item_type, ids)
    return MapType(key_id, key, value_id, value, value_required=not kind.item_field.nullable)


def _struct(kind: pa.DataType, ids: Iterator[int]) -> IcebergType:
    from pyiceberg.types import NestedField, StructType

    # The ids of all fields of a struct come before those inside them.
    own = [next(ids) for _ in kind]
    return StructType(
        *(
            NestedField(at, field.name, iceberg_type(field.type, ids), required=not field.nullable)
            for at, field in zip(own, kind, strict=True)
        )
    )


_MAKERS: dict[int, _Make] = {
    lib.Type_UINT8: _plain("IntegerType"),
    lib.Type_UINT16: _plain("IntegerType"),
    lib.Type_UINT32: _plain("LongType"),
    lib.Type_DECIMAL128: _decimal,
    lib.Type_LARGE_STRING: _plain("StringType"),
    lib.Type_LARGE_BINARY: _plain("BinaryType"),
    lib.Type_TIMESTAMP: _timestamp,
    lib.Type_LIST: _list,
    lib.Type_LARGE_LIST: _list,
    lib.Type_MAP: _map,
    lib.Type_STRUCT: _struct,
} | {
    example.to_arrow(None).id: _plain(cls.iceberg)
    for cls in registered_types()
    if cls.iceberg
    for example in cls.examples()
}
require_arrow_map("Iceberg", _MAKERS)
