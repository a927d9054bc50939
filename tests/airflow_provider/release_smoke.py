"""A smoke test of the provider on whatever release of Airflow runs this file.

    python -m tests.airflow_provider.release_smoke DIRECTORY

It needs Airflow and the base of this project, nothing of the test environment, so that it runs in
environments that hold another release. It prints one line of JSON: the release, what it lacks, and
what was found. Everything runs on an embedded directory: tables, writes, increments, a sensor
that pokes and one that is deferred, retries, clears, the decorator, a watcher with its cursor.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
import warnings
from pathlib import Path
from typing import Any

from tests.airflow_provider.running import new_bag, store
from tests.waiting import let_pass_async, scaled

ROWS = 50


def settings(home: Path) -> dict[str, str]:
    """The environment of an Airflow of its own."""
    return {
        "AIRFLOW_HOME": str(home),
        "AIRFLOW__CORE__DAGS_FOLDER": str(home / "dags"),
        "AIRFLOW__CORE__LOAD_EXAMPLES": "False",
        "AIRFLOW__CORE__UNIT_TEST_MODE": "False",
        "AIRFLOW__CORE__MIN_SERIALIZED_DAG_UPDATE_INTERVAL": "0",
        "AIRFLOW__LOGGING__LOGGING_LEVEL": "WARNING",
        "AIRFLOW__FLUSS__POLL_INTERVAL": "0.2",
        "AIRFLOW_CONN_FLUSS_DEFAULT": json.dumps(
            {"conn_type": "fluss", "host": f"embedded:{home / 'fluss'}"}
        ),
    }


def smoke(home: Path) -> dict[str, Any]:
    """Run all of it; what was found."""
    import airflow

    from fluss_orchestrate.airflow.version_compat import CAPABILITIES

    found: dict[str, Any] = {"airflow": airflow.__version__}
    found["lacks"] = sorted(name for name, has in vars(CAPABILITIES).items() if not has)
    import fluss_orchestrate.airflow as provider

    for name in provider.__all__:
        getattr(provider, name)
    found["names"] = len(provider.__all__)
    _check_partitions(CAPABILITIES.asset_partitions)
    run = _dag(home).test()
    states = {ti.task_id: str(ti.state) for ti in run.get_task_instances()}
    found["states"] = states
    assert set(states.values()) == {"success"}, states
    written = [line for path in (home / "out").rglob("*.parquet") for line in _ids(path)]
    assert sorted(written) == list(range(ROWS)), len(written)
    found["rows"] = len(written)
    found["watched"] = asyncio.run(_watch())
    return found


def _check_partitions(has: bool) -> None:
    """Where tasks cannot name partitions of assets, `asset_partitions=True` says so."""
    from fluss_client.errors import ConfigError
    from fluss_orchestrate.airflow.receipts import check_asset_partitions

    said = ""
    try:
        check_asset_partitions("write")
    except ConfigError as error:
        said = str(error)
    assert has is not ("needs Airflow 3.3" in said), said


def _ids(path: Path) -> list[int]:
    import pyarrow.parquet as pq

    ids: list[int] = pq.read_table(path)["id"].to_pylist()
    return ids


def _dag(home: Path) -> Any:
    """The DAG of the file that Airflow finds: older releases run no other."""
    from airflow.utils import db

    (home / "dags").mkdir(parents=True, exist_ok=True)
    (home / "dags" / "smoke.py").write_text(DAG_FILE.format(rows=ROWS, out=str(home / "out")))
    db.initdb()
    bag = new_bag(home / "dags")
    assert bag.import_errors == {}, bag.import_errors
    store(bag)
    return bag.dags["smoke"]


async def _watch() -> list[int]:
    """Rows that two watchers report, the second of which goes on at the cursor of the first."""
    from fluss_orchestrate.airflow import FlussHook, FlussOffsetTrigger
    from fluss_orchestrate.airflow.triggers import producing
    from fluss_orchestrate.airflow.version_compat import CAPABILITIES
    from fluss_orchestrate.core.loading import load_rows

    if CAPABILITIES.acknowledged_streams:
        return []  # needs a triggerer; the other tests run one
    producing.ADVANCE_DELAY_S = 0.0
    client = FlussHook().get_conn()
    counts = []
    for number in range(2):
        name, arguments = FlussOffsetTrigger(table="smoke.numbers", start="earliest").serialize()
        assert name.endswith(".FlussOffsetTrigger")
        events = FlussOffsetTrigger(**arguments).run()
        event: Any = await asyncio.wait_for(anext(events), scaled(60))
        counts.append(event.payload["rows"])
        # The cursor is kept as the watcher goes on.
        going_on = asyncio.ensure_future(anext(events))
        await let_pass_async(1.0, "when the cursor is kept shows nowhere")
        going_on.cancel()
        import pyarrow as pa

        more = pa.table({"id": pa.array(range(7), pa.int64())})
        await asyncio.to_thread(load_rows, client, "smoke.numbers", more, f"more {number}")
    assert counts == [ROWS, 7], counts
    return counts


DAG_FILE = """
from datetime import datetime
from airflow.sdk import DAG, task
from fluss_orchestrate.airflow import (
    FlussCreateDatabaseOperator, FlussIncrementalScanOperator, FlussOffsetSensor,
    FlussProvisionTablesOperator, FlussRowCountCheckOperator, FlussTableSensor,
    FlussWriteOperator, ParquetTarget, fluss_table_asset,
)

with DAG("smoke", schedule=None, start_date=datetime(2026, 1, 1)) as dag:
    database = FlussCreateDatabaseOperator(task_id="database", database="smoke")
    tables = FlussProvisionTablesOperator(
        task_id="tables",
        specs={{"table": "smoke.numbers", "columns": {{"id": "bigint"}}, "buckets": 1}},
    )
    exists = FlussTableSensor(task_id="exists", table="smoke.numbers", timeout=600)
    write = FlussWriteOperator(
        task_id="write",
        table="smoke.numbers",
        rows=[{{"id": n}} for n in range({rows})],
        outlets=[fluss_table_asset("smoke.numbers")],
    )
    deferred = FlussOffsetSensor(
        task_id="deferred", table="smoke.numbers", start="earliest", min_offsets={rows},
        deferrable=True, timeout=600,
    )
    scan = FlussIncrementalScanOperator(
        task_id="scan", table="smoke.numbers", checkpoint="smoke-scan", sink=ParquetTarget({out!r})
    )
    check = FlussRowCountCheckOperator(
        task_id="check", table="smoke.numbers", min_rows={rows}, max_rows={rows}
    )

    @task.fluss_scan(table="smoke.numbers", checkpoint="smoke-function", rows_as="arrow")
    def counted(rows):
        return rows.num_rows

    database >> tables >> exists >> write >> deferred >> scan >> check >> counted()
"""


if __name__ == "__main__":
    directory = Path(sys.argv[1])
    os.environ.update(settings(directory))
    warnings.simplefilter("ignore")
    print(json.dumps(smoke(directory)))
