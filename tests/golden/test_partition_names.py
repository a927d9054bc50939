"""Partition names as the Java classes of the server write them."""

from __future__ import annotations

import json
import struct
from datetime import datetime
from pathlib import Path

import pyarrow as pa
import pytest

from fluss_client.codec.auto_partition import (
    TIME_UNIT,
    TIME_ZONE,
    AutoPartition,
    TimeUnit,
    auto_partition_of,
    time_zone,
)
from fluss_client.codec.partition_names import partition_names
from fluss_client.errors import InvalidPartitionError
from fluss_client.model.types import DataType, DataTypes

VECTORS = json.loads((Path(__file__).parent / "partition-vectors.json").read_text())


def column(kind: str, raw: str) -> tuple[pa.Array, DataType]:
    if kind == "BOOLEAN":
        return pa.array([raw == "true"]), DataTypes.boolean()
    if kind in ("TINYINT", "SMALLINT", "INTEGER", "BIGINT"):
        types = {
            "TINYINT": (pa.int8(), DataTypes.tinyint()),
            "SMALLINT": (pa.int16(), DataTypes.smallint()),
            "INTEGER": (pa.int32(), DataTypes.int()),
            "BIGINT": (pa.int64(), DataTypes.bigint()),
        }
        return pa.array([int(raw)], types[kind][0]), types[kind][1]
    if kind in ("STRING", "CHAR"):
        return pa.array([raw]), DataTypes.string() if kind == "STRING" else DataTypes.char(3)
    if kind in ("BYTES", "BINARY"):
        value = bytes.fromhex(raw)
        if kind == "BYTES":
            return pa.array([value]), DataTypes.bytes()
        return pa.array([value], pa.binary(len(value))), DataTypes.binary(len(value))
    if kind == "DATE":
        return pa.array([int(raw)], pa.int32()).view(pa.date32()), DataTypes.date()
    if kind == "TIME":
        return pa.array([int(raw)], pa.int32()).view(pa.time32("ms")), DataTypes.time(3)
    if kind == "FLOAT":
        value = struct.unpack(">f", bytes.fromhex(raw.zfill(8)))[0]
        return pa.array([value], pa.float32()), DataTypes.float()
    if kind == "DOUBLE":
        value = struct.unpack(">d", bytes.fromhex(raw.zfill(16)))[0]
        return pa.array([value]), DataTypes.double()
    ms, nanos = map(int, raw.split(":"))
    data_type = DataTypes.timestamp(9) if kind == "TIMESTAMP" else DataTypes.timestamp_ltz(9)
    total = ms * 1_000_000 + nanos
    zone = None if kind == "TIMESTAMP" else "UTC"
    if -(2**63) <= total < 2**63:
        return pa.array([total]).view(pa.timestamp("ns", zone)), data_type
    return pa.array([total // 1_000]).view(pa.timestamp("us", zone)), data_type


@pytest.mark.parametrize(("kind", "raw", "text"), VECTORS["values"])
def test_values(kind: str, raw: str, text: str) -> None:
    values, data_type = column(kind, raw)
    if text.startswith("+"):
        with pytest.raises(InvalidPartitionError):
            partition_names([values], [data_type])
        return
    if text.endswith("_999999999") and text.startswith("9999"):
        text = text[:-3]  # nanoseconds of the year 9999 do not fit Arrow
    names, codes = partition_names([values], [data_type])
    assert names == [text]
    assert codes.tolist() == [0]


def test_auto_partitions() -> None:
    for zone, moment, unit, offset, name in VECTORS["auto"]:
        rule = auto_partition_of({TIME_ZONE: zone, TIME_UNIT: unit})
        assert rule.name(datetime.fromisoformat(moment), offset) == name
        assert rule == AutoPartition(TimeUnit[unit], time_zone(zone))
        assert rule.name(rule.start(name)) == name
        assert rule.previous(rule.next(name)) == name
