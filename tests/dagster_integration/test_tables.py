"""Tables as living assets: reported by one sensor, related to what is made of them."""

import logging
from pathlib import Path
from typing import Any

import dagster as dg
import pyarrow as pa
import pytest

from fluss_client import FlussConnection, TablePath
from fluss_orchestrate import ParquetSink, tier_table
from fluss_orchestrate.dagster import (
    DagsterFlussTranslator,
    FlussResource,
    FlussTableProps,
    build_fluss_lake_snapshot_sensor,
    build_fluss_offset_sensor,
    build_fluss_partition_sensor,
    build_fluss_table_sensor,
    close_connections,
    fluss_lake_asset,
    incremental_fluss_asset,
    load_fluss_asset_specs,
)
from tests.dagster_integration.tables import append, make_table, orders
from tests.dagster_integration.test_sensors import tick

TABLE_TAG = "dagster/data_version"


def numbers(event: Any) -> dict[str, Any]:
    return {label: value.value for label, value in event.metadata.items()}


def downstream(key: dg.AssetKey) -> dg.AssetsDefinition:
    @dg.asset(deps=[key], automation_condition=dg.AutomationCondition.eager())
    def after() -> None: ...

    return after


def test_a_table_is_reported_and_wakes_what_is_downstream(
    lake_fluss: FlussResource,
    lake_table: TablePath,
    instance: dg.DagsterInstance,
    tmp_path: Path,
) -> None:
    connection, table = lake_fluss.connection, str(lake_table)
    [spec] = load_fluss_asset_specs(
        lake_fluss, [lake_table.database_name], lake_assets=False, state_path=tmp_path / "state"
    )
    after = downstream(spec.key)
    assets = [spec, after]
    wanted = dg.Definitions(assets=assets)
    sensor = build_fluss_table_sensor([table, f"{lake_table.database_name}.missing"])
    copied = incremental_fluss_asset(
        "copied", table=table, sink=ParquetSink(tmp_path / "files"), checkpoint=f"{table}/copied"
    )
    append(connection, lake_table, orders(10))
    assert dg.materialize([copied], resources={"fluss": lake_fluss}).success
    append(connection, lake_table, orders(5, first=10))

    def evaluate(cursor: Any) -> Any:
        return dg.evaluate_automation_conditions(wanted, instance, cursor=cursor)

    before = evaluate(None)
    first = tick(sensor, lake_fluss, instance, None, *assets)
    made, seen = first.asset_events
    assert isinstance(made, dg.AssetMaterialization)
    assert made.tags[TABLE_TAG] == seen.tags[TABLE_TAG]
    told = numbers(seen)
    assert told["dagster/row_count"] == 15 == told["fluss/offsets_total"]
    assert told["fluss/bytes"] > 15
    assert told[f"fluss/lag_offsets/{table}/copied"] == 5 == told["fluss/lag_offsets"]
    assert told["fluss/lag_s"] >= 0
    assert told["fluss/lake_lag_offsets"] == 15
    assert evaluate(before.cursor).total_requested == 1, "eager() follows the table"

    again = tick(sensor, lake_fluss, instance, first.cursor, *assets)
    assert again.asset_events == []
    assert f"{lake_table.database_name}.missing does not exist" in again.skip_message
    lost = tick(sensor, lake_fluss, instance, None, *assets)
    assert [type(e) for e in lost.asset_events] == [dg.AssetObservation], "Dagster's record is kept"

    tier_table(connection, lake_table, allow_tiering=True)
    append(connection, lake_table, orders(1, first=15))
    made, seen = tick(sensor, lake_fluss, instance, again.cursor, *assets).asset_events
    assert numbers(seen)["fluss/lake_lag_offsets"] == 1
    assert numbers(made)["dagster/row_count"] == 16


def test_rows_of_a_run_are_not_reported_again(
    fluss: FlussResource, connection: FlussConnection, database: str, instance: dg.DagsterInstance
) -> None:
    path = make_table(connection, TablePath(database, "orders"))

    @dg.asset(key=[database, "orders"])
    def load(context: dg.AssetExecutionContext, fluss: FlussResource) -> dg.MaterializeResult:
        return fluss.append(context, path, orders(50))

    assert dg.materialize([load], resources={"fluss": fluss}, instance=instance).success
    sensor = build_fluss_table_sensor([str(path)], min_offsets=5)
    first = tick(sensor, fluss, instance, None, load)
    assert [type(event) for event in first.asset_events] == [dg.AssetObservation]
    append(connection, path, orders(4))
    second = tick(sensor, fluss, instance, first.cursor, load)
    assert second.asset_events == [], "fewer than min_offsets"
    append(connection, path, orders(1))
    third = tick(sensor, fluss, instance, second.cursor, load)
    assert [type(event) for event in third.asset_events] == [
        dg.AssetMaterialization,
        dg.AssetObservation,
    ]


def test_partitions_are_reported_one_by_one(
    fluss: FlussResource, connection: FlussConnection, database: str, instance: dg.DagsterInstance
) -> None:
    schema = pa.schema([("id", pa.int64()), ("area", pa.string())])
    path = make_table(connection, TablePath(database, "places"), schema, partition_keys=["area"])
    admin = connection.get_admin().result()
    for area in ("eu", "us"):
        admin.create_partition(path, {"area": area}).result()
    [spec] = load_fluss_asset_specs(fluss, [database])
    assert isinstance(spec.partitions_def, dg.DynamicPartitionsDefinition)
    sensor = build_fluss_table_sensor([str(path)])
    rows = pa.table({"id": [1, 2], "area": ["eu", "eu"]}, schema)
    append(connection, path, rows)
    early = tick(sensor, fluss, instance, None, spec)
    assert [type(e) for e in early.asset_events] == [dg.AssetObservation], "no key in Dagster yet"
    instance.add_dynamic_partitions(str(spec.partitions_def.name), ["eu", "us"])
    first = tick(sensor, fluss, instance, early.cursor, spec)
    made = [e for e in first.asset_events if isinstance(e, dg.AssetMaterialization)]
    assert [(e.partition, numbers(e)["dagster/partition_row_count"]) for e in made] == [("eu", 2)]
    append(connection, path, rows.set_column(1, "area", pa.array(["us", "us"])))
    second = tick(sensor, fluss, instance, first.cursor, spec)
    made = [e for e in second.asset_events if isinstance(e, dg.AssetMaterialization)]
    assert [e.partition for e in made] == ["us"]


def test_a_missing_table_is_treated_alike(
    fluss: FlussResource, database: str, instance: dg.DagsterInstance
) -> None:
    table = f"{database}.nothing"
    places = dg.DynamicPartitionsDefinition(name="nothing")
    for sensor in (
        build_fluss_table_sensor([table]),
        build_fluss_offset_sensor(table, "none", asset_selection="*"),
        build_fluss_partition_sensor(table, places),
        build_fluss_lake_snapshot_sensor([table], report_freshness=True),
    ):
        done = tick(sensor, fluss, instance, None, downstream(dg.AssetKey("x")))
        assert f"{table} does not exist" in done.skip_message
        assert "the next tick looks again" in done.skip_message
        assert sensor.description


class Renamed(DagsterFlussTranslator):
    """Tables under a prefix, with an owner."""

    def get_asset_spec(self, table: FlussTableProps) -> dg.AssetSpec:
        spec = super().get_asset_spec(table)
        return spec.replace_attributes(
            key=spec.key.with_prefix("raw"), owners=["team:shop"], tags={"tier": "1"}
        )


def test_what_is_made_of_a_table_follows_its_translation(tmp_path: Path) -> None:
    translator = Renamed()
    sink = ParquetSink(tmp_path)
    asset = incremental_fluss_asset("copied", table="a-b.t", sink=sink, translator=translator)
    spec = asset.get_asset_spec()
    lake = fluss_lake_asset("a-b.t", translator=translator)
    assert [dep.asset_key.path for dep in spec.deps] == [["raw", "a-b", "t"]]
    assert lake.key.path == ["lake", "raw", "a-b", "t"]
    assert [dep.asset_key.path for dep in lake.deps] == [["raw", "a-b", "t"]]
    for one in (spec, lake):
        assert (one.group_name, one.owners) == ("a_b", ["team:shop"])
        assert one.tags["tier"] == "1"
    assert {"fluss", "parquet"} <= spec.kinds

    own = incremental_fluss_asset(
        "own", table="a.t", sink=sink, deps=["x", ["a", "t"]], group_name="mine", pool="one"
    ).get_asset_spec()
    assert [dep.asset_key.path for dep in own.deps] == [["x"], ["a", "t"]], "not a second time"
    assert own.group_name == "mine"
    windows = incremental_fluss_asset(
        "windows",
        table="a.t",
        sink=sink,
        partitions_def=dg.HourlyPartitionsDefinition("2026-11-01-00:00"),
    )
    table = DagsterFlussTranslator().get_asset_spec(
        FlussTableProps("a.t", partition_keys=("area",))
    )
    fluss = FlussResource(bootstrap_servers="nowhere:1")
    repository = dg.Definitions(
        assets=[windows, table], resources={"fluss": fluss}
    ).get_repository_def()
    assert repository.asset_graph.get(windows.key).parent_keys == {table.key}


def test_columns_are_related(
    fluss: FlussResource,
    connection: FlussConnection,
    database: str,
    tmp_path: Path,
    instance: dg.DagsterInstance,
) -> None:
    """And the run's log has the plan and the end."""
    path = make_table(connection, TablePath(database, "orders"))
    append(connection, path, orders(3))
    asset = incremental_fluss_asset(
        "copied", table=str(path), sink=ParquetSink(tmp_path), scan_options={"columns": ["item"]}
    )
    result = dg.materialize([asset], resources={"fluss": fluss}, instance=instance)
    log = " | ".join(entry.user_message for entry in instance.all_logs(result.run_id))
    assert f"of checkpoint 'dagster/copied': 3 offsets in 1 bucket(s) of {path}" in log
    assert "3 of 3 rows written into parquet:" in log
    [event] = result.asset_materializations_for_node("copied")
    told = numbers(event)
    key = dg.AssetKey([database, "orders"])
    assert told["dagster/column_lineage"].deps_by_column == {
        "item": [dg.TableColumnDep(key, "item")]
    }
    assert [c.name for c in told["dagster/column_schema"].columns] == ["item"]
    assert told["fluss/sink"] == "parquet" == told["dagster/storage_kind"]
    assert isinstance(event.metadata["fluss/target"], dg.PathMetadataValue)
    assert told["fluss/target"] == str(tmp_path)
    assert (told["fluss/lag_offsets"], told["fluss/replayed"]) == (0, False)
    assert sum(r.data["stop"] - r.data["start"] for r in told["fluss/offsets"].records) == 3


def test_specs_stay_when_the_cluster_is_away(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("DAGSTER_HOME", str(tmp_path))
    there = FlussResource(bootstrap_servers=f"embedded:{tmp_path / 'fluss'}", cluster_alias="away")
    make_table(there.connection, TablePath("shop", "orders"))
    [spec] = load_fluss_asset_specs(there, ["shop"])
    assert spec.key.path == ["shop", "orders"]
    close_connections()
    quick = {"connect-timeout": "1s", "request-timeout": "2s"}
    away = FlussResource(
        bootstrap_servers="127.0.0.1:1", cluster_alias="away", client_options=quick
    )
    with caplog.at_level(logging.WARNING):
        assert load_fluss_asset_specs(away, ["shop"])[0] == spec
        assert load_fluss_asset_specs(away, ["other"]) == []
    assert "does not answer" in caplog.text
    assert "1 tables are taken from" in caplog.text


def test_the_package_is_in_dagsters_registry() -> None:
    from dagster_shared.libraries import DagsterLibraryRegistry

    assert "fluss-orchestrate" in DagsterLibraryRegistry.get()
