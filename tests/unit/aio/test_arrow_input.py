"""Arrow data and DataFrames made to fit a table."""

from __future__ import annotations

import datetime as dt
from typing import Any

import pandas as pd
import pyarrow as pa
import pytest

from fluss_client.aio.writing.arrow_input import ArrowInput
from fluss_client.backend.cluster.writes import WriteCalls
from fluss_client.backend.embedded.keys.payload import encode_upsert
from fluss_client.backend.embedded.log import appends as embedded_log
from fluss_client.codec import arrow_columns
from fluss_client.codec.binary.blobs import Blobs
from fluss_client.errors import RowError
from fluss_client.model.schema import Column, Schema
from fluss_client.model.types import DataType, DataTypes
from tests.unit.aio.fake_backend import table_of

NOON = dt.datetime(2024, 2, 29, 12)


def one(data_type: DataType) -> ArrowInput:
    return ArrowInput(Schema.of([Column("c", data_type)]), [0])


def fit(data_type: DataType, column: pa.Array) -> pa.Array:
    return one(data_type).conform(pa.record_batch({"c": column})).column(0)


@pytest.mark.parametrize(
    ("data_type", "column"),
    [
        (DataTypes.string(), pa.array(["a", None], pa.large_string())),
        (DataTypes.string(), pa.array(["a", None], pa.string_view())),
        (DataTypes.string(), pa.array(["a", None, "a"]).dictionary_encode()),
        (DataTypes.bytes(), pa.array([b"a"], pa.large_binary())),
        (DataTypes.binary(2), pa.array([b"ab"], pa.binary())),
        (DataTypes.bigint(), pa.array([1, None], pa.int8())),
        (DataTypes.int(), pa.array([1, None], pa.int64())),
        (DataTypes.int(), pa.array([7.0, None])),
        (DataTypes.double(), pa.array([1, None])),
        (DataTypes.decimal(10, 2), pa.array([1, None], pa.int8())),
        (DataTypes.timestamp(6), pa.array([NOON], pa.timestamp("ms"))),
        (DataTypes.timestamp(3), pa.array([NOON], pa.timestamp("ns"))),
        (DataTypes.string(), pa.nulls(2)),
        (DataTypes.array(DataTypes.int()), pa.array([[1, None]], pa.large_list(pa.int64()))),
    ],
)
def test_a_column_that_can_be_cast(data_type: DataType, column: pa.Array) -> None:
    found = fit(data_type, column)
    assert found.to_pylist() == column.to_pylist()
    found.validate(full=True)


@pytest.mark.parametrize(
    ("data_type", "column"),
    [
        (DataTypes.int(), pa.array([1 << 40])),
        (DataTypes.int(), pa.array([1.5])),
        (DataTypes.int(), pa.array(["1"])),
        (DataTypes.string(), pa.array([1])),
        (DataTypes.double(), pa.array([1], pa.decimal128(5, 2))),
        (DataTypes.decimal(5, 2), pa.array([1.1])),
        (DataTypes.timestamp(3), pa.array([NOON.replace(microsecond=1)], pa.timestamp("us"))),
        (DataTypes.timestamp(6), pa.array([NOON], pa.timestamp("us", tz="UTC"))),
        (DataTypes.date(), pa.array([NOON], pa.timestamp("us"))),
        (DataTypes.char(2), pa.array(["abc"])),
        (DataTypes.int().with_nullable(False), pa.array([1, None], pa.int32())),
        (DataTypes.binary(2), pa.array([b"abc"])),
    ],
)
def test_a_column_that_would_change(data_type: DataType, column: pa.Array) -> None:
    with pytest.raises(RowError, match="column 'c'"):
        fit(data_type, column)


def test_an_instant_keeps_its_place_whatever_its_zone() -> None:
    east = pa.array([NOON], pa.timestamp("us", tz="Asia/Tokyo"))
    found = fit(DataTypes.timestamp_ltz(6), east)
    assert found.type.equals(pa.timestamp("us"))
    assert found.to_pylist() == [NOON]
    naive = fit(DataTypes.timestamp_ltz(6), pa.array([NOON], pa.timestamp("us")))
    assert naive.to_pylist() == [NOON]


SCHEMA = Schema.of(
    [
        Column("id", DataTypes.int().with_nullable(False)),
        Column("name", DataTypes.string()),
        Column("score", DataTypes.double()),
    ]
)
ALL = ArrowInput(SCHEMA, [0, 1, 2])


def test_columns_are_matched_by_name_and_nullable_ones_may_be_missing() -> None:
    found = ALL.conform(pa.record_batch({"score": [1.5], "id": pa.array([1], pa.int32())}))
    assert found.schema.equals(SCHEMA.wire)
    assert found.to_pylist() == [{"id": 1, "name": None, "score": 1.5}]


@pytest.mark.parametrize(
    ("batch", "message"),
    [
        (pa.record_batch({"name": ["a"]}), "column 'id' is int NOT NULL and is missing"),
        (pa.record_batch({"id": [1], "nmae": ["a"]}), "no column 'nmae' here"),
        (
            pa.RecordBatch.from_arrays([pa.array([1]), pa.array([1])], names=["id", "id"]),
            "a column name occurs twice",
        ),
        (pa.table({"id": [1]}), "a pyarrow.RecordBatch is needed, not Table"),
    ],
)
def test_columns_that_do_not_fit(batch: Any, message: str) -> None:
    with pytest.raises(RowError) as caught:
        ALL.conform(batch)
    assert message in str(caught.value)


def test_what_fits_is_not_copied() -> None:
    batch = pa.record_batch(
        {"id": pa.array([1, 2], pa.int32()), "name": ["a", "b"], "score": [1.0, 2.0]}
    )
    found = ALL.conform(batch)
    for ours, theirs in zip(found.columns, batch.columns, strict=True):
        assert ours.buffers()[1].address == theirs.buffers()[1].address


def test_some_columns_become_rows_of_full_width() -> None:
    some = ArrowInput(SCHEMA, [2, 0])
    found = some.conform(pa.record_batch({"id": pa.array([1], pa.int32()), "score": [1.5]}))
    assert found.schema.equals(SCHEMA.wire)
    assert found.to_pylist() == [{"id": 1, "name": None, "score": 1.5}]
    with pytest.raises(RowError, match="no column 'name' here"):
        some.conform(pa.record_batch({"id": [1], "name": ["a"]}))


class Stream:
    """Something that exports an Arrow stream, as polars and DuckDB do."""

    def __init__(self, table: pa.Table) -> None:
        self._table = table

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        return self._table.__arrow_c_stream__(requested_schema)


def test_the_batches_of_anything_with_a_stream() -> None:
    table = pa.table({"id": pa.chunked_array([[1, 2], [3]], pa.int32())})
    forms = [table, table.to_reader(), Stream(table)]
    for form in forms:
        assert [batch.num_rows for batch in ALL.batches(form)] == [2, 1]
    assert [batch.num_rows for batch in ALL.batches(table.to_batches()[0])] == [2]
    with pytest.raises(RowError, match="an Arrow stream is needed, not list"):
        list(ALL.batches([1]))


def test_a_dataframe() -> None:
    schema = Schema.of(
        [
            Column("id", DataTypes.int().with_nullable(False)),
            Column("n", DataTypes.bigint()),
            Column("day", DataTypes.date()),
            Column("at", DataTypes.timestamp_ltz(6)),
            Column("name", DataTypes.string()),
        ]
    )
    arrow = ArrowInput(schema, range(5))
    frame = pd.DataFrame(
        {
            "id": [1, 2],
            "n": [5.0, None],
            "day": [dt.date(2024, 2, 29), None],
            "at": pd.to_datetime(["2024-02-29T12:00+02:00", None]),
            "name": ["a", None],
        },
        index=[7, 9],
    )
    found = [arrow.conform(batch) for batch in arrow.batches(arrow.from_pandas(frame))]
    rows = [row for batch in found for row in batch.to_pylist()]
    assert rows == [
        {"id": 1, "n": 5, "day": dt.date(2024, 2, 29), "at": NOON.replace(hour=10), "name": "a"},
        {"id": 2, "n": None, "day": None, "at": None, "name": None},
    ]
    naive = pd.DataFrame({"id": [1], "at": pd.to_datetime(["2024-02-29T12:00"])})
    assert arrow.conform(arrow.from_pandas(naive).to_batches()[0]).column("at").to_pylist() == [
        NOON
    ]


@pytest.mark.parametrize(
    ("frame", "message"),
    [
        (pd.DataFrame({"id": ["x"]}), "the DataFrame does not fit the table"),
        (pd.DataFrame({"id": [1.5]}), "the DataFrame does not fit the table"),
        (pd.DataFrame({"idd": [1]}), "no column 'idd' here"),
        ([1], "a pandas.DataFrame is needed, not list"),
    ],
)
def test_a_dataframe_that_does_not_fit(frame: Any, message: str) -> None:
    with pytest.raises(RowError) as caught:
        ALL.from_pandas(frame)
    assert message in str(caught.value)


def test_a_zone_in_a_dataframe_for_a_column_without_one() -> None:
    frame = pd.DataFrame({"c": pd.to_datetime(["2024-02-29T12:00+02:00"])})
    with pytest.raises(RowError, match="column 'c' is timestamp, which has no zone"):
        one(DataTypes.timestamp(6)).from_pandas(frame)


def test_the_values_of_a_column_are_checked_once_on_their_way(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A backend encodes what `conform` has checked, without a second pass over the values."""
    checked: list[str] = []
    check = arrow_columns._refuse_nulls

    def counting(column: pa.Array, field: pa.Field, path: str) -> None:
        checked.append(path)
        check(column, field, path)

    monkeypatch.setattr(arrow_columns, "_refuse_nulls", counting)
    log = table_of(pa.schema([("id", pa.int32()), ("name", pa.string())]))
    keyed = table_of(pa.schema([("id", pa.int32()), ("name", pa.string())]), primary_keys=["id"])
    rows = ArrowInput(log.schema, [0, 1]).conform(
        pa.record_batch({"id": [1, 2], "name": pa.array(["a", "b"], pa.large_string())})
    )
    WriteCalls.encode_append(None, log, rows)  # type: ignore[arg-type]
    embedded_log.encode_append(log, rows)
    keys, values = Blobs.from_list([b"1", b"2"]), Blobs.from_list([b"a", b"b"])
    encode_upsert(keyed, keys, values, None, [rows])
    assert checked == ["id", "name"]
