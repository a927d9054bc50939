"""What counts as flat, and what as growing."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import pytest

from tests.faults.soak.samples import Sample, uses

FIRST = Sample(0, 100, 20, 10, 4, 0)


def life(seconds: int, **growth: float) -> list[Sample]:
    """A sample per five seconds; what is named grows by so much per minute."""
    return [
        replace(
            FIRST,
            at_s=at,
            **{name: getattr(FIRST, name) + each * at / 60 for name, each in growth.items()},
        )
        for at in range(0, seconds, 5)
    ]


def growing(samples: list[Sample]) -> set[str]:
    return {use.name for use in uses(samples) if not use.is_flat}


def test_what_stays_as_it_is_is_flat() -> None:
    assert len(uses(life(300))) == 5
    assert growing(life(300)) == set()


@pytest.mark.parametrize(
    ("name", "a_minute"),
    [("memory_mb", 20), ("files", 6), ("threads", 6), ("connections", 6), ("temporary_files", 6)],
)
def test_what_grows_is_seen(name: str, a_minute: float) -> None:
    assert growing(life(300, **{name: a_minute})) == {name}


def test_a_start_is_no_growth() -> None:
    start = [replace(sample, memory_mb=sample.at_s) for sample in life(60)]
    assert growing(start + [replace(s, at_s=s.at_s + 60) for s in life(240)]) == set()


def test_a_short_life_says_nothing() -> None:
    assert uses(life(60, memory_mb=100)) == []


def test_a_process_is_looked_at(tmp_path: Path) -> None:
    (tmp_path / "a").touch()
    found = Sample.take(1.0, os.getpid(), tmp_path)
    assert found is not None
    assert found.memory_mb > 1
    assert found.files > 0
    assert found.threads >= 1
    assert found.temporary_files == 1
    assert Sample.take(1.0, 2**22 + 1, tmp_path) is None
