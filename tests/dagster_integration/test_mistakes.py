"""What users get wrong, and what they are told; assets, sensors and checks called as functions."""

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import dagster as dg
import pandas as pd
import pyarrow as pa
import pytest

from fluss_client import FlussConnection, TablePath
from fluss_client.errors import AuthenticationError, ConfigError, RowError
from fluss_orchestrate import ParquetSink
from fluss_orchestrate.dagster import (
    FlussIOManager,
    FlussResource,
    build_fluss_lag_check,
    build_fluss_lake_snapshot_sensor,
    build_fluss_offset_sensor,
    build_fluss_row_count_check,
    build_fluss_table_sensor,
    fluss_incremental,
    fluss_lake_asset,
    incremental_fluss_asset,
)
from fluss_orchestrate.dagster.io.writing import storable
from fluss_orchestrate.dagster.runs import duration_text
from tests.dagster_integration.tables import append, make_table, orders

SINK = ParquetSink("unused")
Make = Any


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (
            lambda **o: incremental_fluss_asset("a", table="d.t", sink=SINK, **o),
            "incremental_fluss_asset has no argument 'retry_polcy': did you mean 'retry_policy'",
        ),
        (lambda **o: fluss_incremental(table="d.t", **o), "fluss_incremental has no argument"),
        (lambda **o: fluss_lake_asset("d.t", **o), "fluss_lake_asset has no argument"),
        (lambda **o: build_fluss_table_sensor(["d.t"], **o), "sensor fluss_tables has no argument"),
        (lambda **o: build_fluss_lag_check("a", "c", max_offsets=1, **o), "check fluss_lag has no"),
    ],
)
def test_an_unknown_argument_is_named(make: Make, said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        make(retry_polcy=1)


@pytest.mark.parametrize(
    ("key", "meant"),
    [("write_mod", "write_mode"), ("primary_keys", "primary_key"), ("fluss/tabel", "fluss/table")],
)
def test_a_misspelled_setting_is_refused(key: str, meant: str, tmp_path: Path) -> None:
    fluss = FlussResource(bootstrap_servers=f"embedded:{tmp_path}")

    @dg.asset(key=["a", "b"], metadata={key: "x", "team/write_mod": "their own", "note": 1})
    def stored() -> pa.Table:
        return orders(1)

    with pytest.raises(ConfigError, match=f"'{key}' is no setting.*did you mean '{meant}'"):
        dg.materialize([stored], resources={"io_manager": FlussIOManager(fluss=fluss)})


def test_sasl_is_told_in_the_fields_of_the_resource(plain_cluster: Any) -> None:
    servers = plain_cluster.info.sasl_bootstrap_servers
    wrong = FlussResource(bootstrap_servers=servers, sasl_username="admin", sasl_password="no")
    with pytest.raises(AuthenticationError, match=r"Check sasl_username \('admin'\) and sasl_pass"):
        _ = wrong.connection
    nobody = FlussResource(bootstrap_servers=servers)
    with pytest.raises(AuthenticationError, match="set sasl_username and sasl_password"):
        _ = nobody.connection
    half = FlussResource(bootstrap_servers=servers, sasl_username="admin")
    with pytest.raises(ConfigError, match="has sasl_username and no sasl_password"):
        half.settings()


def test_types_that_fluss_lacks_are_converted(
    fluss: FlussResource, connection: FlussConnection, database: str
) -> None:
    frame = pd.DataFrame(
        {
            "small": pd.Series([1, 2], dtype="uint8"),
            "id": pd.Series([1, 2**32 - 1], dtype="uint32"),
            "large": pd.Series([1, 2**64 - 1], dtype="uint64"),
            "kind": pd.Series(["a", "b"], dtype="category"),
        }
    )

    @dg.asset(key=[database, "frames"])
    def frames() -> pd.DataFrame:
        return frame

    given = {"io_manager": FlussIOManager(fluss=fluss)}
    assert dg.materialize([frames], resources=given).success
    held = fluss.read_table(f"{database}.frames").read_all().sort_by("id")
    assert held.schema.field("id").type == pa.int64()
    assert held["id"].to_pylist() == [1, 2**32 - 1]
    assert [int(n) for n in held["large"].to_pylist()] == [1, 2**64 - 1]
    assert held["kind"].to_pylist() == ["a", "b"]

    empty = pa.RecordBatchReader.from_batches(pa.schema([("note", pa.null())]), [])
    assert storable(empty, "d.t", ["note"]).field("note").type == pa.null(), "the table has one"
    with pytest.raises(ConfigError, match=r"column 'note' has no values.*astype\('string'\)"):
        storable(empty, "d.t", [])
    waits = pa.RecordBatchReader.from_batches(pa.schema([("wait", pa.duration("s"))]), [])
    with pytest.raises(ConfigError, match="column 'wait' is a duration"):
        storable(waits, "d.t", [])


def test_a_cast_that_fails_names_its_column(
    fluss: FlussResource, connection: FlussConnection, database: str
) -> None:
    schema = pa.schema([("id", pa.int32()), ("at", pa.timestamp("us"))])
    make_table(connection, TablePath(database, "typed"), schema)
    days = dg.DailyPartitionsDefinition("2026-11-01")
    rows = [pa.table({"id": [2**40], "at": ["2026-11-02"]}), pa.table({"id": [1], "at": ["later"]})]

    @dg.asset(key=[database, "typed"])
    def whole() -> pa.Table:
        return rows[0].select(["id"])

    @dg.asset(key=[database, "typed"], partitions_def=days, metadata={"partition_expr": "at"})
    def timed() -> pa.Table:
        return rows[1]

    given = {"io_manager": FlussIOManager(fluss=fluss)}
    with pytest.raises(RowError, match="column 'id' does not fit int32"):
        dg.materialize([whole], resources=given)
    with pytest.raises(RowError, match="column 'at' cannot be read as the table's type timestamp"):
        dg.materialize([timed], resources=given, partition_key="2026-11-02")


def test_a_window_that_has_not_ended(
    fluss: FlussResource, connection: FlussConnection, database: str, tmp_path: Path
) -> None:
    """It says when it ends, as people write it; one that ends soon asks for a retry."""
    path = make_table(connection, TablePath(database, "orders"))
    append(connection, path, orders(3))
    now = datetime.now(UTC)
    for cron, start in (("0 0 1 1 *", now.replace(month=1, day=1)), ("* * * * *", now)):
        windows = dg.TimeWindowPartitionsDefinition(
            cron_schedule=cron, start=start - timedelta(days=400), fmt="%Y%m%d%H%M", end_offset=1
        )
        key = windows.get_last_partition_key()
        assert key is not None
        end = windows.time_window_for_partition_key(key).end
        asset = incremental_fluss_asset(
            "windows",
            table=str(path),
            sink=ParquetSink(tmp_path),
            checkpoint=f"{database}/windows",
            partitions_def=windows,
        )
        context = dg.build_asset_context(partition_key=key)
        if cron == "* * * * *":
            with pytest.raises(dg.RetryRequested) as soon:
                asset(context, fluss=fluss)
            assert 0 < soon.value.seconds_to_wait <= 125
            assert f"ends at {end:%Y-%m-%d %H:%M}" in str(soon.value.__cause__)
        else:
            with pytest.raises(dg.Failure, match=f"until {end:%Y-%m-%d} 00:00:00 UTC, in") as late:
                asset(context, fluss=fluss)
            assert late.value.allow_retries is False
    assert [duration_text(s) for s in (5, 65, 7_260, 90_000)] == [
        "5 s",
        "1 min 5 s",
        "2 h 1 min",
        "1 d 1 h",
    ]


def test_everything_can_be_called_as_a_function(
    fluss: FlussResource, connection: FlussConnection, database: str, tmp_path: Path
) -> None:
    path = make_table(connection, TablePath(database, "orders"))
    table, checkpoint = str(path), f"{database}/copied"
    copied = incremental_fluss_asset(
        "copied", table=table, sink=ParquetSink(tmp_path), checkpoint=checkpoint
    )

    @dg.asset
    def load(context: dg.AssetExecutionContext, fluss: FlussResource) -> dg.MaterializeResult:
        return fluss.append(context, path, orders(3))

    @fluss_incremental(table=table, checkpoint=f"{database}/given")
    def given(context: dg.AssetExecutionContext, rows: pa.RecordBatchReader) -> None:
        context.log.info(f"{rows.read_all().num_rows} rows")

    for _ in range(2):
        assert load(dg.build_asset_context(), fluss=fluss).metadata["fluss/rows"] == 3
    assert copied(dg.build_asset_context(), fluss=fluss).metadata["fluss/rows"] == 6
    held = dg.build_asset_context(resources={"fluss": fluss})
    assert given(held).metadata["fluss/rows"] == 6
    append(connection, path, orders(2))
    resources = {"fluss": fluss}
    with dg.DagsterInstance.ephemeral() as instance:
        sensed = build_fluss_offset_sensor(table, checkpoint, asset_selection=[copied])
        done: Any = sensed(dg.build_sensor_context(resources=resources, instance=instance))
        assert [r.tags["fluss/offsets_behind"] for r in done.run_requests] == ["2"]
        told: Any = build_fluss_table_sensor([table])(
            dg.build_sensor_context(resources=resources, instance=instance)
        )
        assert len(told.asset_events) == 2
        lakes: Any = build_fluss_lake_snapshot_sensor([table])(
            dg.build_sensor_context(resources=resources, instance=instance)
        )
        assert "no snapshot" in lakes.skip_reason.skip_message
        for check, passes in (
            (build_fluss_lag_check(copied, checkpoint, max_offsets=1), False),
            (build_fluss_row_count_check(copied, table, minimum=8), True),
            (build_fluss_row_count_check(copied, f"{database}.no", minimum=1), False),
        ):
            result: Any = check(dg.build_asset_check_context(resources=resources))
            assert result.passed is passes, result.description
