"""The batches that pieces of what callers wrote are gathered into, one per bucket.

Pieces of a bucket gather in its open batch until that has `writer.batch-size` bytes (an eighth for
Arrow while workers stand idle), or is due (`writer.batch-timeout-ms`, a flush, someone waiting) and
the bucket can take another batch. Their order is never changed.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from fluss_client.aio.pieces import ANY_ROWS, Piece
from fluss_client.aio.write_handle import WriteResultHandle
from fluss_client.backend.contract import NO_WRITER, Payload
from fluss_client.errors import FlussError
from fluss_client.model.table import TableBucket, TableInfo

NO_SEQUENCE = -1
KEY_ROWS_MAX = 60_000
"""Fluss 0.9 keeps the change types of a batch's changelog, of which an update makes two, in one
page of 128 KiB, and fails for good on a batch that makes more."""


def rows_max_of(table: TableInfo) -> int:
    """So many rows may be in one batch."""
    return KEY_ROWS_MAX if table.has_primary_key() else ANY_ROWS


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
