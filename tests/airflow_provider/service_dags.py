"""DAGs of the whole Airflow's tests. Airflow's processes load this file; the tests do not."""

from __future__ import annotations

import os
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from airflow.sdk import DAG, Asset, AssetWatcher, Param, task

from fluss_orchestrate.airflow import (
    FlussCheckpointResetOperator,
    FlussFreshnessCheckOperator,
    FlussHook,
    FlussIncrementalScanOperator,
    FlussLakeSnapshotSensor,
    FlussOffsetSensor,
    FlussOffsetTrigger,
    FlussPartitionSensor,
    FlussPartitionWindowOperator,
    FlussProvisionTablesOperator,
    FlussRowCountCheckOperator,
    FlussTableSensor,
    FlussWriteOperator,
    IcebergTarget,
    ParquetTarget,
    fluss_table_asset,
)
from fluss_orchestrate.airflow.version_compat import CAPABILITIES

OUTPUT = Path(os.environ["SERVICE_OUTPUT"])
DATABASE = os.environ["SERVICE_DATABASE"]
TICK = timedelta(seconds=float(os.environ["SERVICE_TICK_S"]))
NEVER = datetime(2126, 1, 1, tzinfo=UTC)
"""When the schedule begins; backfills are of dates before it."""


class HeldTarget(ParquetTarget):
    """Writes, tells the id of its process, and waits while it is held."""

    def open(self, client: Any) -> Any:
        sink = super().open(client)
        write = sink.write

        def held(plan: Any, read: Any) -> Any:
            done = write(plan, read)
            (OUTPUT / "pid").write_text(str(os.getpid()))
            while (OUTPUT / "hold").exists():
                time.sleep(0.1)
            return done

        sink.write = held
        return sink


def scan(task_id: str, kind: str, table: str, **arguments: Any) -> FlussIncrementalScanOperator:
    arguments.setdefault("sink", ParquetTarget(str(OUTPUT / f"{task_id}-{kind}")))
    return FlussIncrementalScanOperator(
        task_id=task_id,
        fluss_conn_id=f"fluss_{kind}",
        table=f"{DATABASE}.{table}",
        checkpoint=f"{DATABASE}-{task_id}",
        **arguments,
    )


with DAG("ticks_embedded", schedule=TICK, start_date=NEVER):
    ticks = scan("ticks", "embedded", "ticks")
    if CAPABILITIES.sqlalchemy_2:  # else there is no lake
        covered = FlussLakeSnapshotSensor(
            task_id="wait",
            fluss_conn_id="fluss_embedded",
            table=f"{DATABASE}.ticks",
            covers="data_interval_end",
            deferrable=True,
            timeout=120,
        )
        covered >> ticks

with DAG("ticks_cluster", schedule=TICK, start_date=NEVER):
    scan("ticks", "cluster", "ticks")

with DAG("taken", schedule=TICK, start_date=NEVER):
    scan("taken", "embedded", "ticks")
    scan("skipping", "embedded", "ticks", scan_options={"on_covered": "skip"})

with DAG("until", schedule=None, render_template_as_native_obj=True):
    scan("until", "embedded", "ticks", until="{{ logical_date }}")

with DAG("frames", schedule=None, params={"fail": Param(False, type="boolean")}):

    @task.fluss_scan(
        fluss_conn_id="fluss_embedded",
        table=f"{DATABASE}.frames",
        checkpoint=f"{DATABASE}-frames",
        rows_as="arrow",
    )
    def count(rows: Any, params: dict[str, Any]) -> int:
        if params["fail"]:
            raise ValueError("the rows are not wanted")
        return int(rows.num_rows)

    count()

with DAG("killed", schedule=None, default_args={"retries": 1, "retry_delay": timedelta(0)}):
    scan("killed", "embedded", "ticks", sink=HeldTarget(str(OUTPUT / "killed")))

own_name = Asset(
    "numbers of ours",
    f"fluss://default/{DATABASE}/watched",
    watchers=[
        AssetWatcher(
            "new rows",
            FlussOffsetTrigger(
                table=f"{DATABASE}.watched",
                fluss_conn_id="fluss_embedded",
                start="earliest",
                poll_interval=0.3,
            ),
        )
    ],
)
with DAG("watching", schedule=[own_name], is_paused_upon_creation=False):

    @task
    def told(triggering_asset_events: Any) -> int:
        events = [event for found in triggering_asset_events.values() for event in found]
        return sum(event.extra["payload"]["rows"] for event in events)

    told()

with DAG(
    "refused",
    schedule=None,
    params={"nothing": Param("", type="string")},
    default_args={"retries": 3, "retry_delay": timedelta(0), "fluss_conn_id": "fluss_embedded"},
):
    scan("empty_path", "embedded", "ticks", sink=ParquetTarget("{{ params.nothing }}"))
    FlussWriteOperator(task_id="empty_rows", table=f"{DATABASE}.ticks", rows="{{ params.nothing }}")
    FlussCheckpointResetOperator(
        task_id="mistyped", table=f"{DATABASE}.ticks", checkpoint=f"{DATABASE}-frmes", to="latest"
    )
    FlussLakeSnapshotSensor(task_id="no_lake", table=f"{DATABASE}.frames", deferrable=True)
    FlussPartitionSensor(
        task_id="no_such_column",
        table=f"{DATABASE}.days",
        partition={"dya": "2026-11-17"},
        deferrable=True,
    )
    scan(
        "other_alias",
        "embedded",
        "ticks",
        inlets=[fluss_table_asset(f"{DATABASE}.ticks", cluster_alias="another")],
    )

    scan("mistyped_option", "embedded", "ticks", scan_options={"on_pendng": "skip"})
    scan(
        "no_namespace",
        "embedded",
        "ticks",
        sink=IcebergTarget("orders", {"type": "sql", "uri": f"sqlite:///{OUTPUT}/no.db"}),
    )
    FlussProvisionTablesOperator(task_id="no_file", specs="tabels.yaml")
    FlussPartitionWindowOperator(
        task_id="no_time", table=f"{DATABASE}.days", unit="day", now="noon"
    )
    FlussRowCountCheckOperator(task_id="few", table=f"{DATABASE}.ticks", min_rows=10**9, retries=0)
    FlussFreshnessCheckOperator(task_id="stale", table=f"{DATABASE}.days", max_age=60, retries=0)

with DAG("speaking", schedule=None, default_args={"fluss_conn_id": "fluss_embedded"}):
    FlussOffsetSensor(
        task_id="deferred",
        table=f"{DATABASE}.ticks",
        start="earliest",
        min_offsets=10**6,
        deferrable=True,
        poll_interval=0.3,
        timeout=4,
    )
    FlussOffsetSensor(
        task_id="poked",
        table=f"{DATABASE}.ticks",
        offsets={0: 10**6},
        poke_interval=0.3,
        timeout=2,
    )
    FlussLakeSnapshotSensor(
        task_id="skipped",
        table=f"{DATABASE}.ticks",
        covers={0: 10**6},
        deferrable=True,
        soft_fail=True,
        timeout=3,
    )

with DAG("texts", schedule=None, default_args={"fluss_conn_id": "fluss_embedded"}):

    @task
    def rows() -> list[dict[str, int]]:
        return [{"id": n} for n in range(5)]

    beside = FlussProvisionTablesOperator(task_id="beside", specs="service_tables.yaml")
    written = FlussWriteOperator(
        task_id="written", table=f"{DATABASE}.texts", rows="{{ ti.xcom_pull('rows') }}"
    )
    counted = FlussRowCountCheckOperator(
        task_id="counted", table=f"{DATABASE}.texts", min_rows=3, max_rows=3, where="id > 1"
    )
    days = FlussPartitionWindowOperator(
        task_id="days",
        table=f"{DATABASE}.days",
        unit="day",
        ahead=1,
        now="2026-11-18",
        time_zone="Asia/Tokyo",
    )
    [rows(), beside] >> written >> counted >> days

with DAG("mended", schedule=None):
    FlussTableSensor(
        task_id="wait",
        fluss_conn_id="fluss_embedded",
        table=f"{DATABASE}.tikcs",
        timeout=1,
        poke_interval=0.3,
    )

if CAPABILITIES.asset_partitions:
    from airflow.sdk import PartitionedAssetTimetable

    parts = fluss_table_asset(f"{DATABASE}.parts")
    with DAG("parts", schedule=None):
        FlussWriteOperator(
            task_id="write",
            fluss_conn_id="fluss_embedded",
            table=f"{DATABASE}.parts",
            rows=[{"id": n, "part": "north" if n % 3 else "south"} for n in range(9)],
            create_partitions=True,
            asset_partitions=True,
            outlets=[parts],
        )

    with DAG(
        "of_a_part", schedule=PartitionedAssetTimetable(assets=parts), is_paused_upon_creation=False
    ):

        @task
        def rows_of_part(dag_run: Any) -> list[Any]:
            from fluss_orchestrate.core.lake import read_table

            client, name = FlussHook("fluss_embedded").get_conn(), dag_run.partition_key
            rows = read_table(client, f"{DATABASE}.parts", partition=name)
            return [name, rows.read_all().num_rows]

        rows_of_part()
