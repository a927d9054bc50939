"""Writes docs/reliability.md from what the fault tests recorded; nobody writes it by hand.

python -m tests.faults.reliability RECORDS       write it
python -m tests.faults.reliability --check       every test that it names can be run
"""

from __future__ import annotations

import argparse
import json
import re
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "reliability.md"
HEAD = """# Reliability

Written from what the fault tests recorded, never by hand: `make test-faults` runs their long form
and writes this page, `make test` runs the short one. A fault counts when it
struck. *Lost* are rows that were acknowledged and are not there, *doubled* rows that are there more
often than once, *hung* calls that ended neither with an answer nor with an error long after their
deadline.

"""
TABLE_HEAD = """| fault | injected | lost | doubled | hung | seed | test |
|---|---:|---:|---:|---:|---|---|
"""
TAIL = """
Run a line of the table again with

    FLUSS_FAULT_SEED=SEED make test-faults ARGS=TEST
"""
_TEST = re.compile(r"`(tests/[^`]+)` \|$", re.MULTILINE)


def read_records(path: Path) -> list[dict[str, Any]]:
    """The records of one run; a test that ran twice counts with its last run."""
    newest = {}
    for line in path.read_text().splitlines():
        record = json.loads(line)
        newest[record["fault"], record["test"]] = record
    return list(newest.values())


def page(records: Iterable[dict[str, Any]], commit: str) -> str:
    """The whole page."""
    ordered = sorted(records, key=lambda r: (r["fault"], r["test"]))
    forms = {record["long"] for record in ordered}
    form = "long" if forms == {True} else "short" if forms == {False} else "mixed"
    rows = "".join(_row(record) for record in ordered)
    stages = "".join(_stages(record) for record in ordered if record["stages"])
    kills = f"\nHow often each stage was hit:\n\n{stages}" if stages else ""
    return f"{HEAD}Commit `{commit}`, {form} form.\n\n{TABLE_HEAD}{rows}{TAIL}{kills}"


def _row(record: dict[str, Any]) -> str:
    seed = "-" if record["seed"] is None else record["seed"]
    figures = " | ".join(str(record[key]) for key in ("injected", "lost", "doubled", "hung"))
    return f"| {record['fault']} | {figures} | {seed} | `{record['test']}` |\n"


def _stages(record: dict[str, Any]) -> str:
    hits = ", ".join(f"{stage} {count}" for stage, count in record["stages"].items())
    return f"- {record['fault']}: {hits}\n"


def named_tests(text: str) -> list[str]:
    """The ids of the tests that a page names."""
    return _TEST.findall(text)


def missing_tests(names: Iterable[str]) -> list[str]:
    """Those whose file or function does not exist."""
    missing = []
    for name in names:
        file, _, function = name.partition("::")
        source = ROOT / file
        bare = re.escape(function.partition("[")[0].rpartition("::")[2])
        if not source.is_file() or not re.search(rf"def {bare}\(", source.read_text()):
            missing.append(name)
    return missing


def commit_id() -> str:
    """The commit of the tree, with a mark when the tree is not that commit."""
    described = subprocess.run(
        ["git", "describe", "--always", "--dirty", "--abbrev=12"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    return described.stdout.strip()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("records", nargs="?", type=Path)
    parser.add_argument("--check", action="store_true")
    options = parser.parse_args()
    if options.check:
        names = named_tests(PAGE.read_text())
        missing = missing_tests(names)
        print(f"{PAGE.name}: {len(names)} tests, missing: {missing or 'none'}")
        return 1 if missing or not names else 0
    if options.records is None or not options.records.is_file():
        print("no fault was recorded: the page stays as it is", file=sys.stderr)
        return 1
    text = page(read_records(options.records), commit_id())
    PAGE.write_text(text)
    print(text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
