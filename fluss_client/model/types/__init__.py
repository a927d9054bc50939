"""The data types of Fluss: one class per type, one module per family of types."""

from fluss_client.model.types.base import (
    DataType,
    DataTypes,
    Field,
    Root,
    registered_types,
    require_arrow_map,
)
from fluss_client.model.types.nested import ArrayType, MapType, RowType
from fluss_client.model.types.numeric import (
    BigIntType,
    BooleanType,
    DecimalType,
    DoubleType,
    FloatType,
    IntType,
    SmallIntType,
    TinyIntType,
)
from fluss_client.model.types.temporal import DateType, TimestampLtzType, TimestampType, TimeType
from fluss_client.model.types.text import BinaryType, BytesType, CharType, StringType

__all__ = [
    "ArrayType",
    "BigIntType",
    "BinaryType",
    "BooleanType",
    "BytesType",
    "CharType",
    "DataType",
    "DataTypes",
    "DateType",
    "DecimalType",
    "DoubleType",
    "Field",
    "FloatType",
    "IntType",
    "MapType",
    "Root",
    "RowType",
    "SmallIntType",
    "StringType",
    "TimeType",
    "TimestampLtzType",
    "TimestampType",
    "TinyIntType",
    "registered_types",
    "require_arrow_map",
]
