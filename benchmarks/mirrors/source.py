"""The key table that is mirrored, and the ways to its last images."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable
from contextlib import closing
from functools import cached_property
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from benchmarks.key_tables import Ids, KeyTable, every_key, last_images, random_changes
from benchmarks.mirrors.data import DELETED, Sizes
from fluss_client import FlussConnection, TablePath


class Source:
    """A table that has one row per key, and changes when it is told to."""

    def __init__(self, connection: FlussConnection, database: str, size: Sizes) -> None:
        self.connection = connection
        self.size = size
        self.table = KeyTable(connection, TablePath(database, "source"))
        self.table.change(every_key(size.keys))
        self._begin = self.table.end()

    def change(self) -> None:
        """Write all changes."""
        self.table.change(random_changes(self.size.keys, self.size.changes, DELETED))

    @cached_property
    def images(self) -> tuple[pa.Table, Ids]:
        """The last rows and the deleted keys, from what was written: nothing is read for it."""
        changes = random_changes(self.size.keys, self.size.changes, DELETED)
        return last_images(list(changes))

    def reduced_changes(self) -> tuple[pa.Table, Ids]:
        """The same, from the changelog, as a program does it that has the memory."""
        rows = self.table.changelog(self._begin)
        rows = rows.filter(pc.not_equal(rows.column("_change_type"), "-U"))
        ids = rows.column("id").to_numpy()
        last = np.sort(len(ids) - 1 - np.unique(ids[::-1], return_index=True)[1])
        rows = rows.take(pa.array(last))
        is_gone = pc.equal(rows.column("_change_type"), "-D")
        gone = rows.column("id").filter(is_gone).to_numpy()
        return rows.filter(pc.invert(is_gone)).drop_columns(["_change_type"]), gone


def copy_databases(files: Iterable[tuple[Path, Path]]) -> None:
    """Copy SQLite databases over others."""
    for source, target in files:
        with closing(sqlite3.connect(source)) as old, closing(sqlite3.connect(target)) as new:
            old.backup(new)
