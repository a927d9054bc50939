"""A strict type checker accepts a program that uses the API, and finds the mistakes in another."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import fluss_client

HERE = Path(__file__).parent


def _mypy(path: Path, cache: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "mypy", "--strict", "--cache-dir", str(cache)]
    command += ["--config-file", "", "--follow-imports", "silent", "--disable-error-code"]
    command += ["import-untyped", str(path)]
    return subprocess.run(command, capture_output=True, text=True, cwd=HERE.parent)


def test_the_package_says_that_it_is_typed() -> None:
    assert (Path(fluss_client.__file__).parent / "py.typed").is_file()


def test_a_right_program_passes_and_a_wrong_one_does_not(tmp_path: Path) -> None:
    right = _mypy(HERE / "consumer.py", tmp_path)
    assert right.returncode == 0, right.stdout + right.stderr

    wrong = _mypy(HERE / "misuse.py", tmp_path)
    found = set(re.findall(r"misuse\.py:(\d+): error: .*\[([a-z-]+)\]", wrong.stdout))
    lines = (HERE / "misuse.py").read_text().splitlines()
    expected = {
        (str(number), kind)
        for number, line in enumerate(lines, 1)
        for kind in re.findall(r"# error: ([a-z-]+)", line)
    }
    assert len(expected) == 6
    assert found >= expected, wrong.stdout
