"""Rows cut into units: the same rows give the same units, whatever batches they come in."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from fluss_client.aio.arrow_input import ArrowInput
from fluss_client.aio.pinned import PINNED_BATCHES_MAX
from fluss_client.model.table import TableInfo
from fluss_orchestrate.core.loading.pins import UnitMark
from fluss_orchestrate.core.loading.placing import Placed, Placer

CHANGE_TYPE = "_change_type"
BATCH_BYTES = 1 << 20
BATCH_ROWS_MAX = 50_000


@dataclass(frozen=True)
class Unit:
    """Rows that are sent under one writer id, by where they go."""

    placed: list[Placed]
    batch_rows: int
    bytes: int
    mark: UnitMark


class Cutter:
    """Cuts rows into units of an exact row count and places them.

    Rows of a table without keys go to `bucket`, or to the buckets in turn, one unit each.
    """

    def __init__(self, info: TableInfo, names: list[str], bucket: int | None = None) -> None:
        self._fit = ArrowInput(info.schema, range(len(info.schema.columns)))
        self._names = names
        self._placer = Placer(info)
        self._bucket = bucket

    def units(
        self,
        batches: Iterable[pa.RecordBatch],
        batch_rows: Callable[[pa.RecordBatch], int],
        first: int,
        with_digest: bool,
    ) -> Iterator[Unit]:
        """The units of some rows; the first of them has the number `first` in its load."""
        for number, (rows, each) in enumerate(_gathered(batches, batch_rows), first):
            changes = None
            if CHANGE_TYPE in rows.schema.names and CHANGE_TYPE not in self._names:
                changes = rows.column(CHANGE_TYPE)
            fitted = self._fit.conform(rows.select(self._names))
            digest = digest_of(fitted, changes) if with_digest else ""
            bucket = number if self._bucket is None else self._bucket
            placed = self._placer.place(fitted, changes, bucket)
            yield Unit(placed, each, rows.nbytes, UnitMark(rows.num_rows, digest))


def _gathered(
    batches: Iterable[pa.RecordBatch], batch_rows: Callable[[pa.RecordBatch], int]
) -> Iterator[tuple[pa.RecordBatch, int]]:
    held: list[pa.RecordBatch] = []
    each = held_rows = 0
    for batch in batches:
        if batch.num_rows == 0:
            continue
        each = batch_rows(batch)
        unit_rows = each * PINNED_BATCHES_MAX
        held.append(batch)
        held_rows += batch.num_rows
        while held_rows >= unit_rows:
            whole = pa.concat_batches(held)
            yield whole.slice(0, unit_rows), each
            held = [whole.slice(unit_rows)]
            held_rows -= unit_rows
    if held_rows:
        yield pa.concat_batches(held), each


def batch_rows_of(sample: pa.RecordBatch) -> int:
    """How many rows make a batch of good size, judged by some of them."""
    width = max(1, int(sample.nbytes) // int(sample.num_rows))
    return max(1, min(BATCH_ROWS_MAX, BATCH_BYTES // width))


def digest_of(rows: pa.RecordBatch, changes: pa.Array | None) -> str:
    """A digest of the rows' values, whatever memory they lie in."""
    hasher = hashlib.blake2b(digest_size=16)
    for column in [*rows.columns, *([] if changes is None else [changes])]:
        _feed(hasher, column)
    return hasher.hexdigest()


def _feed(hasher: hashlib.blake2b, column: pa.Array) -> None:
    hasher.update(f"{column.type} {len(column)};".encode())
    if column.null_count and not pa.types.is_nested(column.type):
        # What lies under a null is anything; only that it is null counts.
        hasher.update(pc.is_null(column).to_numpy(zero_copy_only=False).tobytes())
        column = column.drop_null()
    if pa.types.is_boolean(column.type):
        column = column.cast(pa.uint8())  # the last byte of bits has room for anything
    if len(column):
        # Joining copies, so that equal values lie in equal bytes.
        joined = pa.concat_arrays([column, column.slice(0, 0)])
        hasher.update(memoryview(pa.record_batch([joined], ["values"]).serialize()))
