"""Checks and freshness: each passes when it should, and fails when it should."""

from datetime import timedelta
from pathlib import Path
from typing import Any

import dagster as dg
import pyarrow as pa
import pytest

from fluss_client import FlussConnection, TablePath
from fluss_client.errors import ConfigError
from fluss_orchestrate import ParquetSink
from fluss_orchestrate.dagster import (
    FlussIOManager,
    FlussResource,
    build_fluss_check_sensor,
    build_fluss_lag_check,
    build_fluss_lake_freshness_check,
    build_fluss_row_count_check,
    build_fluss_schema_check,
    incremental_fluss_asset,
    lake_freshness_policy,
)
from tests.dagster_integration.tables import ORDERS, append, orders


def outcomes(result: dg.ExecuteInProcessResult) -> dict[str, bool]:
    return {e.check_name: e.passed for e in result.get_asset_check_evaluations()}


def test_counts_lag_and_drift(
    fluss: FlussResource,
    connection: FlussConnection,
    database: str,
    tmp_path: Path,
    instance: dg.DagsterInstance,
) -> None:
    path = TablePath(database, "orders")
    table = str(path)

    @dg.asset(key=[database, "orders"])
    def stored() -> pa.Table:
        return orders(10)

    copy = incremental_fluss_asset(
        "copy",
        table=table,
        sink=ParquetSink(tmp_path),
        checkpoint=f"{database}/copy",
        deps=[stored],
    )
    checks = [
        build_fluss_row_count_check(stored, table, minimum=5, maximum=12, name="some"),
        build_fluss_row_count_check(stored, table, minimum=100, name="many"),
        build_fluss_schema_check(stored, table, ORDERS, name="spec"),
        build_fluss_schema_check(stored, table, name="last"),
        build_fluss_schema_check(stored, table, pa.schema([("id", pa.int32())]), name="other"),
        build_fluss_lag_check(copy, f"{database}/copy", max_offsets=3, max_age_s=600),
    ]
    given: dict[str, Any] = {
        "resources": {"fluss": fluss, "io_manager": FlussIOManager(fluss=fluss)},
        "instance": instance,
    }
    first = dg.materialize([stored, copy, *checks], **given)
    expected = {"some": True, "many": False, "spec": True, "last": True, "other": False}
    assert outcomes(first) == {**expected, "fluss_lag": True}
    append(connection, path, orders(4, first=10))
    wider = pa.field("price", pa.float64())
    connection.get_admin().result().alter_table(path, add_columns=[wider]).result()
    job = dg.Definitions(
        assets=[stored, copy],
        asset_checks=checks,
        resources=given["resources"],
        jobs=[dg.define_asset_job("checks", dg.AssetSelection.all_asset_checks())],
    ).resolve_job_def("checks")
    again = job.execute_in_process(instance=instance)
    assert outcomes(again) == {
        "some": False,
        "many": False,
        "spec": False,
        "last": False,
        "other": False,
        "fluss_lag": False,
    }
    texts = {e.check_name: e.description for e in again.get_asset_check_evaluations()}
    assert texts["last"] == "column price double is new"
    assert "4 offsets behind" in str(texts["fluss_lag"])


def test_a_lake_that_is_behind(lake_fluss: FlussResource, lake_table: TablePath) -> None:
    table = str(lake_table)

    @dg.asset
    def lake(context: dg.AssetExecutionContext, fluss: FlussResource) -> dg.MaterializeResult:
        return fluss.tier(context, table, allow_tiering=True)

    checks = [
        build_fluss_lake_freshness_check(lake, table, max_lag_s=0, name="now"),
        build_fluss_lake_freshness_check(lake, table, max_lag_s=900, name="soon"),
    ]
    append(lake_fluss.connection, lake_table, orders(10))
    result = dg.materialize([lake, *checks], resources={"fluss": lake_fluss})
    assert outcomes(result) == {"now": True, "soon": True}
    [event] = result.asset_materializations_for_node("lake")
    assert event.tags is not None
    assert event.tags["dagster/data_version"] == event.metadata["fluss/snapshot_id"].value
    append(lake_fluss.connection, lake_table, orders(10))
    job = dg.Definitions(
        assets=[lake],
        asset_checks=checks,
        resources={"fluss": lake_fluss},
        jobs=[dg.define_asset_job("checks", dg.AssetSelection.all_asset_checks())],
    ).resolve_job_def("checks")
    assert outcomes(job.execute_in_process()) == {"now": False, "soon": True}

    @dg.op
    def maintain(context: dg.OpExecutionContext, fluss: FlussResource) -> int:
        fluss.tier(context, table, allow_tiering=True)
        done = fluss.maintain_lake(context, table)
        return fluss.maintain_lake(context, table, dry_run=True).files_after - done.files_after

    @dg.job
    def care() -> None:
        maintain()

    ended = care.execute_in_process(resources={"fluss": lake_fluss})
    assert ended.output_for_node("maintain") == 0


def test_freshness_follows_the_table() -> None:
    policy: Any = lake_freshness_policy("10min", factor=2)
    assert policy.warn_window.to_timedelta() == timedelta(minutes=10)
    assert policy.fail_window.to_timedelta() == timedelta(minutes=20)
    short: Any = lake_freshness_policy("5s")
    assert short.warn_window.to_timedelta() == timedelta(seconds=60)


def test_a_lag_check_before_the_first_increment(fluss: FlussResource, database: str) -> None:
    checked = dg.AssetSpec("copy")
    check = build_fluss_lag_check(checked.key, f"{database}/copy", max_offsets=0)
    job = dg.Definitions(
        assets=[checked],
        asset_checks=[check],
        resources={"fluss": fluss},
        jobs=[dg.define_asset_job("checks", dg.AssetSelection.all_asset_checks())],
    ).resolve_job_def("checks")
    result = job.execute_in_process()
    assert outcomes(result) == {"fluss_lag": False}
    [told] = result.get_asset_check_evaluations()
    assert "there is no checkpoint" in str(told.description)


def test_checks_run_one_at_a_time_by_a_sensor(
    fluss: FlussResource, instance: dg.DagsterInstance
) -> None:
    check = build_fluss_lag_check("copy", "any", max_offsets=0)
    sensor = build_fluss_check_sensor([check], interval_s=60)
    assert sensor.default_status is dg.DefaultSensorStatus.RUNNING
    assert sensor.minimum_interval_seconds == 60
    definitions = dg.Definitions(
        assets=[dg.AssetSpec("copy")],
        asset_checks=[check],
        sensors=[sensor],
        resources={"fluss": fluss},
    )
    context = dg.build_sensor_context(instance=instance, definitions=definitions)
    [request] = sensor.evaluate_tick(context).run_requests
    assert request.asset_check_keys == [check.check_key]
    run = dg.DagsterRun(job_name="any", tags=request.tags, status=dg.DagsterRunStatus.STARTED)
    instance.add_run(run)
    later = sensor.evaluate_tick(context)
    assert later.run_requests == []
    assert f"run {run.run_id} is under way" in str(later.skip_message)


def test_a_check_without_a_bound_is_refused() -> None:
    with pytest.raises(ConfigError, match="give minimum, maximum or both"):
        build_fluss_row_count_check("a", "b.c")
    with pytest.raises(ConfigError, match="give max_offsets"):
        build_fluss_lag_check("a", "c")
