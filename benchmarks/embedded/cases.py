"""The engine beside DuckDB and SQLite; every commit of each is on disk."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cached_property
from pathlib import Path

import pyarrow as pa

from benchmarks.embedded.data import (
    KEY_SCHEMA,
    SCHEMA,
    SIZES,
    Sizes,
    key_batches,
    log_batch,
    python_rows,
)
from benchmarks.embedded.ours import Ours
from benchmarks.embedded.peers import Duck, Sqlite
from benchmarks.harness import Case, Measured, Subject, stopwatch
from benchmarks.place import Place
from fluss_client.model.table import TableInfo


@contextmanager
def cases(place: Place) -> Iterator[Sequence[Case]]:
    """The engine and its peers, in folders of their own."""
    subjects = Subjects(place.folder(), SIZES[place.scale])
    try:
        yield [*subjects.log_cases(), *subjects.key_cases()]
    finally:
        subjects.close()


class Subjects:
    """Three stores and what goes into them."""

    def __init__(self, folder: Path, sizes: Sizes) -> None:
        self.sizes = sizes
        self.ours = Ours(folder / "ours")
        self.sqlite = Sqlite(folder / "sqlite")
        self.duck = Duck(folder / "duck")
        self.batch = log_batch(sizes.batch_rows)
        self.rows = python_rows(self.batch)
        self.bytes = float(self.batch.nbytes * sizes.batches)

    def close(self) -> None:
        for subject in (self.ours, self.sqlite, self.duck):
            subject.close()

    def log_cases(self) -> list[Case]:
        """Appends, each round into an empty table, and scans of a filled one."""
        return [
            Case(
                "append, Arrow batches",
                "B/s",
                {"ours": self._append, "sqlite": self._append_sqlite, "duckdb": self._append_duck},
                {"sqlite": 1, "duckdb": 0.5},
            ),
            Case("scan, all columns", "B/s", self._scans(None, "*"), {"sqlite": 1, "duckdb": 0.5}),
            Case("scan, one column", "rows/s", self._scans((1,), "price"), {"sqlite": 1}),
        ]

    def key_cases(self) -> list[Case]:
        """Upserts over rows that are there, and look-ups; SQLite keeps changes by triggers."""
        return [
            Case(
                "upsert into as many rows",
                "rows/s",
                {"ours": self._upsert, "sqlite": self._upsert_sqlite},
                {"sqlite": 1},
            ),
            Case(
                "look up many keys",
                "keys/s",
                {"ours": self._lookup, "sqlite": self._lookup_sqlite},
                {"sqlite": 1},
            ),
            Case("look up one key", "keys/s", {"ours": self._lookup_each}, bound=5_000),
        ]

    def _append(self) -> Measured:
        table = self.ours.table("appended", SCHEMA)
        times = self.sizes.batches
        return self._timed(self.bytes, lambda: self.ours.append(table, self.batch, times))

    def _append_sqlite(self) -> Measured:
        self.sqlite.new_log("appended")
        times = self.sizes.batches
        return self._timed(self.bytes, lambda: self.sqlite.append("appended", self.rows, times))

    def _append_duck(self) -> Measured:
        self.duck.new_log("appended")
        times = self.sizes.batches
        return self._timed(self.bytes, lambda: self.duck.append("appended", self.batch, times))

    @staticmethod
    def _timed(amount: float, work: Callable[[], None]) -> Measured:
        def timed() -> tuple[float, object]:
            work()
            return amount, None

        return stopwatch(timed)

    @cached_property
    def _log(self) -> TableInfo:
        """The filled log; the peers' are filled with it."""
        table = self.ours.table("log", SCHEMA)
        self.ours.append(table, self.batch, self.sizes.batches)
        self.sqlite.new_log("log")
        self.sqlite.append("log", self.rows, self.sizes.batches)
        self.duck.new_log("log")
        self.duck.append("log", self.batch, self.sizes.batches)
        return table

    def _scans(self, columns: tuple[int, ...] | None, names: str) -> Mapping[str, Subject]:
        total = self.sizes.batch_rows * self.sizes.batches
        amount = self.bytes if columns is None else float(total)

        def scan(count: Callable[[TableInfo], int]) -> Subject:
            def subject() -> Measured:
                log = self._log
                return stopwatch(lambda: (amount, count(log)))

            return subject

        return {
            "ours": scan(lambda log: sum(b.num_rows for b in self.ours.scan(log, columns))),
            "sqlite": scan(lambda _: len(self.sqlite.scan("log", names))),
            "duckdb": scan(lambda _: self.duck.scan("log", names).num_rows),
        }

    @cached_property
    def _old_and_new(self) -> tuple[list[pa.RecordBatch], list[pa.RecordBatch]]:
        return key_batches(self.sizes, "old"), key_batches(self.sizes, "new")

    @cached_property
    def _python_old_and_new(self) -> list[list[list[tuple[object, ...]]]]:
        return [[python_rows(batch) for batch in batches] for batches in self._old_and_new]

    def _upsert(self) -> Measured:
        old, new = self._old_and_new
        table = self.ours.table("upserted", KEY_SCHEMA, ["k"])
        self.ours.upsert(table, old)
        return self._timed(self.sizes.keys, lambda: self.ours.upsert(table, new))

    def _upsert_sqlite(self) -> Measured:
        old, new = self._python_old_and_new
        self.sqlite.new_keys()
        self.sqlite.upsert(old)
        return self._timed(self.sizes.keys, lambda: self.sqlite.upsert(new))

    @cached_property
    def _keys(self) -> tuple[TableInfo, pa.Array]:
        """A table with all keys, SQLite's filled alike, and keys to ask for."""
        old, _ = self._old_and_new
        table = self.ours.table("keys", KEY_SCHEMA, ["k"])
        self.ours.upsert(table, old)
        self.sqlite.new_keys()
        self.sqlite.upsert(self._python_old_and_new[0])
        keys = pa.concat_arrays([batch.column(0) for batch in old])
        return table, keys.slice(0, self.sizes.lookups)

    def _lookup(self) -> Measured:
        table, keys = self._keys
        return stopwatch(lambda: (len(keys), self.ours.lookup(table, keys)))

    def _lookup_sqlite(self) -> Measured:
        keys = self._keys[1].to_pylist()
        return stopwatch(lambda: (len(keys), self.sqlite.lookup(keys)))

    def _lookup_each(self) -> Measured:
        table, keys = self._keys
        few = keys.slice(0, self.sizes.single_lookups)
        return stopwatch(lambda: (len(few), self.ours.lookup_each(table, few)))
