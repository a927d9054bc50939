"""Partitions, checkpoints, targets and the decorator: embedded, and on the real cluster."""

from __future__ import annotations

import json
import sqlite3
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from fluss_client import FlussConnection
from fluss_orchestrate import IncrementalScan
from fluss_orchestrate.core.lake.catalog import open_catalog
from fluss_orchestrate.core.loading import load_rows
from fluss_orchestrate.core.provisioning import TableSpec, apply_tables
from tests.airflow_provider.capabilities import has
from tests.airflow_provider.rows import numbered, numbers_spec
from tests.airflow_provider.running import result_of, run, states

pytestmark = pytest.mark.usefixtures("airflow_home")
DATE = datetime(2026, 11, 17, 3, tzinfo=UTC)


def test_partition_windows_and_drops(conn_id: str, client: FlussConnection, database: str) -> None:
    """A partition that a checkpoint has not read stays, and says so; then it may go."""
    from airflow.sdk import DAG

    from fluss_orchestrate.airflow import (
        FlussDropPartitionsOperator,
        FlussPartitionWindowOperator,
    )

    spec = TableSpec.from_mapping(
        {
            "table": f"{database}.days",
            "columns": {"id": "bigint", "day": "string not null"},
            "partition_keys": ["day"],
            "buckets": 1,
            "partitions": [{"day": "20261101"}],
        }
    )
    apply_tables(client, [spec])
    scan = IncrementalScan(client, spec.table, f"days-{database}")
    with scan.run("nothing yet") as empty:
        assert empty.to_arrow().num_rows == 0
    admin = client.get_admin().result()
    table = client.get_table(spec.path).result()
    writer = table.new_append().create_writer()
    writer.append({"id": 1, "day": "20261101"})
    writer.flush()

    def build(name: str) -> Any:
        with DAG(f"{name}_{database}") as dag:
            FlussPartitionWindowOperator(
                task_id="window",
                fluss_conn_id=conn_id,
                table=spec.table,
                unit="day",
                ahead=2,
                retain=7,
            )
            FlussDropPartitionsOperator(
                task_id="drop",
                fluss_conn_id=conn_id,
                table=spec.table,
                partitions={"day": "20261101"},
            )
        return dag

    first = run(build("first"), logical_date=DATE)
    assert states(first) == {"window": "success", "drop": "failed"}
    window = result_of(first, "window")
    assert [p["day"] for p in window["create"]] == ["20261117", "20261118", "20261119"]
    assert f"days-{database}" in window["kept"]["20261101"]

    with scan.run("now") as rest:
        assert rest.to_arrow().num_rows == 1
    second = run(build("second"), logical_date=DATE)
    assert states(second) == {"window": "success", "drop": "success"}
    left = {p.partition_name for p in admin.list_partition_infos(spec.path).result()}
    assert left == {"20261117", "20261118", "20261119"}
    scan.store.retire(f"days-{database}")


def test_targets_resets_and_the_decorator(
    conn_id: str,
    client: FlussConnection,
    database: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from airflow.sdk import DAG, task

    from fluss_orchestrate.airflow import (
        FlussCheckpointResetOperator,
        FlussIncrementalScanOperator,
        FlussTarget,
        IcebergTarget,
        SqlTarget,
    )

    source, copy = numbers_spec(database), numbers_spec(database, "copy")
    apply_tables(client, [source, copy])
    load_rows(client, source.table, numbered(0, 60), "rows")
    url = {"conn_type": "generic", "extra": {"sqlalchemy_url": f"sqlite:///{tmp_path}/sink.db"}}
    monkeypatch.setenv("AIRFLOW_CONN_SQL_SINK", json.dumps(url))
    uri = f"sqlite:///{tmp_path}/catalog.db"
    secret = {"conn_type": "generic", "extra": {"uri": uri}}
    monkeypatch.setenv("AIRFLOW_CONN_CATALOG", json.dumps(secret))
    catalog = {"type": "sql", "warehouse": f"file://{tmp_path}"}
    common = {"fluss_conn_id": conn_id, "table": source.table, "trigger_rule": "all_done"}
    with DAG(f"targets_{database}") as dag:
        to_sql = FlussIncrementalScanOperator(
            task_id="to_sql",
            checkpoint=f"{database}-sql",
            sink=SqlTarget("{{ 'num' }}bers", "sql_sink"),
            **common,
        )
        to_fluss = FlussIncrementalScanOperator(
            task_id="to_fluss",
            checkpoint=f"{database}-fluss",
            sink=FlussTarget(copy.table),
            columns=["id", "word"],
            **common,
        )
        to_iceberg = FlussIncrementalScanOperator(
            task_id="to_iceberg",
            checkpoint=f"{database}-iceberg",
            sink=IcebergTarget("a.numbers", catalog, "catalog"),
            **common,
        )
        reset = FlussCheckpointResetOperator(
            task_id="reset",
            checkpoint=f"{database}-frame",
            to="latest",
            reason="tests",
            create=True,
            **common,
        )

        @task.fluss_scan(checkpoint=f"{database}-frame", rows_as="pandas", **common)
        def after_reset(rows: Any) -> int:
            return len(rows)

        @task.fluss_scan(checkpoint=f"{database}-polars", rows_as="polars", **common)
        def summed(rows: Any, factor: int, ti: Any) -> list[Any]:
            return [int(rows["id"].sum()) * factor, ti.task_id]

        to_sql >> to_fluss >> to_iceberg >> reset >> after_reset() >> summed(2)
    done = run(dag, logical_date=DATE)
    refused = [] if has("sqlalchemy_2") else ["to_sql", "to_iceberg"]
    assert states(done) == dict.fromkeys(dag.task_ids, "success") | dict.fromkeys(refused, "failed")
    assert result_of(done, "to_fluss")["rows"] == 60
    assert result_of(done, "reset")["reason"] == "tests"
    assert result_of(done, "after_reset") == 0
    assert result_of(done, "summed") == [sum(range(60)) * 2, "summed"]
    assert result_of(done, "summed", "fluss_receipt")["rows"] == 60
    if refused:
        return
    with closing(sqlite3.connect(tmp_path / "sink.db")) as sink:
        assert sink.execute("SELECT COUNT(*), COUNT(DISTINCT id) FROM numbers").fetchone() == (
            60,
            60,
        )
    assert result_of(done, "to_iceberg")["rows"] == 60
    held = open_catalog({**catalog, "uri": uri}).load_table("a.numbers").scan().to_arrow()
    assert sorted(held["id"].to_pylist()) == list(range(60))


@pytest.mark.airflow_has("sqlalchemy_2")
def test_a_key_table_in_the_lake(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two rounds of tiering, then maintenance as planned by a dry run."""
    from airflow.sdk import DAG

    from fluss_client import Config
    from fluss_orchestrate.airflow import FlussMaintainLakeOperator, FlussTierToLakeOperator
    from fluss_orchestrate.core.lake import read_table

    address = f"embedded:{tmp_path / 'fluss'}"
    value = {"conn_type": "fluss", "host": address}
    monkeypatch.setenv("AIRFLOW_CONN_FLUSS_KEYS", json.dumps(value))
    spec = numbers_spec("d", primary_key=["id"], lake=True, buckets=1)
    with FlussConnection.create(Config({"bootstrap.servers": address})).result() as client:
        apply_tables(client, [spec])
        with DAG("key_tier") as tiering:
            FlussTierToLakeOperator(
                task_id="tier", fluss_conn_id="fluss_keys", table=spec.table, allow_tiering=True
            )
        for start in (0, 3):
            load_rows(client, spec.table, numbered(start, start + 6), load_id=f"l{start}")
            assert result_of(run(tiering), "tier")["rows"] > 0
        common: dict[str, Any] = {"fluss_conn_id": "fluss_keys", "table": spec.table}
        with DAG("key_care") as care:
            planned = FlussMaintainLakeOperator(task_id="plan", dry_run=True, **common)
            settings = {"snapshot_age_ms": "0", "keep_snapshots": 1}
            planned >> FlussMaintainLakeOperator(task_id="care", settings=settings, **common)
        ended = run(care)
        assert states(ended) == {"plan": "success", "care": "success"}
        done = result_of(ended, "care")
        assert done["files_rewritten"] == result_of(ended, "plan")["files_rewritten"] == 2
        assert done["files_after"] == 1
        rows = read_table(client, spec.table, read="lake").read_all()
        assert sorted(rows.column("id").to_pylist()) == list(range(9))
