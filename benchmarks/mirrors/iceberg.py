"""A mirror in Iceberg with equality deletes, and the same bytes written by pyiceberg.

pyiceberg cannot write equality deletes: the keys go into a table of their own.
"""

from __future__ import annotations

import itertools
from pathlib import Path

import pyarrow as pa

from benchmarks.harness import Measured, stopwatch
from benchmarks.key_tables import SCHEMA, Ids
from benchmarks.mirrors.source import Source, copy_databases
from fluss_orchestrate import IcebergSink, SqlCheckpointStore, mirror_table
from fluss_orchestrate.core.lake.catalog import open_catalog

NAMESPACE = "mirrors"
TABLE, CHECKPOINT = f"{NAMESPACE}.target", "to-iceberg"


class IcebergCopy:
    """The mirror after its first plan, which each round begins with."""

    def __init__(self, source: Source, folder: Path) -> None:
        self._source = source
        self._folder = folder
        self._numbers = itertools.count()
        self._by_hand = open_catalog(self._properties("hand"))
        self._by_hand.create_namespace(NAMESPACE)
        self._mirrored("first")
        # Files of a table never change, so its catalog is all that is to be kept of it.
        self._kept = [
            (folder / "kept-catalog.db", folder / "catalog.db"),
            (folder / "kept-checkpoints.db", folder / "checkpoints.db"),
        ]
        copy_databases((work, kept) for kept, work in self._kept)

    def mirror(self) -> Measured:
        """The second plan of the mirror."""
        copy_databases(self._kept)
        measured = stopwatch(lambda: (self._source.size.changes, self._mirrored("second")))
        table = open_catalog(self._properties("catalog")).load_table(TABLE)
        snapshot = table.current_snapshot()
        assert snapshot is not None
        assert snapshot.summary is not None
        names = ("added-records", "added-equality-deletes")
        return Measured(measured.value, tuple(int(snapshot.summary[name] or 0) for name in names))

    def append_images(self) -> Measured:
        """The last images alone, which are in memory."""
        images = self._source.images
        self._new_tables()
        return stopwatch(lambda: (self._source.size.changes, self._appended(*images)))

    def append_changes(self) -> Measured:
        """The changelog by a scanner, its last images, then the same."""
        self._new_tables()

        def work() -> tuple[float, object]:
            return self._source.size.changes, self._appended(*self._source.reduced_changes())

        return stopwatch(work)

    def _mirrored(self, run_key: str) -> None:
        store = SqlCheckpointStore(f"sqlite:///{self._folder}/checkpoints.db")
        sink = IcebergSink(self._properties("catalog"), TABLE, form="mirror", write_mode="equality")
        table = self._source.table
        mirror_table(
            table.connection, table.path, sink, run_key, checkpoint=CHECKPOINT, store=store
        )

    def _new_tables(self) -> None:
        number = next(self._numbers)
        self._rows = self._by_hand.create_table(f"{NAMESPACE}.rows{number}", SCHEMA)
        key = pa.schema([SCHEMA.field("id")])
        self._keys = self._by_hand.create_table(f"{NAMESPACE}.keys{number}", key)

    def _appended(self, rows: pa.Table, gone: Ids) -> tuple[int, int]:
        """Write the rows, and the keys of all rows that are replaced or deleted."""
        self._rows.append(rows)
        deleted = pa.concat_arrays([*rows.column("id").chunks, pa.array(gone)])
        keys = pa.Table.from_arrays([deleted], schema=self._keys.schema().as_arrow())
        self._keys.append(keys)
        return rows.num_rows, keys.num_rows

    def _properties(self, name: str) -> dict[str, str]:
        return {
            "type": "sql",
            "uri": f"sqlite:///{self._folder}/{name}.db",
            "warehouse": f"file://{self._folder}",
        }
