"""The unit tests pass on the other supported Pythons that this machine has.

Where there is none, they pass on this one with the unit tests' requirements alone.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from fluss_client.testing.user_dirs import cache_dir, file_lock
from tests.foundation.environments import ROOT, make_environment, uv
from tests.waiting import scaled

SUPPORTED = ("3.12", "3.13")
SET_UP_DEADLINE_S = 600.0


def interpreters() -> dict[str, str]:
    """One interpreter for each other supported version that is here and runs."""
    found = {}
    for version in SUPPORTED:
        if sys.version.startswith(f"{version}."):
            continue
        versions = sorted(Path.home().glob(f".pyenv/versions/{version}.*/bin/python"))
        named = shutil.which(f"python{version}")
        for candidate in [*map(str, versions), *([named] if named else [])]:
            # A name on the PATH may be a shim for a version that is not installed.
            code = "import sys; print(sys.version)"
            answer = subprocess.run([candidate, "-c", code], capture_output=True, text=True)
            if answer.stdout.startswith(f"{version}."):
                found[version] = candidate
    return found


def environment(python: str) -> Path:
    """An environment with the unit tests' requirements, kept for as long as they stay the same."""
    pins = ROOT / "requirements" / "unit.txt"
    key = hashlib.sha256(python.encode() + pins.read_bytes()).hexdigest()[:16]
    folder = cache_dir() / "test-environments" / key
    ready = folder / "ready"
    with file_lock(
        folder.with_suffix(".lock"), scaled(SET_UP_DEADLINE_S), "making a test environment"
    ):
        if not ready.exists():
            shutil.rmtree(folder, ignore_errors=True)
            made = make_environment(folder, python)
            uv("pip", "sync", "--quiet", "--require-hashes", "--python", str(made), str(pins))
            ready.touch()
    return folder / "bin" / "python"


PYTHONS = interpreters() or {sys.version.split()[0]: sys.executable}
Runs = dict[str, tuple[subprocess.Popen[bytes], Path]]


@pytest.fixture(scope="module")
def unit_tests(tmp_path_factory: pytest.TempPathFactory, long_form: bool) -> Iterator[Runs]:
    """The unit tests under way on every version at once; each run writes into its file.

    The short form holds the codecs to their recorded bytes and tests the model; the property
    tests and those of the I/O layers join in the long one.
    """
    tests = ["tests/unit"] if long_form else ["tests/unit/model"]
    folder = tmp_path_factory.mktemp("pythons")
    started: Runs = {}
    for version, python in PYTHONS.items():
        command = [str(environment(python)), "-m", "pytest", "-q", "-p", "no:cacheprovider"]
        output = folder / version
        with output.open("wb") as file:
            process = subprocess.Popen(
                [*command, "tests/golden", *tests],
                cwd=ROOT,
                env={**os.environ, "PYTHONPATH": str(ROOT), "PYTHONDONTWRITEBYTECODE": "1"},
                stdout=file,
                stderr=file,
            )
        started[version] = (process, output)
    yield started
    for process, _ in started.values():
        process.kill()
        process.wait()


@pytest.mark.timeout(900)
@pytest.mark.parametrize("version", PYTHONS)
def test_unit_tests_pass_on(version: str, unit_tests: Runs) -> None:
    process, output = unit_tests[version]
    assert process.wait() == 0, output.read_text()[-6000:]
