"""Fluss's types, Spark's types, and the Arrow form that passes between them.

Spark has microseconds: nanoseconds are cut off as they are read. It has no TIME without a setting,
so a TIME is a BIGINT of microseconds since midnight. CHAR is STRING, BINARY and BYTES are BINARY.
"""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa
import pyarrow.types as pt
from pyspark.sql import types as spark_types

from fluss_client.errors import SchemaError
from fluss_client.model.types import DataType, Root

_PLAIN: dict[Root, spark_types.DataType] = {
    Root.BOOLEAN: spark_types.BooleanType(),
    Root.TINYINT: spark_types.ByteType(),
    Root.SMALLINT: spark_types.ShortType(),
    Root.INTEGER: spark_types.IntegerType(),
    Root.BIGINT: spark_types.LongType(),
    Root.FLOAT: spark_types.FloatType(),
    Root.DOUBLE: spark_types.DoubleType(),
    Root.CHAR: spark_types.StringType(),
    Root.STRING: spark_types.StringType(),
    Root.BYTES: spark_types.BinaryType(),
    Root.BINARY: spark_types.BinaryType(),
    Root.DATE: spark_types.DateType(),
    Root.TIME: spark_types.LongType(),
    Root.TIMESTAMP: spark_types.TimestampNTZType(),
    Root.TIMESTAMP_LTZ: spark_types.TimestampType(),
}

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
    """Spark's type for one of Fluss's."""
    plain = _PLAIN.get(data_type.root)
    if plain is not None:
        return plain
    if data_type.root is Root.DECIMAL:
        return spark_types.DecimalType(data_type.precision, data_type.scale)
    if data_type.root is Root.ARRAY:
        assert data_type.element is not None
        element = data_type.element
        return spark_types.ArrayType(spark_type(element), element.nullable)
    if data_type.root is Root.MAP:
        assert data_type.key is not None
        assert data_type.element is not None
        value = data_type.element
        return spark_types.MapType(spark_type(data_type.key), spark_type(value), value.nullable)
    return spark_types.StructType(
        [
            spark_types.StructField(f.name, spark_type(f.type), f.type.nullable)
            for f in data_type.fields
        ]
    )


def arrow_type(kind: spark_types.DataType) -> pa.DataType:
    """The Arrow type in which Spark takes values of its type."""
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
    """The Arrow schema that Spark demands of a reader, names, order and nullability included."""
    return pa.schema([pa.field(f.name, arrow_type(f.dataType), f.nullable) for f in schema])


def shown(batch: pa.RecordBatch, target: pa.Schema) -> pa.RecordBatch:
    """A batch of a table as Spark takes it; nothing is copied that fits already."""
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
        # Only digits below a microsecond may be lost, and those of no other type.
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
    """A batch of Spark's with the types that only Fluss has: a BIGINT as TIME."""
    columns = []
    for name, column in zip(batch.schema.names, batch.columns, strict=True):
        at = wire.get_field_index(name)
        if at >= 0 and pt.is_time(wire.field(at).type) and pt.is_int64(column.type):
            column = column.cast(pa.time64("us")).cast(wire.field(at).type, safe=False)
        columns.append(column)
    return pa.RecordBatch.from_arrays(columns, names=batch.schema.names)


def gathered(batches: Sequence[pa.RecordBatch], schema: pa.Schema) -> list[pa.RecordBatch]:
    """Small batches as one: each costs Spark the same, however few its rows."""
    if len(batches) < 2:
        return list(batches)
    whole: list[pa.RecordBatch] = (
        pa.Table.from_batches(batches, schema).combine_chunks().to_batches()
    )
    return whole
