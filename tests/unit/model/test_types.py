"""Each registered data type has every facet.

A new type needs one line here: a value in `VALUES`.
"""

from __future__ import annotations

import copy
import datetime as dt
import itertools
import pickle
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from fluss_client.codec.keys import KeyEncoding, encode_key_scalar, encode_keys
from fluss_client.codec.partition_names import partition_name
from fluss_client.codec.rows import RowFormat, decode_row_scalar, decode_rows, encode_rows
from fluss_client.errors import RowError, SchemaError, UnsupportedError
from fluss_client.model.arrow import arrow_field, arrow_type, from_arrow
from fluss_client.model.json import data_type_from_json, data_type_to_json
from fluss_client.model.predicate import col
from fluss_client.model.schema import Column, Schema
from fluss_client.model.type_text import parse_type
from fluss_client.model.types import (
    DataType,
    DataTypes,
    Field,
    Root,
    registered_types,
    require_arrow_map,
)
from fluss_client.model.types.layout import Kind

VALUES: dict[Root, Any] = {
    Root.BOOLEAN: True,
    Root.TINYINT: -7,
    Root.SMALLINT: 300,
    Root.INTEGER: 70_000,
    Root.BIGINT: -(1 << 40),
    Root.FLOAT: 1.5,
    Root.DOUBLE: 0.1,
    Root.CHAR: "abc",
    Root.STRING: "text",
    Root.BINARY: b"12345678",
    Root.BYTES: b"bytes",
    Root.DECIMAL: Decimal("12.25"),
    Root.DATE: dt.date(2024, 11, 5),
    Root.TIME: dt.time(12, 30, 15),
    Root.TIMESTAMP: dt.datetime(2024, 11, 5, 12, 30, 15),
    Root.TIMESTAMP_LTZ: dt.datetime(2024, 11, 5, 12, 30, 15, tzinfo=dt.UTC),
    Root.ARRAY: [1, None],
    Root.MAP: [("a", 1)],
    Root.ROW: {"a": 1},
}
CLASSES = list(registered_types())
EXAMPLES = [example for cls in CLASSES for example in cls.examples()]
ids = pytest.mark.parametrize("data_type", EXAMPLES, ids=str)


def batch_of(data_type: DataType) -> pa.RecordBatch:
    schema = pa.schema([arrow_field("c", data_type)])
    values = [VALUES[data_type.root]] + [None] * data_type.nullable
    return pa.RecordBatch.from_arrays([pa.array(values, arrow_type(data_type))], schema=schema)


def test_every_root_has_a_class_a_factory_and_a_value_here() -> None:
    assert {cls.own_root for cls in CLASSES} == set(Root) == set(VALUES)
    assert all(type(DataType(cls.own_root, **_arguments(cls))) is cls for cls in CLASSES)
    factories = {name.upper() for name in vars(DataTypes) if not name.startswith("_")}
    assert factories == {cls.names[0] for cls in CLASSES}


def _arguments(cls: type[DataType]) -> dict[str, Any]:
    example = cls.examples()[0]
    names = ("length", "precision", "scale", "element", "key", "fields")
    return {name: getattr(example, name) for name in names}


def test_no_two_types_have_a_name_in_common() -> None:
    names = [name for cls in CLASSES for name in cls.names]
    assert len(names) == len(set(names))
    assert all(name == name.upper() for name in names)


@ids
def test_text_json_arrow_and_pickle_read_back(data_type: DataType) -> None:
    for one in (data_type, data_type.with_nullable(False)):
        assert parse_type(str(one)) == one
        assert data_type_from_json(data_type_to_json(one)) == one
        assert pickle.loads(pickle.dumps(one)) == one == copy.deepcopy(one)
        assert repr(one).startswith("DataType(root=<Root.")
    arrow = arrow_type(data_type)
    # Several types can have one Arrow type, of which one is read back: CHAR is read as STRING.
    own = type(data_type).of_arrow(arrow, True, "")
    assert from_arrow(arrow) == data_type if own else arrow_type(from_arrow(arrow)) == arrow


def test_the_text_of_every_name_is_read() -> None:
    for cls in CLASSES:
        for name in cls.names if not cls.is_nested else ():
            assert type(parse_type(name)) is cls


@ids
def test_rows_hold_it_in_both_formats(data_type: DataType) -> None:
    batch = batch_of(data_type)
    for row_format in RowFormat:
        rows = encode_rows(batch, [data_type], row_format)
        assert decode_rows(rows, [data_type], ["c"], row_format).equals(batch)
        if not data_type.needs_arrow:
            scalar = [decode_row_scalar(row, [data_type], ["c"], row_format) for row in rows]
            assert scalar == batch.to_pylist()


@ids
def test_arrays_hold_it(data_type: DataType) -> None:
    outer = DataTypes.array(data_type)
    batch = pa.RecordBatch.from_arrays(
        [pa.array([[VALUES[data_type.root], None]], arrow_type(outer))],
        schema=pa.schema([arrow_field("c", outer)]),
    )
    rows = encode_rows(batch, [outer], RowFormat.COMPACTED)
    assert decode_rows(rows, [outer], ["c"], RowFormat.COMPACTED).equals(batch)


@ids
def test_its_layout_is_complete(data_type: DataType) -> None:
    layout = data_type.layout
    numbers = (Kind.RAW, Kind.INT32, Kind.INT64, Kind.INSTANT)
    assert layout.is_number == (layout.kind in numbers) == (layout.packing.size > 0)
    assert not layout.padded or (layout.kind is Kind.BYTES and data_type.length)
    assert layout.iceberg_key is None or not data_type.is_nested


@ids
@pytest.mark.parametrize("encoding", KeyEncoding)
def test_keys_hold_it_or_refuse_it(data_type: DataType, encoding: KeyEncoding) -> None:
    value = VALUES[data_type.root]
    column = pa.array([value], arrow_type(data_type))
    iceberg = encoding is KeyEncoding.ICEBERG
    if data_type.is_nested or (iceberg and data_type.layout.iceberg_key is None):
        with pytest.raises(UnsupportedError, match="cannot be a key"):
            encode_keys([column], [data_type], ["c"], encoding)
    else:
        keys = encode_keys([column], [data_type], ["c"], encoding)
        assert list(keys) == [encode_key_scalar([value], [data_type], ["c"], encoding)]


@ids
def test_it_names_partitions_or_refuses_to(data_type: DataType) -> None:
    value = VALUES[data_type.root]
    if data_type.may_partition:
        assert partition_name([value], [data_type])
    else:
        with pytest.raises(SchemaError, match="cannot partition"):
            partition_name([value], [data_type])


@ids
def test_it_checks_values(data_type: DataType) -> None:
    value = VALUES[data_type.root]
    checked = data_type.checker("c")(value)
    wire = pa.array([checked], data_type.to_arrow(None))
    assert wire.to_pylist() == pa.array([value], data_type.to_arrow(None)).to_pylist()
    assert data_type.checker("c")(None) is None
    with pytest.raises(RowError, match=r"column 'c' is .* NOT NULL: null"):
        data_type.with_nullable(False).checker("c")(None)
    with pytest.raises(RowError, match=r"column 'c' is .* does not fit"):
        data_type.checker("c")(object())
    test = data_type.exact_test("v")
    if test is not None:
        scope = {"v": checked, "datetime": dt.datetime, "date": dt.date}
        assert eval(test, scope) is True
        assert not eval(test, {**scope, "v": object()})
        assert not eval(test, {**scope, "v": None})


@ids
def test_predicates_take_its_values_or_refuse_it(data_type: DataType) -> None:
    schema = Schema.of([Column("c", data_type)], [], [])
    if data_type.is_nested:
        assert not data_type.literals
        col("c").is_null().check(schema)
    else:
        (col("c") == VALUES[data_type.root]).check(schema)


def test_a_map_that_lacks_a_type_is_refused() -> None:
    known = {example.to_arrow("UTC").id for example in EXAMPLES}
    require_arrow_map("a test", known)
    with pytest.raises(NotImplementedError, match=r"a test has no entry for Arrow's date32"):
        require_arrow_map("a test", known - {pa.date32().id})


def test_field_ids_are_given_depth_first() -> None:
    inner = DataTypes.row([Field("x", DataTypes.int())])
    outer = DataTypes.row(
        [Field("a", DataTypes.array(inner)), Field("b", DataTypes.map(DataTypes.int(), inner))]
    )
    numbered = outer.with_field_ids(itertools.count(1).__next__)
    a, b = numbered.fields
    assert (a.id, b.id) == (1, 3)
    assert a.type.element is not None
    assert b.type.element is not None
    assert (a.type.element.fields[0].id, b.type.element.fields[0].id) == (2, 4)
