"""Definitions of what users wrote and what failed for them, for a real `dagster dev`."""

import os
from datetime import UTC, datetime
from pathlib import Path

import dagster as dg
import pandas as pd
import pyarrow as pa

from fluss_orchestrate import ParquetSink
from fluss_orchestrate.dagster import (
    DagsterFlussTranslator,
    FlussIOManager,
    FlussResource,
    build_fluss_check_sensor,
    build_fluss_lag_check,
    build_fluss_table_sensor,
    fluss_incremental,
    incremental_fluss_asset,
)

ADDRESS = os.environ["CASES_ADDRESS"]
DATABASE = os.environ["CASES_DATABASE"]
HOME = Path(os.environ["CASES_HOME"])
START = os.environ["CASES_START"]
ORDERS = f"{DATABASE}.orders"
STORED = {"rows": dg.AssetIn([DATABASE, "stored"])}

fluss = FlussResource(bootstrap_servers=ADDRESS, cluster_alias="cases")
minutes = dg.TimeWindowPartitionsDefinition(
    cron_schedule="* * * * *", start=START, fmt="%Y-%m-%d-%H:%M"
)


class Factor(dg.ConfigurableResource):  # type: ignore[type-arg]
    """A resource of the user's own."""

    times: int


@dg.asset(key=[DATABASE, "stored"])
def stored() -> pa.Table:
    """A frame in a table."""
    return pa.table({"id": [1, 2, 3]})


@dg.asset(ins=STORED)
def plain(rows) -> dg.MaterializeResult:  # type: ignore[no-untyped-def]
    """An input without a type."""
    return dg.MaterializeResult(metadata={"type": type(rows).__name__, "rows": len(rows)})


@dg.asset(ins=STORED)
def optional(rows: pd.DataFrame | None) -> dg.MaterializeResult:
    """An input that may be none."""
    return dg.MaterializeResult(metadata={"type": type(rows).__name__})


@dg.op
def fetch() -> pa.Table:
    """Rows from somewhere."""
    return pa.table({"id": [1, 2, 3, 4]})


@dg.op
def double(rows: pd.DataFrame) -> pd.DataFrame:
    """Rows that another op has stored."""
    return rows.assign(id=rows["id"] * 2)


@dg.op
def count(context: dg.OpExecutionContext, fluss: FlussResource, rows: pa.Table) -> None:
    """What a job of ops has handed over, and its increment."""
    sink = ParquetSink(HOME / "by_ops")
    done = fluss.incremental(context, ORDERS, sink, checkpoint=f"{DATABASE}/by_ops")
    context.log.info(f"{len(rows)} rows, {(done.metadata or {})['fluss/rows']} new")
    assert len(rows) == 4


@dg.graph_asset(key=[DATABASE, "doubled"])
def doubled() -> pa.Table:
    """A graph of two ops."""
    return double(fetch())  # type: ignore[no-any-return]


@dg.job(executor_def=dg.in_process_executor)
def by_ops() -> None:
    """A job of ops."""
    count(rows=double(fetch()))


@fluss_incremental(table=ORDERS, checkpoint=f"{DATABASE}/given")
def given(context: dg.AssetExecutionContext, rows: pa.RecordBatchReader, factor: Factor) -> None:
    """A function with a context and a resource of the user's own."""
    total = sum(rows.read_all()["id"].to_pylist()) * factor.times
    context.add_output_metadata({"total": total})


copied = incremental_fluss_asset(
    "copied", table=ORDERS, sink=ParquetSink(HOME / "copied"), checkpoint=f"{DATABASE}/copied"
)

shared = incremental_fluss_asset(
    "shared", table=ORDERS, sink=ParquetSink(HOME / "shared"), checkpoint=f"{DATABASE}/copied"
)


@dg.asset(deps=[copied])
def report() -> None:
    """What is stale when the copy has changed."""


windows = incremental_fluss_asset(
    "windows",
    table=f"{DATABASE}.in_windows",
    sink=ParquetSink(HOME / "windows"),
    checkpoint=f"{DATABASE}/windows",
    partitions_def=minutes,
)


@dg.asset(key=[DATABASE, "timed"], partitions_def=minutes, metadata={"partition_expr": "at"})
def timed(context: dg.AssetExecutionContext) -> pa.Table:
    """A table whose partitions are windows of a timestamp."""
    start = context.partition_time_window.start.astimezone(UTC)
    return pa.table({"id": [1], "at": pa.array([start], pa.timestamp("us", "UTC"))})


@dg.asset(partitions_def=minutes, ins={"rows": dg.AssetIn([DATABASE, "timed"])})
def timed_rows(context: dg.AssetExecutionContext, rows) -> dg.MaterializeResult:  # type: ignore[no-untyped-def]
    """The rows of one window."""
    assert context.partition_time_window.start <= datetime.now(UTC)
    return dg.MaterializeResult(metadata={"rows": len(rows)})


table = DagsterFlussTranslator().spec_of(ORDERS)


@dg.asset(deps=[table], automation_condition=dg.AutomationCondition.eager())
def follows(context: dg.AssetExecutionContext) -> None:
    """Made whenever the table has got rows."""


lag = build_fluss_lag_check(copied, f"{DATABASE}/copied", max_offsets=0)
defs = dg.Definitions(
    assets=[
        table,
        follows,
        stored,
        plain,
        optional,
        doubled,
        given,
        copied,
        shared,
        report,
        windows,
        timed,
        timed_rows,
    ],
    asset_checks=[lag],
    jobs=[by_ops],
    sensors=[
        build_fluss_table_sensor([ORDERS], minimum_interval_seconds=5, observe_interval_s=10),
        dg.AutomationConditionSensorDefinition(
            "automation",
            target=[follows],
            minimum_interval_seconds=5,
            default_status=dg.DefaultSensorStatus.RUNNING,
        ),
        build_fluss_check_sensor(
            [lag], interval_s=60, default_status=dg.DefaultSensorStatus.STOPPED
        ),
    ],
    resources={
        "fluss": fluss,
        "factor": Factor(times=3),
        "io_manager": FlussIOManager(fluss=fluss, database=DATABASE),
    },
    executor=dg.in_process_executor,
)
