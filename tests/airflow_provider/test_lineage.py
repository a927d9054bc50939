"""OpenLineage: a real listener writes events to files, and they say what was moved."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from tests.airflow_provider.forking import Worker
from tests.airflow_provider.lineage_schemas import check_event

pytestmark = pytest.mark.timeout(240)
Event = dict[str, Any]


@pytest.fixture(scope="module")
def directory(airflow_home: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where a DAG has run, with what the listener has written."""
    from tests.airflow_provider.lineage_run import main

    found = tmp_path_factory.mktemp("lineage")
    assert Worker(lambda: main(found)).wait() == 0
    return found


@pytest.fixture(scope="module")
def events(directory: Path) -> list[Event]:
    files = sorted((directory / "events").iterdir())
    texts = [line for file in files for line in file.read_text().splitlines() if line]
    return [json.loads(text) for text in texts]


def event_of(events: list[Event], task: str, kind: str) -> Event:
    """The one event of this kind of one task."""
    found = [e for e in events if (e["job"]["name"], e["eventType"]) == (f"lineage.{task}", kind)]
    assert len(found) == 1, [(e["job"]["name"], e["eventType"]) for e in events]
    return found[0]


def names(datasets: list[Event]) -> list[tuple[str, str]]:
    return [(dataset["namespace"], dataset["name"]) for dataset in datasets]


def copied(output: Event) -> dict[str, list[tuple[str, str, str]]]:
    """Each column of an output with those that it is a copy of."""
    fields = output["facets"]["columnLineage"]["fields"]
    for field in fields.values():
        for source in field["inputFields"]:
            assert source["transformations"] == [{"type": "DIRECT", "subtype": "IDENTITY"}]
    return {
        name: [(f["namespace"], f["name"], f["field"]) for f in field["inputFields"]]
        for name, field in fields.items()
    }


EVENTS = ("fluss://shop", "lineage.events")


def test_events_fit_the_schemas_of_the_specification(events: list[Event]) -> None:
    from fluss_orchestrate.airflow.lineage import FACET, FlussReceiptRunFacet

    judged = {url for e in events for url in check_event(e, {FACET: FlussReceiptRunFacet})}
    known = {url.rpartition("/")[2] for url in judged}
    assert known >= {
        "RunEvent",
        "SchemaDatasetFacet",
        "ColumnLineageDatasetFacet",
        "OutputStatisticsOutputDatasetFacet",
        "ErrorMessageRunFacet",
        "RunFacet",
    }
    assert {e["eventType"] for e in events} == {"START", "COMPLETE", "FAIL"}
    broken = json.loads(json.dumps(event_of(events, "write", "COMPLETE")))
    broken["outputs"][0]["facets"]["schema"]["fields"][0].pop("name")
    with pytest.raises(jsonschema.ValidationError):
        check_event(broken)


def test_no_event_has_the_password(directory: Path) -> None:
    from tests.airflow_provider.lineage_run import SECRET

    for file in (directory / "events").iterdir():
        assert SECRET not in file.read_text()


def test_the_start_names_both_ends(events: list[Event], directory: Path) -> None:
    start = event_of(events, "scan", "START")
    assert names(start["inputs"]) == [EVENTS]
    assert names(start["outputs"]) == [("file", str(directory / "out"))]
    assert "fluss_receipt" not in start["run"]["facets"]
    assert names(event_of(events, "write", "START")["outputs"]) == [EVENTS]


def test_a_failure_names_both_ends_and_the_error(events: list[Event], directory: Path) -> None:
    failed = event_of(events, "broken", "FAIL")
    assert names(failed["inputs"]) == [EVENTS]
    assert names(failed["outputs"]) == [("file", str(directory / "blocked"))]
    assert failed["run"]["facets"]["errorMessage"]["message"]


def test_a_write_has_its_table_with_schema_and_count(events: list[Event], directory: Path) -> None:
    event = event_of(events, "write", "COMPLETE")
    (output,) = event["outputs"]
    assert names([output]) == [EVENTS]
    assert [f["name"] for f in output["facets"]["schema"]["fields"]] == ["id", "word"]
    assert output["outputFacets"]["outputStatistics"]["rowCount"] == 2
    receipt = event["run"]["facets"]["fluss_receipt"]
    assert (receipt["kind"], receipt["rows"]) == ("append", 2)
    (from_files,) = event_of(events, "files", "COMPLETE")["outputs"]
    source = ("file", str(directory / "rows.parquet"))
    assert copied(from_files) == {"id": [(*source, "id")], "word": [(*source, "word")]}


def test_an_increment_has_both_ends_offsets_and_columns(events: list[Event]) -> None:
    event = event_of(events, "scan", "COMPLETE")
    assert names(event["inputs"]) == [EVENTS]
    (output,) = event["outputs"]
    assert output["namespace"] == "file"
    assert copied(output) == {"id": [(*EVENTS, "id")], "word": [(*EVENTS, "word")]}
    receipt = event["run"]["facets"]["fluss_receipt"]
    assert receipt["plan_id"]
    assert sum(r["stop"] - r["start"] for r in receipt["ranges"]) == 3
    (chosen,) = event_of(events, "copy", "COMPLETE")["outputs"]
    assert names([chosen]) == [("fluss://shop", "lineage.words")]
    assert copied(chosen) == {"word": [(*EVENTS, "word")]}


@pytest.mark.airflow_has("sqlalchemy_2")
def test_tiering_has_its_snapshot(events: list[Event]) -> None:
    event = event_of(events, "tier", "COMPLETE")
    assert event["run"]["facets"]["fluss_receipt"]["snapshot_id"] > 0
    assert copied(event["outputs"][0])["id"] == [(*EVENTS, "id")]
