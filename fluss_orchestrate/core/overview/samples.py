"""A bounded local record of overviews, for charts and for the first page after a start.

Each series (a table, a checkpoint) has two rings of fixed length: fine samples of the last hours
and coarse ones of the last days. A sample replaces the one at its place in the ring, so the file
has a largest size by construction. It is a cache for people: it may be deleted at any time.

    sample(series, ring, place)   at_ms and up to three values
    kept(one)                     the newest overview, compressed
"""

from __future__ import annotations

import hashlib
import json
import os
import sqlite3
import threading
import zlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from fluss_client.errors import CorruptDataError
from fluss_orchestrate.core.checkpoints.events import now_ms
from fluss_orchestrate.core.overview.figures import Overview

SERIES_MAX = 5_000
"""Further series are not recorded. With full rings, that is about 200 MB."""
LOCK_TIMEOUT_S = 5.0
DATABASE_VERSION = 1
_TABLE, _CHECKPOINT = "table", "checkpoint"
_SCHEMA = """
CREATE TABLE IF NOT EXISTS series (id INTEGER PRIMARY KEY, kind TEXT, name TEXT, seen_ms INTEGER,
    UNIQUE (kind, name));
CREATE TABLE IF NOT EXISTS sample (series INTEGER, ring INTEGER, place INTEGER, at_ms INTEGER,
    one REAL, two REAL, three REAL, PRIMARY KEY (series, ring, place)) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS kept (one INTEGER PRIMARY KEY, body BLOB);
"""


@dataclass(frozen=True, slots=True)
class Ring:
    """Samples at a distance of `step_ms`, so many that they cover the time of the ring."""

    step_ms: int
    length: int

    @property
    def span_ms(self) -> int:
        """The time that the ring covers."""
        return self.step_ms * self.length


RINGS = (Ring(60_000, 180), Ring(1_800_000, 336))
"""Three hours by minutes, and seven days by half hours."""
FINE, COARSE = range(2)


@dataclass(frozen=True, slots=True)
class Sample:
    """The values of a series at one time; None is not known.

    Of a table: offsets, offsets that are not in the lake, the age of the oldest of these in
    seconds. Of a checkpoint: unread offsets, the age of the oldest in seconds, the seconds until
    retention reaches it.
    """

    at_ms: int
    values: tuple[float | None, float | None, float | None]


def samples_path(alias: str, address: str) -> Path:
    """Return the file of a cluster's samples in the user's cache directory."""
    base = os.environ.get("XDG_CACHE_HOME", "")
    folder = Path(base) if os.path.isabs(base) else Path.home() / ".cache"
    place = hashlib.sha256(f"{alias}\n{address}".encode()).hexdigest()[:16]
    return folder / "fluss-orchestrate" / "console" / f"{place}.sqlite"


class Samples:
    """The samples of one cluster in a file. Several threads and processes may use it.

    Args:
        path: The file; its folder is made if it does not exist.
    """

    def __init__(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        self._lock = threading.Lock()
        self._ids: dict[tuple[str, str], int] = {}
        self._slots: dict[tuple[int, int], int] = {}
        """The newest slot that was written, by series and ring."""
        self._database = sqlite3.connect(
            path, timeout=LOCK_TIMEOUT_S, isolation_level=None, check_same_thread=False
        )
        self._prepare()

    def _prepare(self) -> None:
        database = self._database
        database.execute("PRAGMA journal_mode=WAL")
        # The samples can be taken again: a power cut may lose the last of them.
        database.execute("PRAGMA synchronous=OFF")
        version = database.execute("PRAGMA user_version").fetchone()[0]
        if version not in (0, DATABASE_VERSION):
            for table in ("series", "sample", "kept"):
                database.execute(f"DROP TABLE IF EXISTS {table}")
        database.executescript(_SCHEMA)
        database.execute(f"PRAGMA user_version={DATABASE_VERSION}")

    def add(self, overview: Overview) -> None:
        """Record an overview: as the newest one, and as a sample of each series that is due."""
        body = zlib.compress(json.dumps(overview.to_json()).encode(), 1)
        with self._lock, self._database:
            self._database.execute("BEGIN IMMEDIATE")
            self._database.execute("INSERT OR REPLACE INTO kept VALUES (1, ?)", (body,))
            self._forget(overview.observed_ms)
            for kind, name, values in _series_of(overview):
                self._sample(kind, name, overview.observed_ms, values)

    def _sample(self, kind: str, name: str, at_ms: int, values: Sequence[float | None]) -> None:
        series = self._series(kind, name, at_ms)
        if series is None:
            return
        for number, ring in enumerate(RINGS):
            slot = at_ms // ring.step_ms
            if self._slots.get((series, number)) == slot:
                continue
            self._slots[series, number] = slot
            self._database.execute(
                "INSERT OR REPLACE INTO sample VALUES (?, ?, ?, ?, ?, ?, ?)",
                (series, number, slot % ring.length, at_ms, *values),
            )
            self._database.execute("UPDATE series SET seen_ms=? WHERE id=?", (at_ms, series))

    def _series(self, kind: str, name: str, at_ms: int) -> int | None:
        known = self._ids.get((kind, name))
        if known is not None:
            return known
        execute = self._database.execute
        row = execute("SELECT id FROM series WHERE kind=? AND name=?", (kind, name)).fetchone()
        if row is None:
            if execute("SELECT count(*) FROM series").fetchone()[0] >= SERIES_MAX:
                return None
            row = execute(
                "INSERT INTO series (kind, name, seen_ms) VALUES (?, ?, ?) RETURNING id",
                (kind, name, at_ms),
            ).fetchone()
        self._ids[kind, name] = int(row[0])
        return int(row[0])

    def _forget(self, at_ms: int) -> None:
        """Delete series that no overview had for as long as the longest ring."""
        horizon = at_ms - max(ring.span_ms for ring in RINGS)
        old = "SELECT id FROM series WHERE seen_ms < ?"
        gone = [row[0] for row in self._database.execute(old, (horizon,))]
        for series in gone:
            self._database.execute("DELETE FROM sample WHERE series=?", (series,))
            self._database.execute("DELETE FROM series WHERE id=?", (series,))
        if gone:
            self._ids.clear()
            self._slots.clear()

    def newest(self) -> Overview | None:
        """Return the newest overview; None if there is none that this release can read."""
        with self._lock:
            row = self._database.execute("SELECT body FROM kept").fetchone()
        if row is None:
            return None
        try:
            return Overview.from_json(json.loads(zlib.decompress(row[0])))
        except (CorruptDataError, ValueError, TypeError, KeyError, zlib.error):
            return None

    def of_table(self, table: str, ring: int = FINE) -> list[Sample]:
        """Return the samples of a table, in order."""
        return self.of_many(_TABLE, [table], ring).get(table, [])

    def of_checkpoint(self, name: str, ring: int = FINE) -> list[Sample]:
        """Return the samples of a checkpoint, in order."""
        return self.of_many(_CHECKPOINT, [name], ring).get(name, [])

    def of_checkpoints(self, names: Sequence[str]) -> Mapping[str, list[Sample]]:
        """Return the fine samples of some checkpoints."""
        return self.of_many(_CHECKPOINT, names, FINE)

    def of_tables(self, names: Sequence[str]) -> Mapping[str, list[Sample]]:
        """Return the fine samples of some tables."""
        return self.of_many(_TABLE, names, FINE)

    def of_many(self, kind: str, names: Sequence[str], ring: int) -> dict[str, list[Sample]]:
        """Return the samples of some series that are not older than the ring covers."""
        found: dict[str, list[Sample]] = {}
        oldest = now_ms() - RINGS[ring].span_ms
        query = (
            "SELECT at_ms, one, two, three FROM sample JOIN series ON series.id = sample.series "
            "WHERE kind=? AND name=? AND ring=? AND at_ms > ? ORDER BY at_ms"
        )
        with self._lock:
            for name in names:
                rows = self._database.execute(query, (kind, name, ring, oldest)).fetchall()
                found[name] = [Sample(row[0], (row[1], row[2], row[3])) for row in rows]
        return found

    def close(self) -> None:
        """Close the file."""
        with self._lock:
            self._database.close()


def _series_of(
    overview: Overview,
) -> Iterable[tuple[str, str, tuple[float | None, float | None, float | None]]]:
    now = overview.observed_ms

    def seconds_since(ms: int | None) -> float | None:
        return None if ms is None else max(0.0, (now - ms) / 1000)

    for table in overview.tables:
        if table.problem:
            continue
        lake = table.lake
        behind = None if lake is None else float(lake.behind)
        age = None if lake is None else seconds_since(lake.oldest_ms)
        yield _TABLE, table.table, (float(table.offsets), behind, age)
    for one in overview.checkpoints:
        if one.retired or one.unread is None:
            continue
        left = None if one.expires_ms is None else (one.expires_ms - now) / 1000
        yield (
            _CHECKPOINT,
            one.name,
            (float(one.unread), seconds_since(one.oldest_ms), left),
        )
