"""One table with every type that Fluss has, in every precision, and rows with their extremes."""

from __future__ import annotations

import datetime as dt
import math
from decimal import Decimal
from typing import Any

import pyarrow as pa

from fluss_client import Column, DataType, DataTypes, Field, Schema

_ROW = DataTypes.row(
    [
        Field("a", DataTypes.int()),
        Field("b", DataTypes.string()),
        Field("c", DataTypes.row([Field("d", DataTypes.decimal(20, 3))])),
    ]
)
_DAY = dt.datetime(2024, 2, 29, 23, 59, 59)
_OLD = dt.datetime(1901, 12, 13, 20, 45, 51)


def _times(precision: int) -> list[Any]:
    fraction = (
        0
        if precision == 0
        else (999 // 10 ** (3 - min(precision, 3))) * 10 ** (3 - min(precision, 3))
    )
    return [dt.time(0, 0), dt.time(23, 59, 59, fraction * 1000), dt.time(12, 30)]


def _moments(precision: int, zone: dt.tzinfo | None) -> list[Any]:
    digits = min(precision, 6)
    fraction = int("123456"[:digits].ljust(6, "0")) if digits else 0
    found = [_DAY.replace(microsecond=fraction), _OLD, dt.datetime(1970, 1, 1)]
    return [moment.replace(tzinfo=zone) for moment in found]


VALUES: dict[str, tuple[DataType, list[Any]]] = {
    "boolean": (DataTypes.boolean(), [True, False, True]),
    "tinyint": (DataTypes.tinyint(), [-(2**7), 2**7 - 1, 0]),
    "smallint": (DataTypes.smallint(), [-(2**15), 2**15 - 1, 0]),
    "int": (DataTypes.int(), [-(2**31), 2**31 - 1, 0]),
    "bigint": (DataTypes.bigint(), [-(2**63), 2**63 - 1, 0]),
    "float": (DataTypes.float(), [-3.4028234663852886e38, 1.401298464324817e-45, -0.0]),
    "double": (DataTypes.double(), [-1.7976931348623157e308, 5e-324, math.inf]),
    "char": (DataTypes.char(4), ["abcd", "a  z", "    "]),
    "string": (DataTypes.string(), ["", "\U0001f600 ü\n\0", "x" * 5_000]),
    "binary": (DataTypes.binary(3), [b"abc", b"\x00\x00\x00", b"\xff\xfe\xfd"]),
    "bytes": (DataTypes.bytes(), [b"", b"\x00\xff", b"y" * 5_000]),
    "decimal_1_0": (DataTypes.decimal(1, 0), [Decimal(9), Decimal(-9), Decimal(0)]),
    "decimal_18_2": (
        DataTypes.decimal(18, 2),
        [Decimal("9999999999999999.99"), Decimal("-9999999999999999.99"), Decimal("0.01")],
    ),
    "decimal_19_0": (
        DataTypes.decimal(19, 0),
        [Decimal(10**19 - 1), Decimal(-(10**19) + 1), Decimal(0)],
    ),
    "decimal_38_18": (
        DataTypes.decimal(38, 18),
        [Decimal("9" * 20 + "." + "9" * 18), Decimal("-" + "9" * 20 + "." + "9" * 18), Decimal(1)],
    ),
    "date": (DataTypes.date(), [dt.date(1, 1, 1), dt.date(9999, 12, 31), dt.date(1970, 1, 1)]),
    **{f"time_{p}": (DataTypes.time(p), _times(p)) for p in range(10)},
    **{f"timestamp_{p}": (DataTypes.timestamp(p), _moments(p, None)) for p in range(10)},
    **{f"ltz_{p}": (DataTypes.timestamp_ltz(p), _moments(p, dt.UTC)) for p in range(10)},
    "array_int": (DataTypes.array(DataTypes.int()), [[1, None, -1], [], [2**31 - 1]]),
    "array_string": (
        DataTypes.array(DataTypes.string()),
        [["short", "longer than eight bytes", None], [""], []],
    ),
    "array_array": (
        DataTypes.array(DataTypes.array(DataTypes.bigint())),
        [[[1], [], None], [[2, None]], []],
    ),
    "array_of_moments": (
        DataTypes.array(DataTypes.timestamp(6)),
        [[_DAY.replace(microsecond=123456), None, _OLD], [], [_OLD]],
    ),
    "map": (
        DataTypes.map(DataTypes.string(), DataTypes.double()),
        [[("a", 1.5), ("b", None)], [], [("long key for a slot", -0.5)]],
    ),
    "map_of_arrays": (
        DataTypes.map(DataTypes.int(), DataTypes.array(DataTypes.string())),
        [[(1, ["x", None]), (2, [])], [(3, None)], []],
    ),
    "row": (
        _ROW,
        [
            {"a": 1, "b": "x", "c": {"d": Decimal("12345678901234567.891")}},
            {"a": None, "b": None, "c": None},
            {"a": -1, "b": "", "c": {"d": None}},
        ],
    ),
    "array_of_rows": (
        DataTypes.array(_ROW),
        [[{"a": 1, "b": "x", "c": None}, None], [], [{"a": 2, "b": "y", "c": {"d": Decimal(1)}}]],
    ),
}
ROOTS = sorted({kind.root.name for kind, _ in VALUES.values()})


def schema(primary_keys: tuple[str, ...] = (), without: tuple[str, ...] = ()) -> Schema:
    """A key `k` and one column per type."""
    columns = [Column("k", DataTypes.int())]
    columns += [Column(n, kind) for n, (kind, _) in VALUES.items() if n not in without]
    return Schema.of(columns, primary_keys)


def rows(of: Schema | None = None) -> list[dict[str, Any]]:
    """A row per value, and one of nulls."""
    names = [name for name in VALUES if of is None or name in of.index]
    count = max(len(VALUES[name][1]) for name in names)
    found = [{"k": at} | {name: VALUES[name][1][at] for name in names} for at in range(count)]
    return [*found, {"k": count} | dict.fromkeys(names)]


def arrow(of: Schema) -> pa.Table:
    """The same rows as Arrow, in the types that users see."""
    return pa.Table.from_pylist(rows(of), schema=of.arrow)
