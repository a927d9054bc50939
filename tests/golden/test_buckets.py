"""Buckets as the Java classes of the server assign them."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from fluss_client.codec.binary.blobs import Blobs
from fluss_client.codec.buckets import assign_buckets, bucket_of
from fluss_client.codec.keys import KeyEncoding, encode_keys
from fluss_client.model.arrow import arrow_type
from fluss_client.model.types import DataTypes
from tests.golden.vector_values import VECTORS

BUCKETS = VECTORS["buckets"]
FUNCTIONS = {
    KeyEncoding.COMPACTED: ("compacted_key", "fluss"),
    KeyEncoding.ICEBERG: ("iceberg_key", "iceberg"),
    KeyEncoding.PAIMON: ("paimon_key", "paimon"),
}
TYPES = {
    "INTEGER": DataTypes.int(),
    "BIGINT": DataTypes.bigint(),
    "STRING": DataTypes.string(),
}


@pytest.mark.parametrize("encoding", KeyEncoding)
@pytest.mark.parametrize("bucket_count", [3, 16, 128])
def test_all_keys_together(encoding: KeyEncoding, bucket_count: int) -> None:
    key_name, function = FUNCTIONS[encoding]
    keys = [bytes.fromhex(vector[key_name]) for vector in BUCKETS]
    expected = [vector[function][f"n{bucket_count}"] for vector in BUCKETS]
    assert assign_buckets(Blobs.from_list(keys), bucket_count, encoding).tolist() == expected
    assert [bucket_of(key, bucket_count, encoding) for key in keys] == expected


@pytest.mark.parametrize("encoding", KeyEncoding)
@pytest.mark.parametrize("vector", BUCKETS, ids=lambda v: f"{v['type']}-{v['value']}")
def test_keys(vector: dict[str, Any], encoding: KeyEncoding) -> None:
    data_type = TYPES[vector["type"]]
    column = pa.array([vector["value"]], arrow_type(data_type))
    keys = encode_keys([column], [data_type], ["k"], encoding)
    assert keys[0].hex() == vector[FUNCTIONS[encoding][0]]
