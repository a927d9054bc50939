"""Pieces of what callers wrote, and the batches that they are gathered into, one per bucket.

A piece is some rows of one call for one bucket. Pieces of a bucket gather in its open batch until
that has `writer.batch-size` bytes, or is due (`writer.batch-timeout-ms`, a flush, someone waiting)
and the bucket can take another batch. Their order is never changed.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import dataclass, field

import pyarrow as pa

from fluss_client.aio.channels import Deletes, Prepared, joined_deletes
from fluss_client.aio.write_handle import WriteResultHandle
from fluss_client.backend.contract import NO_WRITER, Payload
from fluss_client.errors import FlussError
from fluss_client.model.table import TableBucket, TableInfo

NO_SEQUENCE = -1
KEY_ROWS_MAX = 60_000
"""Fluss 0.9 keeps the change types of a batch's changelog, of which an update makes two, in one
page of 128 KiB, and fails for good on a batch that makes more."""
ANY_ROWS = sys.maxsize


def rows_max_of(table: TableInfo) -> int:
    """So many rows may be in one batch."""
    return KEY_ROWS_MAX if table.has_primary_key() else ANY_ROWS


@dataclass(slots=True)
class Piece:
    """Rows of one call for one bucket, in the table's wire schema."""

    bucket: TableBucket
    rows: pa.RecordBatch
    deletes: Deletes
    """Which rows are deletes by key; None when none is."""
    nbytes: int
    prepared: Prepared | None = None


@dataclass(slots=True, eq=False)
class Batch:
    """Rows for one bucket that are encoded, sent, acknowledged or lost together."""

    bucket: TableBucket
    due: float
    pieces: list[Piece] = field(default_factory=list)
    handles: list[WriteResultHandle] = field(default_factory=list)
    """One per piece."""
    nbytes: int = 0
    """Bytes held against the buffer's bound."""
    row_count: int = 0
    number: int = -1
    """Its place among the batches of the bucket."""
    sealed_at: float = 0.0
    payload: Payload | None = None
    writer_id: int = NO_WRITER
    sequence: int = NO_SEQUENCE
    attempts: int = 0
    behind: bool = False
    """Whether an earlier batch of the bucket was unacknowledged when this one was sent."""
    maybe_written: bool = False
    """Whether an attempt ended without saying if the rows are in the log."""
    last_error: FlussError | None = None
    offset: int = -1
    done: bool = False

    def add(self, piece: Piece, handle: WriteResultHandle) -> None:
        """Take rows in behind those that are there."""
        self.pieces.append(piece)
        self.handles.append(handle)
        self.nbytes += piece.nbytes
        self.row_count += piece.rows.num_rows

    def combined(self) -> tuple[pa.RecordBatch, Deletes]:
        """All rows as one record batch, and which of them are deletes."""
        pieces = self.pieces
        if len(pieces) == 1:
            return pieces[0].rows, pieces[0].deletes
        table = pa.Table.from_batches([piece.rows for piece in pieces]).combine_chunks()
        rows = table.to_batches()[0]
        return rows, joined_deletes([(piece.deletes, piece.rows.num_rows) for piece in pieces])


def cut(
    rows: pa.RecordBatch, deletes: Deletes, bytes_max: int, rows_max: int = ANY_ROWS
) -> Iterator[tuple[pa.RecordBatch, Deletes, int]]:
    """The rows in slices within both bounds, copying nothing; a large row stands alone."""
    nbytes, count = rows.nbytes, rows.num_rows
    if (nbytes <= bytes_max and count <= rows_max) or count <= 1:
        yield rows, deletes, nbytes
        return
    parts = min(count, max(-(-nbytes // bytes_max), -(-count // rows_max)))
    for part in range(parts):
        first, last = count * part // parts, count * (part + 1) // parts
        mask = None if deletes is None else deletes[first:last]
        # Rows of uneven size make a slice too large: it is cut again.
        yield from cut(rows.slice(first, last - first), mask, bytes_max, rows_max)
