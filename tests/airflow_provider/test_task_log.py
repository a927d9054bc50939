"""What tasks say of their work, what they publish, and the links, checks and decisions."""

from __future__ import annotations

import json
import logging
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from fluss_client import FlussConnection, TablePath
from fluss_orchestrate import IncrementalScan
from fluss_orchestrate.airflow.receipts import ENTRIES_MAX, SUMMARY_KEY, receipt_from
from fluss_orchestrate.core.checkpoints import FlussCheckpointStore, get_state, set_state
from fluss_orchestrate.core.loading import load_rows
from fluss_orchestrate.core.provisioning import TableSpec, apply_tables
from tests.airflow_provider.capabilities import has
from tests.airflow_provider.rows import numbered, numbers_spec
from tests.airflow_provider.running import result_of, run, states
from tests.waiting import scaled

pytestmark = pytest.mark.usefixtures("airflow_home")


def test_a_sink_that_is_none_fails_as_the_dag_is_parsed() -> None:
    from fluss_orchestrate.airflow import FlussIncrementalScanOperator

    for wrong in (None, "a/path", 3):
        with pytest.raises(TypeError, match="sink is a target or a function, not"):
            FlussIncrementalScanOperator(
                task_id="scan",
                table="a.b",
                checkpoint="c",
                sink=wrong,  # type: ignore[arg-type]
            )


def test_progress_is_logged_at_growing_intervals(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    from fluss_orchestrate.airflow import task_log
    from fluss_orchestrate.core.incremental.reading.reader import ScanProgress

    now = [0.0]
    monkeypatch.setattr(task_log.time, "monotonic", lambda: now[0])
    progress = task_log.Progress(logging.getLogger("task"), "read")
    with caplog.at_level(logging.INFO, "task"):
        for second in range(600):
            now[0] = float(second)
            progress.scanned(ScanProgress(second * 10, second * 1024, second, 600))
    said = [record.getMessage() for record in caplog.records]
    assert said[0] == (
        "read 50 rows and 5.0 KiB in 5.0 s (10 rows/s, 1.0 KiB/s), 5 of 600 offsets (1%)"
    )
    assert len(said) < 15


def test_receipts_of_many_partitions_stay_small_and_can_be_used(
    conn_id: str, client: FlussConnection, database: str, tmp_path: Path, long_form: bool
) -> None:
    """The sensor and the scan that get a summarised receipt read the whole one from the store."""
    from airflow.models.asset import AssetEvent
    from airflow.sdk import DAG
    from airflow.utils.session import create_session
    from sqlalchemy import select

    from fluss_orchestrate.airflow import (
        FlussIncrementalScanOperator,
        FlussOffsetSensor,
        FlussWriteOperator,
        ParquetTarget,
        fluss_table_asset,
    )

    parts = 900 if long_form else ENTRIES_MAX + 10
    spec = TableSpec.from_mapping(
        {
            "table": f"{database}.many",
            "columns": {"id": "bigint", "part": "string not null"},
            "partition_keys": ["part"],
            "buckets": 1,
        }
    )
    apply_tables(client, [spec])
    rows = [{"id": n, "part": f"p{n}"} for n in range(parts)]
    common: dict[str, Any] = {"fluss_conn_id": conn_id, "table": spec.table}
    with DAG(f"many_{database}", render_template_as_native_obj=True) as dag:
        write = FlussWriteOperator(
            task_id="write",
            rows=rows,
            create_partitions=True,
            outlets=[fluss_table_asset(spec.table)],
            **common,
        )
        wait = FlussOffsetSensor(
            task_id="wait", offsets="{{ ti.xcom_pull('write') }}", timeout=scaled(30), **common
        )
        scan = FlussIncrementalScanOperator(
            task_id="scan",
            checkpoint=f"{database}-many",
            sink=ParquetTarget(str(tmp_path / "out")),
            until="{{ ti.xcom_pull('write') }}",
            **common,
        )
        write >> wait >> scan
    done = run(dag)
    assert set(states(done).values()) == {"success"}, states(done)
    with create_session() as session:
        extras = session.scalars(
            select(AssetEvent.extra).where(AssetEvent.source_run_id == done.run_id)
        ).all()
    assert [len(json.dumps(extra)) < 4_000 for extra in extras] == [True]
    for task_id in ("write", "scan"):
        found = result_of(done, task_id)
        assert found["rows"] == parts
        assert found[SUMMARY_KEY]["ranges"] == parts
        assert len(json.dumps(found)) < 4_000
        assert len(receipt_from(found, client).ranges) == parts
    from fluss_client.errors import ConfigError

    with pytest.raises(ConfigError, match="too many ranges for XCom"):
        receipt_from(result_of(done, "write"))
    assert result_of(done, "wait")["rows"] == 0
    FlussCheckpointStore(client).retire(f"{database}-many")


def test_checks_decisions_transfers_and_the_notifier(
    conn_id: str,
    client: FlussConnection,
    database: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from airflow.sdk import DAG

    from fluss_orchestrate.airflow import (
        FlussCheckpointAbandonOperator,
        FlussCheckpointRetireOperator,
        FlussFreshnessCheckOperator,
        FlussHook,
        FlussLagCheckOperator,
        FlussLagNotifier,
        FlussRowCountCheckOperator,
        FlussToIcebergOperator,
        FlussToSqlOperator,
    )

    keyed = TableSpec.from_mapping(
        {
            "table": f"{database}.keyed",
            "columns": {"id": "bigint not null", "word": "string"},
            "primary_key": ["id"],
            "buckets": 2,
        }
    )
    log = numbers_spec(database, buckets=2)
    apply_tables(client, [keyed, log])
    load_rows(client, log.table, numbered(0, 60), "rows")
    import pyarrow as pa

    words = pa.table({"id": [1, 2, 3, 3], "word": ["a", "b", "c", "d"]})
    load_rows(client, keyed.table, words, "words")
    scan = IncrementalScan(client, log.table, f"{database}-behind")
    scan.reset("earliest")
    plan = scan.plan("a run that never ends", max_offsets=10)
    url = {"conn_type": "generic", "extra": {"sqlalchemy_url": f"sqlite:///{tmp_path}/sink.db"}}
    monkeypatch.setenv("AIRFLOW_CONN_SQL_SINK", json.dumps(url))
    catalog = {
        "type": "sql",
        "uri": f"sqlite:///{tmp_path}/catalog.db",
        "warehouse": f"file://{tmp_path}",
    }
    sent: list[str] = []
    behind = {"checkpoint": f"{database}-behind"}
    common = {"fluss_conn_id": conn_id}
    with DAG(f"checks_{database}", default_args=common) as dag:
        FlussFreshnessCheckOperator(
            task_id="fresh",
            table=log.table,
            max_age=timedelta(hours=1),
            on_success_callback=FlussLagNotifier(
                **behind, **common, max_offsets=5, send=lambda text, context: sent.append(text)
            ),
        )
        FlussLagCheckOperator(task_id="lag", max_offsets=100, max_age=3600, **behind)
        FlussLagCheckOperator(task_id="late", max_offsets=5, **behind)
        FlussLagCheckOperator(task_id="expiring", min_time_left=timedelta(days=900), **behind)
        FlussRowCountCheckOperator(task_id="rows", table=log.table, min_rows=60, max_rows=60)
        FlussRowCountCheckOperator(
            task_id="where", table=log.table, where="id >= 50", min_rows=10, max_rows=10
        )
        FlussRowCountCheckOperator(
            task_id="keys", table=keyed.table, where="word = 'd'", min_rows=1, max_rows=1
        )
        FlussRowCountCheckOperator(
            task_id="no_rows", table=keyed.table, where="word = 'c'", min_rows=1
        )
        to_iceberg = FlussToIcebergOperator(
            task_id="iceberg",
            table=log.table,
            checkpoint=f"{database}-iceberg",
            iceberg_table="a.numbers",
            catalog=catalog,
        )
        to_sql = FlussToSqlOperator(
            task_id="sql",
            table=log.table,
            checkpoint=f"{database}-sql",
            sql_table="numbers",
            sql_conn_id="sql_sink",
        )
        abandon = FlussCheckpointAbandonOperator(task_id="abandon", reason="tests", **behind)
        retire = FlussCheckpointRetireOperator(task_id="retire", **behind)
        dag.get_task("late") >> to_iceberg >> to_sql
        to_sql.trigger_rule = to_iceberg.trigger_rule = "all_done"
        to_sql >> abandon >> retire
    done = run(dag)
    found = states(done)
    refused = set() if has("sqlalchemy_2") else {"iceberg", "sql"}
    failed = {"late", "expiring", "no_rows"} | refused
    assert {task_id for task_id, state in found.items() if state == "failed"} == failed
    assert set(found.values()) == {"success", "failed"}
    assert result_of(done, "lag")["offsets"] == 60
    for name in {"iceberg", "sql"} - refused:
        assert result_of(done, name)["rows"] == 60
    assert result_of(done, "abandon")["abandoned"] == plan.plan_id
    assert FlussCheckpointStore(client).require(f"{database}-behind").state.retired
    assert len(sent) == 1
    assert "it is 60 offsets behind, more than 5" in sent[0]
    hook = FlussHook(conn_id)
    assert sorted(hook.list_tables(database)) == ["keyed", log.path.table_name]
    assert hook.table_exists(keyed.table)
    assert not hook.table_exists(f"{database}.nothing")
    assert hook.get_table_schema(keyed.table).names == ["id", "word"]


def test_state_that_the_cluster_keeps_for_older_releases(
    conn_id: str, client: FlussConnection, database: str
) -> None:
    """The newest value counts, however many there were."""
    name = f"{database}/some/run"
    assert get_state(client, name) is None
    for number in range(40):
        set_state(client, name, {"number": number})
        assert get_state(client, name) == {"number": number}
    assert get_state(client, f"{name}/other") is None
    admin = client.get_admin().result()
    assert admin.table_exists(TablePath("fluss_orchestrate", "scheduler_state")).result()
