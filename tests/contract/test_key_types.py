"""Every type that a key may have: written, found one by one and many at once, deleted."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from fluss_client import errors
from tests.contract.tables import Tables, done

KEY_TYPES: dict[str, tuple[pa.DataType, list[Any]]] = {
    "int": (pa.int32(), [0, -1, 2**31 - 1, -(2**31)]),
    "bigint": (pa.int64(), [0, -1, 2**63 - 1, -(2**63)]),
    "float": (pa.float32(), [0.5, -1.5]),
    "double": (pa.float64(), [0.5, -1e300]),
    "string": (pa.string(), ["a", "ü" * 40, "\U0001f600"]),
    "bytes": (pa.binary(), [b"\x00", b"\xff" * 20]),
    "binary": (pa.binary(3), [b"abc", b"\x00\x01\xff"]),
    "decimal": (pa.decimal128(10, 2), [Decimal("1.25"), Decimal("-99999999.99")]),
    "large decimal": (pa.decimal128(30, 2), [Decimal("1.25"), Decimal(-(10**20))]),
    "date": (pa.date32(), [dt.date(1970, 1, 1), dt.date(1901, 2, 3), dt.date(9999, 12, 31)]),
    "time": (pa.time32("ms"), [dt.time(0, 0), dt.time(23, 59, 59, 999000)]),
    "timestamp": (pa.timestamp("us"), [dt.datetime(2024, 1, 2, 3, 4, 5, 678901)]),
    "boolean": (pa.bool_(), [True, False]),
    "tinyint": (pa.int8(), [-128, 127]),
    "smallint": (pa.int16(), [-32768, 32767]),
    "timestamp_ltz": (
        pa.timestamp("us", "UTC"),
        [dt.datetime(1999, 1, 2, 3, 4, 5, 678901, dt.UTC)],
    ),
}
NOT_IN_A_LAKE = {"boolean", "tinyint", "smallint", "timestamp_ltz"}


@pytest.mark.supports("Key types")
@pytest.mark.parametrize("kind", KEY_TYPES)
def test_every_type_of_key(tables: Tables, kind: str, key_of_lake: bool) -> None:
    arrow, values = KEY_TYPES[kind]
    table = tables.create({"k": arrow, "v": pa.int32()}, ["k"], buckets=3)
    if key_of_lake and kind in NOT_IN_A_LAKE:
        with pytest.raises(errors.UnsupportedError, match="'k'"):
            table.new_upsert().create_writer()
        with pytest.raises(errors.UnsupportedError, match="'k'"):
            table.new_lookup()
        return
    tables.upsert(table, [(value, at) for at, value in enumerate(values)])
    lookuper = table.new_lookup().create_lookuper()
    for at, value in enumerate(values):
        assert done(lookuper.lookup((value,))) == {"k": value, "v": at}
    many = done(lookuper.lookup_many(pa.table({"k": pa.array(values, arrow)})))
    assert many["v"].to_pylist() == list(range(len(values)))
    tables.delete(table, [(values[0],)])
    assert done(lookuper.lookup((values[0],))) is None
