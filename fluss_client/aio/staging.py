"""Rows between the fetcher and whoever polls for records.

They are taken in as Arrow and become records when they are asked for, on the thread that asks: so
a blocking caller makes them itself, and goes to the event loop once for many polls.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Collection, Iterator

from fluss_client.aio.fetch_state import Piece
from fluss_client.aio.records import RecordRun, build_records
from fluss_client.errors import FlussError
from fluss_client.model.records import ScanRecord, ScanRecords
from fluss_client.model.table import TableBucket

ROWS_AT_ONCE_MAX = 4096
"""Records that are built at a time, which may be on the event loop."""


class StagedRecords:
    """Rows that were not handed out yet; a cancelled poll loses none. Any thread may use it."""

    __slots__ = ("_at", "_lock", "_one_by_one", "_pieces", "count")

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._pieces: deque[Piece] = deque()
        self._at = 0
        """Rows of the first piece that were handed out."""
        self._one_by_one: Iterator[ScanRecord] = iter(())
        """The next rows of the first piece, while records are taken singly."""
        self.count = 0

    def add(self, piece: Piece) -> None:
        """Put the rows of a piece at the end."""
        with self._lock:
            if piece.batch.num_rows:
                self._pieces.append(piece)
                self.count += piece.batch.num_rows

    def take(self, limit: int, at_least: int = 1) -> ScanRecords:
        """Some records, at most so many, oldest first within each bucket; none of too few."""
        with self._lock:
            if self.count < at_least:
                return ScanRecords({})
            self._one_by_one = iter(())
            found: dict[TableBucket, Collection[ScanRecord]] = {}
            left = min(limit, ROWS_AT_ONCE_MAX)
            while self._pieces and left > 0:
                bucket = self._pieces[0].bucket
                try:
                    run = self._first_rows(left)
                except FlussError:
                    # Nothing is skipped: these rows are the next ones again.
                    if not found:
                        raise
                    break
                before = found.get(bucket)
                found[bucket] = run if before is None else [*before, *run]
                left -= len(run)
                self._advance(len(run))
            return ScanRecords(found)

    def take_one(self) -> ScanRecord:
        """The next record; there must be one."""
        with self._lock:
            record = next(self._one_by_one, None)
            if record is None:
                self._one_by_one = iter(self._first_rows(ROWS_AT_ONCE_MAX))
                record = next(self._one_by_one)
            self._advance(1)
            return record

    def _first_rows(self, limit: int) -> RecordRun:
        piece = self._pieces[0]
        stop = min(self._at + limit, piece.batch.num_rows)
        changes = piece.change_types
        return build_records(
            piece.batch.slice(self._at, stop - self._at),
            piece.base_offset + self._at,
            piece.timestamp,
            None if changes is None else changes[self._at : stop],
        )

    def _advance(self, taken: int) -> None:
        self.count -= taken
        self._at += taken
        if self._at == self._pieces[0].batch.num_rows:
            self._pieces.popleft()
            self._at = 0

    def drop(self, bucket: TableBucket) -> None:
        """Forget a bucket's rows."""
        with self._lock:
            if self._pieces and self._pieces[0].bucket == bucket:
                self._one_by_one = iter(())
                self._at = 0
            self._pieces = deque(piece for piece in self._pieces if piece.bucket != bucket)
            self.count = sum(piece.batch.num_rows for piece in self._pieces) - self._at
