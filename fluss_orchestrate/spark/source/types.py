"""The map of data types to Spark's types, by way of their Arrow types, and batches for Spark.

Spark has microseconds: nanoseconds are cut off as they are read. It has no TIME without a setting,
so a TIME is a BIGINT of microseconds since midnight. CHAR is STRING, BINARY and BYTES are BINARY.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pyarrow as pa
import pyarrow.types as pt
from pyarrow import lib
from pyspark.sql import types as spark_types

from fluss_client import DataType
from fluss_client.engine import require_arrow_map
from fluss_client.errors import SchemaError

_ARROW: dict[type[spark_types.DataType], pa.DataType] = {
    spark_types.BooleanType: pa.bool_(),
    spark_types.ByteType: pa.int8(),
    spark_types.ShortType: pa.int16(),
    spark_types.IntegerType: pa.int32(),
    spark_types.LongType: pa.int64(),
    spark_types.FloatType: pa.float32(),
    spark_types.DoubleType: pa.float64(),
    spark_types.StringType: pa.string(),
    spark_types.BinaryType: pa.binary(),
    spark_types.DateType: pa.date32(),
    spark_types.TimestampType: pa.timestamp("us", "UTC"),
    spark_types.TimestampNTZType: pa.timestamp("us"),
}


def spark_type(data_type: DataType) -> spark_types.DataType:
    """Return Spark's type for one of Fluss's."""
    return _spark_type(data_type.to_arrow("UTC"))


def spark_schema(schema: pa.Schema) -> spark_types.StructType:
    """Return Spark's schema for an Arrow schema.

    Raises:
        SchemaError: Spark has no type for a column.
    """
    fields = []
    for field in schema:
        try:
            kind = _spark_type(field.type)
        except KeyError:
            raise SchemaError(
                f"column '{field.name}' is {field.type}, for which Spark has no type"
            ) from None
        fields.append(spark_types.StructField(field.name, kind, field.nullable))
    return spark_types.StructType(fields)


def _spark_type(arrow: pa.DataType) -> spark_types.DataType:
    found = _SPARK[arrow.id]
    return found if isinstance(found, spark_types.DataType) else found(arrow)


def _timestamp(arrow: pa.DataType) -> spark_types.DataType:
    if arrow.tz is None:
        return spark_types.TimestampNTZType()
    return spark_types.TimestampType()


def _list(arrow: pa.DataType) -> spark_types.DataType:
    return spark_types.ArrayType(_spark_type(arrow.value_type), arrow.value_field.nullable)


def _map(arrow: pa.DataType) -> spark_types.DataType:
    key, value = _spark_type(arrow.key_type), _spark_type(arrow.item_type)
    return spark_types.MapType(key, value, arrow.item_field.nullable)


def _struct(arrow: pa.DataType) -> spark_types.DataType:
    return spark_types.StructType(
        [spark_types.StructField(f.name, _spark_type(f.type), f.nullable) for f in arrow]
    )


_SPARK: dict[int, spark_types.DataType | Callable[[pa.DataType], spark_types.DataType]] = {
    lib.Type_BOOL: spark_types.BooleanType(),
    lib.Type_INT8: spark_types.ByteType(),
    lib.Type_INT16: spark_types.ShortType(),
    lib.Type_INT32: spark_types.IntegerType(),
    lib.Type_INT64: spark_types.LongType(),
    lib.Type_FLOAT: spark_types.FloatType(),
    lib.Type_DOUBLE: spark_types.DoubleType(),
    lib.Type_DECIMAL128: lambda arrow: spark_types.DecimalType(arrow.precision, arrow.scale),
    lib.Type_STRING: spark_types.StringType(),
    lib.Type_BINARY: spark_types.BinaryType(),
    lib.Type_FIXED_SIZE_BINARY: spark_types.BinaryType(),
    lib.Type_DATE32: spark_types.DateType(),
    lib.Type_TIME32: spark_types.LongType(),
    lib.Type_TIME64: spark_types.LongType(),
    lib.Type_TIMESTAMP: _timestamp,
    lib.Type_LIST: _list,
    lib.Type_MAP: _map,
    lib.Type_STRUCT: _struct,
}
require_arrow_map("Spark", _SPARK)


def arrow_type(kind: spark_types.DataType) -> pa.DataType:
    """Return the Arrow type in which Spark takes values of its type."""
    plain = _ARROW.get(type(kind))
    if plain is not None:
        return plain
    if isinstance(kind, spark_types.DecimalType):
        return pa.decimal128(kind.precision, kind.scale)
    if isinstance(kind, spark_types.ArrayType):
        element = pa.field("element", arrow_type(kind.elementType), kind.containsNull)
        return pa.list_(element)
    if isinstance(kind, spark_types.MapType):
        key = pa.field("key", arrow_type(kind.keyType), nullable=False)
        value = pa.field("value", arrow_type(kind.valueType), kind.valueContainsNull)
        return pa.map_(key, value)
    if isinstance(kind, spark_types.StructType):
        return pa.struct(list(arrow_schema(kind)))
    raise SchemaError(f"Fluss has no type for Spark's {kind.simpleString()}")


def arrow_schema(schema: spark_types.StructType) -> pa.Schema:
    """Return the Arrow schema that Spark demands of a reader: names, order and nullability."""
    return pa.schema([pa.field(f.name, arrow_type(f.dataType), f.nullable) for f in schema])


def shown(batch: pa.RecordBatch, target: pa.Schema) -> pa.RecordBatch:
    """Return a batch of a table as Spark takes it; columns that fit are not copied."""
    columns = [
        _cast(column, field)
        for column, field in zip(batch.select(target.names).columns, target, strict=True)
    ]
    return pa.RecordBatch.from_arrays(columns, schema=target)


def _cast(column: pa.Array, field: pa.Field) -> pa.Array:
    if column.type.equals(field.type):
        return column
    if pt.is_time(column.type) and pt.is_int64(field.type):
        return column.cast(pa.time64("us"), safe=False).cast(pa.int64())
    if pt.is_fixed_size_binary(column.type):
        return column.cast(pa.binary())
    try:
        # Only digits below a microsecond may be lost, and nothing of any other type.
        return column.cast(field.type, safe=not _finer_than_us(column.type))
    except pa.ArrowException as error:
        raise SchemaError(
            f"column '{field.name}' of type {column.type} cannot be read as {field.type}: {error}"
        ) from error


def _finer_than_us(kind: pa.DataType) -> bool:
    if pt.is_timestamp(kind) or pt.is_time(kind):
        return bool(kind.unit == "ns")
    return any(_finer_than_us(kind.field(at).type) for at in range(kind.num_fields))


def written(batch: pa.RecordBatch, wire: pa.Schema) -> pa.RecordBatch:
    """Return a batch of Spark's with the types that only Fluss has: a BIGINT as TIME."""
    columns = []
    for name, column in zip(batch.schema.names, batch.columns, strict=True):
        at = wire.get_field_index(name)
        if at >= 0 and pt.is_time(wire.field(at).type) and pt.is_int64(column.type):
            column = column.cast(pa.time64("us")).cast(wire.field(at).type, safe=False)
        columns.append(column)
    return pa.RecordBatch.from_arrays(columns, names=batch.schema.names)


def gathered(batches: Sequence[pa.RecordBatch], schema: pa.Schema) -> list[pa.RecordBatch]:
    """Return small batches as one: each batch costs Spark the same, however few its rows."""
    if len(batches) < 2:
        return list(batches)
    whole: list[pa.RecordBatch] = (
        pa.Table.from_batches(batches, schema).combine_chunks().to_batches()
    )
    return whole
