"""Writes docs/reliability.md from what the fault tests recorded; nobody writes it by hand.

python -m tests.faults.reliability RECORDS           take the records of a run of some tests
python -m tests.faults.reliability --all RECORDS     take those of a run of all tests
python -m tests.faults.reliability --check           the page is what the records make of it

The records that the page shows stand in `reliability_results.jsonl` beside this file. A run
replaces the records of the tests that it ran. A run of all tests also removes the records of tests
that recorded nothing, except those of the soak, which has a run of its own.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from tests.faults import fault_map
from tests.faults.recording import PAGE, RESULTS, ROOT

SOAK = "tests/faults/soak/"
HEAD = """# Reliability

Written from what the fault tests recorded, never by hand: `make test-faults` runs their long form
and writes this page, `make test` runs the short one. A fault counts when it
struck. *Lost* are rows that were acknowledged and are not there, *doubled* rows that are there more
often than once, *hung* calls that ended neither with an answer nor with an error long after their
deadline. Each line names the commit that it was run at, and the day. The soak, in which everything
runs at once, has a run of its own: `make soak MINUTES=60`.

"""
TABLE_HEAD = """| fault | injected | lost | doubled | hung | seed | commit | date | test |
|---|---:|---:|---:|---:|---|---|---|---|
"""
TAIL = """
Run a line of the table again, and change no other, with

    FLUSS_FAULT_SEED=SEED make test-faults ARGS=TEST
"""
_TEST = re.compile(r"`(tests/[^`]+)` \|$", re.MULTILINE)

Record = dict[str, Any]


def read_records(path: Path) -> list[Record]:
    """The records of one run; a test that ran twice counts with its last run."""
    newest = {}
    for line in path.read_text().splitlines():
        record = json.loads(line)
        newest[record["fault"], record["test"]] = record
    return list(newest.values())


def merged(old: Iterable[Record], new: Iterable[Record], all_ran: bool) -> list[Record]:
    """The records to show after a run; `all_ran` says that it was one of all tests."""
    new = list(new)
    ran = {record["test"] for record in new}
    kept = [
        record
        for record in old
        if record["test"] not in ran and (not all_ran or record["test"].startswith(SOAK))
    ]
    return sorted(kept + new, key=lambda record: (record["fault"], record["test"]))


def page(records: Iterable[Record]) -> str:
    """The whole page."""
    ordered = sorted(records, key=lambda r: (r["fault"], r["test"]))
    rows = "".join(_row(record) for record in ordered)
    figures = "".join(_figures(record) for record in ordered if record.get("figures"))
    stages = "".join(_stages(record) for record in ordered if record["stages"])
    kills = f"\nHow often each stage was hit:\n\n{stages}" if stages else ""
    return f"{HEAD}{TABLE_HEAD}{rows}{TAIL}{figures}{kills}{fault_map.section()}"


def _row(record: Record) -> str:
    seed = "-" if record["seed"] is None else record["seed"]
    fault = record["fault"] if record["long"] else f"{record['fault']} (short form)"
    figures = " | ".join(str(record[key]) for key in ("injected", "lost", "doubled", "hung"))
    run = f"`{record['commit']}` | {record['date']}"
    return f"| {fault} | {figures} | {seed} | {run} | `{record['test']}` |\n"


def _figures(record: Record) -> str:
    lines = "".join(f"- {name}: {value}\n" for name, value in record["figures"].items())
    return f'\nFigures of "{record["fault"]}":\n\n{lines}'


def _stages(record: Record) -> str:
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


def check() -> list[str]:
    """What is wrong with the page."""
    text = PAGE.read_text()
    names = {*named_tests(text), *fault_map.tests()}
    found = [f"no test: {name}" for name in missing_tests(sorted(names))]
    if text != page(read_records(RESULTS)):
        found.append("it is not what its records make: python -m tests.faults.reliability")
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("records", nargs="?", type=Path)
    parser.add_argument("--all", action="store_true", dest="all_ran")
    parser.add_argument("--check", action="store_true")
    options = parser.parse_args()
    if options.check:
        wrong = check()
        print(f"{PAGE.name}: {wrong or 'as it should be'}")
        return 1 if wrong else 0
    records = read_records(RESULTS)
    if options.records is not None:
        if not options.records.is_file():
            print("no fault was recorded: the page stays as it is", file=sys.stderr)
            return 1
        records = merged(records, read_records(options.records), options.all_ran)
        RESULTS.write_text("".join(f"{json.dumps(record)}\n" for record in records))
    PAGE.write_text(page(records))
    print(PAGE.read_text())
    return 0


if __name__ == "__main__":
    sys.exit(main())
