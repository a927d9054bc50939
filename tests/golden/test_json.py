"""JSON as a server answers it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from fluss_client.errors import CorruptDataError
from fluss_client.model.json import (
    data_type_from_json,
    data_type_to_json,
    database_from_json,
    database_to_json,
    descriptor_from_json,
    descriptor_to_json,
    schema_from_json,
    schema_to_json,
)
from fluss_client.model.schema import AggFunction, Column, Schema
from fluss_client.model.table import DatabaseDescriptor, TableDescriptor
from fluss_client.model.types import DataType, DataTypes, Field

SAMPLES = json.loads((Path(__file__).parent / "wire-vectors.json").read_text())["json_samples"]

ALL_TYPES = [
    (DataTypes.boolean(), {"type": "BOOLEAN"}),
    (DataTypes.tinyint(), {"type": "TINYINT"}),
    (DataTypes.smallint(), {"type": "SMALLINT"}),
    (DataTypes.int().with_nullable(False), {"type": "INTEGER", "nullable": False}),
    (DataTypes.bigint(), {"type": "BIGINT"}),
    (DataTypes.float(), {"type": "FLOAT"}),
    (DataTypes.double(), {"type": "DOUBLE"}),
    (DataTypes.char(3), {"type": "CHAR", "length": 3}),
    (DataTypes.string(), {"type": "STRING"}),
    (DataTypes.binary(4), {"type": "BINARY", "length": 4}),
    (DataTypes.bytes(), {"type": "BYTES"}),
    (DataTypes.decimal(10, 2), {"type": "DECIMAL", "precision": 10, "scale": 2}),
    (DataTypes.date(), {"type": "DATE"}),
    (DataTypes.time(3), {"type": "TIME_WITHOUT_TIME_ZONE", "precision": 3}),
    (DataTypes.timestamp(), {"type": "TIMESTAMP_WITHOUT_TIME_ZONE", "precision": 6}),
    (DataTypes.timestamp_ltz(9), {"type": "TIMESTAMP_WITH_LOCAL_TIME_ZONE", "precision": 9}),
    (DataTypes.array(DataTypes.int()), {"type": "ARRAY", "element_type": {"type": "INTEGER"}}),
    (
        DataTypes.map(DataTypes.string(), DataTypes.int()),
        {
            "type": "MAP",
            "key_type": {"type": "STRING", "nullable": False},
            "value_type": {"type": "INTEGER"},
        },
    ),
    (
        DataTypes.row([Field("x", DataTypes.int(), "why", 5)]),
        {
            "type": "ROW",
            "fields": [
                {
                    "name": "x",
                    "field_type": {"type": "INTEGER"},
                    "description": "why",
                    "field_id": 5,
                }
            ],
        },
    ),
]


def test_table_info_sample_both_ways() -> None:
    text = SAMPLES["table_info_0.9.1"]
    descriptor = descriptor_from_json(text)
    assert descriptor.schema.primary_keys == ("a",)
    assert descriptor.bucket_keys == ("a",)
    assert descriptor.bucket_count == 1
    assert descriptor.properties["table.datalake.format"] == "iceberg"
    assert descriptor_to_json(descriptor).decode() == text


@pytest.mark.parametrize(("data_type", "expected"), ALL_TYPES, ids=lambda v: str(v)[:30])
def test_every_type_both_ways(data_type: DataType, expected: dict[str, object]) -> None:
    assert data_type_to_json(data_type) == expected
    assert data_type_from_json(expected) == data_type


def test_schema_both_ways_keeps_all_there_is() -> None:
    schema = Schema.of(
        [
            Column("k", DataTypes.bigint(), "the key"),
            Column("n", DataTypes.row([Field("x", DataTypes.array(DataTypes.int()))])),
            Column(
                "s", DataTypes.string(), None, -1, AggFunction("listagg", (("delimiter", ";"),))
            ),
        ],
        ["k"],
        ["k"],
    )
    found = schema_from_json(schema_to_json(schema))
    assert found == schema
    assert [c.id for c in found.columns] == [0, 1, 3]
    assert found.highest_field_id == 3


def test_descriptor_without_buckets_names_none() -> None:
    schema = Schema.of([Column("a", DataTypes.int())])
    bare = json.loads(descriptor_to_json(TableDescriptor(schema, comment="c")))
    assert bare.keys() == {
        "version",
        "schema",
        "comment",
        "partition_key",
        "properties",
        "custom_properties",
    }
    counted = json.loads(descriptor_to_json(TableDescriptor(schema, bucket_count=3)))
    assert (counted["bucket_key"], counted["bucket_count"]) == ([], 3)


def test_database_both_ways() -> None:
    full = DatabaseDescriptor("c", {"k": "v"})
    assert database_to_json(full) == b'{"version":1,"comment":"c","custom_properties":{"k":"v"}}'
    assert database_from_json(database_to_json(full)) == full
    assert database_from_json("{}") == DatabaseDescriptor()


def test_unknown_keys_are_passed_over() -> None:
    value = json.loads(SAMPLES["table_info_0.9.1"])
    value["new"] = value["schema"]["new"] = value["schema"]["columns"][0]["new"] = {"x": [1]}
    assert descriptor_from_json(json.dumps(value)).schema.primary_keys == ("a",)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[",
        "[]",
        "3",
        "{}",
        '{"columns":3}',
        '{"columns":[]}',
        '{"columns":[3]}',
        '{"columns":[{"name":"a"}]}',
        '{"columns":[{"name":"a","data_type":{"type":"CHAR"}}]}',
        '{"columns":[{"name":"a","data_type":{"type":"CHAR","length":0}}]}',
        '{"columns":[{"name":"a","data_type":{"type":"CHAR","length":true}}]}',
        '{"columns":[{"name":"a","data_type":{"type":"NONSENSE"}}]}',
        '{"columns":[{"name":"a","data_type":{"type":["ROW"]}}]}',
        '{"columns":[{"name":"a","data_type":{"type":"INTEGER"}}],"primary_key":["b"]}',
        "[" * 100_000,
        '{"columns":[{"name":"a","data_type":' + '{"type":"ARRAY","element_type":' * 5_000,
    ],
    ids=range(17),
)
def test_damage_is_a_typed_error(text: str) -> None:
    with pytest.raises(CorruptDataError):
        schema_from_json(text)
