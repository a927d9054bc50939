"""Schemas, table descriptors and databases as the JSON that requests and answers carry.

Unknown keys are ignored, so that newer servers can add some. JSON of any wrong form raises
CorruptDataError. Each data type reads and writes its own part.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from fluss_client.errors import CorruptDataError, SchemaError
from fluss_client.model.schema import AggFunction, Column, Schema
from fluss_client.model.table import DatabaseDescriptor, TableDescriptor
from fluss_client.model.types import DataType
from fluss_client.model.types.base import (
    Json,
    json_integer,
    json_list,
    json_optional_text,
    json_text,
)

VERSION = 1
T = TypeVar("T")


def schema_to_json(schema: Schema) -> bytes:
    """Return the schema as JSON text."""
    return _dump(_schema(schema))


def schema_from_json(data: bytes | str) -> Schema:
    """Return the schema in JSON text; columns get ids if the text has none."""
    return _load("schema", data, _to_schema)


def descriptor_to_json(descriptor: TableDescriptor) -> bytes:
    """Return the table descriptor as JSON text; bucket count and key only if they are given."""
    out: Json = {"version": VERSION, "schema": _schema(descriptor.schema)}
    if descriptor.comment is not None:
        out["comment"] = descriptor.comment
    out["partition_key"] = list(descriptor.partition_keys)
    # The server needs the key with a count, even if it is empty.
    if descriptor.bucket_keys or descriptor.bucket_count is not None:
        out["bucket_key"] = list(descriptor.bucket_keys)
    if descriptor.bucket_count is not None:
        out["bucket_count"] = descriptor.bucket_count
    out["properties"] = dict(descriptor.properties)
    out["custom_properties"] = dict(descriptor.custom_properties)
    return _dump(out)


def descriptor_from_json(data: bytes | str) -> TableDescriptor:
    """Return the table descriptor in JSON text."""
    return _load("table descriptor", data, _to_descriptor)


def database_to_json(descriptor: DatabaseDescriptor) -> bytes:
    """Return the database's comment and properties as JSON text."""
    out: Json = {"version": VERSION}
    if descriptor.comment is not None:
        out["comment"] = descriptor.comment
    out["custom_properties"] = dict(descriptor.custom_properties)
    return _dump(out)


def database_from_json(data: bytes | str) -> DatabaseDescriptor:
    """Return the database's comment and properties in JSON text."""
    return _load(
        "database",
        data,
        lambda found: DatabaseDescriptor(
            json_optional_text(found, "comment"), _texts(found.get("custom_properties"))
        ),
    )


def data_type_to_json(data_type: DataType) -> Json:
    """Return the type as a JSON object."""
    return data_type.to_json()


def data_type_from_json(value: Json) -> DataType:
    """Return the type in a JSON object; CorruptDataError if it is none."""
    return _guard("data type", value, DataType.from_json)


def _dump(value: Json) -> bytes:
    return json.dumps(value, separators=(",", ":")).encode()


def _load(what: str, data: bytes | str, build: Callable[[Json], T]) -> T:
    try:
        value = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise CorruptDataError(f"the {what} is not JSON: {error}") from error
    return _guard(what, value, build)


def _guard(what: str, value: Any, build: Callable[[Json], T]) -> T:
    """Build a value, and turn each error that a wrong value causes into CorruptDataError."""
    try:
        if not isinstance(value, dict):
            raise TypeError(f"expected an object, found {type(value).__name__}")
        return build(value)
    except KeyError as error:
        raise CorruptDataError(f"the {what}'s JSON lacks {error}") from error
    except (TypeError, ValueError, AttributeError, RecursionError, SchemaError) as error:
        raise CorruptDataError(f"the {what}'s JSON cannot be understood: {error}") from error


def _schema(schema: Schema) -> Json:
    out: Json = {"version": VERSION, "columns": [_column(c) for c in schema.columns]}
    if schema.primary_keys:
        out["primary_key"] = list(schema.primary_keys)
    if schema.auto_increment_columns:
        out["auto_increment_column"] = list(schema.auto_increment_columns)
    out["highest_field_id"] = schema.highest_field_id
    return out


def _column(column: Column) -> Json:
    out: Json = {"name": column.name, "data_type": column.type.to_json()}
    if column.comment is not None:
        out["comment"] = column.comment
    if column.agg_function is not None:
        out["agg_function"] = {"type": column.agg_function.type}
        if column.agg_function.parameters:
            out["agg_function"]["parameters"] = dict(column.agg_function.parameters)
    out["id"] = column.id
    return out


def _to_schema(value: Json) -> Schema:
    return Schema.of(
        [_to_column(column) for column in json_list(value["columns"])],
        _names(value.get("primary_key")),
        _names(value.get("auto_increment_column")),
        json_integer(value.get("highest_field_id", -1)),
    )


def _to_column(value: Json) -> Column:
    function = value.get("agg_function")
    aggregate = None
    if function is not None:
        parameters = _texts(function.get("parameters"))
        aggregate = AggFunction(json_text(function["type"]), tuple(sorted(parameters.items())))
    return Column(
        json_text(value["name"]),
        DataType.from_json(value["data_type"]),
        json_optional_text(value, "comment"),
        json_integer(value.get("id", -1)),
        aggregate,
    )


def _to_descriptor(value: Json) -> TableDescriptor:
    count = value.get("bucket_count")
    return TableDescriptor(
        _to_schema(value["schema"]),
        partition_keys=_names(value.get("partition_key")),
        bucket_count=None if count is None else json_integer(count),
        bucket_keys=_names(value.get("bucket_key")),
        comment=json_optional_text(value, "comment"),
        properties=_texts(value.get("properties")),
        custom_properties=_texts(value.get("custom_properties")),
    )


def _names(value: Any) -> list[str]:
    return [] if value is None else [json_text(name) for name in json_list(value)]


def _texts(value: Any) -> Mapping[str, str]:
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise TypeError(f"expected an object, found {type(value).__name__}")
    return {key: json_text(text) for key, text in value.items()}
