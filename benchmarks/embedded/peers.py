"""The same work by hand: SQLite row by row, DuckDB with Arrow."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import duckdb
import pyarrow as pa

Rows = list[tuple[object, ...]]


class Sqlite:
    """Plain SQLite in WAL mode, every commit on disk, as the embedded engine has it."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._db = sqlite3.connect(folder / "by-hand.db", isolation_level=None)
        for pragma in ("journal_mode=WAL", "synchronous=FULL", "cache_size=-65536"):
            self._db.execute(f"PRAGMA {pragma}").fetchone()

    def close(self) -> None:
        self._db.close()

    def new_log(self, name: str) -> None:
        """An empty table of rows."""
        self._db.execute(f"DROP TABLE IF EXISTS {name}")
        self._db.execute(f"CREATE TABLE {name} (id INTEGER, price REAL, amount INTEGER, name TEXT)")

    def append(self, name: str, rows: Rows, times: int) -> None:
        """Insert rows so often, each time in a transaction of its own."""
        for _ in range(times):
            self._db.execute("BEGIN IMMEDIATE")
            self._db.executemany(f"INSERT INTO {name} VALUES (?, ?, ?, ?)", rows)
            self._db.execute("COMMIT")

    def scan(self, name: str, columns: str) -> Rows:
        """Every row."""
        return self._db.execute(f"SELECT {columns} FROM {name}").fetchall()

    def new_keys(self) -> None:
        """An empty table of keys with a changelog that triggers keep."""
        for table in ("keys", "changes"):
            self._db.execute(f"DROP TABLE IF EXISTS {table}")
        self._db.execute("CREATE TABLE keys (k INTEGER PRIMARY KEY, a TEXT, b INTEGER)")
        self._db.execute(
            "CREATE TABLE changes "
            "(at INTEGER PRIMARY KEY, kind INTEGER, k INTEGER, a TEXT, b INTEGER)"
        )
        self._db.execute(
            "CREATE TRIGGER inserted AFTER INSERT ON keys BEGIN "
            "INSERT INTO changes (kind, k, a, b) VALUES (1, new.k, new.a, new.b); END"
        )
        self._db.execute(
            "CREATE TRIGGER updated AFTER UPDATE ON keys BEGIN "
            "INSERT INTO changes (kind, k, a, b) VALUES (2, old.k, old.a, old.b); "
            "INSERT INTO changes (kind, k, a, b) VALUES (3, new.k, new.a, new.b); END"
        )

    def upsert(self, batches: list[Rows]) -> None:
        """Upsert batches, each in a transaction of its own."""
        for rows in batches:
            self._db.execute("BEGIN IMMEDIATE")
            self._db.executemany(
                "INSERT INTO keys VALUES (?, ?, ?) "
                "ON CONFLICT (k) DO UPDATE SET a = excluded.a, b = excluded.b",
                rows,
            )
            self._db.execute("COMMIT")

    def lookup(self, keys: list[int]) -> int:
        """How many of the keys have a row, asked one by one."""
        find = self._db.execute
        question = "SELECT k, a, b FROM keys WHERE k = ?"
        return sum(find(question, (key,)).fetchone() is not None for key in keys)


class Duck:
    """DuckDB with one file; its commits are on disk, too."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._db = duckdb.connect(str(folder / "duck.db"))

    def close(self) -> None:
        self._db.close()

    def new_log(self, name: str) -> None:
        """An empty table of rows."""
        columns = "id BIGINT, price DOUBLE, amount BIGINT, name VARCHAR"
        self._db.execute(f"DROP TABLE IF EXISTS {name}")
        self._db.execute(f"CREATE TABLE {name} ({columns})")

    def append(self, name: str, batch: pa.RecordBatch, times: int) -> None:
        """Insert a batch so often, each time in a transaction of its own."""
        self._db.register("incoming", pa.Table.from_batches([batch]))
        for _ in range(times):
            self._db.execute(f"INSERT INTO {name} SELECT * FROM incoming")
        self._db.unregister("incoming")

    def scan(self, name: str, columns: str) -> pa.Table:
        """Every row as Arrow."""
        return self._db.execute(f"SELECT {columns} FROM {name}").to_arrow_table()
