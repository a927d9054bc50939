"""The types and values that the vectors' descriptions stand for."""

from __future__ import annotations

import datetime as dt
import json
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa

from fluss_client.model.arrow import arrow_type
from fluss_client.model.types import DataType, DataTypes, Field

VECTORS: dict[str, Any] = json.loads((Path(__file__).parent / "wire-vectors.json").read_text())

UTC = dt.UTC
MILLIS = dt.datetime(2023, 11, 14, 22, 13, 20, 123000)
MICROS = dt.datetime(2023, 11, 14, 22, 13, 20, 123456)
PAIR = DataTypes.row([Field("a", DataTypes.int()), Field("b", DataTypes.string())])
MULTI = (
    "multi: (INT 1, STRING null, BIGINT 2, STRING 'x', DOUBLE null, BOOLEAN true, DATE 20038, "
    "BYTES 09, INT -1)"
)

SCALARS: dict[str, tuple[DataType, Any]] = {
    "BOOLEAN true": (DataTypes.boolean(), True),
    "TINYINT -5": (DataTypes.tinyint(), -5),
    "SMALLINT 300": (DataTypes.smallint(), 300),
    "INT 0": (DataTypes.int(), 0),
    "INT 300": (DataTypes.int(), 300),
    "INT -1": (DataTypes.int(), -1),
    "BIGINT 1": (DataTypes.bigint(), 1),
    "BIGINT 1234567890123": (DataTypes.bigint(), 1234567890123),
    "BIGINT -2": (DataTypes.bigint(), -2),
    "FLOAT 1.5": (DataTypes.float(), 1.5),
    "DOUBLE -2.25": (DataTypes.double(), -2.25),
    "CHAR(5) 'ab'": (DataTypes.char(5), "ab"),
    "STRING 'héllo'": (DataTypes.string(), "héllo"),
    "STRING ''": (DataTypes.string(), ""),
    "BINARY(4) 010203": (DataTypes.binary(4), b"\x01\x02\x03"),
    "BYTES deadbeef": (DataTypes.bytes(), b"\xde\xad\xbe\xef"),
    "DECIMAL(10,2) 123.45": (DataTypes.decimal(10, 2), Decimal("123.45")),
    "DECIMAL(10,2) -1.00": (DataTypes.decimal(10, 2), Decimal("-1.00")),
    "DECIMAL(20,2) 12345678901234567.89": (
        DataTypes.decimal(20, 2),
        Decimal("12345678901234567.89"),
    ),
    "DECIMAL(20,2) -0.01": (DataTypes.decimal(20, 2), Decimal("-0.01")),
    "DATE 2024-11-11 (20038)": (DataTypes.date(), dt.date(2024, 11, 11)),
    "TIME(3) 01:02:03.004 (3723004)": (DataTypes.time(3), dt.time(1, 2, 3, 4000)),
    "TIMESTAMP(3) millis 1700000000123": (DataTypes.timestamp(3), MILLIS),
    "TIMESTAMP(6) millis 1700000000123 nano 456000": (DataTypes.timestamp(6), MICROS),
    "TIMESTAMP(9) millis -1 nano 999999": (DataTypes.timestamp(9), -1),
    "TIMESTAMP_LTZ(3) millis 1700000000123": (
        DataTypes.timestamp_ltz(3),
        MILLIS.replace(tzinfo=UTC),
    ),
    "TIMESTAMP_LTZ(6) millis 1700000000123 nano 456000": (
        DataTypes.timestamp_ltz(6),
        MICROS.replace(tzinfo=UTC),
    ),
}
NESTED: dict[str, tuple[DataType, Any]] = {
    "ARRAY<INT> [1,null,-3]": (DataTypes.array(DataTypes.int()), [1, None, -3]),
    "ARRAY<STRING> ['a',null,'longer-than-7']": (
        DataTypes.array(DataTypes.string()),
        ["a", None, "longer-than-7"],
    ),
    "ARRAY<BIGINT> []": (DataTypes.array(DataTypes.bigint()), []),
    "MAP<STRING,INT> {k1:1,k2:null}": (
        DataTypes.map(DataTypes.string(), DataTypes.int()),
        [("k1", 1), ("k2", None)],
    ),
    "ROW<a INT,b STRING> (7,'x')": (PAIR, {"a": 7, "b": "x"}),
    "ARRAY<ROW<a INT,b STRING>> [(7,'x')]": (DataTypes.array(PAIR), [{"a": 7, "b": "x"}]),
    "ARRAY<DECIMAL(20,2)> [-0.01]": (
        DataTypes.array(DataTypes.decimal(20, 2)),
        [Decimal("-0.01")],
    ),
    "ARRAY<TIMESTAMP(6)> [1700000000123ms+456000ns]": (
        DataTypes.array(DataTypes.timestamp(6)),
        [MICROS],
    ),
}
MULTI_FIELDS: list[tuple[DataType, Any]] = [
    (DataTypes.int(), 1),
    (DataTypes.string(), None),
    (DataTypes.bigint(), 2),
    (DataTypes.string(), "x"),
    (DataTypes.double(), None),
    (DataTypes.boolean(), True),
    (DataTypes.date(), dt.date(2024, 11, 11)),
    (DataTypes.bytes(), b"\x09"),
    (DataTypes.int(), -1),
]


def fields_of(description: str) -> list[tuple[DataType, Any]]:
    """The columns that a row vector's description stands for."""
    if description == MULTI:
        return MULTI_FIELDS
    return [{**SCALARS, **NESTED}[description]]


def array_of(data_type: DataType, value: Any) -> pa.Array:
    """One value as an Arrow array; a BINARY shorter than its length stays as short as it is."""
    short = isinstance(value, bytes) and data_type.text == "binary(4)"
    return pa.array([value], pa.binary() if short else arrow_type(data_type))
