"""Where Airflow leads to the console: the link of a run, and the tabs of DAGs and tasks."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import pytest
from starlette.requests import Request

from fluss_client import Config, FlussConnection
from fluss_orchestrate import IncrementalScan, IntervalScan
from fluss_orchestrate.airflow import FlussIncrementalScanOperator
from fluss_orchestrate.airflow.console.plugin import FlussPlugin
from fluss_orchestrate.airflow.links import FlussConsoleLink
from fluss_orchestrate.airflow.operators.scanning import _checkpoint_of
from fluss_orchestrate.airflow.run_context import Window

NEEDS_PAGES = pytest.mark.airflow_has(
    "plugin_pages", instead="test_older_releases_have_no_page_and_no_link"
)
SERVER = "http://127.0.0.1:8080"


@NEEDS_PAGES
def test_the_link_of_a_run_over_an_interval_leads_to_that_interval(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AIRFLOW__API__BASE_URL", SERVER)
    operator = FlussIncrementalScanOperator(
        task_id="scan", table="shop.events", checkpoint="cp", sink=lambda reader: reader.read_all()
    )

    def named() -> str:
        link = FlussConsoleLink().get_link(operator, ti_key=None)
        assert link.startswith(f"{SERVER}/fluss/fluss_default/checkpoint?")
        return parse_qs(urlsplit(link).query)["name"][0]

    assert named() == "cp", "before the run has begun"
    hour = Window(datetime(2026, 11, 19, 8, tzinfo=UTC), datetime(2026, 11, 19, 9, tzinfo=UTC))
    config = Config({"bootstrap.servers": f"embedded:{tmp_path / 'fluss'}"})
    with FlussConnection.create(config).result() as connection:
        scan = IntervalScan(connection, "shop.events", "cp")
        operator.read_checkpoint = _checkpoint_of(scan, hour)
        assert named() == scan.interval_name(hour.since, hour.until)
        operator.read_checkpoint = _checkpoint_of(IncrementalScan(connection, "a.b", "cp"), None)
        assert named() == "cp"


@pytest.mark.airflow_lacks("plugin_pages")
def test_older_releases_have_no_page_and_no_link(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AIRFLOW__API__BASE_URL", SERVER)
    operator = FlussIncrementalScanOperator(
        task_id="scan", table="shop.events", checkpoint="cp", sink=lambda reader: reader.read_all()
    )
    assert FlussConsoleLink().get_link(operator, ti_key=None) == ""
    assert FlussPlugin.fastapi_apps == FlussPlugin.external_views == []


@NEEDS_PAGES
def test_every_tab_has_a_route_of_its_own() -> None:
    """Airflow finds a view by its route alone, whatever its place."""
    from airflow.api_fastapi.core_api.datamodels.plugins import ExternalViewResponse

    views = [ExternalViewResponse(**view) for view in FlussPlugin.external_views]
    assert [view.destination for view in views] == ["nav", "dag", "task"]
    assert len({view.url_route for view in views}) == len(views)


@NEEDS_PAGES
@pytest.mark.parametrize(
    ("query", "begin"),
    [("", ""), ("dag=d", "airflow/d/"), ("dag=d&task=g.t", "airflow/d/g.t/"), ("task=t", "")],
)
def test_a_tab_asks_for_the_runs_of_its_dag_or_task(query: str, begin: str) -> None:
    from fluss_orchestrate.airflow.console.app import _runs_of

    request = Request({"type": "http", "query_string": query.encode(), "headers": []})
    assert _runs_of(request) == begin
