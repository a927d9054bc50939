"""What is built is whole: it installs elsewhere, and with the base dependencies alone it works."""

from __future__ import annotations

import json
import subprocess
import sys
import tarfile
import zipfile
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.foundation.environments import BASE, ROOT, make_environment, pinned, uv, versions

pytestmark = pytest.mark.timeout(300)
DATA = ("fluss_client/py.typed", "fluss_client/wire/fluss.proto", "fluss_orchestrate/py.typed")

IMPORT_ALL = """
import importlib, pkgutil, fluss_client
for module in pkgutil.walk_packages(fluss_client.__path__, "fluss_client."):
    importlib.import_module(module.name)
"""
FIND_DATA = f"""
import importlib.resources as resources, sys
for name in {DATA!r}:
    package, _, rest = name.partition("/")
    assert resources.files(package).joinpath(rest).is_file(), name
assert not any(path == {str(ROOT)!r} for path in sys.path)
"""


@dataclass
class Built:
    wheel: Path
    sdist: Path


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Built:
    """The sdist, and the wheel made from that sdist, so that a file it lacks is missed."""
    return _built(tmp_path_factory.mktemp("dist"))


def _built(folder: Path) -> Built:
    command = [sys.executable, "-m", "build", "--no-isolation", "--outdir", str(folder), str(ROOT)]
    answer = subprocess.run(command, capture_output=True, text=True)
    assert answer.returncode == 0, answer.stdout + answer.stderr
    (wheel,) = folder.glob("*.whl")
    (sdist,) = folder.glob("*.tar.gz")
    return Built(wheel, sdist)


@pytest.fixture(scope="module")
def bare_python(built: Built, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An environment elsewhere with the wheel and the base dependencies, and nothing else."""
    folder = tmp_path_factory.mktemp("bare")
    python = make_environment(folder / "env")
    requirements = folder / "base.txt"
    requirements.write_text(pinned(BASE))
    install = ("pip", "install", "--quiet", "--no-deps", "--python", str(python))
    uv(*install, "--require-hashes", "-r", str(requirements))
    uv(*install, str(built.wheel))
    return python


def _run(python: Path, code: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [str(python), "-I", "-c", code], capture_output=True, text=True, cwd=python.parent
    )


def test_wheel_and_sdist_hold_the_packages_and_their_data(built: Built) -> None:
    wheel = set(zipfile.ZipFile(built.wheel).namelist())
    with tarfile.open(built.sdist) as archive:
        sdist = {name.partition("/")[2] for name in archive.getnames()}
    for name in DATA:
        assert name in wheel
        assert name in sdist
    sources = {
        str(path.relative_to(ROOT))
        for package in ("fluss_client", "fluss_orchestrate")
        for path in (ROOT / package).rglob("*.py")
    }
    assert sources <= wheel
    assert not any(name.startswith(("tests/", "docs/")) for name in wheel)


def test_the_wheel_has_its_bill_of_materials(built: Built) -> None:
    archive = zipfile.ZipFile(built.wheel)
    (name,) = [n for n in archive.namelist() if n.endswith(".dist-info/sboms/sbom.cdx.json")]
    names = {component["name"] for component in json.loads(archive.read(name))["components"]}
    assert {"pyarrow", "protobuf", "numpy", "google-crc32c"} <= names


def test_two_builds_are_the_same_bytes(
    built: Built, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TZ", "Asia/Tokyo")
    again = _built(tmp_path)
    assert again.wheel.read_bytes() == built.wheel.read_bytes()
    assert again.sdist.read_bytes() == built.sdist.read_bytes()


def test_the_base_alone_imports_every_part_of_the_client(bare_python: Path) -> None:
    answer = _run(bare_python, IMPORT_ALL)
    assert answer.returncode == 0, answer.stderr


def test_the_installed_package_finds_its_data(bare_python: Path) -> None:
    answer = _run(bare_python, FIND_DATA)
    assert answer.returncode == 0, answer.stderr


def test_the_bare_console_script_names_the_extra(bare_python: Path) -> None:
    script = bare_python.parent / "fluss-orchestrate"
    answer = subprocess.run([str(script)], capture_output=True, text=True)
    assert answer.returncode == 1
    assert answer.stdout == ""
    assert answer.stderr == (
        "fluss-orchestrate needs typer and rich, which the extra 'cli' brings:"
        " run: pip install 'fluss-orchestrate[cli]'\n"
    )


def test_the_console_script_runs_with_its_extra(bare_python: Path, built: Built) -> None:
    constraints = bare_python.parent / "constraints.txt"
    constraints.write_text(versions())
    wheel = f"fluss-orchestrate[cli] @ {built.wheel.as_uri()}"
    install = ("pip", "install", "--quiet", "--python", str(bare_python))
    uv(*install, "--constraint", str(constraints), wheel)
    script = bare_python.parent / "fluss-orchestrate"
    answer = subprocess.run([str(script), "--version"], capture_output=True, text=True)
    assert (answer.returncode, answer.stderr) == (0, "")
    assert answer.stdout.strip() in built.wheel.name
