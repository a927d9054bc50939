"""Data types as Arrow types, and back.

`arrow_type` gives the form that users see, in which a TIMESTAMP_LTZ is shown as UTC; `wire_type`
the form of record batches on the wire, which has no zone anywhere.
"""

from __future__ import annotations

import pyarrow as pa

from fluss_client.model.types import DataType
from fluss_client.model.types.nested import type_of_arrow


def arrow_type(data_type: DataType) -> pa.DataType:
    """Return the Arrow type that users see for a data type."""
    return data_type.to_arrow("UTC")


def wire_type(data_type: DataType) -> pa.DataType:
    """Return the Arrow type inside a record batch on the wire: no zone anywhere."""
    return data_type.to_arrow(None)


def arrow_field(name: str, data_type: DataType) -> pa.Field:
    """Return a field with the type's nullability, as users see it."""
    return pa.field(name, arrow_type(data_type), nullable=data_type.nullable)


def from_arrow(arrow: pa.DataType, nullable: bool = True, name: str = "") -> DataType:
    """Return the data type for an Arrow type.

    Args:
        arrow: The Arrow type.
        nullable: Whether the data type is nullable.
        name: The column to name in an error.

    Raises:
        SchemaError: Fluss has no such type.
    """
    return type_of_arrow(arrow, nullable, name)
