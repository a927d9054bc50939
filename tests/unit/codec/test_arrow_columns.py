"""Users' columns to wire columns and back."""

from __future__ import annotations

from decimal import Decimal

import pyarrow as pa
import pytest
from hypothesis import given

from fluss_client.codec.arrow_body import Compression, encode_body
from fluss_client.codec.arrow_columns import align_to, to_wire
from fluss_client.errors import RowError
from fluss_client.model.schema import Column, Schema
from fluss_client.model.types import DataTypes, Field
from tests.unit.codec.type_values import tables

D = DataTypes


def one(column: pa.Array, data_type: object) -> pa.Array:
    schema = Schema.of([Column("c", data_type)])  # type: ignore[arg-type]
    found = to_wire(pa.RecordBatch.from_arrays([column], ["c"]), schema.wire)
    assert found.schema.equals(schema.wire)
    found.validate(full=True)
    return found.column(0)


@given(tables())
def test_shown_and_back(table: tuple[Schema, pa.RecordBatch]) -> None:
    schema, wire = table
    shown = align_to(wire, schema, schema)
    shown.validate(full=True)
    assert shown.schema.equals(schema.arrow)
    assert to_wire(shown, schema.wire).equals(wire)
    part = slice(wire.num_rows // 3, wire.num_rows)
    assert to_wire(shown[part], schema.wire).equals(wire[part])


@pytest.mark.parametrize(
    ("column", "data_type"),
    [
        (pa.array(["a", None], pa.large_string()), D.string()),
        (pa.array(["a", None], pa.string_view()), D.char(1)),
        (pa.array(["a", None, "a"]).dictionary_encode(), D.string()),
        (pa.array([b"a"], pa.large_binary()), D.bytes()),
        (pa.array([b"ab"], pa.binary()), D.binary(2)),
        (pa.array([1, 2], pa.int64()), D.int()),
        (pa.array([1, 2], pa.int16()), D.bigint()),
        (pa.array([1.5], pa.float64()), D.float()),
        (pa.array([Decimal("1.5")], pa.decimal128(5, 1)), D.decimal(10, 2)),
        (pa.array([None, None]), D.timestamp()),
        (pa.array([86_400_000], pa.date64()), D.date()),
        (pa.array([[1]], pa.large_list(pa.int32())), D.array(D.bigint())),
        (pa.array([[1, None]], pa.list_(pa.int64())), D.array(D.bigint())),
        (
            pa.array([{"x": "a"}], pa.struct([("x", pa.large_string())])),
            D.row([Field("x", D.string())]),
        ),
    ],
    ids=str,
)
def test_other_encodings_of_the_same_kind(column: pa.Array, data_type: object) -> None:
    assert one(column, data_type).to_pylist() == column.to_pylist()


def test_zones_go_and_instants_stay_without_a_copy() -> None:
    column = pa.array([0, None], pa.timestamp("us", "America/New_York"))
    found = one(column, D.timestamp_ltz())
    assert found.cast(pa.int64()).to_pylist() == [0, None]
    assert found.buffers()[1].address == column.buffers()[1].address


@pytest.mark.parametrize(
    ("column", "data_type"),
    [
        (pa.array(["1"]), D.int()),
        (pa.array([1]), D.string()),
        (pa.array([2**40]), D.int()),
        (pa.array([1.5]), D.int()),
        (pa.array([1_500], pa.timestamp("ns")), D.timestamp(6)),
        (pa.array([b"abc"]), D.binary(2)),
        (pa.array([Decimal("1.25")]), D.decimal(3, 1)),
        (pa.array([1]), D.date()),
        (pa.array([["1"]]), D.array(D.int())),
        (pa.array([{"y": 1}]), D.row([Field("x", D.int())])),
        (pa.array([None, 1]), D.int().with_nullable(False)),
        (pa.array([[1, None]]), D.array(D.bigint().with_nullable(False))),
        (pa.array([{"x": None}]), D.row([Field("x", D.int().with_nullable(False))])),
        (
            pa.array([[("k", None)]], pa.map_(pa.string(), pa.int32())),
            D.map(D.string(), D.int().with_nullable(False)),
        ),
    ],
    ids=str,
)
def test_what_does_not_fit_names_its_column(column: pa.Array, data_type: object) -> None:
    with pytest.raises(RowError, match="column 'c"):
        one(column, data_type)


def test_a_null_row_may_have_empty_fields() -> None:
    kind = D.row([Field("x", D.timestamp_ltz().with_nullable(False))])
    column = pa.array([None, {"x": 1}], pa.struct([("x", pa.timestamp("us", "UTC"))]))
    assert one(column, kind).is_null().to_pylist() == [True, False]


def test_columns_are_found_by_name() -> None:
    schema = Schema(pa.schema([("a", pa.int64()), ("b", pa.string())]))
    batch = pa.record_batch({"b": ["x"], "a": [1]})
    assert to_wire(batch, schema.wire).to_pylist() == [{"a": 1, "b": "x"}]
    for names in (["a"], ["a", "b", "c"], ["a", "x"]):
        wrong = pa.RecordBatch.from_arrays([pa.array([1])] * len(names), names)
        with pytest.raises(RowError, match="the table's columns are"):
            to_wire(wrong, schema.wire)


@pytest.mark.parametrize("compression", [Compression.NONE, Compression.LZ4_FRAME, Compression.ZSTD])
def test_a_slice_writes_its_own_rows_only(compression: Compression) -> None:
    whole = pa.record_batch({"a": pa.array(range(100_000)), "b": [str(i) for i in range(100_000)]})
    assert len(memoryview(encode_body(whole.slice(50_000, 3), compression))) < 1_000
