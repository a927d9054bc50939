"""Adding columns: ids go on above all that were ever given, nested fields included."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from fluss_client.errors import InvalidAlterTableError, UnknownServerError
from fluss_client.model.schema import Column, Schema
from fluss_client.model.types import DataType


def with_columns(schema: Schema, columns: Sequence[Column]) -> Schema:
    """`schema` with columns at its end; error 56 for a name that it has, -1 for NOT NULL."""
    taken = set(schema.index)
    for column in columns:
        if column.name in taken:
            raise InvalidAlterTableError(f"column '{column.name}' exists already")
        if not column.type.nullable:
            raise UnknownServerError(f"column '{column.name}' must be nullable to be added")
        taken.add(column.name)
    added = Schema.of([replace(column, id=-1) for column in columns])
    shift = schema.highest_field_id + 1
    shifted = [
        replace(column, id=column.id + shift, type=_shifted(column.type, shift))
        for column in added.columns
    ]
    return Schema.of(
        [*schema.columns, *shifted], schema.primary_keys, schema.auto_increment_columns
    )


def _shifted(kind: DataType, shift: int) -> DataType:
    if not kind.is_nested:
        return kind
    fields = tuple(replace(f, id=f.id + shift, type=_shifted(f.type, shift)) for f in kind.fields)
    element = None if kind.element is None else _shifted(kind.element, shift)
    key = None if kind.key is None else _shifted(kind.key, shift)
    return replace(kind, fields=fields, element=element, key=key)
