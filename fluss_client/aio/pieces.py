"""Pieces of what callers wrote: some rows of one call for one bucket."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from fluss_client.codec.blobs import Blobs
from fluss_client.model.table import TableBucket

Deletes = npt.NDArray[np.bool_] | None
ANY_ROWS = sys.maxsize


@dataclass(frozen=True, slots=True)
class Prepared:
    """Keys and rows of some upserts as bytes; the rows of deletes are empty."""

    keys: Blobs
    values: Blobs
    deletes: Deletes
    arrow: tuple[pa.RecordBatch, ...]
    """The rows that are not deletes."""


@dataclass(slots=True)
class Piece:
    """Rows of one call for one bucket, in the table's wire schema."""

    bucket: TableBucket
    rows: pa.RecordBatch
    deletes: Deletes
    """Which rows are deletes by key; None when none is."""
    nbytes: int
    prepared: Prepared | None = None


def combined(pieces: Sequence[Piece]) -> tuple[pa.RecordBatch, Deletes]:
    """All rows as one record batch, and which of them are deletes."""
    if len(pieces) == 1:
        return pieces[0].rows, pieces[0].deletes
    table = pa.Table.from_batches([piece.rows for piece in pieces]).combine_chunks()
    rows = table.to_batches()[0]
    return rows, joined_deletes([(piece.deletes, piece.rows.num_rows) for piece in pieces])


def joined_deletes(parts: Sequence[tuple[Deletes, int]]) -> Deletes:
    """The marks of deletes of parts with so many rows each, one after the other."""
    if all(deletes is None for deletes, _ in parts):
        return None
    return np.concatenate(
        [np.zeros(count, bool) if deletes is None else deletes for deletes, count in parts]
    )


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
