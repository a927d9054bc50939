"""The page of reliability: made of records alone, naming tests that exist."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.faults.recording import FaultRecorder
from tests.faults.reliability import PAGE, missing_tests, named_tests, page, read_records

HERE = "tests/faults/test_reliability_page.py::test_the_page_names_tests_that_exist"


def test_the_page_names_tests_that_exist() -> None:
    names = named_tests(PAGE.read_text())
    assert names
    assert missing_tests(names) == []


def test_a_test_that_is_gone_is_told() -> None:
    gone = HERE.replace("exist", "do_not_exist")
    nowhere = "tests/faults/test_nothing.py::test_x"
    assert missing_tests([HERE, f"{HERE}[stall-True]", gone, nowhere]) == [gone, nowhere]


def test_what_is_recorded_is_what_is_shown(tmp_path: Path) -> None:
    path = tmp_path / "records"
    recorder = FaultRecorder(HERE, True, path)
    recorder("a fault", 3, seed=7, stages={"early": 1, "late": 2})
    recorder("a fault", 5, seed=7, stages={"early": 2, "late": 3})
    with pytest.raises(AssertionError):
        recorder("another", 4, lost=2)
    text = page(read_records(path), "abc")
    assert f"| a fault | 5 | 0 | 0 | 0 | 7 | `{HERE}` |" in text
    assert f"| another | 4 | 2 | 0 | 0 | - | `{HERE}` |" in text
    assert "early 2, late 3" in text
    assert named_tests(text) == [HERE, HERE]
    assert len(path.read_text().splitlines()) == 3
    assert json.loads(path.read_text().splitlines()[0])["injected"] == 3


@pytest.mark.parametrize(
    "found", [{"injected": 0}, {"injected": 1, "hung": 1}, {"injected": 1, "stages": {"never": 0}}]
)
def test_a_record_that_shows_nothing_good_fails(found: dict[str, int]) -> None:
    with pytest.raises(AssertionError):
        FaultRecorder(HERE, False, None)("a fault", **found)  # type: ignore[arg-type]
