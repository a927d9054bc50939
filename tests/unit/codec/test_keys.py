"""Keys and buckets: batches, single keys and the scalar reference agree."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

import fluss_client.codec.keys as key_codec
from fluss_client.codec.keys import (
    KeyEncoding,
    check_key_columns,
    encode_key_scalar,
    encode_keys,
    key_encoding_for,
)
from fluss_client.errors import RowError, UnsupportedError
from fluss_client.model.arrow import arrow_type
from fluss_client.model.types import DataType, DataTypes, Root
from tests.unit.codec.reference import encode_key, shown
from tests.unit.codec.strategies import scalar_types, values_of

C, ICE, P = KeyEncoding.COMPACTED, KeyEncoding.ICEBERG, KeyEncoding.PAIMON


@st.composite
def key_rows(draw: st.DrawFn) -> tuple[list[DataType], KeyEncoding, list[list[Any]]]:
    encoding = draw(st.sampled_from(KeyEncoding))
    width = 1 if encoding is ICE else draw(st.integers(1, 4))
    types = [draw(scalar_types).with_nullable(False) for _ in range(width)]
    try:
        check_key_columns([""] * width, types, encoding)
    except UnsupportedError:
        assume(False)
    rows = draw(st.lists(st.tuples(*map(values_of, types)).map(list), max_size=4))
    return types, encoding, rows * draw(st.sampled_from([1, 5]))


@settings(max_examples=200, deadline=None)
@given(case=key_rows())
def test_keys_as_the_reference(case: Any) -> None:
    types, encoding, rows = case
    names = [f"k{i}" for i in range(len(types))]
    columns = [pa.array([r[i] for r in rows], arrow_type(t)) for i, t in enumerate(types)]
    expected = [encode_key(row, types, encoding.value) for row in rows]
    assert encode_keys(columns, types, names, encoding).to_list() == expected
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(key_codec, "CHUNK_ROWS", 3)
        assert encode_keys(columns, types, names, encoding).to_list() == expected
    # Raw ticks, which Arrow converts, and what Arrow shows for them give the same key.
    single = [encode_key_scalar(row, types, names, encoding) for row in rows]
    assert single == expected
    values = shown(pa.record_batch(columns, names=names))
    if isinstance(values, list):
        again = [list(row.values()) for row in values]
        assert [encode_key_scalar(row, types, names, encoding) for row in again] == expected


def test_a_null_names_its_column() -> None:
    types = [DataTypes.int(), DataTypes.string()]
    columns = [pa.array([1, 2]), pa.array(["a", None])]
    with pytest.raises(RowError, match="'city' is part of the key"):
        encode_keys(columns, types, ["id", "city"], C)
    with pytest.raises(RowError, match="'city' is part of the key"):
        encode_key_scalar([1, None], types, ["id", "city"], C)


@pytest.mark.parametrize(
    ("data_type", "value"),
    [
        (DataTypes.int(), 1 << 31),
        (DataTypes.int(), "1"),
        (DataTypes.int(), True),
        (DataTypes.tinyint(), -129),
        (DataTypes.boolean(), 1),
        (DataTypes.string(), 5),
        (DataTypes.string(), "\ud800"),
        (DataTypes.binary(2), b"abc"),
        (DataTypes.decimal(4, 2), Decimal("123")),
        (DataTypes.decimal(4, 2), Decimal("1.234")),
        (DataTypes.decimal(4, 2), Decimal("NaN")),
        (DataTypes.date(), "2024-01-01"),
        (DataTypes.timestamp(9), dt.datetime(9999, 1, 1)),
    ],
)
def test_a_value_that_does_not_fit_names_its_column(data_type: DataType, value: Any) -> None:
    with pytest.raises(RowError, match="column 'k'"):
        encode_key_scalar([value], [data_type], ["k"], C)


def test_a_short_binary_stays_short() -> None:
    assert encode_key_scalar([b"\1"], [DataTypes.binary(4)], ["k"], C) == b"\1\1"
    keys = encode_keys([pa.array([b"\1"], pa.binary())], [DataTypes.binary(4)], ["k"], C)
    assert keys.to_list() == [b"\1\1"]


@pytest.mark.parametrize(
    ("lake", "version", "bucket", "primary", "expected"),
    [
        (None, None, ["a"], ["a"], (C, C)),
        (None, "2", ["a"], ["a", "b"], (C, C)),
        ("lance", "2", ["a"], ["a"], (C, C)),
        ("iceberg", None, ["a"], ["a"], (ICE, ICE)),
        ("iceberg", "2", ["a"], ["a"], (ICE, ICE)),
        ("ICEBERG", "2", [], ["a"], (ICE, ICE)),
        ("iceberg", "2", ["a"], ["a", "b"], (C, ICE)),
        ("iceberg", "2", ["a"], [], (C, ICE)),
        ("iceberg", "2", [], [], (ICE, ICE)),
        ("paimon", "1", ["a"], ["a", "b"], (P, P)),
        ("paimon", "2", ["a", "b"], ["a", "b"], (P, P)),
        ("paimon", "2", ["b", "a"], ["a", "b"], (C, P)),
        ("paimon", "2", ["a"], ["a", "b"], (C, P)),
    ],
)
def test_which_encoding(
    lake: str | None,
    version: str | None,
    bucket: list[str],
    primary: list[str],
    expected: tuple[KeyEncoding, KeyEncoding],
) -> None:
    given_options = {"table.datalake.format": lake, "table.kv.format-version": version}
    options = {key: value for key, value in given_options.items() if value is not None}
    assert key_encoding_for(options, bucket, primary) == expected


@pytest.mark.parametrize(
    ("options", "bucket", "primary", "message"),
    [
        ({"table.datalake.format": "iceberg"}, ["a", "b"], ["a", "b"], "one column"),
        ({"table.datalake.format": "iceberg"}, ["a"], ["a", "b"], "one column"),
        ({"table.datalake.format": "hudi"}, ["a"], ["a"], "hudi"),
        ({"table.kv.format-version": "3"}, ["a"], ["a"], "knows 1 and 2"),
    ],
)
def test_tables_that_cannot_be_written(
    options: dict[str, str], bucket: list[str], primary: list[str], message: str
) -> None:
    with pytest.raises(UnsupportedError, match=message):
        key_encoding_for(options, bucket, primary)


@pytest.mark.parametrize(
    "data_type",
    [
        DataTypes.boolean(),
        DataTypes.tinyint(),
        DataTypes.smallint(),
        DataTypes.timestamp_ltz(6),
        DataTypes.array(DataTypes.int()),
    ],
)
def test_types_that_iceberg_has_no_key_for(data_type: DataType) -> None:
    options = {"table.datalake.format": "iceberg", "table.kv.format-version": "2"}
    with pytest.raises(UnsupportedError, match="column 'a'"):
        key_encoding_for(options, ["a"], ["a"], {"a": data_type})
    with pytest.raises(UnsupportedError, match="column 'a'"):
        encode_keys([pa.nulls(1)], [data_type], ["a"], ICE)


@pytest.mark.parametrize("encoding", KeyEncoding)
def test_nested_types_are_no_keys(encoding: KeyEncoding) -> None:
    nested = DataTypes.map(DataTypes.int(), DataTypes.int())
    assert nested.root is Root.MAP
    with pytest.raises(UnsupportedError, match="column 'a'"):
        encode_key_scalar([{}], [nested], ["a"], encoding)
