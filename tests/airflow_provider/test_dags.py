"""The DAGs that the docs show, as a DAG processor loads them: embedded, and on the real cluster."""

from __future__ import annotations

import json
import os
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from fluss_client import FlussConnection
from fluss_orchestrate.airflow import receipt_from
from fluss_orchestrate.core.lake.catalog import open_catalog
from tests.airflow_provider.capabilities import has
from tests.airflow_provider.running import DAGS, load_dags, result_of, run, states

pytestmark = pytest.mark.usefixtures("airflow_home")
NEEDS_LAKE = pytest.mark.airflow_has("sqlalchemy_2")
HOUR = datetime(2026, 11, 17, 3, tzinfo=UTC)


@pytest.fixture
def shop(
    conn_id: str, database: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> dict[str, Any]:
    """The DAGs with the default connection, on this test's database."""
    monkeypatch.setenv("AIRFLOW_CONN_FLUSS_DEFAULT", os.environ[f"AIRFLOW_CONN_{conn_id.upper()}"])
    monkeypatch.setenv("SHOP_DATABASE", database)
    monkeypatch.setenv("SHOP_OUTPUT", str(tmp_path))
    return load_dags()


def success(dag: Any, **given: Any) -> Any:
    done = run(dag, **given)
    assert set(states(done).values()) == {"success"}, states(done)
    return done


def test_provision_write_and_take_increments(
    shop: dict[str, Any], client: FlussConnection, database: str, tmp_path: Path
) -> None:
    from airflow.models.asset import AssetEvent
    from airflow.utils.session import create_session
    from sqlalchemy import select

    def hourly(hour: int) -> None:
        done = states(run(shop["shop_hourly"], logical_date=HOUR.replace(hour=hour)))
        iceberg = "success" if has("sqlalchemy_2") else "failed"
        assert done == {"to_parquet": "success", "to_iceberg": iceberg}

    success(shop["shop_provisioning"], logical_date=HOUR)
    assert result_of(success(shop["shop_provisioning"]), "tables")["changes"] == []
    written = success(shop["shop_orders"], logical_date=HOUR)
    hourly(3)
    success(shop["shop_orders"], logical_date=HOUR.replace(hour=4))
    hourly(4)
    hourly(4)

    ids = pq.read_table(tmp_path / "orders").column("order_id").to_pylist()
    assert (len(ids), len(set(ids))) == (200, 200)
    if has("sqlalchemy_2"):
        catalog = open_catalog({"type": "sql", "uri": f"sqlite:///{tmp_path}/catalog.db"})
        assert catalog.load_table("analytics.orders").scan().to_arrow().num_rows == 200

    totals = success(shop["shop_totals"])
    assert result_of(totals, "totals") == {"north": "5000.00", "south": "4900.00"}
    receipt = result_of(totals, "totals", "fluss_receipt")
    assert receipt["rows"] == 200

    with create_session() as session:
        extra = session.scalars(
            select(AssetEvent.extra).where(
                AssetEvent.source_dag_id == written.dag_id,
                AssetEvent.source_run_id == written.run_id,
            )
        ).first()
    assert extra is not None
    assert receipt_from(extra).rows == 100
    assert receipt_from(json.dumps(extra)).table == receipt_from(extra).table


@NEEDS_LAKE
def test_wait_for_the_lake_then_query_it(
    airflow_home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    value = {"conn_type": "fluss", "host": f"embedded:{tmp_path / 'fluss'}"}
    _lake_dag(value, f"lake_{os.getpid()}", monkeypatch)


@NEEDS_LAKE
def test_wait_for_a_real_lake_then_query_it(
    lake_cluster: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    value = {"conn_type": "fluss", "host": str(lake_cluster.info.bootstrap_servers)}
    _lake_dag(value, f"lake_real_{os.getpid()}", monkeypatch)


def _lake_dag(connection: dict[str, str], database: str, monkeypatch: pytest.MonkeyPatch) -> None:
    from fluss_orchestrate.airflow import FlussHook

    monkeypatch.setenv("AIRFLOW_CONN_FLUSS_DEFAULT", json.dumps(connection))
    monkeypatch.setenv("SHOP_DATABASE", database)
    try:
        done = success(load_dags()["shop_lake"], logical_date=HOUR)
        assert result_of(done, "count") == 50
        assert result_of(done, "tier", "fluss_lake_table")
    finally:
        admin = FlussHook().get_conn().get_admin().result()
        admin.drop_database(database, ignore_if_not_exists=True, cascade=True).result()


def test_dags_of_dagster_are_left_alone(airflow_home: Path) -> None:
    assert "dagster/" in (DAGS / ".airflowignore").read_text().split()
