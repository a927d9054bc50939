"""Spark as a step: bulk loads once, Pipes with metrics and secrets apart, killed whole."""

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import dagster as dg
import pyarrow.parquet as pq
import pytest

from fluss_client import FlussConnection, TablePath
from fluss_orchestrate.core.spark_submit.environment import java_home
from fluss_orchestrate.core.spark_submit.load_spec import files
from fluss_orchestrate.core.spark_submit.submit import SparkSubmit
from fluss_orchestrate.dagster import FlussResource, PipesFlussSparkClient
from tests.dagster_integration.tables import log_ids, make_table, orders
from tests.waiting import scaled, wait_until

SCRIPT = Path(__file__).with_name("scripts") / "count_rows.py"
LOCAL = SparkSubmit(master="local[2]", conf={"spark.ui.enabled": "false"})


@pytest.mark.long
@pytest.mark.timeout(500)
def test_a_bulk_load_that_is_tried_again(
    fluss: FlussResource, connection: FlussConnection, database: str, tmp_path: Path
) -> None:
    path = make_table(connection, TablePath(database, "loaded"))
    for part in range(3):
        pq.write_table(orders(1_000, part * 1_000), tmp_path / f"{part}.parquet")
    tries: list[int] = []

    @dg.asset(retry_policy=dg.RetryPolicy(max_retries=1))
    def loaded(context: dg.AssetExecutionContext, fluss: FlussResource) -> dg.MaterializeResult:
        source = files("parquet", str(tmp_path))
        done = fluss.bulk_load(context, source, str(path), submit=LOCAL, timeout_s=scaled(200))
        tries.append(1)
        if len(tries) == 1:
            raise RuntimeError("after the load")
        return done

    result = dg.materialize([loaded], resources={"fluss": fluss})
    [event] = result.asset_materializations_for_node("loaded")
    assert event.metadata["fluss/rows"].value == 3_000
    assert event.metadata["fluss/spark_master"].value == "local[2]"
    assert len(tries) == 2
    assert log_ids(connection, path) == list(range(3_000))


@pytest.mark.long
@pytest.mark.timeout(300)
def test_a_script_reports_through_pipes() -> None:
    fluss = FlussResource(
        bootstrap_servers="localhost:1",
        cluster_alias="prod",
        sasl_username="u",
        sasl_password="wolpertinger",
    )

    @dg.asset
    def counted(
        context: dg.AssetExecutionContext,
        fluss: FlussResource,
        spark: dg.ResourceParam[PipesFlussSparkClient],
    ) -> Any:
        return spark.run(
            context=context, application=str(SCRIPT), fluss=fluss, extras={"count": 77}
        ).get_results()

    resources = {"fluss": fluss, "spark": PipesFlussSparkClient(LOCAL)}
    result = dg.materialize([counted], resources=resources)
    [event] = result.asset_materializations_for_node("counted")
    assert event.metadata["rows"].value == 77
    assert event.metadata["alias"].value == "prod"
    assert event.metadata["has_secret"].value is True
    assert str(event.metadata["application"].value).startswith("local-")
    assert event.metadata["fluss/spark_master"].value == "local[2]"
    assert event.tags is not None
    assert event.tags["dagster/data_version"] == "one"


@pytest.mark.long
@pytest.mark.timeout(300)
def test_a_script_that_fails_says_so(tmp_path: Path) -> None:
    script = tmp_path / "broken.py"
    script.write_text("raise SystemExit('error: no good')")
    client = PipesFlussSparkClient(LOCAL)

    @dg.asset
    def broken(context: dg.AssetExecutionContext) -> Any:
        return client.run(context=context, application=str(script)).get_results()

    with pytest.raises(dg.Failure, match=r"broken.py on local\[2\] ended with 1: .*no good"):
        dg.materialize([broken])


CANCELLED = """
import sys, threading, os, signal, time
from pathlib import Path
import dagster as dg
from fluss_orchestrate.dagster import PipesFlussSparkClient
from fluss_orchestrate.core.spark_submit.environment import java_home
from fluss_orchestrate.core.spark_submit.submit import SparkSubmit

script, mark = sys.argv[1], sys.argv[2]
client = PipesFlussSparkClient(SparkSubmit(master="local[2]", conf={"spark.ui.enabled": "false"}))

@dg.asset
def waits(context: dg.AssetExecutionContext):
    return client.run(context=context, application=script, arguments=["--wait", mark]).get_results()

def interrupt():
    while not Path(mark).exists() or not Path(mark).read_text():
        time.sleep(0.2)
    os.kill(os.getpid(), signal.SIGTERM)

threading.Thread(target=interrupt, daemon=True).start()
dg.materialize([waits])
"""


@pytest.mark.long
@pytest.mark.timeout(300)
def test_a_cancelled_run_leaves_no_process(tmp_path: Path) -> None:
    program, mark = tmp_path / "cancelled.py", tmp_path / "pids"
    program.write_text(CANCELLED)
    own = {**os.environ, "DAGSTER_DISABLE_TELEMETRY": "1"}
    command = [sys.executable, str(program), str(SCRIPT), str(mark)]
    done = subprocess.run(command, env=own, capture_output=True, text=True, check=False)
    assert done.returncode != 0
    driver, worker = (int(pid) for pid in mark.read_text().split())
    places = [Path(f"/proc/{pid}") for pid in (driver, worker)]
    wait_until(
        "the end of both",
        lambda: not any(place.exists() for place in places),
        details=lambda: done.stderr[-2000:],
    )


FRAMES = """
import sys
import dagster as dg
from pyspark.sql import DataFrame, SparkSession
from fluss_orchestrate.dagster import FlussIOManager, FlussResource, close_connections

kind, address, database = sys.argv[1:]
builder = SparkSession.builder.config("spark.ui.enabled", "false")
builder = builder.remote("local[2]") if kind == "connect" else builder.master("local[2]")
spark = builder.getOrCreate()
seen = []

@dg.asset(key=[database, kind])
def stored():
    return spark.createDataFrame([(i, f"item-{i}") for i in range(50)], "id long, item string")

@dg.asset(ins={"frame": dg.AssetIn([database, kind])})
def used(frame: DataFrame) -> None:
    assert kind in type(frame).__module__, type(frame)
    seen.append(sorted(row["id"] for row in frame.collect()))

fluss = FlussResource(bootstrap_servers=address)
dg.materialize([stored, used], resources={"io_manager": FlussIOManager(fluss=fluss)})
assert seen == [list(range(50))]
spark.stop()
close_connections()
"""


@pytest.mark.long
@pytest.mark.timeout(400)
@pytest.mark.parametrize("kind", ["classic", "connect"])
def test_frames_of_spark(
    kind: str, fluss_address: str, connection: FlussConnection, database: str, tmp_path: Path
) -> None:
    program = tmp_path / "frames.py"
    program.write_text(FRAMES)
    own = {**os.environ, "DAGSTER_DISABLE_TELEMETRY": "1", "JAVA_HOME": java_home()}
    command = [sys.executable, str(program), kind, fluss_address, database]
    done = subprocess.run(
        command, env=own, cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr[-3000:]
    assert log_ids(connection, TablePath(database, kind)) == list(range(50))
