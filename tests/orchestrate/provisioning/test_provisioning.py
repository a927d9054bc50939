"""Plans and what carrying them out does, on every backend."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from fluss_client import TablePath
from fluss_client.model.table import PartitionInfo, TableInfo
from fluss_orchestrate.core.checkpoints import FlussCheckpointStore
from fluss_orchestrate.core.incremental import IncrementalScan
from fluss_orchestrate.core.provisioning import (
    AddColumns,
    ColumnSpec,
    CreatePartition,
    PartitionWindow,
    RebuildNeededError,
    RescaleTable,
    TableSpec,
    WindowPlan,
    apply_partition_window,
    apply_tables,
    plan_partition_window,
    plan_tables,
)
from fluss_orchestrate.core.provisioning.apply import table_changes

NOW = datetime(2026, 3, 31, 23, 30, tzinfo=UTC)


def orders(database: str, **changes: Any) -> TableSpec:
    columns = (
        ColumnSpec("id", "bigint not null"),
        ColumnSpec("region", "string not null"),
        ColumnSpec("amount", "decimal(12,2)", "in euro"),
    )
    settings: dict[str, Any] = {
        "columns": columns,
        "primary_key": ("id", "region"),
        "partition_keys": ("region",),
        "buckets": 2,
        "partitions": ({"region": "eu"},),
        "custom_properties": {"owner": "sales"},
    }
    return TableSpec(f"{database}.orders", **(settings | changes))


def test_creates_what_is_missing_and_then_nothing(connection: Any, database: str) -> None:
    spec = orders(database)
    done = apply_tables(connection, [spec])
    assert [str(change).split()[0:2] for change in done] == [
        ["create", "table"],
        ["create", "partition"],
    ]
    assert plan_tables(connection, [spec]).is_empty
    assert apply_tables(connection, [spec]) == []


def test_a_missing_database_is_created(connection: Any, admin: Any, database: str) -> None:
    spec = orders(f"{database}_new")
    try:
        apply_tables(connection, [spec])
        assert admin.table_exists(spec.path).result()
    finally:
        admin.drop_database(f"{database}_new", ignore_if_not_exists=True).result()


def test_columns_options_and_partitions_follow_the_spec(
    connection: Any, admin: Any, database: str
) -> None:
    before = orders(database)
    apply_tables(connection, [before])
    after = orders(
        database,
        columns=(*before.columns, ColumnSpec("note", "string", "free text")),
        custom_properties={"owner": "finance"},
        partitions=({"region": "eu"}, {"region": "us"}),
    )
    apply_tables(connection, [after])
    info = admin.get_table_info(after.path).result()
    assert info.get_column_names() == ["id", "region", "amount", "note"]
    assert info.get_custom_properties()["owner"] == "finance"
    names = {p.partition_name for p in admin.list_partition_infos(after.path).result()}
    assert names == {"eu", "us"}
    assert plan_tables(connection, [after]).is_empty


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"primary_key": ("region", "id")}, "the primary key is"),
        (
            {
                "columns": (
                    ColumnSpec("id", "bigint not null"),
                    ColumnSpec("region", "string not null"),
                )
            },
            "column 'amount' is not in the spec",
        ),
        (
            {
                "columns": (
                    ColumnSpec("id", "bigint not null"),
                    ColumnSpec("region", "string not null"),
                    ColumnSpec("amount", "double"),
                )
            },
            "column 'amount' is decimal(12,2), not double",
        ),
        (
            {
                "columns": (
                    ColumnSpec("id", "bigint not null"),
                    ColumnSpec("region", "string not null"),
                    ColumnSpec("total", "decimal(12,2)"),
                )
            },
            "cannot be renamed",
        ),
        ({"properties": {"table.log.ttl": "1d"}}, "option table.log.ttl"),
    ],
)
def test_what_would_need_a_rebuild_is_an_error(
    connection: Any, database: str, changes: dict[str, Any], reason: str
) -> None:
    apply_tables(connection, [orders(database)])
    with pytest.raises(RebuildNeededError) as raised:
        plan_tables(connection, [orders(database, **changes)])
    assert reason in raised.value.message
    assert raised.value.table == f"{database}.orders"


def test_buckets_may_grow_for_new_partitions(connection: Any, admin: Any, database: str) -> None:
    apply_tables(connection, [orders(database)])
    wanted = orders(database, buckets=5, partitions=({"region": "eu"}, {"region": "us"}))
    if not connection.backend.capabilities.rescaling:
        with pytest.raises(RebuildNeededError, match=r"2 buckets, not 5, and servers before"):
            plan_tables(connection, [wanted])
        return
    planned = plan_tables(connection, [wanted])
    assert [type(change) for change in planned.changes] == [RescaleTable, CreatePartition]
    assert "new partitions get 5 buckets instead of 2" in str(planned)
    assert apply_tables(connection, planned) == list(planned.changes)
    assert plan_tables(connection, [wanted]).is_empty
    path = TablePath(database, "orders")
    info = admin.get_table_info(path).result()
    found = admin.list_partition_infos(path).result()
    counts = {p.partition_name: info.bucket_count_of(p) for p in found}
    assert counts == {"eu": 2, "us": 5}
    with pytest.raises(RebuildNeededError, match="only raises the count"):
        plan_tables(connection, [orders(database, buckets=4)])


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"partition_keys": (), "partitions": ()}, "without partitions is fixed"),
        ({"lake": True, "bucket_keys": ("id",)}, "a table with a lake is fixed"),
    ],
)
def test_buckets_that_cannot_grow(database: str, changes: dict[str, Any], reason: str) -> None:
    spec = orders(database, **changes)
    made = spec.descriptor()
    info = TableInfo(
        table_id=1,
        table_path=spec.path,
        schema_id=1,
        num_buckets=2,
        schema=made.schema,
        partition_keys=made.partition_keys,
        bucket_keys=made.bucket_keys,
        properties=made.properties,
        custom_properties=made.custom_properties,
    )
    wanted = orders(database, **changes | {"buckets": 3})
    with pytest.raises(RebuildNeededError, match=reason):
        table_changes(wanted, info, [], rescaling=True)


def test_a_new_column_must_be_nullable(connection: Any, database: str) -> None:
    before = orders(database)
    apply_tables(connection, [before])
    columns = (*before.columns, ColumnSpec("note", "string not null"))
    with pytest.raises(RebuildNeededError, match="must be nullable"):
        plan_tables(connection, [orders(database, columns=columns)])


def test_two_runs_at_once_end_alike(connection: Any, admin: Any, database: str) -> None:
    before = orders(database)
    apply_tables(connection, [before])
    after = orders(database, columns=(*before.columns, ColumnSpec("note", "string")))
    planned = plan_tables(connection, [after])
    assert any(isinstance(change, AddColumns) for change in planned.changes)
    with ThreadPoolExecutor(4) as pool:
        runs = [pool.submit(apply_tables, connection, planned) for _ in range(4)]
        for run in runs:
            run.result()
    names = admin.get_table_info(after.path).result().get_column_names()
    assert names == ["id", "region", "amount", "note"]


def window(database: str, **changes: Any) -> PartitionWindow:
    settings: dict[str, Any] = {"unit": "day", "ahead": 2, "retain": 1}
    return PartitionWindow(f"{database}.events", **(settings | changes))


def make_events(connection: Any, database: str, keys: tuple[str, ...] = ("day",)) -> TablePath:
    columns = (*(ColumnSpec(key, "string") for key in keys), ColumnSpec("v", "int"))
    spec = TableSpec(f"{database}.events", columns, partition_keys=keys, buckets=1)
    apply_tables(connection, [spec])
    return spec.path


def names_of(admin: Any, path: TablePath) -> set[str]:
    return {p.partition_name for p in admin.list_partition_infos(path).result()}


def test_a_window_moves_with_time(connection: Any, admin: Any, database: str) -> None:
    path = make_events(connection, database)
    apply_partition_window(connection, plan_partition_window(connection, window(database), now=NOW))
    assert names_of(admin, path) == {"20260331", "20260401", "20260402"}
    later = NOW + timedelta(days=3)
    apply_partition_window(
        connection, plan_partition_window(connection, window(database), now=later)
    )
    assert names_of(admin, path) == {"20260402", "20260403", "20260404", "20260405"}
    again = plan_partition_window(connection, window(database), now=later)
    assert (again.create, again.drop) == ((), ())


def test_a_window_counts_in_its_own_zone(connection: Any, database: str) -> None:
    make_events(connection, database)
    berlin = window(database, time_zone="Europe/Berlin", ahead=0)
    planned = plan_partition_window(connection, berlin, now=NOW)
    assert [dict(spec) for spec in planned.create] == [{"day": "20260401"}]


def test_further_keys_are_combined(connection: Any, admin: Any, database: str) -> None:
    path = make_events(connection, database, ("day", "region"))
    regions = window(database, key="day", others={"region": ["eu", "us"]}, ahead=0)
    apply_partition_window(connection, plan_partition_window(connection, regions, now=NOW))
    assert names_of(admin, path) == {"20260331$eu", "20260331$us"}


class KeepAll:
    def reason_to_keep(self, table: TableInfo, partition: PartitionInfo) -> str | None:
        return "a reader is not there yet"


def test_a_guard_keeps_a_partition_and_says_why(connection: Any, admin: Any, database: str) -> None:
    path = make_events(connection, database)
    admin.create_partition(path, {"day": "20250101"}).result()
    admin.create_partition(path, {"day": "someday"}).result()
    planned = plan_partition_window(connection, window(database), now=NOW, guards=[KeepAll()])
    assert planned.drop == ()
    kept = {p.partition_name: reason for p, reason in planned.kept}
    assert kept["20250101"] == "a reader is not there yet"
    assert "no day of time" in kept["someday"]
    unguarded = plan_partition_window(connection, window(database), now=NOW, guards=[])
    assert [p.partition_name for p in unguarded.drop] == ["20250101"]


def test_a_checkpoint_keeps_what_it_has_not_read(
    connection: Any, admin: Any, database: str
) -> None:
    path = make_events(connection, database)
    admin.create_partition(path, {"day": "20250101"}).result()
    store = FlussCheckpointStore(connection, database, "checkpoints", replicas=1)
    scan = IncrementalScan(connection, path, "reader", store)
    scan.skip(scan.plan("first"), "not wanted here")
    table = connection.get_table(path).result()
    with table.new_append().create_writer() as writer:
        writer.append({"day": "20250101", "v": 1})

    def planned() -> WindowPlan:
        return plan_partition_window(connection, window(database), now=NOW, store=store)

    [(kept, reason)] = planned().kept
    assert kept.partition_name == "20250101"
    assert reason == "checkpoint 'reader' has read bucket 0 up to 0 of 1"
    scan.skip(scan.plan("second"), "not wanted here")
    assert [p.partition_name for p in planned().drop] == ["20250101"]

    with table.new_append().create_writer() as writer:
        writer.append({"day": "20250101", "v": 2})
    assert planned().drop == ()
    store.retire("reader")
    assert [p.partition_name for p in planned().drop] == ["20250101"]
