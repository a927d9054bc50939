"""Schemas, table descriptors and databases as the JSON that requests and answers carry.

Unknown keys are passed over, so that newer servers can add some. What cannot be understood
raises CorruptDataError, whatever is wrong with it.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from fluss_client.errors import CorruptDataError, SchemaError
from fluss_client.model.schema import AggFunction, Column, Schema
from fluss_client.model.table import DatabaseDescriptor, TableDescriptor
from fluss_client.model.types import DataType, Field, Root

VERSION = 1
Json = dict[str, Any]
T = TypeVar("T")

_LENGTH = frozenset({Root.CHAR, Root.BINARY})
_PRECISION = frozenset({Root.DECIMAL, Root.TIME, Root.TIMESTAMP, Root.TIMESTAMP_LTZ})


def schema_to_json(schema: Schema) -> bytes:
    """The schema as JSON text."""
    return _dump(_schema(schema))


def schema_from_json(data: bytes | str) -> Schema:
    """The schema in JSON text; column ids are given out when the text has none."""
    return _load("schema", data, _to_schema)


def descriptor_to_json(descriptor: TableDescriptor) -> bytes:
    """The table descriptor as JSON text; bucket count and key only where they are given."""
    out: Json = {"version": VERSION, "schema": _schema(descriptor.schema)}
    if descriptor.comment is not None:
        out["comment"] = descriptor.comment
    out["partition_key"] = list(descriptor.partition_keys)
    # The server needs the key beside a count, be it empty.
    if descriptor.bucket_keys or descriptor.bucket_count is not None:
        out["bucket_key"] = list(descriptor.bucket_keys)
    if descriptor.bucket_count is not None:
        out["bucket_count"] = descriptor.bucket_count
    out["properties"] = dict(descriptor.properties)
    out["custom_properties"] = dict(descriptor.custom_properties)
    return _dump(out)


def descriptor_from_json(data: bytes | str) -> TableDescriptor:
    """The table descriptor in JSON text."""
    return _load("table descriptor", data, _to_descriptor)


def database_to_json(descriptor: DatabaseDescriptor) -> bytes:
    """The database's comment and properties as JSON text."""
    out: Json = {"version": VERSION}
    if descriptor.comment is not None:
        out["comment"] = descriptor.comment
    out["custom_properties"] = dict(descriptor.custom_properties)
    return _dump(out)


def database_from_json(data: bytes | str) -> DatabaseDescriptor:
    """The database's comment and properties in JSON text."""
    return _load(
        "database",
        data,
        lambda found: DatabaseDescriptor(
            _optional_text(found, "comment"), _texts(found.get("custom_properties"))
        ),
    )


def data_type_to_json(data_type: DataType) -> Json:
    """The type as a JSON object; `nullable` is left out where it is true."""
    out: Json = {"type": data_type.root.value}
    if not data_type.nullable:
        out["nullable"] = False
    if data_type.root in _LENGTH:
        out["length"] = data_type.length
    if data_type.root in _PRECISION:
        out["precision"] = data_type.precision
    if data_type.root is Root.DECIMAL:
        out["scale"] = data_type.scale
    if data_type.root is Root.ARRAY and data_type.element is not None:
        out["element_type"] = data_type_to_json(data_type.element)
    if data_type.root is Root.MAP and data_type.key is not None and data_type.element is not None:
        out["key_type"] = data_type_to_json(data_type.key)
        out["value_type"] = data_type_to_json(data_type.element)
    if data_type.root is Root.ROW:
        out["fields"] = [_field(inner) for inner in data_type.fields]
    return out


def data_type_from_json(value: Json) -> DataType:
    """The type in a JSON object."""
    return _guard("data type", value, _to_type)


def _dump(value: Json) -> bytes:
    return json.dumps(value, separators=(",", ":")).encode()


def _load(what: str, data: bytes | str, build: Callable[[Json], T]) -> T:
    try:
        value = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise CorruptDataError(f"the {what} is not JSON: {error}") from error
    return _guard(what, value, build)


def _guard(what: str, value: Any, build: Callable[[Json], T]) -> T:
    """One place where every way in which a value can be wrong becomes the same error."""
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
    out: Json = {"name": column.name, "data_type": data_type_to_json(column.type)}
    if column.comment is not None:
        out["comment"] = column.comment
    if column.agg_function is not None:
        out["agg_function"] = {"type": column.agg_function.type}
        if column.agg_function.parameters:
            out["agg_function"]["parameters"] = dict(column.agg_function.parameters)
    out["id"] = column.id
    return out


def _field(inner: Field) -> Json:
    out: Json = {"name": inner.name, "field_type": data_type_to_json(inner.type)}
    if inner.description is not None:
        out["description"] = inner.description
    out["field_id"] = inner.id
    return out


def _to_schema(value: Json) -> Schema:
    return Schema.of(
        [_to_column(column) for column in _list(value["columns"])],
        _names(value.get("primary_key")),
        _names(value.get("auto_increment_column")),
        _integer(value.get("highest_field_id", -1)),
    )


def _to_column(value: Json) -> Column:
    function = value.get("agg_function")
    aggregate = None
    if function is not None:
        parameters = _texts(function.get("parameters"))
        aggregate = AggFunction(_text(function["type"]), tuple(sorted(parameters.items())))
    return Column(
        _text(value["name"]),
        _to_type(value["data_type"]),
        _optional_text(value, "comment"),
        _integer(value.get("id", -1)),
        aggregate,
    )


def _to_type(value: Json) -> DataType:
    root = Root(value["type"])
    nested: dict[str, Any] = {}
    if root is Root.ARRAY:
        nested["element"] = _to_type(value["element_type"])
    elif root is Root.MAP:
        nested["key"] = _to_type(value["key_type"])
        nested["element"] = _to_type(value["value_type"])
    elif root is Root.ROW:
        nested["fields"] = tuple(_to_field(inner) for inner in _list(value["fields"]))
    return DataType(
        root,
        nullable=value.get("nullable", True) is not False,
        length=_integer(value["length"]) if root in _LENGTH else 0,
        precision=_integer(value["precision"]) if root in _PRECISION else 0,
        scale=_integer(value["scale"]) if root is Root.DECIMAL else 0,
        **nested,
    )


def _to_field(value: Json) -> Field:
    return Field(
        _text(value["name"]),
        _to_type(value["field_type"]),
        _optional_text(value, "description"),
        _integer(value.get("field_id", -1)),
    )


def _to_descriptor(value: Json) -> TableDescriptor:
    count = value.get("bucket_count")
    return TableDescriptor(
        _to_schema(value["schema"]),
        partition_keys=_names(value.get("partition_key")),
        bucket_count=None if count is None else _integer(count),
        bucket_keys=_names(value.get("bucket_key")),
        comment=_optional_text(value, "comment"),
        properties=_texts(value.get("properties")),
        custom_properties=_texts(value.get("custom_properties")),
    )


def _list(value: Any) -> list[Any]:
    if not isinstance(value, list):
        raise TypeError(f"expected a list, found {type(value).__name__}")
    return value


def _names(value: Any) -> list[str]:
    return [] if value is None else [_text(name) for name in _list(value)]


def _texts(value: Any) -> Mapping[str, str]:
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise TypeError(f"expected an object, found {type(value).__name__}")
    return {key: _text(text) for key, text in value.items()}


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError(f"expected text, found {type(value).__name__}")
    return value


def _optional_text(value: Json, key: str) -> str | None:
    found = value.get(key)
    return None if found is None else _text(found)


def _integer(value: Any) -> int:
    if not isinstance(value, int) or isinstance(value, bool):
        raise TypeError(f"expected a whole number, found {type(value).__name__}")
    return value
