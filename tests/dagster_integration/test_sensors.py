"""Sensors: told once, although ticks repeat, cursors are lost and instances are asked again."""

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import dagster as dg
import pyarrow as pa
import pytest

from fluss_client import FlussConnection, TablePath
from fluss_client.errors import ConfigError
from fluss_orchestrate import ParquetSink, load_rows, tier_table
from fluss_orchestrate.dagster import (
    FlussResource,
    build_fluss_lake_snapshot_sensor,
    build_fluss_offset_sensor,
    build_fluss_partition_sensor,
    fluss_lake_asset,
    fluss_lake_freshness_asset,
    incremental_fluss_asset,
    lake_asset_key,
    lake_freshness_policy,
)
from tests.dagster_integration.tables import append, make_table, orders


def tick(
    sensor: dg.SensorDefinition,
    fluss: FlussResource,
    instance: dg.DagsterInstance,
    cursor: str | None = None,
    *assets: Any,
) -> Any:
    """One evaluation, its runless events stored as the daemon stores them."""
    definitions = dg.Definitions(assets=assets, sensors=[sensor], resources={"fluss": fluss})
    context = dg.build_sensor_context(
        instance=instance, cursor=cursor, resources={"fluss": fluss}, definitions=definitions
    )
    with context:
        done = sensor.evaluate_tick(context)
    for event in done.asset_events:
        instance.report_runless_asset_event(event)
    return done


def test_snapshots_of_many_tables_are_told_once(
    lake_fluss: FlussResource, lake_table: TablePath, instance: dg.DagsterInstance
) -> None:
    connection = lake_fluss.connection
    missing = f"{lake_table.database_name}.missing"
    sensor = build_fluss_lake_snapshot_sensor([str(lake_table), missing])
    none = tick(sensor, lake_fluss, instance)
    assert none.asset_events == []
    assert "has no snapshot yet" in none.skip_message
    assert "missing" in none.skip_message
    append(connection, lake_table, orders(10))
    snapshot = tier_table(connection, lake_table, allow_tiering=True).snapshot_id
    first = tick(sensor, lake_fluss, instance, none.cursor)
    [event] = first.asset_events
    assert event.asset_key == lake_asset_key(str(lake_table))
    assert event.tags["dagster/data_version"] == str(snapshot)
    assert event.metadata["fluss/snapshot_id"].value == str(snapshot)
    assert sum(record.data["stop"] for record in event.metadata["fluss/offsets"].records) == 10
    assert tick(sensor, lake_fluss, instance, first.cursor).asset_events == []
    # The cursor is lost or unreadable: the materialisation itself tells.
    for lost in (None, "what is this", json.dumps({"version": 99})):
        assert tick(sensor, lake_fluss, instance, lost).asset_events == []
    append(connection, lake_table, orders(5))
    tier_table(connection, lake_table, allow_tiering=True)
    assert len(tick(sensor, lake_fluss, instance, first.cursor).asset_events) == 1


def long_ago(cursor: str) -> str:
    """The cursor as if its last report of freshness were two minutes old."""
    value = json.loads(cursor)
    for state in value["kept"]["tables"].values():
        state["fresh_s"] -= 120
    return json.dumps(value)


def test_an_idle_lake_that_holds_everything_stays_fresh(
    lake_fluss: FlussResource, lake_table: TablePath, instance: dg.DagsterInstance
) -> None:
    """Freshness is told again and again, the snapshot once; a lake that is behind is not fresh."""
    connection = lake_fluss.connection
    table = str(lake_table)
    fresh = fluss_lake_freshness_asset(table, "1min")
    assets = [fluss_lake_asset(table), fresh]
    sensor = build_fluss_lake_snapshot_sensor([table], report_freshness=True)
    append(connection, lake_table, orders(10))
    behind = tick(sensor, lake_fluss, instance, None, *assets)
    assert behind.asset_events == []
    tier_table(connection, lake_table, allow_tiering=True)
    first = tick(sensor, lake_fluss, instance, behind.cursor, *assets)
    assert [event.asset_key for event in first.asset_events] == [lake_asset_key(table), fresh.key]
    soon = tick(sensor, lake_fluss, instance, first.cursor, *assets)
    assert soon.asset_events == []
    later = tick(sensor, lake_fluss, instance, long_ago(soon.cursor), *assets)
    assert [event.asset_key for event in later.asset_events] == [fresh.key]
    append(connection, lake_table, orders(1))
    late = tick(sensor, lake_fluss, instance, long_ago(later.cursor), *assets)
    assert late.asset_events == []
    tier_table(connection, lake_table, allow_tiering=True)
    caught_up = tick(sensor, lake_fluss, instance, late.cursor, *assets)
    assert len(caught_up.asset_events) == 2


def test_a_policy_that_an_idle_lake_would_fail_is_refused() -> None:
    with pytest.raises(ConfigError, match="define fluss_lake_freshness_asset beside it"):
        fluss_lake_asset("a.b", freshness_policy=lake_freshness_policy("3min"))
    policy: Any = fluss_lake_freshness_asset("a.b", "3min").freshness_policy
    assert policy == lake_freshness_policy("3min")


def test_downstream_automation_wakes_up(
    lake_fluss: FlussResource, lake_table: TablePath, instance: dg.DagsterInstance
) -> None:
    table = str(lake_table)

    @dg.asset(deps=[lake_asset_key(table)], automation_condition=dg.AutomationCondition.eager())
    def report() -> None: ...

    definitions = dg.Definitions(assets=[fluss_lake_asset(table), report])
    sensor = build_fluss_lake_snapshot_sensor([table])
    before = dg.evaluate_automation_conditions(definitions, instance)
    append(lake_fluss.connection, lake_table, orders(10))
    tier_table(lake_fluss.connection, lake_table, allow_tiering=True)
    tick(sensor, lake_fluss, instance)
    after = dg.evaluate_automation_conditions(definitions, instance, cursor=before.cursor)
    assert after.total_requested == 1


def test_a_condition_is_frozen_until_the_lake_covers_it(
    lake_fluss: FlussResource, lake_table: TablePath, instance: dg.DagsterInstance
) -> None:
    connection = lake_fluss.connection

    @dg.asset
    def report() -> None: ...

    sensor = build_fluss_lake_snapshot_sensor(
        [str(lake_table)],
        name="caught_up",
        covers="latest",
        request_runs=True,
        asset_selection=[report],
    )
    append(connection, lake_table, orders(10))
    tier_table(connection, lake_table, allow_tiering=True)
    append(connection, lake_table, orders(10))
    waiting = tick(sensor, lake_fluss, instance, None, report)
    assert waiting.run_requests == []
    assert "does not cover" in waiting.skip_message
    append(connection, lake_table, orders(10))  # later rows do not move the target
    frozen = json.loads(waiting.cursor)["kept"]["tables"][str(lake_table)]["target"]["offsets"]
    assert sum(offset for *_, offset in frozen) == 20
    snapshot = tier_table(connection, lake_table, allow_tiering=True).snapshot_id
    done = tick(sensor, lake_fluss, instance, waiting.cursor, report)
    [request] = done.run_requests
    assert request.tags["fluss/snapshot_id"] == str(snapshot)
    more = tick(sensor, lake_fluss, instance, done.cursor, report)
    assert [r.run_key for r in more.run_requests] != [request.run_key]
    again = tick(sensor, lake_fluss, instance, more.cursor, report)
    assert again.run_requests == []


def test_a_time_that_is_covered(
    lake_fluss: FlussResource, lake_table: TablePath, instance: dg.DagsterInstance
) -> None:
    connection = lake_fluss.connection
    append(connection, lake_table, orders(10))
    tier_table(connection, lake_table, allow_tiering=True)
    past = datetime.now(UTC) - timedelta(hours=1)
    asked: list[datetime] = []

    def target(now: datetime) -> datetime:
        asked.append(now)
        return past

    sensor = build_fluss_lake_snapshot_sensor([str(lake_table)], covers=target)
    first = tick(sensor, lake_fluss, instance)
    [event] = first.asset_events
    assert event.metadata["fluss/covered"].value == str(past)
    assert tick(sensor, lake_fluss, instance, first.cursor).asset_events == []
    assert tick(sensor, lake_fluss, instance).asset_events == []
    future = datetime.now(UTC) + timedelta(hours=1)
    later = build_fluss_lake_snapshot_sensor([str(lake_table)], name="later", covers=future)
    assert tick(later, lake_fluss, instance).asset_events == []


def test_offsets_that_are_covered_table_by_table(
    lake_fluss: FlussResource, lake_table: TablePath, instance: dg.DagsterInstance
) -> None:
    connection = lake_fluss.connection
    table = str(lake_table)
    load_rows(connection, lake_table, orders(10), "one")  # the first unit goes to bucket 0
    tier_table(connection, lake_table, allow_tiering=True)
    ahead = build_fluss_lake_snapshot_sensor([table], covers={table: {0: 11}})
    waiting = tick(ahead, lake_fluss, instance)
    assert "does not cover" in waiting.skip_message
    reached = build_fluss_lake_snapshot_sensor([table], name="reached", covers={0: 10})
    assert len(tick(reached, lake_fluss, instance).asset_events) == 1
    load_rows(connection, lake_table, orders(10), "two")
    tier_table(connection, lake_table, allow_tiering=True)
    assert len(tick(ahead, lake_fluss, instance, waiting.cursor).asset_events) == 1


def test_a_tick_has_an_end_and_goes_on_next_time(
    lake_fluss: FlussResource, lake_table: TablePath, instance: dg.DagsterInstance
) -> None:
    append(lake_fluss.connection, lake_table, orders(10))
    tier_table(lake_fluss.connection, lake_table, allow_tiering=True)
    tables = [f"{lake_table.database_name}.none{i}" for i in range(3)] + [str(lake_table)]
    sensor = build_fluss_lake_snapshot_sensor(tables, tick_timeout_s=0)
    cursor, events = None, []
    for _ in range(4):
        done = tick(sensor, lake_fluss, instance, cursor)
        cursor = done.cursor
        events.append(len(done.asset_events))
    assert events == [0, 0, 0, 1]


def test_growth_requests_a_run_once(
    fluss: FlussResource,
    connection: FlussConnection,
    database: str,
    tmp_path: Path,
    instance: dg.DagsterInstance,
) -> None:
    path = make_table(connection, TablePath(database, "orders"))
    broken = [True]

    def break_or_not(rows: pa.RecordBatchReader) -> pa.RecordBatchReader:
        if broken[0]:
            raise RuntimeError("broken")
        return rows

    name = f"{database}/grown"
    asset = incremental_fluss_asset(
        "grown",
        table=str(path),
        sink=ParquetSink(tmp_path),
        transform=break_or_not,
        checkpoint=name,
    )
    sensor = build_fluss_offset_sensor(
        str(path), name, asset_selection=[asset], min_offsets=10, retry_after_s=0.5
    )
    definitions = dg.Definitions(assets=[asset], sensors=[sensor], resources={"fluss": fluss})
    append(connection, path, orders(9))
    few = tick(sensor, fluss, instance, None, asset)
    assert few.run_requests == []
    assert "9 offsets behind" in few.skip_message
    append(connection, path, orders(1, first=9))
    first = tick(sensor, fluss, instance, few.cursor, asset)
    [request] = first.run_requests
    again = tick(sensor, fluss, instance, first.cursor, asset)
    assert again.run_requests == []
    run = instance.create_run_for_job(
        definitions.resolve_implicit_global_asset_job_def(), tags=request.tags
    )
    assert "is under way" in tick(sensor, fluss, instance, first.cursor, asset).skip_message
    instance.report_run_canceled(run)
    failed = dg.materialize(
        [asset], resources={"fluss": fluss}, instance=instance, tags=request.tags,
        raise_on_error=False,
    )  # fmt: skip
    assert not failed.success
    kept = json.loads(first.cursor)
    kept["kept"]["requested_s"] -= 1
    retried = tick(sensor, fluss, instance, json.dumps(kept), asset)
    assert [r.run_key for r in retried.run_requests] != [request.run_key]
    assert len(retried.run_requests) == 1
    broken[0] = False
    assert dg.materialize([asset], resources={"fluss": fluss}, instance=instance).success
    assert tick(sensor, fluss, instance, retried.cursor, asset).run_requests == []
    append(connection, path, orders(2, first=10))
    impatient = build_fluss_offset_sensor(
        str(path), name, asset_selection=[asset], min_offsets=10, max_wait_s=0
    )
    assert len(tick(impatient, fluss, instance, retried.cursor, asset).run_requests) == 1


def test_partitions_come_and_go(
    fluss: FlussResource, connection: FlussConnection, database: str, instance: dg.DagsterInstance
) -> None:
    schema = pa.schema([("id", pa.int64()), ("area", pa.string()), ("day", pa.string())])
    path = make_table(
        connection, TablePath(database, "places"), schema, partition_keys=["area", "day"]
    )
    admin = connection.get_admin().result()
    for day in ("20261101", "20261102"):
        admin.create_partition(path, {"area": "eu", "day": day}).result()
    names = dg.DynamicPartitionsDefinition(name="places")

    @dg.asset(partitions_def=names)
    def places() -> None: ...

    # The test kit does not know keys that are added in the same tick; the daemon does.
    with dg.DagsterInstance.ephemeral() as later:
        later.add_dynamic_partitions("places", ["eu$20261101", "eu$20261102", "us$20261102"])
        with dg.partition_loading_context(dynamic_partitions_store=later):
            check_places(sensor_for(str(path), names, places), fluss, instance, path, places)


def sensor_for(table: str, names: Any, asset: Any) -> dg.SensorDefinition:
    return build_fluss_partition_sensor(table, names, request_runs=True, asset_selection=[asset])


def check_places(
    sensor: dg.SensorDefinition,
    fluss: FlussResource,
    instance: dg.DagsterInstance,
    path: TablePath,
    places: Any,
) -> None:
    admin = fluss.connection.get_admin().result()
    first = tick(sensor, fluss, instance, None, places)
    [added] = first.dynamic_partitions_requests
    assert added.partition_keys == ["eu$20261101", "eu$20261102"]
    assert [r.partition_key for r in first.run_requests] == added.partition_keys
    instance.add_dynamic_partitions("places", added.partition_keys)
    same = tick(sensor, fluss, instance, first.cursor, places)
    assert not same.dynamic_partitions_requests
    assert same.run_requests == []
    admin.drop_partition(path, {"area": "eu", "day": "20261101"}).result()
    admin.create_partition(path, {"area": "us", "day": "20261102"}).result()
    moved = tick(sensor, fluss, instance, same.cursor, places)
    plus, minus = moved.dynamic_partitions_requests
    assert plus.partition_keys == ["us$20261102"]
    assert minus.partition_keys == ["eu$20261101"]


def test_what_cannot_be_built() -> None:
    with pytest.raises(ConfigError, match="request_runs needs a job"):
        build_fluss_lake_snapshot_sensor(["a.b"], request_runs=True)
