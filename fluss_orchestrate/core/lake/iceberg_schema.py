"""Arrow columns as an Iceberg schema, and partitioning written as text.

Iceberg has fewer types: small integers become `int`, times and timestamps have microseconds.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from fluss_client.errors import ConfigError, MissingExtraError, SchemaError

if TYPE_CHECKING:
    from pyiceberg.partitioning import PartitionSpec
    from pyiceberg.schema import Schema
    from pyiceberg.types import IcebergType

FIRST_PARTITION_FIELD_ID = 1000
_TERM = re.compile(r"(?:(?P<name>\w+)\s*\()?\s*(?:(?P<n>\d+)\s*,\s*)?(?P<column>[^(),]+?)\s*\)?\s*")


def iceberg_schema(columns: pa.Schema) -> Schema:
    """The Iceberg schema for Arrow columns: ids from 1, every column nullable.

    A log outlives its schemas, so what is required today may be absent in older rows.
    """
    try:
        from pyiceberg.schema import Schema
        from pyiceberg.types import NestedField
    except ImportError:
        raise MissingExtraError("pyiceberg", "lake") from None
    ids = itertools.count(len(columns) + 1)
    return Schema(
        *(
            NestedField(at, field.name, iceberg_type(field.type, ids), required=False)
            for at, field in enumerate(columns, 1)
        )
    )


def iceberg_type(kind: pa.DataType, ids: Iterator[int]) -> IcebergType:
    """The Iceberg type for an Arrow type; nested fields take their ids from `ids`."""
    from pyiceberg import types as ice

    plain = _plain(kind)
    if plain is not None:
        return plain
    if pa.types.is_map(kind):
        key, value = next(ids), next(ids)
        return ice.MapType(
            key,
            iceberg_type(kind.key_type, ids),
            value,
            iceberg_type(kind.item_type, ids),
            value_required=not kind.item_field.nullable,
        )
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        element = next(ids)
        inner = iceberg_type(kind.value_type, ids)
        return ice.ListType(element, inner, element_required=not kind.value_field.nullable)
    if pa.types.is_struct(kind):
        numbers = [next(ids) for _ in kind]
        return ice.StructType(
            *(
                ice.NestedField(at, f.name, iceberg_type(f.type, ids), required=not f.nullable)
                for at, f in zip(numbers, kind, strict=True)
            )
        )
    raise SchemaError(f"Iceberg has no type for Arrow's {kind}")


def _plain(kind: pa.DataType) -> IcebergType | None:
    from pyiceberg import types as ice

    is_ = pa.types
    tests: list[tuple[Any, type[Any]]] = [
        (is_.is_boolean, ice.BooleanType),
        (
            lambda t: t in (pa.int8(), pa.int16(), pa.int32(), pa.uint8(), pa.uint16()),
            ice.IntegerType,
        ),
        (lambda t: t in (pa.int64(), pa.uint32()), ice.LongType),
        (is_.is_float32, ice.FloatType),
        (is_.is_float64, ice.DoubleType),
        (lambda t: is_.is_string(t) or is_.is_large_string(t), ice.StringType),
        (lambda t: is_.is_binary(t) or is_.is_large_binary(t), ice.BinaryType),
        (is_.is_fixed_size_binary, ice.BinaryType),
        (is_.is_date32, ice.DateType),
        (is_.is_time, ice.TimeType),
    ]
    for test, made in tests:
        if test(kind):
            return made()  # type: ignore[no-any-return]
    if pa.types.is_decimal128(kind):
        return ice.DecimalType(kind.precision, kind.scale)
    if pa.types.is_timestamp(kind):
        return ice.TimestampType() if kind.tz is None else ice.TimestamptzType()
    return None


def partition_spec(schema: Schema, terms: Sequence[str]) -> PartitionSpec:
    """Partitioning from terms such as `region`, `day(at)`, `bucket(16, id)`, `truncate(4, zip)`.

    `year`, `month`, `day` and `hour` take a date or timestamp; a bare column is its own value.
    """
    from pyiceberg import transforms
    from pyiceberg.partitioning import PartitionField, PartitionSpec

    fields = []
    for at, term in enumerate(terms):
        match = _TERM.fullmatch(term)
        name = (match["name"] or "identity").lower() if match else ""
        made: Any = {
            "identity": transforms.IdentityTransform,
            "year": transforms.YearTransform,
            "month": transforms.MonthTransform,
            "day": transforms.DayTransform,
            "hour": transforms.HourTransform,
            "bucket": transforms.BucketTransform,
            "truncate": transforms.TruncateTransform,
        }.get(name)
        sized = name in ("bucket", "truncate")
        if match is None or made is None or sized != (match["n"] is not None):
            raise ConfigError(
                f"'{term}' is no partitioning: write a column, year/month/day/hour(column), "
                "bucket(n, column) or truncate(n, column)"
            )
        column = match["column"]
        if column not in {f.name for f in schema.fields}:
            raise ConfigError(f"'{term}': there is no column '{column}'")
        transform = made(int(match["n"])) if sized else made()
        label = column if name == "identity" else f"{column}_{name}"
        source = schema.find_field(column).field_id
        fields.append(PartitionField(source, FIRST_PARTITION_FIELD_ID + at, transform, label))
    return PartitionSpec(*fields)
