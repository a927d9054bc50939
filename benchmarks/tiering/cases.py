"""Into the lake beside an append by hand; lake and tail beside a scan of the whole log."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cached_property
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.catalog.sql import SqlCatalog

from benchmarks.client.data import SCHEMA, batches, nbytes
from benchmarks.harness import Case, Measured, stopwatch
from benchmarks.place import Place, Scale, connected, own_database
from fluss_client import EARLIEST_OFFSET, FlussConnection, Schema, TableDescriptor, TablePath
from fluss_orchestrate import read_table, tier_table

ROWS = {Scale.TINY: 5_000, Scale.QUICK: 2_000_000, Scale.FULL: 4_000_000}
TAIL = 0.1
"""The part of the rows that is not in the lake yet when both are read as one."""
LAKE = {"table.datalake.enabled": "true", "table.datalake.freshness": "1h"}


@contextmanager
def cases(place: Place) -> Iterator[Sequence[Case]]:
    """Lake tables on a cluster that has a lake."""
    with (
        connected(place.lake_bootstrap) as connection,
        own_database(connection, "tiering") as database,
    ):
        lake = Lake(connection, database, place.folder(), ROWS[place.scale])
        yield [
            Case(
                "tier into Iceberg",
                "B/s",
                {"ours": lake.tier, "scan + pyiceberg": lake.by_hand},
            ),
            Case("read lake and tail", "B/s", {"ours": lake.union_read, "log scan": lake.log_scan}),
        ]


class Lake:
    """Filled tables, in the lake and not."""

    def __init__(self, connection: FlussConnection, database: str, folder: Path, rows: int) -> None:
        self._connection = connection
        self._database = database
        self._folder = folder
        self._batches = batches(rows)
        self._size = nbytes(self._batches)
        self._numbers = itertools.count()

    def tier(self) -> Measured:
        """A table that is not in the lake at all."""
        path = self._fill(self._new(), self._batches)

        def work() -> tuple[float, object]:
            return self._size, tier_table(self._connection, path, allow_tiering=True).rows

        return stopwatch(work)

    def by_hand(self) -> Measured:
        """Scan to Arrow and append to Iceberg; no offsets, no bucket columns, no second commit."""
        path = self._plain
        catalog = self._catalog
        target = catalog.create_table(f"hand.t{next(self._numbers)}", SCHEMA)

        def work() -> tuple[float, object]:
            read = self._scanned(path)
            target.append(read)
            return self._size, read.num_rows

        return stopwatch(work)

    def union_read(self) -> Measured:
        """Most from Iceberg, the rest from the log."""
        path = self._tiered

        def work() -> tuple[float, object]:
            return self._size, _summed(read_table(self._connection, path).read_all())

        return stopwatch(work)

    def log_scan(self) -> Measured:
        """The same rows from the log alone."""
        path = self._tiered
        return stopwatch(lambda: (self._size, _summed(self._scanned(path))))

    @cached_property
    def _plain(self) -> TablePath:
        return self._fill(self._new(), self._batches)

    @cached_property
    def _tiered(self) -> TablePath:
        path = self._new()
        cut = max(1, int(len(self._batches) * (1 - TAIL)))
        self._fill(path, self._batches[:cut])
        tier_table(self._connection, path, allow_tiering=True)
        return self._fill(path, self._batches[cut:])

    @cached_property
    def _catalog(self) -> SqlCatalog:
        warehouse = self._folder / "warehouse"
        warehouse.mkdir()
        catalog = SqlCatalog(
            "hand",
            uri=f"sqlite:///{self._folder}/catalog.db",
            warehouse=str(warehouse),
        )
        catalog.create_namespace("hand")
        return catalog

    def _new(self) -> TablePath:
        path = TablePath(self._database, f"t{next(self._numbers)}")
        descriptor = TableDescriptor(Schema(SCHEMA), bucket_count=1, properties=LAKE)
        self._connection.get_admin().result().create_table(path, descriptor).result(60)
        return path

    def _fill(self, path: TablePath, rows: Sequence[pa.RecordBatch]) -> TablePath:
        with self._connection.get_table(path).result().new_append().create_writer() as writer:
            for batch in rows:
                writer.write_arrow_batch(batch)
        return path

    def _scanned(self, path: TablePath) -> pa.Table:
        table = self._connection.get_table(path).result()
        scanner = table.new_scan().create_record_batch_log_scanner().result()
        scanner.subscribe(0, EARLIEST_OFFSET)
        try:
            return scanner.to_arrow()
        finally:
            scanner.close()


def _summed(read: pa.Table) -> tuple[int, int]:
    return read.num_rows, pc.sum(read.column("id")).as_py()
