"""Rows and records from Arrow batches: the values of `to_pylist`, whatever the type."""

from __future__ import annotations

import datetime as dt
import pickle
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from fluss_client.aio.scanning.records import (
    ROWS_AT_ONCE_MAX,
    StagedRecords,
    build_records,
    column_values,
)
from fluss_client.errors import RowError
from fluss_client.model.cluster import ChangeType
from fluss_client.model.records import RecordBatch, ScanRecord, ScanRecords
from fluss_client.model.table import TableBucket

UTC = dt.UTC
VALUES: list[tuple[pa.DataType, list[Any]]] = [
    (pa.bool_(), [True, False]),
    (pa.int8(), [-128, 127]),
    (pa.int16(), [-5, 5]),
    (pa.int32(), [-(1 << 31), (1 << 31) - 1]),
    (pa.int64(), [(1 << 63) - 1, -(1 << 63)]),
    (pa.float32(), [1.5, float("inf")]),
    (pa.float64(), [0.1, -0.0]),
    (pa.string(), ["", "grüße"]),
    (pa.binary(), [b"", b"\x00\xff"]),
    (pa.binary(3), [b"abc", b"\x00\x00\x00"]),
    (pa.decimal128(38, 10), [Decimal("1.5"), Decimal("-99999.0000000001")]),
    (pa.decimal128(5, 0), [Decimal("1"), Decimal("-2")]),
    (pa.date32(), [dt.date(1, 1, 1), dt.date(9999, 12, 31)]),
    (pa.time32("s"), [dt.time(0), dt.time(23, 59, 59)]),
    (pa.time32("ms"), [dt.time(1, 2, 3, 4000), dt.time(0)]),
    (pa.time64("us"), [dt.time(1, 2, 3, 4), dt.time(23, 59, 59, 999999)]),
    (pa.time64("ns"), [dt.time(1, 2, 3, 4), dt.time(0)]),
    (pa.timestamp("s"), [dt.datetime(1, 1, 1), dt.datetime(9999, 12, 31, 23, 59, 59)]),
    (pa.timestamp("ms"), [dt.datetime(1969, 1, 1, 0, 0, 0, 1000), dt.datetime(2038, 1, 20)]),
    (pa.timestamp("us"), [dt.datetime(2024, 1, 1, 0, 0, 0, 1), dt.datetime(1, 1, 1)]),
    (pa.timestamp("ns"), [dt.datetime(2024, 1, 1), dt.datetime(1980, 1, 1)]),
    (pa.timestamp("us", "UTC"), [dt.datetime(2024, 1, 1, tzinfo=UTC), dt.datetime(1, 1, 1)]),
    (pa.timestamp("ms", "Asia/Tokyo"), [dt.datetime(2024, 1, 1), dt.datetime(1999, 1, 1)]),
    (pa.list_(pa.int32()), [[1, None], []]),
    (pa.map_(pa.string(), pa.int64()), [[("a", 1), ("b", None)], []]),
    (pa.struct([("x", pa.int32()), ("y", pa.string())]), [{"x": 1, "y": None}, {"x": 2, "y": ""}]),
]


@pytest.mark.parametrize(("kind", "values"), VALUES, ids=lambda v: str(v)[:40])
@pytest.mark.parametrize("nulls", [False, True])
def test_the_values_of_a_column_are_those_of_to_pylist(
    kind: pa.DataType, values: list[Any], nulls: bool
) -> None:
    data = [*values, None, values[0]] if nulls else [*values, values[0]]
    column = pa.array(data, kind)
    for part in (column, column.slice(1), column.slice(0, 0)):
        found = column_values(part)
        expected = part.to_pylist()
        assert found == expected
        assert [type(v) for v in found] == [type(v) for v in expected]
        if pa.types.is_timestamp(kind) and kind.tz:
            assert [v and v.tzinfo for v in found] == [v and v.tzinfo for v in expected]


def build_rows(batch: pa.RecordBatch) -> list[dict[str, Any]]:
    return [record.row for record in build_records(batch, 0, 0, None)]


def test_rows_keep_the_names_and_order_of_the_columns() -> None:
    names = ["id", "it's", 'a "b"', "{x}", "c0", "", "\n", "lambda"]
    batch = pa.record_batch([pa.array([i, i + 1]) for i in range(len(names))], names=names)
    assert build_rows(batch) == batch.to_pylist()
    assert list(build_rows(batch)[0]) == names


def test_a_single_column_and_no_row() -> None:
    one = pa.record_batch({"a": [1, 2, 3]})
    assert build_rows(one) == [{"a": 1}, {"a": 2}, {"a": 3}]
    assert build_rows(one.slice(0, 0)) == []


def test_a_hundred_columns() -> None:
    batch = pa.record_batch({f"column {i}": [i, i] for i in range(300)})
    assert build_rows(batch) == batch.to_pylist()


def test_a_timestamp_that_python_cannot_hold_is_an_error_that_names_the_column() -> None:
    column = pa.array([1 << 60, None], pa.int64()).cast(pa.timestamp("us"))
    with pytest.raises(RowError, match=r"column 'at'.*batch scanner"):
        build_rows(pa.record_batch({"at": column}))


def test_records_have_rising_offsets_and_change_types() -> None:
    batch = pa.record_batch({"id": [1, 2, 3]})
    changes = np.array([1, 2, 4], np.uint8)
    records = list(build_records(batch, 10, 5, pa.array(changes)))
    assert [r.offset for r in records] == [10, 11, 12]
    kinds = [ChangeType.Insert, ChangeType.UpdateBefore, ChangeType.Delete]
    assert [r.change_type for r in records] == kinds
    assert records[0] == ScanRecord(10, 5, ChangeType.Insert, {"id": 1})
    assert all(type(r) is ScanRecord for r in records)
    plain = build_records(batch, 0, 5, None)
    assert {r.change_type for r in plain} == {ChangeType.AppendOnly}


def test_a_record_shows_its_fields_and_can_be_copied() -> None:
    record = ScanRecord(1, 2, ChangeType.Insert, {"a": 1})
    assert repr(record) == (
        "ScanRecord(offset=1, timestamp=2, change_type=ChangeType.Insert, row={'a': 1})"
    )
    assert pickle.loads(pickle.dumps(record)) == record
    with pytest.raises(AttributeError):
        record.offset = 3  # type: ignore[misc]


def staged_piece(bucket: TableBucket, column: pa.Array, base: int) -> RecordBatch:
    batch = pa.record_batch({"id": column})
    stop = base + batch.num_rows
    return RecordBatch(batch, bucket, base, stop - 1, 0, None, stop)


def test_staged_records_are_handed_out_in_order_and_within_limits() -> None:
    first, second = TableBucket(1, 0), TableBucket(1, 1)
    staged = StagedRecords()
    for bucket, base in ((first, 0), (second, 100), (first, 5)):
        staged.add(staged_piece(bucket, pa.array(range(5)), base))
    taken = staged.take(3)
    assert [r.offset for r in taken.records(first)] == [0, 1, 2]
    assert staged.take_one().offset == 3
    taken = staged.take(8)
    assert [r.offset for r in taken.records(first)] == [4, 5, 6]
    assert [r.offset for r in taken.records(second)] == [100, 101, 102, 103, 104]
    assert staged.count == 3
    assert [staged.take_one().offset for _ in range(2)] == [7, 8]
    staged.drop(second)
    assert staged.count == 1
    staged.drop(first)
    assert staged.count == 0


def test_rows_of_a_dropped_bucket_do_not_hold_up_others() -> None:
    first, second = TableBucket(1, 0), TableBucket(1, 1)
    staged = StagedRecords()
    staged.add(staged_piece(first, pa.array(range(5)), 0))
    staged.add(staged_piece(second, pa.array(range(5)), 100))
    assert staged.take_one().offset == 0
    staged.drop(first)
    assert staged.take_one().offset == 100
    assert staged.count == 4


def test_many_records_are_built_in_steps() -> None:
    staged = StagedRecords()
    count = 2 * ROWS_AT_ONCE_MAX + 1
    staged.add(staged_piece(TableBucket(1, 0), pa.array(range(count)), 0))
    assert staged.take(count).count() == ROWS_AT_ONCE_MAX
    assert [staged.take_one().offset for _ in range(staged.count)][-1] == count - 1
    assert staged.count == 0


def test_rows_that_cannot_be_shown_stay_the_next_ones() -> None:
    bucket = TableBucket(1, 0)
    far = pa.array([1 << 62], pa.timestamp("us"))
    staged = StagedRecords()
    staged.add(staged_piece(bucket, pa.array([1], pa.timestamp("us")), 0))
    staged.add(staged_piece(bucket, far, 1))
    assert [r.offset for r in staged.take(10)] == [0]
    for _ in range(2):
        with pytest.raises(RowError, match="outside the years"):
            staged.take(10)
    assert staged.count == 1


def test_polled_records_are_a_sequence_and_a_mapping_whatever_is_asked_first() -> None:
    first, second = TableBucket(1, 0), TableBucket(1, 1)
    batch = pa.record_batch({"id": list(range(4))})

    def polled() -> ScanRecords:
        changes = np.array([1, 2, 3, 4], np.uint8)
        runs = {
            first: build_records(batch, 0, 9, pa.array(changes)),
            second: build_records(batch, 7, 9, None),
        }
        return ScanRecords({**runs, TableBucket(1, 2): []})

    offsets = [0, 1, 2, 3, 7, 8, 9, 10]
    assert [r.offset for r in polled()] == offsets
    records = polled()
    assert [r.offset for r in records] == [r.offset for r in records]
    assert records[-1].offset == 10
    assert [r.offset for r in records[2:5]] == [2, 3, 7]
    assert list(records) == records[:]
    assert records.records(first)[0] is records[first][0] is records[0]
    assert records[second] == records.records(second)
    assert dict(polled().items()) == {first: records[first], second: records[second]}
    assert list(polled().values()) == [records[first], records[second]]
    assert (len(records), records.count(), records.buckets()) == (8, 8, [first, second])
    assert second in records
    assert TableBucket(1, 2) not in records
    with pytest.raises(KeyError):
        records[TableBucket(1, 2)]
    assert records.records(TableBucket(1, 2)) == []
    run = build_records(batch, 3, 9, None)
    assert ScanRecord(4, 9, ChangeType.AppendOnly, {"id": 1}) in run
    assert [r.offset for r in build_records(batch.slice(1, 99), 4, 9, None)] == [4, 5, 6]
