"""The page of reliability: made of records alone, naming tests that exist."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.faults import fault_map
from tests.faults.recording import PAGE, RESULTS, FaultRecorder, commit_id
from tests.faults.reliability import (
    SOAK,
    Record,
    check,
    merged,
    missing_tests,
    named_tests,
    page,
    read_records,
)

HERE = "tests/faults/test_reliability_page.py::test_what_is_recorded_is_what_is_shown"


def test_the_page_is_made_of_its_records_and_names_tests_that_exist() -> None:
    assert check() == []
    assert len(named_tests(PAGE.read_text())) == len(read_records(RESULTS)) > 0


def test_every_part_and_fault_has_tests_or_a_reason() -> None:
    assert set(fault_map.CELLS) == set(fault_map.PARTS)
    for part, cells in fault_map.CELLS.items():
        assert set(cells) == set(fault_map.FAULTS), part
        assert all(cells.values()), part
    named = set(fault_map.tests())
    assert missing_tests(named) == []
    assert all(f"`{test}`" in PAGE.read_text() for test in named)


def test_a_test_that_is_gone_is_told() -> None:
    gone = HERE.replace("shown", "not_there")
    nowhere = "tests/faults/test_nothing.py::test_x"
    assert missing_tests([HERE, f"{HERE}[stall-True]", gone, nowhere]) == [gone, nowhere]


def test_what_is_recorded_is_what_is_shown(tmp_path: Path) -> None:
    path = tmp_path / "records"
    recorder = FaultRecorder(HERE, True, path)
    recorder("a fault", 3, seed=7, stages={"early": 1, "late": 2})
    recorder("a fault", 5, seed=7, stages={"early": 2, "late": 3}, figures={"time": "3 s"})
    with pytest.raises(AssertionError):
        recorder("another", 4, lost=2)
    records = read_records(path)
    text = page(records)
    run = f"`{commit_id()}` | {records[0]['date']}"
    assert f"| a fault | 5 | 0 | 0 | 0 | 7 | {run} | `{HERE}` |" in text
    assert f"| another | 4 | 2 | 0 | 0 | - | {run} | `{HERE}` |" in text
    assert "early 2, late 3" in text
    assert "- time: 3 s\n" in text
    assert named_tests(text) == [HERE, HERE]
    assert len(path.read_text().splitlines()) == 3
    assert json.loads(path.read_text().splitlines()[0])["injected"] == 3


def _record(fault: str, test: str, injected: int = 1) -> Record:
    return {"fault": fault, "test": test, "injected": injected}


def test_a_partial_run_changes_the_lines_of_its_tests_only() -> None:
    old = [_record("a", "x"), _record("b", "x"), _record("c", "y"), _record("d", f"{SOAK}z")]
    new = [_record("b", "x", 2)]
    assert merged(old, new, all_ran=False) == [new[0], old[2], old[3]]
    assert merged(old, new, all_ran=True) == [new[0], old[3]]


@pytest.mark.parametrize(
    "found", [{"injected": 0}, {"injected": 1, "hung": 1}, {"injected": 1, "stages": {"never": 0}}]
)
def test_a_record_that_shows_nothing_good_fails(found: dict[str, int]) -> None:
    with pytest.raises(AssertionError):
        FaultRecorder(HERE, False, None)("a fault", **found)  # type: ignore[arg-type]
