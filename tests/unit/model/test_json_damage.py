"""Schemas of any types through JSON, and JSON that is damaged."""

from __future__ import annotations

import json
from contextlib import suppress
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from fluss_client.errors import CorruptDataError
from fluss_client.model.json import (
    data_type_from_json,
    database_from_json,
    descriptor_from_json,
    descriptor_to_json,
    schema_from_json,
    schema_to_json,
)
from fluss_client.model.schema import Schema
from fluss_client.model.table import TableDescriptor
from tests.unit.codec.type_values import schemas

DECODERS = [schema_from_json, descriptor_from_json, database_from_json]
ANY_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner),
    max_leaves=8,
)


@given(schemas())
def test_any_schema_both_ways(schema: Schema) -> None:
    found = schema_from_json(schema_to_json(schema))
    assert found == schema
    assert found.highest_field_id == schema.highest_field_id
    descriptor = TableDescriptor(schema, bucket_count=2, comment="\ud800 ü", properties={"k": "v"})
    assert descriptor_from_json(descriptor_to_json(descriptor)) == descriptor


@given(st.binary(max_size=60) | ANY_JSON.map(lambda value: json.dumps(value).encode()))
def test_any_bytes(data: bytes) -> None:
    for decode in DECODERS:
        with suppress(CorruptDataError):
            decode(data)


@given(ANY_JSON)
def test_any_value_as_a_type(value: Any) -> None:
    with suppress(CorruptDataError):
        data_type_from_json(value)


def places(value: Any) -> list[tuple[Any, Any]]:
    """Every container of a JSON value with every key or index in it."""
    found = []
    keys = value.keys() if isinstance(value, dict) else range(len(value))
    for key in list(keys):
        found.append((value, key))
        if isinstance(value[key], dict | list):
            found += places(value[key])
    return found


@given(schemas(), ANY_JSON, st.data())
def test_one_wrong_value_anywhere(schema: Schema, wrong: Any, data: st.DataObject) -> None:
    value = json.loads(descriptor_to_json(TableDescriptor(schema, bucket_count=2)))
    container, key = data.draw(st.sampled_from(places(value)))
    if data.draw(st.booleans()):
        del container[key]
    else:
        container[key] = wrong
    with suppress(CorruptDataError):
        descriptor_from_json(json.dumps(value))
