"""Scanning logs and changelogs: polls, projections, reading to the end, limits."""

from __future__ import annotations

import threading
from typing import Any

import pyarrow as pa
import pytest

import fluss_client as fluss
from fluss_client import errors
from fluss_client.aio.scanning.errors import OffsetUnavailableError, SubscriptionError
from tests.contract.tables import POLL_MS, Tables, done

EVENTS = {"id": pa.int64(), "name": pa.string(), "score": pa.float64()}
USERS = {"id": pa.int32(), "name": pa.string()}


def _rows(start: int, stop: int) -> pa.Table:
    ids = range(start, stop)
    data = {"id": list(ids), "name": [f"n{i}" for i in ids], "score": [i / 2 for i in ids]}
    return pa.table(data, schema=pa.schema(list(EVENTS.items())))


def _batches(table: fluss.FlussTable, *columns: str) -> fluss.LogScanner:
    scan = table.new_scan()
    if columns:
        scan = scan.project_by_name(columns)
    scanner: fluss.LogScanner = done(scan.create_record_batch_log_scanner())
    return scanner


def _records(table: fluss.FlussTable) -> fluss.LogScanner:
    scanner: fluss.LogScanner = done(table.new_scan().create_log_scanner())
    return scanner


def _poll(scanner: fluss.LogScanner, count: int) -> list[fluss.ScanRecord]:
    found: list[fluss.ScanRecord] = []
    while len(found) < count:
        polled = scanner.poll(POLL_MS)
        assert polled, f"only {len(found)} of {count} records came"
        found += polled
    return found


def test_records_have_offsets_times_and_rows(tables: Tables) -> None:
    table = tables.create(EVENTS)
    for start in (0, 10, 20):
        tables.append(table, _rows(start, start + 10))
    with _records(table) as scanner:
        scanner.subscribe(0, fluss.EARLIEST_OFFSET)
        records = _poll(scanner, 30)
        assert scanner.poll(0).is_empty()
    assert [r.offset for r in records] == list(range(30))
    assert [r.row for r in records] == _rows(0, 30).to_pylist()
    assert {r.change_type for r in records} == {fluss.ChangeType.AppendOnly}
    times = [r.timestamp for r in records]
    assert times == sorted(times)
    assert times[0] > 1_600_000_000_000


def test_subscribing_from_an_offset_and_from_the_latest(tables: Tables) -> None:
    table = tables.create(EVENTS)
    tables.append(table, _rows(0, 50))
    with _records(table) as inside, _records(table) as new:
        inside.subscribe(0, 47)
        assert [r.offset for r in _poll(inside, 3)] == [47, 48, 49]
        new.subscribe(0, fluss.LATEST_OFFSET)
        assert new.poll(0).is_empty()
        assert new.poll(200).is_empty()
        tables.append(table, _rows(50, 52))
        assert [r.offset for r in _poll(new, 2)] == [50, 51]
        assert [r.offset for r in _poll(inside, 2)] == [50, 51]


def test_a_poll_returns_when_rows_arrive(tables: Tables) -> None:
    table = tables.create(EVENTS)
    with _records(table) as scanner:
        scanner.subscribe(0, 0)
        assert scanner.poll(0).is_empty()
        writing = threading.Thread(target=tables.append, args=(table, _rows(0, 1)))
        writing.start()
        assert len(scanner.poll(30_000)) == 1
        writing.join()


@pytest.mark.parametrize("columns", [["score"], ["name", "id"], ["score", "name", "id"]])
def test_columns_come_in_the_order_that_was_asked_for(tables: Tables, columns: list[str]) -> None:
    table = tables.create(EVENTS)
    tables.append(table, _rows(0, 100))
    expected = _rows(0, 100).select(columns)
    with _batches(table, *columns) as scanner:
        scanner.subscribe(0, 0)
        assert scanner.to_arrow() == expected
    with done(table.new_scan().project_by_name(columns).create_log_scanner()) as scanner:
        scanner.subscribe(0, 0)
        assert [r.row for r in _poll(scanner, 100)] == expected.to_pylist()


def test_all_ways_to_read_batches_agree(tables: Tables) -> None:
    table = tables.create(EVENTS, buckets=3, bucket_keys=["id"])
    expected = _rows(0, 3000)
    tables.append(table, expected)
    offsets = dict.fromkeys(range(3), fluss.EARLIEST_OFFSET)

    def by_id(found: pa.Table) -> pa.Table:
        return found.sort_by("id").combine_chunks()

    with _batches(table) as scanner:
        scanner.subscribe_buckets(offsets)
        whole = scanner.to_arrow()
        assert by_id(whole) == expected
        assert scanner.to_arrow() == whole
        assert scanner.to_pandas().sort_values("id")["name"].tolist() == [
            f"n{i}" for i in range(3000)
        ]
        reader = scanner.to_arrow_batch_reader()
        assert reader.schema == whole.schema
        assert reader.read_all() == whole
        scanner.subscribe_buckets(offsets)
        polled = []
        while sum(t.num_rows for t in polled) < 3000:
            polled.append(scanner.poll_arrow(POLL_MS))
        assert by_id(pa.concat_tables(polled)) == expected
        scanner.subscribe_buckets(offsets)
        seen: dict[int, list[int]] = {0: [], 1: [], 2: []}
        while sum(map(len, seen.values())) < 3000:
            for batch in scanner.poll_record_batch(POLL_MS):
                assert batch.batch.num_rows == batch.last_offset - batch.base_offset + 1
                seen[batch.bucket.bucket_id] += range(batch.base_offset, batch.last_offset + 1)
        assert all(found == list(range(len(found))) for found in seen.values())


def test_a_changelog_tells_what_happened(tables: Tables) -> None:
    table = tables.create(USERS, ["id"])
    tables.upsert(table, [{"id": 1, "name": "a"}, {"id": 2, "name": "b"}])
    # Deleting what is not there changes nothing, yet may use up an offset.
    tables.delete(table, [{"id": 9}])
    tables.upsert(table, [{"id": 1, "name": "A"}])
    tables.delete(table, [{"id": 9}])
    tables.delete(table, [{"id": 2}])
    expected = [
        ("+I", {"id": 1, "name": "a"}),
        ("+I", {"id": 2, "name": "b"}),
        ("-U", {"id": 1, "name": "a"}),
        ("+U", {"id": 1, "name": "A"}),
        ("-D", {"id": 2, "name": "b"}),
    ]
    assert tables.changes(table, 5) == expected
    with _batches(table) as scanner:
        scanner.subscribe(0, fluss.EARLIEST_OFFSET)
        batches: list[fluss.RecordBatch] = []
        while sum(b.batch.num_rows for b in batches) < 5:
            batches += scanner.poll_record_batch(POLL_MS)
        kinds = [fluss.ChangeType(k) for b in batches for k in b.change_types.to_pylist()]
        assert [kind.short_string() for kind in kinds] == [kind for kind, _ in expected]
        scanner.subscribe(0, fluss.EARLIEST_OFFSET)
        shown = scanner.to_arrow()
    assert shown.column_names == ["id", "name", "_change_type"]
    signs = ["+I", "+I", "-U", "+U", "-D"]
    assert shown["_change_type"].to_pylist() == signs


def test_partitions_are_subscribed_by_id(tables: Tables) -> None:
    days = [{"name": "a"}, {"name": "b"}]
    table = tables.create(EVENTS, partitions=days, partition_keys=["name"])
    rows = [{"id": i, "name": "ab"[i % 2], "score": None} for i in range(20)]
    tables.append(table, rows)
    partitions = done(tables.admin.list_partition_infos(table.get_table_path()))
    ids = {p.partition_name: p.partition_id for p in partitions}
    with _records(table) as scanner:
        scanner.subscribe_partition(ids["a"], 0, fluss.EARLIEST_OFFSET)
        assert [r.row["id"] for r in _poll(scanner, 10)] == list(range(0, 20, 2))
        scanner.subscribe_partition_buckets({(ids["b"], 0): 8})
        scanner.unsubscribe_partition(ids["a"], 0)
        records = scanner.poll(POLL_MS)
        assert [r.row["id"] for r in records] == [17, 19]
        assert [b.partition_id for b in records.buckets()] == [ids["b"]]
        with pytest.raises(SubscriptionError, match="subscribe_partition"):
            scanner.subscribe(0, 0)


def test_rows_of_an_older_schema_have_nulls_in_new_columns(tables: Tables) -> None:
    table = tables.create(USERS)
    tables.append(table, [{"id": 1, "name": "a"}])
    path = table.get_table_path()
    extra = fluss.Column("extra", fluss.DataTypes.bigint())
    done(tables.admin.alter_table(path, add_columns=[extra]))
    wider = tables.reopen(table)
    tables.append(wider, [{"id": 2, "name": "b", "extra": 5}])
    new = [{"id": 1, "name": "a", "extra": None}, {"id": 2, "name": "b", "extra": 5}]
    assert tables.log(wider).to_pylist() == new
    assert tables.log(wider, ["extra", "id"]).to_pylist() == [
        {"extra": None, "id": 1},
        {"extra": 5, "id": 2},
    ]
    assert [r.row for r in tables.records(wider, 2)] == new
    # Opened before the change, the table keeps its schema.
    assert [r.row for r in tables.records(table, 2)] == [
        {"id": 1, "name": "a"},
        {"id": 2, "name": "b"},
    ]


@pytest.mark.parametrize("keyed", [False, True])
def test_a_limit_scan_of_one_bucket(tables: Tables, keyed: bool) -> None:
    table = tables.create(USERS, ["id"] if keyed else None)
    rows = [{"id": i, "name": f"n{i}"} for i in range(100)]
    (tables.upsert if keyed else tables.append)(table, rows)
    bucket = fluss.TableBucket(table.get_table_info().table_id, 0)
    scan = table.new_scan().project_by_name(["name", "id"]).limit(7)
    scanner = scan.create_bucket_batch_scanner(bucket)
    assert scanner.bucket == bucket
    found = scanner.to_arrow()
    assert found.column_names == ["name", "id"]
    assert found.num_rows == 7
    if not keyed:
        assert found["id"].to_pylist() == list(range(93, 100))
    assert done(scanner.next_batch()) is None
    everything = table.new_scan().limit(1000).create_bucket_batch_scanner(bucket)
    (batch,) = done(everything.collect_all_batches())
    assert sorted(batch.batch["id"].to_pylist()) == list(range(100))


def test_an_offset_out_of_range_is_a_typed_error(tables: Tables) -> None:
    table = tables.create(EVENTS)
    tables.append(table, _rows(0, 5))
    with _records(table) as scanner:
        scanner.subscribe(0, 6)
        with pytest.raises(errors.LogOffsetOutOfRangeError, match=r"\[0, 5\)") as raised:
            scanner.poll(30_000)
        assert isinstance(raised.value, OffsetUnavailableError)
        assert (raised.value.offset, raised.value.earliest, raised.value.latest) == (6, 0, 5)
        assert raised.value.error_code == fluss.ErrorCode.LOG_OFFSET_OUT_OF_RANGE_EXCEPTION
        scanner.subscribe(0, raised.value.earliest)
        assert len(_poll(scanner, 5)) == 5


@pytest.mark.parametrize("again", [False, True])
def test_a_dropped_table_ends_a_scan(tables: Tables, again: bool) -> None:
    table = tables.create(EVENTS)
    tables.append(table, _rows(0, 5))
    path = table.get_table_path()
    with _records(table) as scanner:
        scanner.subscribe(0, 0)
        _poll(scanner, 5)
        done(tables.admin.drop_table(path))
        if again:
            schema = fluss.Schema(pa.schema(list(EVENTS.items())))
            done(tables.admin.create_table(path, fluss.TableDescriptor(schema, bucket_count=1)))
        with pytest.raises(errors.TableNotExistError):
            _poll_until_error(scanner)


def test_a_dropped_partition_ends_its_buckets_only(tables: Tables) -> None:
    days = [{"name": "a"}, {"name": "b"}]
    table = tables.create(EVENTS, partitions=days, partition_keys=["name"])
    tables.append(table, [{"id": 1, "name": "a", "score": None}])
    path = table.get_table_path()
    ids = {p.partition_name: p.partition_id for p in done(tables.admin.list_partition_infos(path))}
    with _records(table) as scanner:
        scanner.subscribe_partition_buckets({(ids["a"], 0): 0, (ids["b"], 0): 0})
        _poll(scanner, 1)
        done(tables.admin.drop_partition(path, {"name": "a"}))
        with pytest.raises(errors.PartitionNotExistError, match=f"{ids['a']}"):
            _poll_until_error(scanner)
        tables.append(table, [{"id": 2, "name": "b", "score": None}])
        assert [r.row["id"] for r in _poll(scanner, 1)] == [2]


def test_methods_and_buckets_that_do_not_fit(tables: Tables) -> None:
    table = tables.create(EVENTS)
    with _records(table) as records, _batches(table) as batches:
        with pytest.raises(SubscriptionError, match="no bucket 1"):
            records.subscribe(1, 0)
        with pytest.raises(SubscriptionError, match="No buckets subscribed"):
            records.poll(0)
        with pytest.raises(errors.TableNotPartitionedError):
            records.subscribe_partition(1, 0, 0)
        batches.subscribe(0, 0)
        with pytest.raises(errors.UnsupportedError, match="create_log_scanner"):
            batches.poll(0)


def _poll_until_error(scanner: Any) -> None:
    for _ in range(60):
        assert scanner.poll(POLL_MS).is_empty()
