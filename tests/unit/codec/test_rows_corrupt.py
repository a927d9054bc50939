"""Bytes that are no rows: CorruptDataError, nothing else, and no memory beyond the input."""

from __future__ import annotations

import struct
import tracemalloc
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fluss_client.codec.binary.blobs import Blobs
from fluss_client.codec.rows import RowFormat, decode_row_scalar, decode_rows, encode_rows
from fluss_client.errors import CorruptDataError, RowError, UnsupportedError
from fluss_client.model.types import DataType, DataTypes, Field
from tests.unit.codec.strategies import tables
from tests.unit.codec.test_rows import make_batch

COMPACTED, INDEXED = RowFormat.COMPACTED, RowFormat.INDEXED


def decode_one(row: bytes, *types: DataType, fmt: RowFormat = COMPACTED, copies: int = 1) -> Any:
    names = [f"c{i}" for i in range(len(types))]
    return decode_rows(Blobs.from_list([row] * copies), types, names, fmt)


def outcome(call: Any) -> Any:
    try:
        return call()
    except CorruptDataError:
        return CorruptDataError
    except UnsupportedError:
        # Nanoseconds without pandas.
        return UnsupportedError
    except ValueError as error:
        return UnsupportedError if "anosecond" in str(error) else CorruptDataError
    except OverflowError:
        # A date or time that Arrow holds and Python cannot show.
        return CorruptDataError


@settings(max_examples=120, deadline=None)
@given(
    table=tables(max_columns=4),
    fmt=st.sampled_from(RowFormat),
    data=st.data(),
)
def test_damaged_rows(table: Any, fmt: RowFormat, data: st.DataObject) -> None:
    types, rows = table
    source = make_batch(types, rows[:3])
    names = tuple(source.schema.names)
    damaged = []
    for row in encode_rows(source, types, fmt):
        changed = bytearray(row)
        for _ in range(data.draw(st.integers(0, 3))):
            if changed:
                at = data.draw(st.integers(0, len(changed) - 1))
                changed[at] = data.draw(st.sampled_from([0, 1, 0x7F, 0x80, 0xFF]))
        cut = data.draw(st.integers(0, len(changed)) | st.just(len(changed)))
        damaged.append(bytes(changed[:cut]))
    single = [
        outcome(lambda row=row: decode_row_scalar(row, tuple(types), names, fmt))  # type: ignore[misc]
        for row in damaged
    ]
    copies = Blobs.from_list(damaged * 5)
    together = outcome(lambda: decode_rows(copies, types, names, fmt).to_pylist())
    if CorruptDataError in single:
        assert together is CorruptDataError or UnsupportedError in single
    elif UnsupportedError in single:
        assert together is UnsupportedError
    else:
        assert repr(together) == repr(single * 5)


@pytest.mark.parametrize("copies", [1, 20])
@pytest.mark.parametrize(
    ("row", "data_type", "message"),
    [
        ("", DataTypes.int(), "null bits"),
        ("00", DataTypes.int(), "past the end|does not end"),
        ("008080808080", DataTypes.int(), "does not end within 5"),
        ("00808080808080808080808000", DataTypes.bigint(), "does not end within 10"),
        ("000102", DataTypes.int(), "behind the last"),
        ("01", DataTypes.int().with_nullable(False), "NOT NULL"),
        ("0005616263", DataTypes.string(), "past the end"),
        ("00ffffffff0f616263", DataTypes.string(), "past the end"),
        ("0002c328", DataTypes.string(), "UTF8|utf-8|UTF-8"),
        ("0003010203", DataTypes.binary(2), "more bytes than"),
        ("0064", DataTypes.decimal(2, 0), "too large"),
        ("0000", DataTypes.decimal(20, 0), "no bytes"),
        ("00110000000000000000000000000000000001", DataTypes.decimal(20, 0), "more than 16"),
        ("00107fffffffffffffffffffffffffffffff", DataTypes.decimal(38, 0), "not valid|too large"),
        ("0080b89929", DataTypes.time(3), "not within a day"),
        ("0000c0843d", DataTypes.timestamp(6), "nanoseconds beyond"),
        ("00ffffffffffffffff7f00", DataTypes.timestamp(6), "does not fit"),
        ("0003010000", DataTypes.array(DataTypes.int()), "no count"),
        ("0004ffffffff", DataTypes.array(DataTypes.int()), "negative count"),
        ("0004ffffff7f", DataTypes.array(DataTypes.int()), "too short for its elements"),
        ("0008ffffff0000000000", DataTypes.array(DataTypes.boolean()), "too short"),
        ("000405000000", DataTypes.map(DataTypes.int(), DataTypes.int()), "too short for its keys"),
    ],
)
def test_refused(row: str, data_type: DataType, message: str, copies: int) -> None:
    with pytest.raises(CorruptDataError, match=message):
        decode_one(bytes.fromhex(row), data_type, copies=copies)


def array_row(slots: list[int], tail: bytes, count: int | None = None) -> bytes:
    """A compacted row with one array of 8-byte slots."""
    count = len(slots) if count is None else count
    block = struct.pack("<i", count) + bytes(4 * ((count + 31) // 32))
    block += struct.pack(f"<{len(slots)}Q", *slots) + tail
    size = len(block)
    varint = bytes([size & 0x7F | 0x80, size >> 7 & 0x7F | 0x80, size >> 14])
    return b"\0" + varint + block


def test_array_items_that_leave_their_array() -> None:
    strings = DataTypes.array(DataTypes.string())
    for slot in (100 << 32 | 9, 16 << 32 | 900, 0x7FFFFFFF << 32 | 0x7FFFFFFF, 0x88 << 56):
        with pytest.raises(CorruptDataError):
            decode_one(array_row([slot], bytes(16)), strings)
    instants = DataTypes.array(DataTypes.timestamp(6))
    with pytest.raises(CorruptDataError):
        decode_one(array_row([17 << 32], bytes(8)), instants)


def test_overlapping_items_cannot_multiply_memory() -> None:
    # Every one of 2,000 slots claims the whole block: 32 MB out of 16 kB.
    count = 2000
    size = 4 + 4 * ((count + 31) // 32) + 8 * count
    row = array_row([size] * count, b"")
    for inner in (DataTypes.bytes(), DataTypes.array(DataTypes.bytes())):
        tracemalloc.start()
        with pytest.raises(CorruptDataError, match="larger than the array"):
            decode_one(row, DataTypes.array(inner))
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        assert peak < 100 * size


def test_unordered_and_overlapping_items_are_read() -> None:
    # Nothing in the format forbids it, as long as the sum stays within the array.
    tail = b"AAAAAAAABBBBBBBB"
    slots = [40 << 32 | 8, 32 << 32 | 8, 34 << 32 | 8]
    row = array_row(slots, tail)
    decoded = decode_one(row, DataTypes.array(DataTypes.string()), copies=9)
    assert decoded.column(0).to_pylist() == [["BBBBBBBB", "AAAAAAAA", "AAAAAABB"]] * 9


def test_a_null_in_a_not_null_column() -> None:
    for data_type in (
        DataTypes.int().with_nullable(False),
        DataTypes.array(DataTypes.int()).with_nullable(False),
        DataTypes.row([Field("f", DataTypes.int())]).with_nullable(False),
    ):
        source = make_batch([data_type], [[None]])
        with pytest.raises(RowError, match="'c0' is NOT NULL"):
            encode_rows(source, [data_type], COMPACTED)
    inner = DataTypes.array(DataTypes.row([Field("f", DataTypes.int().with_nullable(False))]))
    source = pa.record_batch(
        [pa.array([[{"f": None}]], pa.list_(pa.struct([("f", pa.int32())])))], names=["c0"]
    )
    with pytest.raises(RowError, match=r"'c0\.element\.f' is NOT NULL"):
        encode_rows(source, [inner], COMPACTED)


def test_values_that_a_row_cannot_hold() -> None:
    far = pa.record_batch([pa.array([1 << 62], pa.timestamp("s"))], names=["t"])
    with pytest.raises(RowError, match="'t'"):
        encode_rows(far, [DataTypes.timestamp(0)], COMPACTED)
    long = pa.record_batch([pa.array(["abc"])], names=["c"])
    with pytest.raises(RowError, match=r"'c': 3 bytes do not fit char\(2\)"):
        encode_rows(long, [DataTypes.char(2)], INDEXED)
    with pytest.raises(RowError, match="'c'"):
        encode_rows(long, [DataTypes.int()], COMPACTED)
    with pytest.raises(RowError, match="columns"):
        encode_rows(long, [DataTypes.char(3)] * 2, COMPACTED)


def test_other_encodings_of_the_same_kind_are_cast() -> None:
    source = pa.record_batch(
        [
            pa.array(["x", "y"], pa.large_string()),
            pa.array(["x", "y"]).dictionary_encode(),
            pa.array([1, 2], pa.int16()),
            pa.array([[1], [2]], pa.large_list(pa.int64())),
        ],
        names=list("abcd"),
    )
    types = [
        DataTypes.string(),
        DataTypes.string(),
        DataTypes.bigint(),
        DataTypes.array(DataTypes.int()),
    ]
    decoded = decode_rows(encode_rows(source, types, INDEXED), types, list("abcd"), INDEXED)
    assert decoded.to_pydict() == {"a": ["x", "y"], "b": ["x", "y"], "c": [1, 2], "d": [[1], [2]]}


def test_more_than_arrow_holds_is_refused_before_reading() -> None:
    class Huge:
        size = 1 << 31

    rows = Blobs(Huge(), None)  # type: ignore[arg-type]
    with pytest.raises(UnsupportedError, match="2 GiB"):
        decode_rows(rows, [DataTypes.int()], ["a"], COMPACTED)
