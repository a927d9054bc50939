"""The demo runs, its report opens in a browser, and its proof can fail."""

from __future__ import annotations

import os
import sqlite3
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from fluss_orchestrate._demo.__main__ import ROUNDS
from fluss_orchestrate._demo.report import prove
from tests.needs import chromium
from tests.waiting import patient

DEMO_TIMEOUT_S = 900
OTHER_AIRFLOW = {
    "AIRFLOW__DATABASE__SQL_ALCHEMY_CONN": "sqlite:////no_such_folder/airflow.db",
    "AIRFLOW__LOGGING__LOGGING_LEVEL": "ERROR",
}
"""Settings of an Airflow that the demo must leave alone."""


@pytest.fixture(scope="module")
def orders_per_round(long_form: bool) -> int:
    """As many as `make demo` has, or few: what takes time is starting Spark, Airflow, Dagster."""
    return 40_000 if long_form else 200


@pytest.fixture(scope="module")
def demo(
    tmp_path_factory: pytest.TempPathFactory, orders_per_round: int
) -> tuple[subprocess.CompletedProcess[str], Path]:
    """One run of all of it in an empty home, and its folder."""
    folder, home = tmp_path_factory.mktemp("demo") / "shop", tmp_path_factory.mktemp("home")
    command = [sys.executable, "-m", "fluss_orchestrate._demo", "--rows", str(orders_per_round)]
    done = subprocess.run(
        [*command, "--keep", str(folder)],
        env={**os.environ, **OTHER_AIRFLOW, "HOME": str(home)},
        capture_output=True,
        text=True,
        check=False,
    )
    return done, folder


@pytest.mark.timeout(DEMO_TIMEOUT_S)
def test_the_demo_ends_with_every_row_once(
    demo: tuple[subprocess.CompletedProcess[str], Path], orders_per_round: int
) -> None:
    done, folder = demo
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.rstrip().endswith("every row exactly once")
    assert done.stdout.count("gone at") == 2
    found = [pq.read_metadata(file).num_rows for file in folder.glob("analytics/**/*.parquet")]
    orders = orders_per_round * 5
    assert sum(found) == orders * 4, "orders and three lines each"
    assert "SQL table (mirror)" in (folder / "report.html").read_text()
    log = "".join(file.read_text() for file in folder.glob("logs/airflow_round-*.log"))
    assert "check_customers" in log
    with sqlite3.connect(folder / "airflow" / "airflow.db") as airflow:
        query = "SELECT state FROM task_instance WHERE task_id = 'check_customers'"
        assert airflow.execute(query).fetchall() == [("success",)] * ROUNDS
    with sqlite3.connect(folder / "analytics" / "warehouse.db") as warehouse:
        assert warehouse.execute("SELECT count(*) FROM customers").fetchone()[0] > 100


@pytest.mark.timeout(DEMO_TIMEOUT_S)
def test_the_report_shows_its_charts_without_network(
    demo: tuple[subprocess.CompletedProcess[str], Path], tmp_path: Path
) -> None:
    from playwright.sync_api import sync_playwright

    _, folder = demo
    with sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=chromium(), args=["--no-sandbox"])
        context = browser.new_context(offline=True)
        page = patient(context.new_page())
        problems: list[str] = []
        page.on("console", lambda message: problems.append(message.text))
        page.on("requestfailed", lambda request: problems.append(request.url))
        page.goto((folder / "report.html").as_uri())
        assert page.locator(".verdict").inner_text() == "every row exactly once"
        assert page.locator("figcaption").all_inner_texts() == [
            "Rows per round",
            "Offsets of the orders over time",
            "Lag over time, in rows",
            "Lake freshness: seconds behind the log",
            "Where time went",
        ]
        for chart in page.locator("svg").all():
            box = chart.bounding_box()
            assert box is not None
            assert box["width"] > 300
            assert box["height"] > 50
        assert page.locator("svg rect").count() > 10
        assert page.locator("svg polyline").count() == 7
        page.screenshot(path=tmp_path / "report.png", full_page=True)
        browser.close()
    assert problems == []


def write_ids(folder: Path, name: str, ids: list[int]) -> str:
    file = folder / name
    pq.write_table(pa.table({"order_id": pa.array(ids, pa.int64())}), file)
    return file.as_uri()


def test_the_proof_sees_missing_and_doubled_rows(tmp_path: Path) -> None:
    good = [write_ids(tmp_path, "a", [0, 1]), write_ids(tmp_path, "b c", [2, 3])]
    assert prove("here", good, "order_id", 4).holds
    lost = prove("here", good[:1], "order_id", 4)
    assert (lost.holds, lost.missing, lost.doubled) == (False, 2, 0)
    twice = prove("here", [*good, write_ids(tmp_path, "d", [3])], "order_id", 4)
    assert (twice.holds, twice.rows, twice.doubled) == (False, 5, 1)
    assert not prove("here", [], "order_id", 4).holds
