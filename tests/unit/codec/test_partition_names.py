"""Partition names of many rows, of Python values and of specifications."""

from __future__ import annotations

import datetime as dt

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fluss_client.codec.partition_names import (
    parse_partition_name,
    partition_name,
    partition_names,
    spec_to_name,
    validate_partition_value,
)
from fluss_client.errors import InvalidPartitionError, RowError, SchemaError
from fluss_client.model.types import DataTypes
from fluss_client.model.types.numeric import double_text, float_text

VALUES = st.text("abcXYZ019_-", min_size=1, max_size=8).filter(lambda v: not v.startswith("__"))


@given(st.lists(st.tuples(VALUES, st.integers(-5, 5), st.booleans()), max_size=40))
def test_every_row_gets_its_name(rows: list[tuple[str, int, bool]]) -> None:
    columns = [
        pa.array([r[0] for r in rows], pa.string()),
        pa.array([r[1] for r in rows], pa.int64()),
        pa.array([r[2] for r in rows], pa.bool_()),
    ]
    types = [DataTypes.string(), DataTypes.bigint(), DataTypes.boolean()]
    names, codes = partition_names(columns, types)
    assert [names[code] for code in codes] == [f"{a}${b}${str(c).lower()}" for a, b, c in rows]
    assert len(set(names)) == len(names)
    assert [partition_name(row, types) for row in rows] == [names[code] for code in codes]
    for name in names:
        assert spec_to_name(parse_partition_name(name, ["a", "b", "c"]), ["a", "b", "c"]) == name


def test_values_that_share_a_text_share_a_name() -> None:
    times = pa.array([1_000, 1_999, 2_000], pa.int64()).view(pa.time64("us"))
    names, codes = partition_names([times], [DataTypes.time(6)])
    assert names == ["00-00-00_001", "00-00-00_002"]
    assert codes.tolist() == [0, 0, 1]


def test_a_dictionary_may_hold_values_that_no_row_uses() -> None:
    column = pa.DictionaryArray.from_arrays([1, 1], ["not/allowed", "ok", None])
    names, codes = partition_names([column], [DataTypes.string()])
    assert (names, codes.tolist()) == (["ok"], [0, 0])
    with pytest.raises(RowError, match="null"):
        partition_names(
            [pa.DictionaryArray.from_arrays([1, 2], ["a", "b", None])], [DataTypes.string()]
        )


def test_zoned_timestamps_are_utc() -> None:
    column = pa.array([0], pa.timestamp("us", "Asia/Tokyo"))
    assert partition_names([column], [DataTypes.timestamp_ltz()])[0] == ["1970-01-01-00-00-00_"]


def test_python_values() -> None:
    moment = dt.datetime(2024, 2, 29, 1, 2, 3, 120_000)
    types = [DataTypes.timestamp(), DataTypes.date(), DataTypes.bytes()]
    name = partition_name([moment, moment.date(), b"\x0a\xff"], types)
    assert name == "2024-02-29-01-02-03_12$2024-02-29$0aff"
    with pytest.raises(RowError):
        partition_name(["x"], [DataTypes.bigint()])


def test_nulls_and_other_types_are_refused() -> None:
    for values in (["a", None], [None, None]):
        with pytest.raises(RowError, match="null"):
            partition_names([pa.array(values, pa.string())], [DataTypes.string()])
    with pytest.raises(SchemaError, match="cannot partition"):
        partition_names([pa.array([1], pa.decimal128(5, 2))], [DataTypes.decimal(5, 2)])


@pytest.mark.parametrize("value", ["", "a/b", "a.b", "__a", "ü", "a$b", "x" * 201, "a\n"])
def test_values_that_no_name_may_hold(value: str) -> None:
    with pytest.raises(InvalidPartitionError):
        validate_partition_value(value)
    with pytest.raises(InvalidPartitionError):
        partition_names([pa.array([value])], [DataTypes.string()])
    with pytest.raises(InvalidPartitionError):
        spec_to_name({"k": value}, ["k"])


def test_specs_must_fit_the_keys() -> None:
    with pytest.raises(InvalidPartitionError):
        spec_to_name({"a": "1"}, ["a", "b"])
    with pytest.raises(InvalidPartitionError):
        parse_partition_name("1", ["a", "b"])


@given(st.floats())
def test_doubles_read_back(value: float) -> None:
    text = double_text(value)
    assert np.float64(text) == value or value != value
    assert "." in text or value - value != 0


@given(st.floats(width=32))
def test_floats_read_back(value: float) -> None:
    assert np.float32(float_text(value)) == np.float32(value) or value != value


@pytest.mark.parametrize(
    ("value", "text"),
    [(5e-324, "4.9E-324"), (2e-323, "2.0E-323"), (1e23, "1.0E23"), (100.0, "100.0")],
)
def test_two_digits_at_least(value: float, text: str) -> None:
    assert double_text(value) == text


def test_two_digits_at_least_in_singles() -> None:
    assert float_text(1e-45) == "1.4E-45"
    assert float_text(3.4e10) == "3.4E10"
