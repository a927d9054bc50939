"""Tiering changes of keys beside a log, and reading lake and changelog beside the files alone."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import pyarrow as pa

from benchmarks.child import in_child
from benchmarks.harness import Case, Measured, stopwatch
from benchmarks.key_tables import SCHEMA, KeyTable, every_key, updates
from benchmarks.lake_keys.reading import files_of, read_alone, read_union
from benchmarks.place import CONNECT_S, Place, Scale, connected, own_database
from fluss_client import FlussConnection, Schema, TableDescriptor, TablePath
from fluss_orchestrate import tier_table

LAKE = {"table.datalake.enabled": "true", "table.datalake.freshness": "1h"}
TAIL = 0.05
"""The share of the keys that changed after the table came into the lake."""
MEMORY_MB_MAX = 400.0
TIERED_KEYS = {Scale.TINY: 1_000, Scale.QUICK: 200_000, Scale.FULL: 1_000_000}
READ_KEYS = {Scale.TINY: 2_000, Scale.QUICK: 1_000_000, Scale.FULL: 10_000_000}


@dataclass(frozen=True)
class Sizes:
    """The keys of the table that is tiered, all of which change, and of the one that is read."""

    tiered: int
    read: int


@contextmanager
def cases(place: Place) -> Iterator[Sequence[Case]]:
    """Tables in the embedded engine, whose lake is beside them."""
    tiered, read = TIERED_KEYS[place.scale], READ_KEYS[place.scale]
    if place.keys:
        tiered, read = max(1, place.keys * TIERED_KEYS[place.scale] // read), place.keys
    address = f"embedded:{place.folder()}"
    with (
        connected(address) as connection,
        own_database(connection, "lake_keys") as database,
    ):
        lake = Lake(connection, address, database, Sizes(tiered, read))
        yield [
            Case(
                f"tier {tiered:,} changes of keys",
                "changes/s",
                {
                    "ours": lake.tier_changes,
                    "changelog as a log": lake.tier_changelog,
                    "upserts as a log": lake.tier_upserts,
                },
                {"changelog as a log": 0.8},
            ),
            Case(
                f"union read, {read:,} keys",
                "rows/s",
                {"ours": lake.union_read, "Parquet alone": lake.files_alone},
                {"Parquet alone": 0.6},
            ),
            Case(
                f"memory at peak, {read:,} keys",
                "MB",
                {"ours": lake.union_memory},
                bound=MEMORY_MB_MAX,
                lower_is_better=True,
            ),
        ]


class Lake:
    """Tables in the lake, and what came after."""

    def __init__(
        self, connection: FlussConnection, address: str, database: str, sizes: Sizes
    ) -> None:
        self._connection = connection
        self._address = address
        self._database = database
        self._sizes = sizes
        self._numbers = itertools.count()

    def tier_changes(self) -> Measured:
        """A new row for each key of a table that is in the lake."""
        table = self._tiered_keys
        self._changed_from = table.end()
        ids = np.random.default_rng(next(self._numbers)).permutation(self._sizes.tiered)
        table.change(updates(ids, next(self._numbers)))
        return self._tiered(table.path)

    def tier_changelog(self) -> Measured:
        """A log table with the rows of the changelog that `tier_changes` took."""
        changes = self._tiered_keys.changelog(self._changed_from)
        return self._tiered(self._log(changes.drop_columns(["_change_type"])))

    def tier_upserts(self) -> Measured:
        """A log table with the rows that were upserted: half of the changelog."""
        changes = self._tiered_keys.changelog(self._changed_from)
        new = changes.filter(pa.array([False, True] * (changes.num_rows // 2)))
        measured = self._tiered(self._log(new.drop_columns(["_change_type"])))
        return Measured(measured.value)

    def union_read(self) -> Measured:
        """The current rows: most from the lake, the changed ones from the changelog."""
        path = self._read_table.path
        return stopwatch(lambda: (self._sizes.read, read_union(self._connection, path)))

    def files_alone(self) -> Measured:
        """The data files of the lake as they are, by Arrow. They have as many keys."""
        files = files_of(self._connection, self._read_table.path)
        return stopwatch(lambda: (self._sizes.read, read_alone(files)))

    def union_memory(self) -> Measured:
        """By how much a process grows during a union read."""
        path = self._read_table.path
        where = [self._address, path.database_name, path.table_name]
        found = in_child("benchmarks.lake_keys.reading", *where)
        return Measured(found["mb"], (found["rows"], found["total"]))

    def _tiered(self, path: TablePath) -> Measured:
        def work() -> tuple[float, object]:
            receipt = tier_table(self._connection, path, allow_tiering=True)
            return self._sizes.tiered, receipt.rows

        return stopwatch(work)

    @cached_property
    def _tiered_keys(self) -> KeyTable:
        return self._in_lake(self._sizes.tiered)

    @cached_property
    def _read_table(self) -> KeyTable:
        """A table of which a part has changed since it came into the lake."""
        table = self._in_lake(self._sizes.read)
        count = max(1, int(self._sizes.read * TAIL))
        ids = np.random.default_rng(1).choice(self._sizes.read, count, replace=False)
        table.change(updates(ids, next(self._numbers)))
        return table

    def _in_lake(self, keys: int) -> KeyTable:
        table = KeyTable(self._connection, self._new_path(), LAKE)
        table.change(every_key(keys))
        tier_table(self._connection, table.path, allow_tiering=True)
        return table

    def _log(self, rows: pa.Table) -> TablePath:
        path = self._new_path()
        admin = self._connection.get_admin().result(CONNECT_S)
        descriptor = TableDescriptor(Schema(SCHEMA), bucket_count=1, properties=LAKE)
        admin.create_table(path, descriptor).result(CONNECT_S)
        table = self._connection.get_table(path).result(CONNECT_S)
        with table.new_append().create_writer() as writer:
            writer.write_arrow(rows)
        return path

    def _new_path(self) -> TablePath:
        return TablePath(self._database, f"t{next(self._numbers)}")
