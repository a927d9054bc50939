"""`python -m benchmarks.embedded [--quick] [--rounds N] [--only TEXT] [--json FILE]`."""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc

from benchmarks.embedded.data import (
    FULL,
    KEY_SCHEMA,
    QUICK,
    SCHEMA,
    Sizes,
    key_batches,
    log_batch,
    python_rows,
)
from benchmarks.embedded.ours import Ours
from benchmarks.embedded.peers import Duck, Sqlite
from benchmarks.harness import Case, Timed, report, run, stopwatch, write_json

SINGLE_LOOKUPS = 2_000


class EmbeddedCases:
    """The engine and its peers in one folder, and the cases over them."""

    def __init__(self, folder: Path, sizes: Sizes) -> None:
        self.sizes = sizes
        self.ours = Ours(folder / "ours")
        self.sqlite = Sqlite(folder / "sqlite")
        self.duck = Duck(folder / "duck")
        self.batch = log_batch(sizes.batch_rows)
        self.rows = python_rows(self.batch)
        self.old, self.new = (key_batches(sizes, tag) for tag in ("old", "new"))
        self.new_rows = [python_rows(batch) for batch in self.new]
        self.old_rows = [python_rows(batch) for batch in self.old]
        keys = pc.take(self.old[0].column(0), pa.array(range(len(self.old[0]))))
        self.keys = pa.concat_arrays([keys] * 2).slice(0, sizes.lookups)

    def close(self) -> None:
        for subject in (self.ours, self.sqlite, self.duck):
            subject.close()

    @property
    def bytes(self) -> float:
        return float(self.batch.nbytes * self.sizes.batches)

    def cases(self) -> list[Case]:
        return [
            Case(
                "append, Arrow batches",
                "B/s",
                {"ours": self._append, "sqlite": self._append_sqlite, "duckdb": self._append_duck},
                "> sqlite, ≥ 0.5x duckdb",
            ),
            Case("scan, all columns", "B/s", self._scans(None, "*"), "> sqlite, ≥ 0.5x duckdb"),
            Case("scan, one column", "row/s", self._scans((1,), "price"), "> sqlite"),
            Case(
                "upsert into as many rows",
                "row/s",
                {"ours": self._upsert, "sqlite": self._upsert_sqlite},
                "≥ 1x sqlite with triggers",
            ),
            Case(
                "look up many keys",
                "key/s",
                {"ours": self._lookup, "sqlite": self._lookup_sqlite},
                "≥ 1x sqlite",
            ),
            Case("look up one key", "key/s", {"ours": self._lookup_each}, "≥ 5 k/s"),
        ]

    def _append(self) -> Timed:
        table = self.ours.table("log", SCHEMA)

        def work() -> tuple[float, object]:
            self.ours.append(table, self.batch, self.sizes.batches)
            return self.bytes, None

        self.log = table
        return stopwatch(work)

    def _append_sqlite(self) -> Timed:
        self.sqlite.new_log()

        def work() -> tuple[float, object]:
            self.sqlite.append(self.rows, self.sizes.batches)
            return self.bytes, None

        return stopwatch(work)

    def _append_duck(self) -> Timed:
        self.duck.new_log()

        def work() -> tuple[float, object]:
            self.duck.append(self.batch, self.sizes.batches)
            return self.bytes, None

        return stopwatch(work)

    def _scans(self, columns: tuple[int, ...] | None, names: str) -> dict[str, object]:
        total = self.sizes.batch_rows * self.sizes.batches

        def amount(rows: int) -> tuple[float, object]:
            return (self.bytes if columns is None else float(total)), rows

        def ours() -> tuple[float, object]:
            return amount(sum(b.num_rows for b in self.ours.scan(self.log, columns)))

        return {
            "ours": lambda: stopwatch(ours),
            "sqlite": lambda: stopwatch(lambda: amount(len(self.sqlite.scan(names)))),
            "duckdb": lambda: stopwatch(lambda: amount(self.duck.scan(names).num_rows)),
        }

    def _upsert(self) -> Timed:
        self.key_table = self.ours.table("keys", KEY_SCHEMA, ["k"])
        self.ours.upsert(self.key_table, self.old)

        def work() -> tuple[float, object]:
            self.ours.upsert(self.key_table, self.new)
            return float(self.sizes.keys), None

        return stopwatch(work)

    def _upsert_sqlite(self) -> Timed:
        self.sqlite.new_keys()
        self.sqlite.upsert(self.old_rows)

        def work() -> tuple[float, object]:
            self.sqlite.upsert(self.new_rows)
            return float(self.sizes.keys), None

        return stopwatch(work)

    def _lookup(self) -> Timed:
        return stopwatch(
            lambda: (float(len(self.keys)), self.ours.lookup(self.key_table, self.keys))
        )

    def _lookup_sqlite(self) -> Timed:
        keys = self.keys.to_pylist()
        return stopwatch(lambda: (float(len(keys)), self.sqlite.lookup(keys)))

    def _lookup_each(self) -> Timed:
        keys = self.keys.slice(0, SINGLE_LOOKUPS)
        return stopwatch(lambda: (float(len(keys)), self.ours.lookup_each(self.key_table, keys)))


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.embedded", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="smaller data")
    parser.add_argument("--rounds", type=int, default=3, help="rounds per case")
    parser.add_argument("--only", default="", help="only cases whose name holds this text")
    parser.add_argument("--json", type=Path, help="write the figures to this file too")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="fluss-bench-") as folder:
        cases = EmbeddedCases(Path(folder), QUICK if options.quick else FULL)
        try:
            chosen = [case for case in cases.cases() if options.only in case.name]
            results = run(chosen, options.rounds)
        finally:
            cases.close()
    print(report(results))
    if options.json:
        write_json(results, options.json, {"rounds": options.rounds, "quick": options.quick})


if __name__ == "__main__":
    main()
