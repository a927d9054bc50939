"""Keys as the Java classes of the server write them, in all three encodings."""

from __future__ import annotations

from typing import Any

import pytest

from fluss_client.codec.buckets import assign_buckets, bucket_of
from fluss_client.codec.keys import KeyEncoding, encode_key_scalar, encode_keys
from fluss_client.errors import RowError, UnsupportedError
from fluss_client.model.types import DataType, DataTypes
from tests.golden.vector_values import SCALARS, VECTORS, array_of

KEYS = VECTORS["keys"]
COMPOSITES: dict[str, list[tuple[DataType, Any]]] = {
    "(INT 300, STRING 'héllo', BIGINT -2)": [
        (DataTypes.int(), 300),
        (DataTypes.string(), "héllo"),
        (DataTypes.bigint(), -2),
    ],
    "bucket key order (STRING 'héllo', INT 300)": [
        (DataTypes.string(), "héllo"),
        (DataTypes.int(), 300),
    ],
}


@pytest.mark.parametrize("encoding", KeyEncoding)
@pytest.mark.parametrize("vector", KEYS, ids=lambda v: v["type_and_value"])
def test_single_column(vector: dict[str, Any], encoding: KeyEncoding) -> None:
    data_type, value = SCALARS[vector["type_and_value"]]
    columns = [array_of(data_type, value)]
    types = [data_type.with_nullable(False)]
    expected = vector[f"{encoding.value}_key"]
    if expected is None:
        with pytest.raises(UnsupportedError, match="cannot be a key in iceberg encoding"):
            encode_keys(columns, types, ["k"], encoding)
        return
    keys = encode_keys(columns, types, ["k"], encoding)
    assert [key.hex() for key in keys] == [expected]
    assert encode_key_scalar([value], types, ["k"], encoding).hex() == expected
    name = "fluss" if encoding is KeyEncoding.COMPACTED else encoding.value
    bucket = vector[f"{name}_bucket_of_16"]
    if bucket is None:
        with pytest.raises(RowError, match="empty key"):
            assign_buckets(keys, 16, encoding)
        return
    assert assign_buckets(keys, 16, encoding).tolist() == [bucket]
    assert bucket_of(keys[0], 16, encoding) == bucket


@pytest.mark.parametrize("vector", VECTORS["composite_keys"], ids=lambda v: v["fields"])
@pytest.mark.parametrize("encoding", [KeyEncoding.COMPACTED, KeyEncoding.PAIMON])
def test_composite(vector: dict[str, Any], encoding: KeyEncoding) -> None:
    expected = vector.get(f"{encoding.value}_key")
    if expected is None:
        return
    fields = COMPOSITES[vector["fields"]]
    columns = [array_of(data_type, value) for data_type, value in fields]
    types = [data_type for data_type, _ in fields]
    names = [f"k{i}" for i in range(len(fields))]
    assert encode_keys(columns, types, names, encoding)[0].hex() == expected
    values = [value for _, value in fields]
    assert encode_key_scalar(values, types, names, encoding).hex() == expected
