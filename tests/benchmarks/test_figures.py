"""Medians, ratios, goals, and what `make bench-check` calls a regression."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from benchmarks.check import BASELINE, compare, main
from benchmarks.figures import shown, times
from benchmarks.harness import Case, Measured, Result, Subject, run
from benchmarks.place import Scale
from benchmarks.report import as_json, facts, table


def fixed(*values: float) -> Subject:
    """A subject that gives these figures, one per round."""
    left = iter(values)
    return lambda: Measured(next(left), checksum="same")


def measured(lower_is_better: bool = False, **more: Any) -> Result:
    case = Case(
        "work",
        "B/s",
        {"ours": fixed(30, 10, 20), "peer": fixed(10, 10, 10)},
        lower_is_better=lower_is_better,
        **more,
    )
    (result,) = run("part", [case], 3)
    return result


def figures(ratio: float | None, noise: float = 0.3) -> Mapping[str, Any]:
    if ratio is None:
        return {"cases": {}}
    return {"cases": {"part: work": {"ratios": {"peer": ratio}, "noise": noise}}}


def test_the_ratio_is_that_of_the_medians() -> None:
    assert measured().ratio("peer") == 2.0


def test_a_ratio_above_one_is_better_also_where_less_is() -> None:
    assert measured(lower_is_better=True).ratio("peer") == 0.5


@pytest.mark.parametrize(
    ("more", "missed"),
    [
        ({"goals": {"peer": 2.0}}, []),
        ({"goals": {"peer": 2.1}}, ["peer"]),
        ({"bound": 20.0}, []),
        ({"bound": 21.0}, ["ours"]),
        ({"bound": 21.0, "lower_is_better": True}, []),
        ({"bound": 19.0, "lower_is_better": True}, ["ours"]),
    ],
)
def test_goals_that_were_missed(more: dict[str, Any], missed: list[str]) -> None:
    result = measured(**more)
    assert result.missed() == missed
    assert ("missed" in table([result])) == bool(missed)


def test_subjects_that_saw_other_data_end_the_run() -> None:
    one: Subject = lambda: Measured(1, checksum=1)  # noqa: E731
    two: Subject = lambda: Measured(1, checksum=2)  # noqa: E731
    with pytest.raises(SystemExit, match="different data"):
        run("part", [Case("work", "B/s", {"ours": one, "peer": two})], 1)


@pytest.mark.parametrize(
    ("before", "now", "noise", "fell"),
    [
        (2.0, 2.0, 0.3, False),
        (2.0, 1.41, 0.3, False),
        (2.0, 1.39, 0.3, True),
        (2.0, 1.1, 0.5, False),
        (2.0, 5.0, 0.3, False),
        (2.0, None, 0.3, True),
    ],
)
def test_a_ratio_fell(before: float, now: float | None, noise: float, fell: bool) -> None:
    (found,) = compare(figures(before, noise), figures(now))
    assert found.fell is fell


def test_the_check_fails_by_its_exit_code(tmp_path: Path) -> None:
    files = {"before": 2.0, "same": 1.9, "worse": 1.0}
    for name, ratio in files.items():
        (tmp_path / name).write_text(json.dumps(figures(ratio)))
    main([str(tmp_path / "same"), "--baseline", str(tmp_path / "before")])
    with pytest.raises(SystemExit, match="1 of 1 ratios fell"):
        main([str(tmp_path / "worse"), "--baseline", str(tmp_path / "before")])


def test_a_run_is_never_below_itself() -> None:
    run_now = json.loads(as_json([measured()], facts(3, Scale.TINY)))
    assert not any(found.fell for found in compare(run_now, run_now))


def test_the_committed_baseline_is_a_whole_quick_run() -> None:
    baseline = json.loads(BASELINE.read_text())
    assert baseline["facts"]["scale"] == "quick"
    assert {name.split(":")[0] for name in baseline["cases"]} == {"client", "embedded"}
    assert sum(len(case["ratios"]) for case in baseline["cases"].values()) > 20


@pytest.mark.parametrize(
    ("value", "unit", "text"),
    [
        (1.234e6, "B/s", "1.23 MB/s"),
        (45_600.0, "rows/s", "45.6 k rows/s"),
        (12_345.0, "ms", "12,345 ms"),
        (0.5, "ms", "0.50 ms"),
    ],
)
def test_figures_for_people(value: float, unit: str, text: str) -> None:
    assert shown(value, unit) == text


def test_large_ratios_have_no_decimals() -> None:
    assert [times(2.2), times(5_000)] == ["2.20x", "5,000x"]
