"""Rows cut into units: the same rows give the same units, whatever batches they come in."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from fluss_client.aio.arrow_input import ArrowInput
from fluss_client.aio.pinned import PINNED_BATCHES_MAX
from fluss_client.errors import RowError
from fluss_client.model.cluster import ChangeType
from fluss_client.model.table import TableInfo
from fluss_orchestrate.core.loading.pins import DIGEST_OF_TABLE, UnitMark
from fluss_orchestrate.core.loading.placing import Changes, Placed, Placer

CHANGE_TYPE = "_change_type"
BATCH_BYTES = 1 << 20
BATCH_ROWS_MAX = 50_000


class BatchRows(Protocol):
    """How a load is cut. The first call may decide it, by the rows that it gets."""

    def __call__(self, sample: pa.RecordBatch) -> int:
        """How many rows a batch has."""

    @property
    def digest_version(self) -> int:
        """What digests are taken of; known after the first call."""


@dataclass(frozen=True)
class Unit:
    """Rows that are sent under one writer id, by where they go."""

    placed: list[Placed]
    batch_rows: int
    bytes: int
    mark: UnitMark
    target_columns: tuple[int, ...] | None = None
    """The columns that upserts write, by position; None for all."""


class Cutter:
    """Cuts rows into units of an exact row count and places them.

    Rows of a table without keys go to `bucket`, or to the buckets in turn, one unit each. With
    `target_columns`, upserts write only those columns, and deletes are refused.
    """

    def __init__(
        self,
        info: TableInfo,
        names: list[str],
        bucket: int | None = None,
        target_columns: Sequence[int] | None = None,
    ) -> None:
        given = range(len(info.schema.columns)) if target_columns is None else target_columns
        self._fit = ArrowInput(info.schema, given)
        self._info = info
        self._names = names
        self._placer = Placer(info)
        self._bucket = bucket
        self._targets = None if target_columns is None else tuple(target_columns)

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
            changes = self.changes(rows, first_row)
            fitted = self._fit.conform(rows.select(self._names))
            mark = UnitMark(rows.num_rows, "")
            if with_digest and batch_rows.digest_version == DIGEST_OF_TABLE:
                mark = self._mark_of_table(fitted, rows)
            elif with_digest:
                own = fitted.select(sorted(self._names))
                mark = UnitMark(rows.num_rows, digest_of(own, changes))
            bucket = number if self._bucket is None else self._bucket
            placed = self._placer.place(fitted, changes, bucket)
            yield Unit(placed, each, rows.nbytes, mark, self._targets)
            first_row += rows.num_rows

    def changes(self, rows: pa.RecordBatch | pa.Table, first_row: int = 0) -> Changes:
        """What happened to each row, None if the rows do not say it.

        Args:
            rows: The rows.
            first_row: The number of the first of them in the load, for errors.

        Raises:
            ChangeTypeError: A row's change type is null or unknown.
            RowError: A row is a delete, and the rows do not have all columns.
        """
        if CHANGE_TYPE not in rows.schema.names or CHANGE_TYPE in self._names:
            return None
        codes = ChangeType.codes_of(rows.column(CHANGE_TYPE), CHANGE_TYPE, first_row)
        if self._targets is not None:
            check_no_deletes(self._info, self._targets, codes, first_row)
        return codes

    def _mark_of_table(self, fitted: pa.RecordBatch, rows: pa.RecordBatch) -> UnitMark:
        """The mark as the first version took it: over all columns that the table had then.

        Columns are only ever added at the end, and those that the load does not have are null. So
        the table had as many columns as it has now, or fewer of the last ones.
        """
        own = [self._info.schema.index[name] for name in self._names]
        changes = None
        if CHANGE_TYPE in rows.schema.names and CHANGE_TYPE not in self._names:
            changes = rows.column(CHANGE_TYPE)
        *earlier, digest = digests_of_table(fitted, changes, max(own, default=0) + 1)
        return UnitMark(rows.num_rows, digest, tuple(earlier))


def check_no_deletes(
    info: TableInfo, targets: Sequence[int], codes: npt.NDArray[np.uint8], first_row: int | None
) -> None:
    """`RowError` for a delete among rows that do not have all columns.

    It names the row if `first_row`, the number of the first one, is known.

    The server takes a delete of some columns as "set these to null": the row stays as long as
    another column has a value.
    """
    deletes = codes == ChangeType.Delete
    if not deletes.any():
        return
    columns = info.schema.columns
    missing = [c.name for at, c in enumerate(columns) if at not in targets]
    row = "the row"
    if first_row is not None:
        row = f"row {first_row + int(deletes.argmax())}, counted from 0,"
    raise RowError(
        f"{row} is a delete, and the rows lack {', '.join(missing)} of {info.table_path}. Rows "
        "with deletes need all columns of the table: a delete of some columns only sets them to "
        "null. Give the rows all columns; of a delete only the key counts, its other values may be "
        "null"
    )


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


def digests_of_table(rows: pa.RecordBatch, changes: pa.Array | None, fewest: int) -> list[str]:
    """Digests of version 1 over the first `fewest` columns, over one more, and so on."""
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
