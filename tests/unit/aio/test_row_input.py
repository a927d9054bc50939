"""Rows: what is taken, what is changed, what is refused, and with which words."""

from __future__ import annotations

import datetime as dt
import enum
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fluss_client.aio.writing.results import WriteResultHandle
from fluss_client.aio.writing.row_input import CHUNK_ROWS_MAX, Chunk, row_adder
from fluss_client.errors import RowError
from fluss_client.model.schema import Column, Schema
from fluss_client.model.types import DataType, DataTypes, Field

EAST = dt.timezone(dt.timedelta(hours=2))
NOON = dt.datetime(2024, 2, 29, 12, 0, 0, 123456)


class Sink:
    """A chunk that takes everything, and remembers what came the slow way."""

    def __init__(self, width: int = 2, marked: bool = False) -> None:
        self._chunk = Chunk(WriteResultHandle(lambda: None), 0.0, width, marked)
        self.slow: list[tuple[Any, ...]] = []
        self.rescued: list[Chunk] = []

    def _add_checked(self, values: tuple[Any, ...], size: int) -> WriteResultHandle:
        self.slow.append(values)
        return self._chunk.handle

    def _add_late(self, chunk: Chunk) -> WriteResultHandle:
        self.rescued.append(chunk)
        return chunk.handle

    def arrow(self, schema: Schema) -> pa.RecordBatch:
        """The chunk's rows as they would be written."""
        return self._chunk.to_arrow(self._chunk.take(), schema)[0]

    @property
    def rows(self) -> list[tuple[Any, ...]]:
        """What the chunk holds."""
        return list(zip(*[iter(self._chunk.values)] * self._chunk.width, strict=True))


def stored(data_type: DataType, value: Any) -> Any:
    """What a column of this type holds after the value was given, as Arrow shows it."""
    schema = Schema.of([Column("c", data_type)])
    sink = Sink(1)
    row_adder(schema, [0], sink)({"c": value})
    return sink.arrow(schema).column(0)[0].as_py()


class Colour(str, enum.Enum):  # noqa: UP042 - its own text differs, as StrEnum's does not
    RED = "red"


@pytest.mark.parametrize(
    ("data_type", "value", "expected"),
    [
        (DataTypes.boolean(), True, True),
        (DataTypes.boolean(), np.bool_(False), False),
        (DataTypes.tinyint(), -128, -128),
        (DataTypes.smallint(), 32767, 32767),
        (DataTypes.int(), np.int64(3), 3),
        (DataTypes.int(), 0, 0),
        (DataTypes.bigint(), -(1 << 63), -(1 << 63)),
        (DataTypes.float(), 1, 1.0),
        (DataTypes.float(), np.float32(1.5), 1.5),
        (DataTypes.float(), float("inf"), float("inf")),
        (DataTypes.double(), 7, 7.0),
        (DataTypes.double(), 1e300, 1e300),
        (DataTypes.char(3), "äöü", "äöü"),
        (DataTypes.string(), "plain", "plain"),
        (DataTypes.string(), "日本", "日本"),
        (DataTypes.string(), Colour.RED, "red"),
        (DataTypes.binary(2), b"ab", b"ab"),
        (DataTypes.bytes(), bytearray(b"x"), b"x"),
        (DataTypes.bytes(), memoryview(b"xy"), b"xy"),
        (DataTypes.decimal(5, 2), Decimal("1.2"), Decimal("1.20")),
        (DataTypes.decimal(5, 2), Decimal("1.235"), Decimal("1.24")),
        (DataTypes.decimal(38, 0), Decimal("9" * 38), Decimal("9" * 38)),
        (DataTypes.date(), dt.date(2024, 2, 29), dt.date(2024, 2, 29)),
        (DataTypes.time(0), dt.time(1, 2, 3), dt.time(1, 2, 3)),
        (DataTypes.time(3), dt.time(1, 2, 3, 4000), dt.time(1, 2, 3, 4000)),
        (DataTypes.timestamp(6), NOON, NOON),
        (DataTypes.timestamp(3), NOON, NOON.replace(microsecond=123000)),
        (DataTypes.timestamp_ltz(6), NOON, NOON),
        (DataTypes.timestamp_ltz(6), NOON.replace(tzinfo=EAST), NOON - dt.timedelta(hours=2)),
        (DataTypes.array(DataTypes.int()), [1, None, 3], [1, None, 3]),
        (DataTypes.array(DataTypes.int()), (1, 2), [1, 2]),
        (DataTypes.array(DataTypes.double()), np.array([1.5]), [1.5]),
        (DataTypes.map(DataTypes.string(), DataTypes.int()), {"a": 1}, [("a", 1)]),
        (DataTypes.map(DataTypes.string(), DataTypes.int()), [("a", None)], [("a", None)]),
        (
            DataTypes.row([Field("x", DataTypes.int()), Field("y", DataTypes.string())]),
            {"x": 1},
            {"x": 1, "y": None},
        ),
        (
            DataTypes.row([Field("x", DataTypes.int()), Field("y", DataTypes.string())]),
            (1, "b"),
            {"x": 1, "y": "b"},
        ),
    ],
)
def test_a_value_that_fits(data_type: DataType, value: Any, expected: Any) -> None:
    assert stored(data_type, value) == expected
    assert stored(data_type, None) is None


@pytest.mark.parametrize(
    ("data_type", "value"),
    [
        (DataTypes.boolean(), 1),
        (DataTypes.boolean(), "true"),
        (DataTypes.tinyint(), 128),
        (DataTypes.smallint(), -32769),
        (DataTypes.int(), 1 << 31),
        (DataTypes.int(), True),
        (DataTypes.int(), 1.0),
        (DataTypes.int(), "1"),
        (DataTypes.bigint(), 1 << 63),
        (DataTypes.bigint(), Decimal(1)),
        (DataTypes.float(), 1e39),
        (DataTypes.float(), True),
        (DataTypes.double(), "1.0"),
        (DataTypes.double(), 10**400),
        (DataTypes.char(2), "abc"),
        (DataTypes.string(), 1),
        (DataTypes.string(), b"x"),
        (DataTypes.string(), "\ud800"),
        (DataTypes.binary(2), b"abc"),
        (DataTypes.bytes(), "x"),
        (DataTypes.decimal(5, 2), Decimal("1000")),
        (DataTypes.decimal(5, 2), Decimal("999.995")),
        (DataTypes.decimal(5, 2), Decimal("NaN")),
        (DataTypes.decimal(5, 2), 1.5),
        (DataTypes.decimal(5, 2), Decimal("1e999999")),
        (DataTypes.date(), NOON),
        (DataTypes.date(), "2024-02-29"),
        (DataTypes.time(), dt.time(1, 2, 3, 1)),
        (DataTypes.time(), dt.time(1, tzinfo=EAST)),
        (DataTypes.timestamp(), NOON.replace(tzinfo=EAST)),
        (DataTypes.timestamp(), dt.date(2024, 1, 1)),
        (DataTypes.timestamp(), 1_700_000_000),
        (DataTypes.timestamp(9), dt.datetime(2263, 1, 1)),
        (DataTypes.timestamp_ltz(), "2024-01-01T00:00:00Z"),
        (DataTypes.array(DataTypes.int()), "12"),
        (DataTypes.array(DataTypes.int()), ["1"]),
        (DataTypes.array(DataTypes.int()), 1),
        (DataTypes.map(DataTypes.string(), DataTypes.int()), {None: 1}),
        (DataTypes.map(DataTypes.string(), DataTypes.int()), [1]),
        (DataTypes.row([Field("x", DataTypes.int())]), {"z": 1}),
        (DataTypes.row([Field("x", DataTypes.int())]), (1, 2)),
    ],
)
def test_a_value_that_does_not_fit(data_type: DataType, value: Any) -> None:
    with pytest.raises(RowError) as caught:
        stored(data_type, value)
    assert "column 'c" in str(caught.value)


def test_an_error_shows_the_value_and_cuts_a_long_one() -> None:
    with pytest.raises(RowError, match=r"column 'c' is int: 'seven' \(str\) does not fit"):
        stored(DataTypes.int(), "seven")
    with pytest.raises(RowError) as caught:
        stored(DataTypes.int(), "x" * 10_000)
    assert len(str(caught.value)) < 200


TWO = Schema.of(
    [Column("id", DataTypes.int().with_nullable(False)), Column("name", DataTypes.string())]
)


@pytest.mark.parametrize(
    ("row", "expected"),
    [
        ({"id": 1, "name": "a"}, (1, "a")),
        ({"name": "a", "id": 1}, (1, "a")),
        ({"id": 1}, (1, None)),
        ([1, "a"], (1, "a")),
        ((1, None), (1, None)),
    ],
)
def test_forms_of_a_row(row: Any, expected: tuple[Any, ...]) -> None:
    sink = Sink()
    assert row_adder(TWO, [0, 1], sink)(row) is sink._chunk.handle
    assert sink.rows == [expected]


@pytest.mark.parametrize(
    ("row", "message"),
    [
        (
            {"name": "a"},
            "column 'id' is int NOT NULL: null or no value for the non-nullable field 'id'",
        ),
        (
            {"id": None, "name": "a"},
            "column 'id' is int NOT NULL: null or no value for the non-nullable field 'id'",
        ),
        ({"id": 1, "nmae": "a"}, "no column 'nmae' here; the columns are id, name"),
        ({"id": 1, "name": "a", "z": 0}, "no column 'z' here"),
        ([1], "a row of 2 values is needed (id, name), not of 1"),
        (5, "a row is a dict, list or tuple, not int"),
        (None, "a row is a dict, list or tuple, not NoneType"),
    ],
)
def test_a_row_that_does_not_fit_leaves_nothing_behind(row: Any, message: str) -> None:
    sink = Sink()
    with pytest.raises(RowError) as caught:
        row_adder(TWO, [0, 1], sink)(row)
    assert message in str(caught.value)
    assert sink.rows == []


def test_some_columns_in_the_order_of_the_caller() -> None:
    schema = Schema.of([Column(name, DataTypes.int()) for name in "abc"])
    sink = Sink(3)
    add = row_adder(schema, [2, 0], sink)
    add([30, 1])
    add({"a": 2, "c": 31})
    with pytest.raises(RowError, match="no column 'b' here; the columns are c, a"):
        add({"b": 1})
    assert sink.rows == [(1, None, 30), (2, None, 31)]


def test_column_names_need_not_be_identifiers() -> None:
    names = ["a b", "class", "it's", 'say "x"', "row", "chunk", "v1", "\\", "{0}", "sink"]
    schema = Schema.of([Column(name, DataTypes.int()) for name in names])
    sink = Sink(len(names))
    row_adder(schema, range(len(names)), sink)({name: at for at, name in enumerate(names)})
    assert sink.rows == [tuple(range(len(names)))]


def test_a_chunk_is_full_by_rows_or_by_bytes() -> None:
    schema = Schema.of([Column("s", DataTypes.string())])
    sink = Sink(1)
    add = row_adder(schema, [0], sink)
    while not sink.slow:
        add(("x",))
    assert CHUNK_ROWS_MAX // 2 < len(sink.rows) <= CHUNK_ROWS_MAX
    assert sink.slow == [("x",)]
    sink._chunk = Chunk(WriteResultHandle(lambda: None), 0.0, 1, False)
    add(("x" * (1 << 20),))
    add(("late",))
    assert len(sink.rows) == 1
    assert sink.slow[1:] == [("late",)]


def test_deletes_are_marked() -> None:
    sink = Sink(3, marked=True)
    add = row_adder(TWO, [0, 1], sink, delete=False)
    delete = row_adder(TWO, [0], sink, delete=True)
    add((0, "a"))
    taken = sink._chunk.take()
    assert sink._chunk.to_arrow(taken, TWO)[1] is None
    delete([1])
    add((2, "c"))
    rows, marks = sink._chunk.to_arrow(sink._chunk.take(), TWO)
    assert marks is not None
    assert marks.tolist() == [True, False]
    assert [tuple(row.values()) for row in rows.to_pylist()] == [(1, None), (2, "c")]


def test_a_row_that_comes_late_is_noticed() -> None:
    sink = Sink(2)
    add = row_adder(TWO, [0, 1], sink)
    add((0, "a"))
    assert not sink.rescued
    sink._chunk.open = False
    add((1, "b"))
    assert sink.rescued == [sink._chunk]
    assert sink.rows == [(0, "a"), (1, "b")]


@settings(deadline=None)
@given(
    st.lists(
        st.tuples(
            st.none() | st.integers(-(1 << 31), (1 << 31) - 1),
            st.none() | st.text(st.characters(codec="utf-8")),
            st.none() | st.floats(),
            st.none() | st.booleans(),
            st.none() | st.datetimes(),
            st.none() | st.binary(),
        ),
        min_size=1,
    ),
    st.sampled_from([dict, list, tuple]),
)
def test_what_is_given_is_what_arrow_makes_of_it(rows: list[tuple[Any, ...]], form: type) -> None:
    wire = pa.schema(
        [
            ("i", pa.int32()),
            ("s", pa.string()),
            ("d", pa.float64()),
            ("b", pa.bool_()),
            ("t", pa.timestamp("us")),
            ("y", pa.binary()),
        ]
    )
    schema = Schema(wire)
    sink = Sink(6)
    add = row_adder(schema, range(6), sink)
    for row in rows:
        add(form(zip(wire.names, row, strict=True)) if form is dict else form(row))
    expected = [
        pa.array(list(values), field.type)
        for values, field in zip(zip(*rows, strict=True), wire, strict=True)
    ]
    found = sink.arrow(schema)
    for ours, theirs in zip(found.columns, expected, strict=True):
        assert ours.type.equals(theirs.type)
        assert repr(ours.to_pylist()) == repr(theirs.to_pylist())
