"""Iceberg schemas for Arrow columns, and Iceberg partitioning from text."""

from __future__ import annotations

import itertools
import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from fluss_client.engine import iceberg_type
from fluss_client.errors import ConfigError, MissingExtraError

if TYPE_CHECKING:
    from pyiceberg.partitioning import PartitionSpec
    from pyiceberg.schema import Schema

FIRST_PARTITION_FIELD_ID = 1000
_TERM = re.compile(r"(?:(?P<name>\w+)\s*\()?\s*(?:(?P<n>\d+)\s*,\s*)?(?P<column>[^(),]+?)\s*\)?\s*")


def iceberg_schema(columns: pa.Schema) -> Schema:
    """Return the Iceberg schema for Arrow columns: ids from 1, every column nullable.

    A log keeps rows of older schemas, in which a column that is required today may be absent.

    Raises:
        MissingExtraError: PyIceberg is not installed.
        SchemaError: Iceberg has no type for a column.
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


def partition_spec(schema: Schema, terms: Sequence[str]) -> PartitionSpec:
    """Return the partitioning that terms such as `day(at)` or `bucket(16, id)` describe.

    Args:
        schema: The Iceberg schema.
        terms: One term per partition field: a column for its own value, `year`, `month`, `day` or
            `hour` of a date or timestamp, `bucket(n, column)`, or `truncate(n, column)`.

    Raises:
        ConfigError: A term is none of these, or names no column of the schema.
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
