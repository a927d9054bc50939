"""The README's DAG, run by Airflow itself; the examples' README names each of them."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow.dataset as ds
import pytest

from fluss_orchestrate import tier_table
from tests.docker.native import run
from tests.docs.pages import ROOT, read_page
from tests.docs.setups import shop


def test_every_example_is_named() -> None:
    text = (ROOT / "dags/README.md").read_text()
    for example in [*(ROOT / "dags").glob("*/*.py"), *(ROOT / "dags").glob("*/*/pyproject.toml")]:
        path = example.parent if example.name == "pyproject.toml" else example
        assert f"({path.relative_to(ROOT / 'dags')})" in text


@pytest.mark.long
@pytest.mark.timeout(400)
def test_airflow_runs_the_readmes_dag(tmp_path: Path, request: pytest.FixtureRequest) -> None:
    (program,) = [b.code for b in read_page("README.md").blocks if "airflow.sdk" in b.code]
    dags = tmp_path / "dags"
    dags.mkdir()
    (dags / "shop.py").write_text(program.replace("/data/events", str(tmp_path / "events")))
    address = f"embedded:{tmp_path / 'fluss'}"
    connection = {"conn_type": "fluss", "host": address, "extra": {"cluster_alias": "shop"}}
    environment = {
        "AIRFLOW_HOME": str(tmp_path / "airflow"),
        "AIRFLOW__CORE__DAGS_FOLDER": str(dags),
        "AIRFLOW__CORE__LOAD_EXAMPLES": "false",
        "AIRFLOW_CONN_FLUSS_DEFAULT": json.dumps(connection),
    }
    with shop(tmp_path, request) as setup, setup.names["connection"] as client:
        tier_table(client, "sales.events", allow_tiering=True)
    run(["airflow", "db", "migrate"], environment, tmp_path)
    run(["airflow", "dags", "test", "shop"], environment, tmp_path)
    assert ds.dataset(tmp_path / "events", format="parquet").count_rows() == 1000
