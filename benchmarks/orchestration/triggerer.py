"""`python -m benchmarks.orchestration.triggerer ADDRESS HOME SENSORS WATCH_S WAKES TABLE ...`

Sensors that are deferred in a real Airflow: its metadata database, its triggerer process. They
wait for rows of the tables in turn. Requests are counted on the lines between.
"""

from __future__ import annotations

import itertools
import json
import os
import statistics
import sys
import time
from contextlib import closing
from pathlib import Path

import pyarrow as pa

from benchmarks.orchestration.data import POLL_INTERVAL_S
from benchmarks.place import connected
from fluss_client import FlussConnection, OffsetSpec, TablePath
from tests.airflow_provider.triggerer import Triggerer, defer, until, woken
from tests.fix_proxy import FaultyLines

START_MAX_S = 900.0
WAKE_MAX_S = 60.0
SETTINGS = {
    "AIRFLOW__CORE__LOAD_EXAMPLES": "False",
    "AIRFLOW__LOGGING__LOGGING_LEVEL": "WARNING",
    "AIRFLOW__OPENLINEAGE__DISABLED": "True",
}


def main() -> None:
    address, home, sensors, watch_s, wakes, *tables = sys.argv[1:]
    with (
        closing(FaultyLines(address)) as lines,
        connected(address) as writer,
    ):
        connection = {"conn_type": "fluss", "host": lines.bootstrap_servers}
        os.environ.update(SETTINGS, AIRFLOW_HOME=home, AIRFLOW_CONN_BENCH=json.dumps(connection))
        paths = [TablePath.parse(table) for table in tables]
        found = measure(writer, lines, Path(home), paths, int(sensors), float(watch_s), int(wakes))
    print(json.dumps(found))


def measure(
    writer: FlussConnection,
    lines: FaultyLines,
    home: Path,
    tables: list[TablePath],
    sensors: int,
    watch_s: float,
    wakes: int,
) -> dict[str, float]:
    """CPU of the triggerer's runner, requests per second, and milliseconds until all are awake."""
    # Airflow reads its settings as it is imported.
    from airflow.sdk import DAG
    from airflow.utils import db

    from fluss_orchestrate.airflow import FlussConditionTrigger, FlussOffsetSensor
    from fluss_orchestrate.core.conditions import RowsCame

    db.initdb()
    with DAG("crowd") as dag:
        FlussOffsetSensor(task_id="wait", table=str(tables[0]), fluss_conn_id="bench")
    *watched, last = tables
    places = [*itertools.islice(itertools.cycle(watched), sensors), last]
    ends = {path: {(None, 0): _end(writer, path)} for path in tables}
    triggers = [
        FlussConditionTrigger(
            fluss_conn_id="bench",
            condition=RowsCame(path, ends[path], None, 1).to_json(),
            poll_interval=POLL_INTERVAL_S,
        )
        for path in places
    ]
    run_id = defer(dag, "wait", triggers)
    awake = 0

    def wake(path: TablePath, wait_s: float = WAKE_MAX_S) -> float:
        nonlocal awake
        awake += places.count(path)
        _append(writer, path)
        started = time.monotonic()
        until("wake-up", lambda: len(woken("crowd", run_id)) == awake, triggerer, wait_s)
        return (time.monotonic() - started) * 1000

    with Triggerer(home / "triggerer.log", capacity=sensors + 100) as triggerer:
        # The sensor that was deferred last is awake: all have been started.
        wake(last, START_MAX_S)
        runner = triggerer.runner()
        before, asked = sum(runner.cpu_times()[:2]), _requests(lines)
        time.sleep(watch_s)
        cpu = (sum(runner.cpu_times()[:2]) - before) / watch_s * 100
        requests = (_requests(lines) - asked) / watch_s
        woke = [wake(path) for path in watched[: min(wakes, sensors)]]
    return {"cpu": cpu, "requests/s": requests, "wake-up ms": statistics.median(woke)}


def _end(writer: FlussConnection, path: TablePath) -> int:
    admin = writer.get_admin().result()
    return int(admin.list_offsets(path, [0], OffsetSpec.latest()).result()[0])


def _append(writer: FlussConnection, path: TablePath) -> None:
    with writer.get_table(path).result().new_append().create_writer() as rows:
        rows.write_arrow_batch(pa.record_batch({"id": pa.array([0], pa.int64())}))


def _requests(lines: FaultyLines) -> int:
    return sum(len(calls) for calls in lines.histories)


if __name__ == "__main__":
    main()
