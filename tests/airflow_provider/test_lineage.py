"""OpenLineage: a real listener writes events to files, and they say what was moved."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import uuid
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.timeout(240)


@pytest.fixture(scope="module")
def events(airflow_home: Path, tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    """What the listener has written while a DAG ran."""
    directory = tmp_path_factory.mktemp("lineage")
    home = shutil.copytree(airflow_home, directory / "home")
    (directory / "events").mkdir()
    transport = {"type": "file", "log_file_path": str(directory / "events" / "event")}
    environment = {
        **os.environ,
        "AIRFLOW_HOME": str(home),
        "AIRFLOW__CORE__DAGS_FOLDER": str(home / "dags"),
        "AIRFLOW__OPENLINEAGE__DISABLED": "False",
        "AIRFLOW__OPENLINEAGE__TRANSPORT": json.dumps(transport),
        "AIRFLOW__OPENLINEAGE__NAMESPACE": "tests",
        "AIRFLOW_CONN_FLUSS_DEFAULT": json.dumps(
            {
                "conn_type": "fluss",
                "host": f"embedded:{directory / 'fluss'}",
                "password": "lineage-secret",
                "extra": {"cluster_alias": "shop"},
            }
        ),
        "PYTHONPATH": str(Path(__file__).parents[2]),
    }
    script = Path(__file__).with_name("lineage_run.py")
    ended = subprocess.run(
        [sys.executable, str(script), str(directory)],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert ended.returncode == 0, ended.stdout[-3000:] + ended.stderr[-3000:]
    files = sorted((directory / "events").iterdir())
    texts = [line for file in files for line in file.read_text().splitlines() if line]
    assert not any("lineage-secret" in text for text in texts)
    return [json.loads(text) for text in texts]


def complete(events: list[dict[str, Any]], task: str) -> dict[str, Any]:
    """The event at the end of one task."""
    found = [
        event
        for event in events
        if event["job"]["name"] == f"lineage.{task}" and event["eventType"] == "COMPLETE"
    ]
    assert len(found) == 1, [(e["job"]["name"], e["eventType"]) for e in events]
    return found[0]


def test_events_are_what_the_specification_asks_for(events: list[dict[str, Any]]) -> None:
    assert events
    for event in events:
        uuid.UUID(event["run"]["runId"])
        datetime.fromisoformat(event["eventTime"])
        assert event["schemaURL"].startswith("https://openlineage.io/spec/")
        assert event["producer"]
        assert event["job"]["namespace"] == "tests"
        facets = [*event["run"].get("facets", {}).values()]
        for dataset in [*event.get("inputs", []), *event.get("outputs", [])]:
            assert dataset["namespace"]
            assert dataset["name"]
            facets += dataset.get("facets", {}).values()
        assert all({"_producer", "_schemaURL"} <= facet.keys() for facet in facets)


def test_a_write_has_its_table_with_schema_and_count(events: list[dict[str, Any]]) -> None:
    event = complete(events, "write")
    (output,) = event["outputs"]
    assert (output["namespace"], output["name"]) == ("fluss://shop", "lineage.events")
    assert [f["name"] for f in output["facets"]["schema"]["fields"]] == ["id", "word"]
    assert output["outputFacets"]["outputStatistics"]["rowCount"] == 2
    receipt = event["run"]["facets"]["fluss_receipt"]
    assert (receipt["kind"], receipt["rows"]) == ("append", 2)


def test_an_increment_has_both_ends_offsets_and_columns(events: list[dict[str, Any]]) -> None:
    event = complete(events, "scan")
    assert [i["name"] for i in event["inputs"]] == ["lineage.events"]
    (output,) = event["outputs"]
    assert output["namespace"] == "file"
    fields = output["facets"]["columnLineage"]["fields"]
    assert fields["word"]["inputFields"][0]["field"] == "word"
    receipt = event["run"]["facets"]["fluss_receipt"]
    assert receipt["plan_id"]
    assert sum(r["stop"] - r["start"] for r in receipt["ranges"]) == 2


def test_tiering_has_its_snapshot(events: list[dict[str, Any]]) -> None:
    assert complete(events, "tier")["run"]["facets"]["fluss_receipt"]["snapshot_id"] > 0
