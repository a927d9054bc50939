"""The current state of a table, and exact ranges of offsets from the lake."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest

from fluss_client import FlussConnection, OffsetSpec, Schema, TableDescriptor, TablePath
from fluss_client.errors import PartitionNotExistError, SchemaError, UnsupportedError
from fluss_orchestrate.core.incremental.scan import IncrementalScan
from fluss_orchestrate.core.lake import (
    LakeRangeError,
    lake_reader,
    read_lake_offsets,
    read_table,
    tier_table,
)
from fluss_orchestrate.core.lake.file_scan import read_scan
from fluss_orchestrate.core.plan import BucketRange, ScanPlan
from tests.orchestrate.incremental.events import once_final
from tests.orchestrate.lake.tables import (
    COLUMNS,
    DAYS,
    LAYOUTS,
    append,
    as_rows,
    full_scan,
    lake_table,
    upsert,
)
from tests.waiting import moment_between, wait_until

NewTable = Callable[..., TablePath]


def ids(found: pa.Table) -> list[int]:
    return sorted(found.column("id").to_pylist())


@pytest.mark.parametrize("layout", list(LAYOUTS))
def test_log_table_is_lake_and_tail(
    connection: FlussConnection, new_table: NewTable, layout: str
) -> None:
    path = new_table(layout=layout)
    append(connection, path, 0, 50)
    assert ids(read_table(connection, path).read_all()) == list(range(50))
    tier_table(connection, path, allow_tiering=True)
    append(connection, path, 50, 80)
    tier_table(connection, path, allow_tiering=True)
    append(connection, path, 80, 90)
    found = read_table(connection, path).read_all()
    assert found.schema.equals(COLUMNS)
    assert as_rows(found) == as_rows(full_scan(connection, path))


def test_the_lake_serves_what_is_in_it(
    connection: FlussConnection, new_table: NewTable, monkeypatch: pytest.MonkeyPatch
) -> None:
    from fluss_orchestrate.core.lake import state

    path = new_table()
    append(connection, path, 0, 50)
    tier_table(connection, path, allow_tiering=True)

    def fail(*_: Any) -> Any:
        raise AssertionError("the log is not needed")

    monkeypatch.setattr(state, "PlanReading", fail)
    assert ids(read_table(connection, path).read_all()) == list(range(50))


def test_columns_partition_and_as_of(connection: FlussConnection, new_table: NewTable) -> None:
    path = new_table(layout="partitioned")
    append(connection, path, 0, 40)
    receipt = tier_table(connection, path, allow_tiering=True)
    cut_ms = moment_between()
    append(connection, path, 40, 60)

    for partition in (DAYS[1], {"day": DAYS[1]}):
        found = read_table(connection, path, columns=["name", "id"], partition=partition)
        assert found.schema.names == ["name", "id"]
        assert ids(found.read_all()) == [i for i in range(60) if i % 2]
    assert ids(read_table(connection, path, as_of=receipt).read_all()) == list(range(40))
    found = once_final(lambda: read_table(connection, path, as_of=cut_ms).read_all())
    assert ids(found) == list(range(40))
    with pytest.raises(PartitionNotExistError):
        read_table(connection, path, partition="19990101")
    with pytest.raises(SchemaError):
        read_table(connection, path, columns=["nothing"])


def test_key_table(connection: FlussConnection, new_table: NewTable) -> None:
    path = new_table(primary_keys=["id"])
    upsert(connection, path, 0, 50)
    writer = connection.get_table(path).result().new_upsert().create_writer()
    for key in range(0, 50, 5):
        writer.delete({"id": key})
    writer.flush().result()
    cut_ms = moment_between()
    upsert(connection, path, 45, 60)
    kept = [i for i in range(45) if i % 5]
    found = read_table(connection, path, columns=["id", "name"]).read_all()
    assert ids(found) == sorted({*kept, *range(45, 60)})
    found = once_final(lambda: read_table(connection, path, as_of=cut_ms).read_all())
    assert ids(found) == [i for i in range(50) if i % 5]


def test_as_of_needs_the_old_rows(connection: FlussConnection, new_table: NewTable) -> None:
    """Without them, rows that were changed since would be missing."""
    path = new_table(primary_keys=["id"], buckets=1, properties={"table.changelog.image": "WAL"})
    upsert(connection, path, 0, 10)
    upsert(connection, path, 0, 5)
    with pytest.raises(UnsupportedError, match=r"changelog\.image=WAL.*without as_of"):
        read_table(connection, path, as_of={0: 10})
    assert ids(read_table(connection, path).read_all()) == list(range(10))


@pytest.mark.parametrize("image", ["FULL", "WAL"])
def test_key_table_while_writers_run(
    connection: FlussConnection, database: str, lake_kind: str, image: str
) -> None:
    """Each row has the same number in both columns; a torn or mixed one would not."""
    path = TablePath(database, f"running_{image.lower()}")
    schema = Schema(
        pa.schema(
            [pa.field("id", pa.int64(), nullable=False), ("a", pa.int64()), ("b", pa.int64())]
        ),
        primary_keys=["id"],
    )
    admin = connection.get_admin().result()
    properties = {"table.changelog.image": image}
    admin.create_table(
        path, TableDescriptor(schema, bucket_count=2, properties=properties)
    ).result()
    stop = threading.Event()
    rounds = [0]

    def write() -> None:
        writer = connection.get_table(path).result().new_upsert().create_writer()
        while not stop.is_set():
            rounds[0] += 1
            for key in range(20):
                writer.upsert({"id": key, "a": rounds[0], "b": rounds[0]})
            writer.flush().result()

    producer = threading.Thread(target=write)
    producer.start()
    try:
        wait_until("the writer", lambda: rounds[0] >= 3)
        for _ in range(10):
            before = rounds[0]
            found = read_table(connection, path).read_all()
            assert ids(found) == list(range(20))
            assert found.column("a") == found.column("b")
            assert min(found.column("a").to_pylist()) >= before - 1
    finally:
        stop.set()
        producer.join()


def test_exact_offsets_from_the_lake(connection: FlussConnection, new_table: NewTable) -> None:
    path = new_table(layout="partitioned", buckets=1)
    for at in range(0, 90, 30):
        append(connection, path, at, at + 30)
        tier_table(connection, path, allow_tiering=True)
    place = (DAYS[0], 0)
    found = read_lake_offsets(connection, path, place, 5, 40, metadata_columns=["_offset"])
    table = found.read_all()
    assert table.column("_offset").to_pylist() == list(range(5, 40))
    assert set(table.column("day").to_pylist()) == {DAYS[0]}
    assert table.select(COLUMNS.names).schema.equals(COLUMNS)
    with pytest.raises(LakeRangeError, match=r"\[40, 50\)"):
        read_lake_offsets(connection, path, place, 40, 50).read_all()


def test_rows_that_are_in_the_lake_twice_are_noticed(
    connection: FlussConnection, new_table: NewTable
) -> None:
    path = new_table(buckets=1)
    append(connection, path, 0, 10)
    tier_table(connection, path, allow_tiering=True)
    table = lake_table(connection, path)
    table.append(table.scan("__offset == 3").to_arrow())
    newest = table.current_snapshot().snapshot_id
    info = connection.get_admin().result().get_table_info(path).result()
    from fluss_orchestrate.core.lake.known_lake import KnownLake
    from fluss_orchestrate.core.lake.reader import LakeRead

    lake = KnownLake(connection, info)
    read = LakeRead(lake, lake_table(connection, path), newest, ["id"])
    with pytest.raises(LakeRangeError):
        list(read.batches(BucketRange(None, None, 0, 0, 10)))


def test_lake_reader_reads_plans(connection: FlussConnection, new_table: NewTable) -> None:
    path = new_table(layout="partitioned", buckets=2)
    append(connection, path, 0, 60)
    receipt = tier_table(connection, path, allow_tiering=True)
    scan = IncrementalScan(
        connection,
        path,
        f"reader_{path.database_name}",
        metadata_columns=("_offset", "_timestamp", "_partition"),
    )
    plan = scan.plan("run")
    assert plan.ranges == receipt.ranges
    from_log = scan.read(plan).read_all()
    from_lake = pa.Table.from_batches(list(lake_reader(connection)(plan)), from_log.schema)
    assert from_lake.to_pylist() == from_log.to_pylist()
    beyond = ScanPlan(
        plan.name,
        "r",
        plan.table,
        plan.schema_id,
        plan.columns,
        (),
        (
            BucketRange(
                *plan.ranges[0].place[:1],
                plan.ranges[0].partition,
                plan.ranges[0].bucket,
                0,
                10_000,
            ),
        ),
    )
    with pytest.raises(LakeRangeError, match="yet"):
        list(lake_reader(connection)(beyond))


def test_offsets_of_a_table_without_rows(connection: FlussConnection, new_table: NewTable) -> None:
    path = new_table()
    assert read_table(connection, path).read_all().num_rows == 0
    admin = connection.get_admin().result()
    assert set(admin.list_offsets(path, [0, 1, 2], OffsetSpec.latest()).result().values()) == {0}
    with pytest.raises(LakeRangeError, match="nothing of it"):
        read_lake_offsets(connection, path, (None, 0), 0, 1)


def test_nulls_of_nested_columns_come_back_from_the_lake(
    connection: FlussConnection, database: str
) -> None:
    """Null and empty are told apart at every level, in the log and in the lake alike."""
    row = pa.struct([pa.field("x", pa.int32()), pa.field("at", pa.timestamp("us"))])
    schema = pa.schema(
        [
            pa.field("id", pa.int64()),
            pa.field("rows", pa.list_(pa.field("element", row))),
            pa.field("by_name", pa.map_(pa.string(), row)),
            pa.field("deep", pa.struct([pa.field("rows", pa.list_(pa.field("element", row)))])),
            pa.field("texts", pa.list_(pa.field("element", pa.string()))),
        ]
    )
    one = {"x": 1, "at": None}
    values = [
        {"id": 0, "rows": None, "by_name": None, "deep": None, "texts": None},
        {"id": 1, "rows": [], "by_name": [], "deep": {"rows": None}, "texts": []},
        {
            "id": 2,
            "rows": [one, None],
            "by_name": [("k", one)],
            "deep": {"rows": []},
            "texts": [None],
        },
        {
            "id": 3,
            "rows": [one],
            "by_name": [("k", None)],
            "deep": {"rows": [None]},
            "texts": ["a"],
        },
    ]
    path = TablePath(database, "nulls")
    descriptor = TableDescriptor(
        Schema(schema),
        bucket_count=1,
        properties={"table.datalake.enabled": "true", "table.datalake.freshness": "1d"},
    )
    connection.get_admin().result().create_table(path, descriptor).result()
    writer = connection.get_table(path).result().new_append().create_writer()
    writer.write_arrow(pa.Table.from_pylist(values, schema=schema))
    writer.flush().result()
    tier_table(connection, path, allow_tiering=True)
    stored = read_lake_offsets(connection, path, (None, 0), 0, 4).read_all()
    assert stored.to_pylist() == values
    assert stored.schema.equals(schema)
    some = read_lake_offsets(connection, path, (None, 0), 1, 3, columns=["rows", "id"]).read_all()
    assert some.to_pylist() == [{"rows": v["rows"], "id": v["id"]} for v in values[1:3]]
    assert read_table(connection, path).read_all().to_pylist() == values
    lake = lake_table(connection, path)
    scanned = read_scan(lake.scan(selected_fields=tuple(schema.names)), lake, 3).read_all()
    assert scanned.to_pylist() == values[:3]
