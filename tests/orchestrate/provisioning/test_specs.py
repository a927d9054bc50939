"""Specs: what they accept, how they read, what they refuse."""

from __future__ import annotations

import re
from pathlib import Path

import pyarrow as pa
import pytest

from fluss_client.errors import SchemaError
from fluss_orchestrate.core.provisioning import ColumnSpec, TableSpec, load_table_specs

ORDERS = """
tables:
  - table: sales.orders
    columns:
      order_id: bigint not null
      region: string
      amount: {type: "decimal(12,2)", comment: "in euro"}
      placed_at: timestamp[us]
    primary_key: [order_id, region]
    partition_keys: region
    buckets: 4
    lake: true
    properties: {table.log.ttl: 7d}
    partitions: [{region: eu}]
"""


def test_yaml_and_python_say_the_same(tmp_path: Path) -> None:
    file = tmp_path / "tables.yaml"
    file.write_text(ORDERS)
    spec = TableSpec(
        table="sales.orders",
        columns=(
            ColumnSpec("order_id", "bigint not null"),
            ColumnSpec("region", "string"),
            ColumnSpec("amount", "decimal(12,2)", "in euro"),
            ColumnSpec("placed_at", "timestamp[us]"),
        ),
        primary_key=("order_id", "region"),
        partition_keys=("region",),
        buckets=4,
        lake=True,
        properties={"table.log.ttl": "7d"},
        partitions=({"region": "eu"},),
    )
    assert load_table_specs(ORDERS) == [spec]
    assert load_table_specs(file) == [spec]
    assert load_table_specs(str(file)) == [spec]
    assert spec.options() == {"table.log.ttl": "7d", "table.datalake.enabled": "true"}


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("bigint", "bigint"),
        ("int64", "bigint"),
        ("INT NOT NULL", "int NOT NULL"),
        ("int32 not null", "int NOT NULL"),
        ("utf8", "string"),
        ("string", "string"),
        ("timestamp[ms]", "timestamp(3)"),
        ("timestamp(3)", "timestamp(3)"),
        ("date32", "date"),
        ("double", "double"),
        ("array<int>", "array<int>"),
        ("map<string,double>", "map<string NOT NULL,double>"),
    ],
)
def test_types_by_either_name(text: str, shown: str) -> None:
    assert str(ColumnSpec("c", text).data_type()) == shown


def test_an_arrow_schema_becomes_a_spec() -> None:
    schema = pa.schema(
        [pa.field("id", pa.int64(), nullable=False), ("at", pa.timestamp("us", "UTC"))]
    )
    spec = TableSpec.of_arrow("db.t", schema, primary_key=("id",))
    assert spec.schema().arrow == schema


@pytest.mark.parametrize(
    ("yaml", "complaint"),
    [
        ("tables:\n - {columns: {a: int}}\n", "needs 'table: database.table'"),
        ("tables:\n - {table: nodot, columns: {a: int}}\n", "is not a table path"),
        ("tables:\n - {table: a.b, columns: {a: int}, bukets: 3}\n", "unknown ['bukets']"),
        ("tables:\n - {table: a.b, columns: {a: qubit}}\n", "column 'a'"),
        ("tables:\n - {table: a.b, columns: {a: int}, primary_key: [b]}\n", "'b' is not a column"),
        ("tables:\n - {table: a.b, columns: {a: int}, buckets: 0}\n", "at least 1"),
        (
            "tables:\n - {table: a.b, columns: {a: string}, partition_keys: [a],"
            " partitions: [{b: x}]}\n",
            "must give ['a']",
        ),
        (
            "tables:\n - {table: a.b, columns: {a: int}}\n - {table: a.b, columns: {a: int}}\n",
            "twice",
        ),
        ("- just\n- words\n", "list of table specs"),
        ("{broken\n", "is no YAML"),
    ],
)
def test_what_is_wrong_is_named(yaml: str, complaint: str) -> None:
    with pytest.raises(SchemaError, match=re.escape(complaint)):
        load_table_specs(yaml)


@pytest.mark.parametrize(
    ("written", "quoted"),
    [
        ("partitions: [{r: no}]", "r: 'no'"),
        ("partitions: [{r: 010}]", "r: '010'"),
        ("partitions: [{r: 20261118}]", "r: '20261118'"),
        ("partitions: [{r: 2026-11-18}]", "r: '2026-11-18'"),
        ("partitions: [{r: null}]", "r: 'null'"),
        ("partitions: [{r: 1e3}, {r: 1.50}]", "r: '1.50'"),
        ("custom_properties: {country: no}", "country: 'no'"),
        ("custom_properties: {zip: 010}", "zip: '010'"),
        ("properties: {table.log.ttl: null}", "table.log.ttl: 'null'"),
    ],
)
def test_what_yaml_does_not_read_as_text_is_refused(written: str, quoted: str) -> None:
    table = f"{{table: a.b, columns: {{r: string}}, partition_keys: [r], {written}}}"
    with pytest.raises(SchemaError, match=re.escape(f"Write it in quotes: {quoted}")):
        load_table_specs(f"tables:\n - {table}\n")


def test_quoted_values_and_plain_numbers_stay_what_they_are() -> None:
    [spec] = load_table_specs(
        "tables:\n"
        " - table: a.b\n"
        "   columns: {r: string}\n"
        "   partition_keys: [r]\n"
        "   properties: {table.log.tiered.local-segments: 3, table.datalake.enabled: yes}\n"
        "   custom_properties: {retries: 3, on_call: true}\n"
        "   partitions: [{r: 'no'}, {r: '010'}]\n"
    )
    assert [dict(p) for p in spec.partitions] == [{"r": "no"}, {"r": "010"}]
    assert spec.custom_properties == {"retries": "3", "on_call": "true"}
    assert spec.options()["table.datalake.enabled"] == "true"


def test_values_from_python_must_be_text_too() -> None:
    columns = (ColumnSpec("r", "string"),)
    with pytest.raises(SchemaError, match="must both be text"):
        TableSpec("a.b", columns, partition_keys=("r",), partitions=({"r": 8},))  # type: ignore[dict-item]
    with pytest.raises(SchemaError, match="must both be text"):
        TableSpec.from_mapping(
            {
                "table": "a.b",
                "columns": {"r": "string"},
                "partition_keys": ["r"],
                "partitions": [{"r": None}],
            }
        )
    with pytest.raises(SchemaError, match="column name False is no text"):
        TableSpec.from_mapping({"table": "a.b", "columns": {False: "string"}})


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(SchemaError, match="No such file"):
        load_table_specs(tmp_path / "absent.yaml")


def test_yaml_cannot_run_code() -> None:
    with pytest.raises(SchemaError, match="is no YAML"):
        load_table_specs("tables:\n - !!python/object/apply:os.system ['true']\n")
