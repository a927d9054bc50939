"""Rows as the Java classes of the server write them, in both formats."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from fluss_client.codec.binary.blobs import Blobs
from fluss_client.codec.rows import RowFormat, decode_row_scalar, decode_rows, encode_rows
from fluss_client.model.arrow import arrow_type
from fluss_client.model.json import data_type_from_json
from fluss_client.model.types import DataTypes
from tests.golden.vector_values import VECTORS, array_of, fields_of
from tests.unit.codec.reference import shown, shown_by

ROWS = VECTORS["rows"]
NESTED_ROWS = json.loads((Path(__file__).parent / "nested-row-vectors.json").read_text())["rows"]
FORMATS = {"compacted": RowFormat.COMPACTED, "indexed": RowFormat.INDEXED}
CASES = [pytest.param(v, f, id=f"{f}-{v['type_and_value'][:40]}") for v in ROWS for f in FORMATS]


def test_every_vector_is_covered() -> None:
    assert len(ROWS) == 36
    assert all(fields_of(vector["type_and_value"]) for vector in ROWS)


@pytest.mark.parametrize(("vector", "name"), CASES)
def test_encode(vector: dict[str, str], name: str) -> None:
    fields = fields_of(vector["type_and_value"])
    arrays = [array_of(data_type, value) for data_type, value in fields]
    batch = pa.record_batch(arrays, names=[f"c{i}" for i in range(len(fields))])
    rows = encode_rows(batch, [data_type for data_type, _ in fields], FORMATS[name])
    assert [row.hex() for row in rows] == [vector[name]]
    types, names = tuple(t for t, _ in fields), tuple(batch.schema.names)
    decoded = decode_rows(rows, types, names, FORMATS[name])
    assert_single(rows[0], types, names, FORMATS[name], decoded)


def assert_single(
    row: bytes, types: Any, names: Any, fmt: RowFormat, decoded: pa.RecordBatch
) -> None:
    expected = shown(decoded.slice(0, 1))
    single = shown_by(lambda: decode_row_scalar(row, types, names, fmt))
    assert repr([single]) == repr(expected if isinstance(expected, list) else [expected])


@pytest.mark.parametrize("count", [1, 3, 20])
@pytest.mark.parametrize(("vector", "name"), CASES)
def test_encode_and_decode_repeated(vector: dict[str, str], name: str, count: int) -> None:
    fields = fields_of(vector["type_and_value"])
    types = [data_type for data_type, _ in fields]
    names = [f"c{i}" for i in range(len(fields))]
    rows = Blobs.from_list([bytes.fromhex(vector[name])] * count)
    batch = decode_rows(rows, types, names, FORMATS[name])
    assert batch.schema.types == [arrow_type(data_type) for data_type in types]
    expected = [pa.array([_decoded(t, v)] * count, arrow_type(t)) for t, v in fields]
    assert batch.columns == expected
    again = encode_rows(batch, types, FORMATS[name])
    if types != [DataTypes.binary(4)]:
        assert again.to_list() == rows.to_list()


def _decoded(data_type: Any, value: Any) -> Any:
    # Arrow's fixed-size binary has no shorter values: the row's is filled up with zeros.
    return value.ljust(4, b"\0") if data_type == DataTypes.binary(4) else value


@pytest.mark.parametrize("index", range(len(NESTED_ROWS)))
def test_nested_types_in_both_formats(index: int) -> None:
    vector = NESTED_ROWS[index]
    fields = data_type_from_json(vector["type"]).fields
    types, names = [f.type for f in fields], [f.name for f in fields]
    decoded = [
        decode_rows(Blobs.from_list([bytes.fromhex(vector[name])] * 10), types, names, fmt)
        for name, fmt in FORMATS.items()
    ]
    assert decoded[0].equals(decoded[1])
    for name, fmt in FORMATS.items():
        rows = encode_rows(decoded[0], types, fmt)
        assert [row.hex() for row in rows] == [vector[name]] * 10
        assert_single(rows[0], tuple(types), tuple(names), fmt, decoded[0])
