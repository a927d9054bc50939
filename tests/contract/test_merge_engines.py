"""Engines that only a cluster has: versions, aggregates, numbers given out by the server."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

import fluss_client as fluss
from fluss_client import errors
from tests.contract.tables import Tables, done

DT = fluss.DataTypes


def _refused(tables: Tables, schema: fluss.Schema, **properties: str) -> None:
    """A backend without the feature says so when the table is made."""
    path = tables.path()
    made = fluss.TableDescriptor(schema, bucket_count=1, properties=properties)
    with pytest.raises(fluss.FlussError) as raised:
        done(tables.admin.create_table(path, made))
    assert isinstance(raised.value, errors.UnsupportedError | errors.InvalidTableError)
    assert not done(tables.admin.table_exists(path))


@pytest.mark.supports("Merge engine VERSIONED")
def test_the_newest_version_wins(tables: Tables, offers: fluss.Capabilities) -> None:
    schema = fluss.Schema(
        pa.schema([("id", pa.int32()), ("v", pa.string()), ("version", pa.int64())]), ["id"]
    )
    properties = {
        "table.merge-engine": "versioned",
        "table.merge-engine.versioned.ver-column": "version",
    }
    if not offers.versioned_merge_engine:
        _refused(tables, schema, **properties)
        return
    table = tables.create(schema, properties=properties)
    for value, version in (("two", 2), ("one", 1), ("also two", 2), ("three", 3)):
        tables.upsert(table, [(1, value, version)])
    assert tables.lookup(table, (1,)) == {"id": 1, "v": "three", "version": 3}
    after = [row["v"] for kind, row in tables.changes(table, 5) if kind in ("+I", "+U")]
    assert after == ["two", "also two", "three"]


AGGREGATES: dict[str, tuple[fluss.DataType, str, list[Any], Any]] = {
    "sum": (DT.bigint(), "sum", [1, 2, None, 4], 7),
    "product": (DT.double(), "product", [2.0, 3.0], 6.0),
    "max": (DT.int(), "max", [3, 9, 5], 9),
    "min": (DT.int(), "min", [3, 9, 5], 3),
    "last_value": (DT.string(), "last_value", ["a", "b", None], None),
    "last_value_ignore_nulls": (DT.string(), "last_value_ignore_nulls", ["a", "b", None], "b"),
    "first_value": (DT.string(), "first_value", ["a", "b"], "a"),
    "first_value_ignore_nulls": (DT.string(), "first_value_ignore_nulls", [None, "b", "c"], "b"),
    "listagg": (DT.string(), "listagg", ["a", "b", None, "c"], "a,b,c"),
    "bool_and": (DT.boolean(), "bool_and", [True, False], False),
    "bool_or": (DT.boolean(), "bool_or", [True, False], True),
}


@pytest.mark.supports("Merge engine AGGREGATION")
def test_rows_of_a_key_are_combined(tables: Tables, offers: fluss.Capabilities) -> None:
    columns = [fluss.Column("id", DT.int())]
    columns += [
        fluss.Column(name, kind, agg_function=fluss.AggFunction(function))
        for name, (kind, function, _, _) in AGGREGATES.items()
    ]
    schema = fluss.Schema.of(columns, ["id"])
    properties = {"table.merge-engine": "aggregation"}
    if not offers.aggregation_merge_engine:
        _refused(tables, schema, **properties)
        return
    table = tables.create(schema, properties=properties)
    kept = table.get_table_info().get_schema().column("sum").agg_function
    assert kept is not None
    assert kept.type.lower() == "sum"
    for name, (_, _, values, _) in AGGREGATES.items():
        for value in values:
            tables.upsert(table, [{"id": 1, name: value}], columns=["id", name])
    found = tables.lookup(table, (1,))
    assert found == {"id": 1} | {name: result for name, (*_, result) in AGGREGATES.items()}


@pytest.mark.supports("Auto-increment column")
def test_the_server_numbers_rows(tables: Tables, offers: fluss.Capabilities) -> None:
    columns = [
        fluss.Column("name", DT.string()),
        fluss.Column("number", DT.bigint()),
        fluss.Column("note", DT.string()),
    ]
    schema = fluss.Schema.of(columns, ["name"], auto_increment_columns=["number"])
    assert schema.get_auto_increment_columns() == ["number"]
    if not offers.auto_increment:
        _refused(tables, schema)
        return
    table = tables.create(schema)
    tables.upsert(table, [{"name": "a", "note": "x"}, {"name": "b", "note": "y"}])
    tables.upsert(table, [{"name": "a", "note": "z"}])
    found = done(table.new_lookup().lookup_many([("a",), ("b",)]))
    assert [row["note"] for row in found] == ["z", "y"]
    numbers = [row["number"] for row in found]
    assert None not in numbers
    assert len(set(numbers)) == 2
    with pytest.raises(fluss.FlussError, match="number"):
        table.new_upsert().create_writer().upsert({"name": "c", "number": 7})
    with pytest.raises(errors.InvalidTargetColumnError, match="number"):
        table.new_upsert(columns=["name", "number"]).create_writer()
