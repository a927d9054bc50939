"""Rows cut into units: the same rows give the same units, whatever batches they come in."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Protocol

import pyarrow as pa
import pyarrow.compute as pc

from fluss_client.aio.arrow_input import ArrowInput
from fluss_client.aio.pinned import PINNED_BATCHES_MAX
from fluss_client.errors import RowError
from fluss_client.model.cluster import ChangeType
from fluss_client.model.table import TableInfo
from fluss_orchestrate.core.loading.pins import DIGEST_OF_TABLE, Cut, UnitMark
from fluss_orchestrate.core.loading.placing import Changes, Placed, Placer
from fluss_orchestrate.core.loading.target_columns import TargetColumns

CHANGE_TYPE = "_change_type"
BATCH_BYTES = 1 << 20
BATCH_ROWS_MAX = 50_000


class BatchRows(Protocol):
    """How a load is cut. The first call may decide it, by the rows that it gets."""

    def __call__(self, sample: pa.RecordBatch) -> int:
        """How many rows a batch has."""

    @property
    def cut(self) -> Cut:
        """What was decided; known after the first call."""


@dataclass(frozen=True)
class Unit:
    """Rows that are sent under one writer id, by where they go."""

    placed: list[Placed]
    batch_rows: int
    bytes: int
    mark: UnitMark
    target_columns: tuple[int, ...] | None = None
    """The columns that upserts write, by position; None for all."""
    refusal: RowError | None = None
    """Why these rows must not be sent. A load that is done may be verified with them."""


class Cutter:
    """Cuts rows into units of an exact row count and places them.

    Rows of a table without keys go to `bucket`, or to the buckets in turn, one unit each.
    `columns` says which columns upserts write.
    """

    def __init__(
        self,
        info: TableInfo,
        names: list[str],
        bucket: int | None = None,
        columns: TargetColumns | None = None,
    ) -> None:
        self._columns = columns or TargetColumns()
        targets = self._columns.positions
        given = range(len(info.schema.columns)) if targets is None else targets
        self._fit = ArrowInput(info.schema, given)
        self._info = info
        self._names = names
        self._placer = Placer(info)
        self._bucket = bucket

    def units(
        self,
        batches: Iterable[pa.RecordBatch],
        batch_rows: BatchRows,
        first: int,
        with_digest: bool,
    ) -> Iterator[Unit]:
        """The units of some rows; the first of them has the number `first` in its load."""
        first_row = 0
        for number, (rows, each) in enumerate(_gathered(batches, batch_rows), first):
            changes = self._changes(rows, first_row)
            fitted = self._fit.conform(rows.select(self._names))
            mark = UnitMark(rows.num_rows, "")
            if with_digest:
                mark = self._mark(fitted, rows, changes, batch_rows.cut)
            bucket = number if self._bucket is None else self._bucket
            yield Unit(
                self._placer.place(fitted, changes, bucket),
                each,
                rows.nbytes,
                mark,
                self._columns.positions,
                self._columns.refusal(changes, first_row),
            )
            first_row += rows.num_rows

    def check(self, rows: pa.RecordBatch | pa.Table) -> None:
        """Check all rows before any of them is sent.

        Raises:
            ChangeTypeError: A row's change type is null or unknown.
            RowError: The rows lack columns that they need.
        """
        self._columns.check(self._changes(rows, 0), 0)

    def _changes(self, rows: pa.RecordBatch | pa.Table, first_row: int) -> Changes:
        """What happened to each row; None if the rows do not say it."""
        if not self._has_changes(rows.schema):
            return None
        return ChangeType.codes_of(rows.column(CHANGE_TYPE), CHANGE_TYPE, first_row)

    def _has_changes(self, schema: pa.Schema) -> bool:
        return CHANGE_TYPE in schema.names and CHANGE_TYPE not in self._names

    def _mark(
        self, fitted: pa.RecordBatch, rows: pa.RecordBatch, changes: Changes, cut: Cut
    ) -> UnitMark:
        if cut.digest_version == DIGEST_OF_TABLE:
            raw = rows.column(CHANGE_TYPE) if self._has_changes(rows.schema) else None
            *earlier, digest = digests_of_table(fitted, raw)
            return UnitMark(rows.num_rows, digest, tuple(earlier))
        own = self._names
        begun = [name for name in cut.columns if name != CHANGE_TYPE]
        more = [name for name in own if name not in begun]
        # Rows that got columns without values since the load was begun are the same rows.
        if set(begun) <= set(own) and all(_is_null(fitted.column(name)) for name in more):
            own = begun or own
        return UnitMark(rows.num_rows, digest_of(fitted.select(sorted(own)), changes))


def _gathered(
    batches: Iterable[pa.RecordBatch], batch_rows: BatchRows
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


def digest_of(rows: pa.RecordBatch, changes: Changes) -> str:
    """A digest of the rows' columns by name and value, whatever memory they lie in."""
    hasher = hashlib.blake2b(digest_size=16)
    for name, column in zip(rows.schema.names, rows.columns, strict=True):
        hasher.update(f"{len(name)}:{name} ".encode())
        _feed(hasher, column)
    if changes is not None:
        hasher.update(f"changes {len(changes)};".encode())
        hasher.update(changes.tobytes())
    return hasher.hexdigest()


def digests_of_table(rows: pa.RecordBatch, changes: pa.Array | None) -> list[str]:
    """The digests of version 1 that these rows may have had, the last one as of now.

    They are over all columns that the table had. Columns are only ever added at the end, so the
    table may have had fewer of the last ones, as long as no row has a value there.
    """
    fewest = rows.num_columns
    while fewest > 1 and _is_null(rows.column(fewest - 1)):
        fewest -= 1
    hasher = hashlib.blake2b(digest_size=16)
    for column in rows.columns[:fewest]:
        _feed(hasher, column)
    digests = []
    for at in range(fewest, rows.num_columns + 1):
        ended = hasher.copy()
        if changes is not None:
            _feed(ended, changes)
        digests.append(ended.hexdigest())
        if at < rows.num_columns:
            _feed(hasher, rows.column(at))
    return digests


def _is_null(column: pa.Array) -> bool:
    return int(column.null_count) == len(column)


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
