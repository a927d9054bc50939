"""Coverage-guided fuzzing of every reader, and what it found before."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.faults.fuzz_targets import CORPUS, TARGETS, folder_of
from tests.faults.recording import FaultRecorder

ROOT = Path(__file__).parents[2]
SECONDS_SHORT, SECONDS_LONG = 6, 900
RUNS = re.compile(r"Done (\d+) runs")


@pytest.mark.parametrize("name", sorted(TARGETS))
def test_whole_and_cut_inputs_are_read_or_refused(name: str) -> None:
    target = TARGETS[name]
    assert target.seeds
    for seed in target.seeds:
        for end in {*range(0, len(seed), max(1, len(seed) // 50)), len(seed)}:
            target(seed[:end])


@pytest.mark.parametrize("path", sorted(CORPUS.glob("*/*.bin")), ids=lambda path: path.parent.name)
def test_what_was_found_once_is_refused_now(path: Path) -> None:
    targets = {folder_of(name): target for name, target in TARGETS.items()}
    targets[path.parent](path.read_bytes())


@pytest.mark.timeout(SECONDS_LONG + 120)
def test_nothing_new_is_found(long_form: bool, record_fault: FaultRecorder) -> None:
    seconds = SECONDS_LONG if long_form else SECONDS_SHORT
    done = subprocess.run(
        [sys.executable, "-m", "tests.faults.fuzz", str(seconds)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    ran = RUNS.search(done.stderr)
    assert ran is not None
    record_fault("damaged bytes and texts, coverage-guided", int(ran[1]))
