"""Rows: the vectorised codec against the scalar reference, for every type."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fluss_client.codec.rows import RowFormat, batch, decode_row_scalar, decode_rows, encode_rows
from fluss_client.model.arrow import arrow_type, wire_type
from fluss_client.model.types import DataType
from tests.unit.codec.reference import encode_row, shown, shown_by
from tests.unit.codec.strategies import tables

formats = st.sampled_from(RowFormat)


def make_batch(types: list[DataType], rows: list[list[Any]], wire: bool = False) -> pa.RecordBatch:
    kind = wire_type if wire else arrow_type
    arrays = [
        pa.array([row[i] for row in rows], kind(data_type)) for i, data_type in enumerate(types)
    ]
    return pa.record_batch(arrays, names=[f"c{i}" for i in range(len(types))])


@settings(max_examples=150, deadline=None)
@given(table=tables(), fmt=formats, wire=st.booleans())
def test_encode_as_the_reference_and_back(table: Any, fmt: RowFormat, wire: bool) -> None:
    types, rows = table
    source = make_batch(types, rows, wire)
    encoded = encode_rows(source, types, fmt)
    assert encoded.to_list() == [encode_row(row, types, fmt.value.lower()) for row in rows]
    decoded = decode_rows(encoded, types, source.schema.names, fmt)
    assert decoded.schema.types == [arrow_type(t) for t in types]
    assert [field.nullable for field in decoded.schema] == [t.nullable for t in types]
    decoded.validate(full=True)
    assert decoded.columns == make_batch(types, rows).columns


@settings(max_examples=80, deadline=None)
@given(table=tables(max_columns=5), fmt=formats)
def test_one_row_gives_what_to_pylist_gives(table: Any, fmt: RowFormat) -> None:
    types, rows = table
    source = make_batch(types, rows[:2])
    names = tuple(source.schema.names)
    encoded = encode_rows(source, types, fmt)
    for index, row in enumerate(encoded):
        expected = shown(source.slice(index, 1))
        single = shown_by(lambda row=row: decode_row_scalar(row, tuple(types), names, fmt))  # type: ignore[misc]
        assert single == (expected[0] if isinstance(expected, list) else expected)
        assert repr([single]) == repr(expected if isinstance(expected, list) else [expected])


@settings(max_examples=50, deadline=None)
@given(table=tables(max_columns=4), fmt=formats, data=st.data())
def test_slices_chunks_and_projections(table: Any, fmt: RowFormat, data: st.DataObject) -> None:
    types, rows = table
    source = make_batch(types, rows)
    first = data.draw(st.integers(0, len(rows)))
    whole = encode_rows(source, types, fmt).to_list()
    assert encode_rows(source.slice(first), types, fmt).to_list() == whole[first:]
    columns = data.draw(st.lists(st.integers(0, len(types) - 1), unique=True, min_size=1))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(batch, "CHUNK_ROWS", 2)
        encoded = encode_rows(source, types, fmt)
        decoded = decode_rows(encoded, types, source.schema.names, fmt, columns)
    assert encoded.to_list() == whole
    assert decoded.columns == [source.column(i) for i in columns]
    assert decoded.schema.names == [source.schema.names[i] for i in columns]
