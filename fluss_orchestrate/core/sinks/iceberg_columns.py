"""How the columns of a key table become those of its mirror in Iceberg."""

from __future__ import annotations

import itertools
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa

from fluss_client.engine import iceberg_type
from fluss_orchestrate.core.lake.equality_deletes import has_exact_equality
from fluss_orchestrate.core.lake.layout.iceberg_schema import iceberg_schema
from fluss_orchestrate.core.lake.table_changes import ColumnChanges
from fluss_orchestrate.core.plan import ScanPlan
from fluss_orchestrate.core.row_schema import partition_key_of, primary_key_of
from fluss_orchestrate.core.sinks.base import SchemaPolicy, columns_to_add
from fluss_orchestrate.core.sinks.errors import SinkFormError, SinkSchemaError

if TYPE_CHECKING:
    from pyiceberg.schema import Schema
    from pyiceberg.table import Table
    from pyiceberg.types import IcebergType


@dataclass(frozen=True)
class MirrorColumns:
    """The columns of a mirror.

    Attributes:
        schema: The columns that are stored; metadata columns are not.
        keys: The names of the columns of the primary key.
        partition_keys: The names of the columns of the partition key.
    """

    schema: pa.Schema
    keys: tuple[str, ...]
    partition_keys: tuple[str, ...]

    @classmethod
    def of(cls, sink: str, plan: ScanPlan, rows: pa.Schema) -> MirrorColumns:
        """Return the columns of a mirror from the schema of the rows of a plan.

        Raises:
            SinkFormError: The rows have no primary key.
            SinkSchemaError: Keys that differ in Fluss would be equal in Iceberg.
        """
        keys = primary_key_of(rows)
        if not keys:
            raise SinkFormError(
                sink, f"the rows of {plan.table.path} have no primary key; use form='append'"
            )
        kept = [field for field in rows if field.name not in plan.metadata_columns]
        made = cls(pa.schema(kept), keys, partition_key_of(rows))
        made._check_keys(sink)
        return made

    def _check_keys(self, sink: str) -> None:
        for name in self.keys:
            kind = self.schema.field(name).type
            if (pa.types.is_timestamp(kind) or pa.types.is_time(kind)) and kind.unit == "ns":
                raise SinkSchemaError(
                    sink,
                    f"column '{name}' of the primary key has nanoseconds, and Iceberg has "
                    "microseconds: two keys could become one. Mirror the table into SQL",
                    [name],
                )
            if not has_exact_equality(iceberg_type(kind, itertools.count(1))):
                raise SinkSchemaError(
                    sink,
                    f"column '{name}' of the primary key has type {kind}, which has no exact "
                    "equality in Iceberg. Mirror the table into SQL",
                    [name],
                )

    def iceberg_schema(self) -> Schema:
        """Return the schema of a mirror that is created: the key is required and identifies."""
        from pyiceberg.schema import Schema
        from pyiceberg.types import NestedField

        fields = iceberg_schema(self.schema).fields
        return Schema(
            *(
                NestedField(f.field_id, f.name, f.field_type, required=f.name in self.keys)
                for f in fields
            ),
            identifier_field_ids=[f.field_id for f in fields if f.name in self.keys],
        )

    def changes_for(
        self, sink: str, table: Table, policy: SchemaPolicy, held: Collection[str]
    ) -> ColumnChanges:
        """Return how the columns of a table must change to hold the rows.

        Args:
            sink: The sink's name, for errors.
            table: The Iceberg table.
            policy: `add_columns` lets the sink add columns and widen their types.
            held: The columns that the rows of the table were written with.

        Raises:
            SinkSchemaError: The columns do not fit, and may not or cannot be changed.
        """
        fields = {f.name: f for f in table.schema().fields}
        absent = [f.name for f in fields.values() if f.required and f.name not in self.schema.names]
        if absent:
            raise SinkSchemaError(sink, f"it requires columns that are not read: {absent}", absent)
        added = columns_to_add(sink, list(fields), self.schema, policy, held)
        ids = itertools.count(1)
        widened: dict[str, IcebergType] = {}
        for column in self.schema:
            if column.name not in fields:
                continue
            wanted, found = iceberg_type(column.type, ids), fields[column.name].field_type
            if fits(wanted, found):
                continue
            if not widens(found, wanted):
                raise SinkSchemaError(
                    sink,
                    f"its column '{column.name}' is {found}, which cannot hold {wanted}: write "
                    "into another table",
                    [column.name],
                )
            if policy is SchemaPolicy.ERROR:
                raise SinkSchemaError(
                    sink,
                    f"its column '{column.name}' is {found}, and the rows have {wanted}: widen it "
                    "there, or let the sink do it with schema_policy='add_columns'",
                    [column.name],
                )
            widened[column.name] = wanted
        return ColumnChanges({f.name: iceberg_type(f.type, ids) for f in added}, widened)


def fits(source: IcebergType, target: IcebergType) -> bool:
    """Return whether every value of one Iceberg type can be stored as another one."""
    from pyiceberg.types import ListType, MapType, StructType

    if isinstance(source, StructType) and isinstance(target, StructType):
        return [f.name for f in source.fields] == [f.name for f in target.fields] and all(
            fits(a.field_type, b.field_type)
            for a, b in zip(source.fields, target.fields, strict=True)
        )
    if isinstance(source, ListType) and isinstance(target, ListType):
        return fits(source.element_type, target.element_type)
    if isinstance(source, MapType) and isinstance(target, MapType):
        return fits(source.key_type, target.key_type) and fits(source.value_type, target.value_type)
    return source == target or widens(source, target)


def widens(source: IcebergType, target: IcebergType) -> bool:
    """Return whether Iceberg can change a column from one type to a wider one."""
    from pyiceberg.types import DecimalType, DoubleType, FloatType, IntegerType, LongType

    if isinstance(source, DecimalType) and isinstance(target, DecimalType):
        return source.scale == target.scale and source.precision < target.precision
    pairs: Sequence[tuple[type, type]] = ((IntegerType, LongType), (FloatType, DoubleType))
    return any(isinstance(source, a) and isinstance(target, b) for a, b in pairs)
