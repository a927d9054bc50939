"""Which columns get a dictionary."""

from __future__ import annotations

import pyarrow as pa

from fluss_orchestrate.core.sinks.parquet import columns_with_dictionary


def test_values_that_come_again() -> None:
    schema = pa.schema(
        [
            ("id", pa.int64()),
            ("price", pa.decimal128(10, 2)),
            ("score", pa.float64()),
            ("at", pa.timestamp("us")),
            ("region", pa.string()),
            ("small", pa.int32()),
        ]
    )
    assert columns_with_dictionary(schema) == ["region", "small"]


def test_the_time_of_a_batch_is_the_same_for_all_its_rows() -> None:
    for name in ("_timestamp", "__timestamp"):
        schema = pa.schema([("at", pa.timestamp("us")), (name, pa.timestamp("us", "UTC"))])
        assert columns_with_dictionary(schema) == [name]


def test_none_and_all() -> None:
    assert columns_with_dictionary(pa.schema([("id", pa.int64())])) is False
    nested = pa.schema([("id", pa.int64()), ("tags", pa.list_(pa.string()))])
    assert columns_with_dictionary(nested) is True
