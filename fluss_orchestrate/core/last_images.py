"""The last image of each key of a range of changes, in bounded memory.

Who applies a changelog to a target that replaces rows by key needs one row per key: the last one.
`LastImages` takes changes in their order and keeps the last change of each key. Beyond a limit, the
rows are written to a temporary file as they come, and only their keys are compared: each key leads
to the number of its last row. If the keys alone are too many, they are spread by their hash over
files, and each of these hash partitions is reduced by itself; one that is still larger than the
limit is spread again. At the end the rows are read once more, in their order, and those stay that
are the last ones of their keys.

The first change of a key tells whether the key had a row before: an insert (`+I`) says that it had
none. So a target does not have to delete an earlier row of such a key.
"""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Self

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from fluss_client import ChangeType
from fluss_client.errors import SchemaError, StorageError
from fluss_orchestrate.core.key_sets import is_whole_number, whole_numbers
from fluss_orchestrate.core.value_hashes import row_hashes, value_hashes

LIMIT_BYTES = 64 << 20
"""Rows beyond this are written to disk, and so are their keys."""
BATCH_BYTES_MIN = 1 << 20
"""Smaller batches are put together before they are written or returned."""
HASH_PARTITIONS = 32
"""How many files the keys are spread over."""
HASHED_AT_ONCE_ROWS = 1 << 16
"""Hashing text takes eight times its size and more."""
DEPTH_MAX = 4
"""How often a hash partition that is too large is spread again."""

# No column of a table begins with this character.
_STAYS, _WAS_ABSENT, _ROW = "\x01stays", "\x01was_absent", "\x01row"
_CODES_MAX = 1 << 62

Numbers = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class KeyImages:
    """The last images of some keys. No key is in two of them.

    Attributes:
        upserts: The rows of the keys that have one after the changes, in the order of the changes.
        deletes: The last rows of the keys that have none after the changes.
        inserted: For each row of `upserts`, whether the key had no row before the changes: its
            first change was an insert. Nothing has to be deleted for it.
        vanished: For each row of `deletes`, whether the key had no row before the changes: it was
            inserted and deleted again. Nothing has to be done for it.
    """

    upserts: pa.RecordBatch
    deletes: pa.RecordBatch
    inserted: pa.BooleanArray
    vanished: pa.BooleanArray


class LastImages:
    """One change per key: the last one of all changes that were added.

    Use it as a context manager, so that its files are deleted.

    Args:
        keys: The names of the key's columns.
        limit_bytes: How many bytes of rows, and as many of keys, are kept in memory before they go
            to disk.
        change_type: The name of the column with the change types, in any of their forms.
        folder: Where the temporary folder is made; by default, where the system has its own.
    """

    def __init__(
        self,
        keys: Sequence[str],
        limit_bytes: int = LIMIT_BYTES,
        *,
        change_type: str = "_change_type",
        folder: Path | str | None = None,
    ) -> None:
        if not keys:
            raise SchemaError("the last image per key needs a key of at least one column")
        self._keys = list(keys)
        self._limit_bytes = limit_bytes
        self._change_type = change_type
        self._folder = folder
        self._schema: pa.Schema | None = None
        self._pending: list[pa.RecordBatch] = []
        self._pending_bytes = 0
        self._is_reduced = False
        self._spooled: _SpooledRows | None = None
        self.changes = 0
        """How many changes were added, `-U` included."""

    def add(self, changes: pa.RecordBatch) -> None:
        """Add changes that come after all changes that were added before.

        `-U` is ignored: the `+U` that follows says the same.

        Args:
            changes: Rows with the columns of the key and the change type. All batches have the
                same schema.

        Raises:
            ChangeTypeError: A row has no valid change type.
            SchemaError: The batch lacks a column of the key, or has another schema than before.
            StorageError: The changes do not fit on the disk.
        """
        if self._schema is None:
            missing = {*self._keys, self._change_type} - set(changes.schema.names)
            if missing:
                raise SchemaError(f"the changes have no column {sorted(missing)}")
            self._schema = changes.schema
        elif changes.schema != self._schema:
            raise SchemaError(
                f"the changes have the columns {changes.schema.names} of types "
                f"{changes.schema.types}, and had {self._schema.names} of types "
                f"{self._schema.types} before"
            )
        codes = ChangeType.codes_of(
            changes.column(self._change_type), self._change_type, self.changes
        )
        self.changes += changes.num_rows
        counts = codes != ChangeType.UpdateBefore
        rows = changes.drop_columns([self._change_type])
        if not counts.all():
            rows, codes = rows.filter(pa.array(counts)), codes[counts]
        if not rows.num_rows:
            return
        rows = rows.append_column(_STAYS, pa.array(codes != ChangeType.Delete))
        rows = rows.append_column(_WAS_ABSENT, pa.array(codes == ChangeType.Insert))
        self._pending.append(rows)
        self._pending_bytes += rows.nbytes
        self._is_reduced = False
        if self._pending_bytes > self._limit_bytes:
            self._reduce_pending()
            # Where the same keys change again and again, no disk is needed.
            if self._pending_bytes > self._limit_bytes // 2:
                self._spool()

    def _reduce_pending(self) -> None:
        self._pending = _last_rows(self._pending, self._keys)
        self._pending_bytes = sum(batch.nbytes for batch in self._pending)
        self._is_reduced = True

    def _spool(self) -> None:
        if self._spooled is None:
            self._spooled = _SpooledRows(self._keys, self._limit_bytes, self._folder)
        self._spooled.add(self._pending)
        self._pending, self._pending_bytes = [], 0

    def images(self) -> Iterator[KeyImages]:
        """Return the last images in the order of the changes, some keys at a time.

        Can be called again, and gives the same then; no changes are added after the first call.

        Raises:
            StorageError: The changes do not fit on the disk.
        """
        if self._pending and not self._is_reduced:
            self._reduce_pending()
        if self._spooled is not None:
            if self._pending:
                self._spool()
            return map(_images, _gathered(self._spooled.last_rows()))
        return map(_images, _gathered(self._pending))

    def close(self) -> None:
        """Delete the temporary files."""
        self._pending = []
        if self._spooled is not None:
            self._spooled.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()


def _gathered(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Return the same rows without small batches."""
    held: list[pa.RecordBatch] = []
    size = 0
    for batch in batches:
        if not batch.num_rows:
            continue
        held.append(batch)
        size += batch.nbytes
        if size >= BATCH_BYTES_MIN:
            yield held[0] if len(held) == 1 else pa.concat_batches(held)
            held, size = [], 0
    if held:
        yield held[0] if len(held) == 1 else pa.concat_batches(held)


def _images(batch: pa.RecordBatch) -> KeyImages:
    stays, absent = batch.column(_STAYS), batch.column(_WAS_ABSENT)
    rows = batch.drop_columns([_STAYS, _WAS_ABSENT])
    if stays.true_count == len(stays):
        return KeyImages(rows, rows.slice(0, 0), absent, absent.slice(0, 0))
    gone = pc.invert(stays)
    return KeyImages(
        rows.filter(stays), rows.filter(gone), absent.filter(stays), absent.filter(gone)
    )


def _last_rows(batches: Sequence[pa.RecordBatch], keys: Sequence[str]) -> list[pa.RecordBatch]:
    """Return the last row of each key, in their order; its `_WAS_ABSENT` is that of the first."""
    columns = [pa.chunked_array([batch.column(key) for batch in batches]) for key in keys]
    ends = _ends_of_keys(columns)
    if ends is None:
        return list(_gathered(batches))
    first, last = ends
    absent = np.concatenate(
        [batch.column(_WAS_ABSENT).to_numpy(zero_copy_only=False) for batch in batches]
    )
    keep = np.zeros(len(absent), np.bool_)
    keep[last] = True
    absent[last] = absent[first]
    return list(_gathered(_kept(batches, keep, absent)))


def _kept(
    batches: Iterable[pa.RecordBatch], keep: Bools, absent: Bools
) -> Iterator[pa.RecordBatch]:
    """Return the rows to keep, with these values of `_WAS_ABSENT`."""
    at = 0
    for batch in batches:
        mine = slice(at, at + batch.num_rows)
        at += batch.num_rows
        place = batch.schema.get_field_index(_WAS_ABSENT)
        marked = batch.set_column(place, _WAS_ABSENT, pa.array(absent[mine]))
        yield marked if keep[mine].all() else marked.filter(pa.array(keep[mine]))


def _ends_of_keys(columns: Sequence[pa.ChunkedArray]) -> tuple[Numbers, Numbers] | None:
    """Return the first and the last row of each key; None if all keys are different."""
    numbers = _key_numbers(columns)
    bits = len(numbers).bit_length()
    low, high = int(numbers.min()), int(numbers.max())
    if (high - low + 1) << bits <= _CODES_MAX:
        # Sorting numbers that hold their rows takes a third of the time of sorting rows by them.
        packed = ((numbers - low) << bits) | np.arange(len(numbers))
        packed.sort()
        ordered = packed >> bits
        order = np.bitwise_and(packed, (1 << bits) - 1, out=packed)
    else:
        order = np.argsort(numbers, kind="stable")
        ordered = numbers[order]
    differs = ordered[1:] != ordered[:-1]
    if differs.all():
        return None
    edge = np.ones(1, np.bool_)
    return order[np.concatenate([edge, differs])], order[np.concatenate([differs, edge])]


def _key_numbers(columns: Sequence[pa.ChunkedArray]) -> Numbers:
    """Return one number per row, which two rows share exactly if their keys are equal."""
    codes, size = _numbers_of(columns[0]), 0
    for column in columns[1:]:
        codes, size = _small(codes) if not size else (codes, size)
        more, count = _small(_numbers_of(column))
        if size * count > _CODES_MAX:
            codes, size = _ranks(codes)
            if size * count > _CODES_MAX:
                more, count = _ranks(more)
        codes, size = codes * count + more, size * count
    return codes


def _numbers_of(column: pa.ChunkedArray) -> Numbers:
    if is_whole_number(column.type) and not column.null_count:
        return np.concatenate([whole_numbers(chunk) for chunk in column.chunks])
    if pa.types.is_dictionary(column.type):
        column = column.cast(column.type.value_type)
    encoded = pc.dictionary_encode(column.combine_chunks(), null_encoding="encode")
    return np.asarray(encoded.indices.to_numpy(), np.int64)


def _small(numbers: Numbers) -> tuple[Numbers, int]:
    """Return numbers from 0 on, equal where these are equal, and a bound of them."""
    low, high = int(numbers.min()), int(numbers.max())
    if high - low < _CODES_MAX:
        return numbers - low, high - low + 1
    return _ranks(numbers)


def _ranks(numbers: Numbers) -> tuple[Numbers, int]:
    found, ranks = np.unique(numbers, return_inverse=True)
    return ranks, len(found)


class _SpooledRows:
    """Rows in one file, in their order, and which of them are the last ones of their keys."""

    def __init__(self, keys: Sequence[str], limit_bytes: int, folder: Path | str | None) -> None:
        self._keys = list(keys)
        self._places = _Places(self._keys, limit_bytes, folder, depth=0)
        self._rows = _Files(folder)
        self._count = 0
        self._marks: tuple[Bools, Bools] | None = None

    def add(self, batches: Iterable[pa.RecordBatch]) -> None:
        """Add rows behind those that were added before."""
        for batch in batches:
            count = batch.num_rows
            numbers = pa.array(np.arange(self._count, self._count + count))
            places = batch.select([*self._keys, _WAS_ABSENT]).append_column(_ROW, numbers)
            # A copy: columns of one message share its memory, so that keys would hold whole rows.
            self._places.add(pa.ipc.read_record_batch(places.serialize(), places.schema))
            self._rows.write(0, batch)
            self._count += count

    def last_rows(self) -> Iterator[pa.RecordBatch]:
        """Return the last row of each key; its `_WAS_ABSENT` is that of the first."""
        if self._marks is None:
            keep, absent = np.zeros(self._count, np.bool_), np.zeros(self._count, np.bool_)
            for batch in self._places.batches():
                rows = batch.column(_ROW).to_numpy()
                keep[rows] = True
                absent[rows] = batch.column(_WAS_ABSENT).to_numpy(zero_copy_only=False)
            self._marks = keep, absent
        for batches in self._rows.parts():
            yield from _kept(batches, *self._marks)

    def close(self) -> None:
        self._places.close()
        self._rows.close()


class _Places:
    """Keys with the number of a row each, of which the last one of each key is kept."""

    def __init__(
        self, keys: Sequence[str], limit_bytes: int, folder: Path | str | None, depth: int
    ) -> None:
        self._keys = list(keys)
        self._limit_bytes = limit_bytes
        self._folder = folder
        self._depth = depth
        self._pending: list[pa.RecordBatch] = []
        self._pending_bytes = 0
        self._spread: _Files | None = None

    def add(self, rows: pa.RecordBatch) -> None:
        self._pending.append(rows)
        self._pending_bytes += rows.nbytes
        if self._pending_bytes > self._limit_bytes:
            self._reduce()
            if self._pending_bytes > self._limit_bytes // 2 and self._depth < DEPTH_MAX:
                self._write()

    def _reduce(self) -> None:
        self._pending = _last_rows(self._pending, self._keys)
        self._pending_bytes = sum(batch.nbytes for batch in self._pending)

    def _write(self) -> None:
        if self._spread is None:
            self._spread = _Files(self._folder)
        for batch in self._pending:
            for start in range(0, batch.num_rows, HASHED_AT_ONCE_ROWS):
                rows = batch.slice(start, HASHED_AT_ONCE_ROWS)
                partitions = hash_partitions(rows.select(self._keys), self._depth)
                ordered = rows.take(pa.array(np.argsort(partitions, kind="stable")))
                ends = np.cumsum(np.bincount(partitions, minlength=HASH_PARTITIONS))
                for number, end in enumerate(ends):
                    first = int(ends[number - 1]) if number else 0
                    if end > first:
                        self._spread.write(number, ordered.slice(first, end - first))
        self._pending, self._pending_bytes = [], 0

    def batches(self) -> Iterator[pa.RecordBatch]:
        """Return the last row of each key, one hash partition after the other."""
        if self._pending:
            self._reduce()
        if self._spread is None:
            yield from self._pending
            return
        self._write()
        for stored in self._spread.parts():
            # Another depth is another hash: rows of one hash partition are spread anew.
            inner = _Places(self._keys, self._limit_bytes, self._folder, self._depth + 1)
            try:
                for batch in stored:
                    inner.add(batch)
                yield from inner.batches()
            finally:
                inner.close()

    def close(self) -> None:
        self._pending = []
        if self._spread is not None:
            self._spread.close()


class _Files:
    """Numbered files of batches in a temporary folder."""

    def __init__(self, folder: Path | str | None) -> None:
        try:
            self._made = tempfile.TemporaryDirectory(prefix="fluss-last-images-", dir=folder)
        except OSError as error:
            raise StorageError(f"cannot make a folder for changes: {error}") from error
        self._folder = Path(self._made.name)
        self._numbers: set[int] = set()
        self._files: dict[int, pa.OSFile] = {}
        self._writers: dict[int, pa.ipc.RecordBatchStreamWriter] = {}

    def write(self, number: int, rows: pa.RecordBatch) -> None:
        """Add rows to a file."""
        try:
            self._writer(number, rows.schema).write_batch(rows)
        except OSError as error:
            raise StorageError(
                f"cannot write {rows.nbytes} bytes of changes into {self._folder}: {error}. Set "
                "TMPDIR to a folder with more room, or take fewer changes at once"
            ) from error

    def _writer(self, number: int, schema: pa.Schema) -> pa.ipc.RecordBatchStreamWriter:
        if number not in self._writers:
            self._numbers.add(number)
            self._files[number] = pa.OSFile(str(self._path(number)), "wb")
            self._writers[number] = pa.ipc.new_stream(self._files[number], schema)
        return self._writers[number]

    def _path(self, number: int) -> Path:
        return self._folder / f"{number}.arrow"

    def parts(self) -> Iterator[Iterator[pa.RecordBatch]]:
        """Return the batches of each file; nothing is written after this."""
        self._end()
        for number in sorted(self._numbers):
            with pa.OSFile(str(self._path(number)), "rb") as file:
                yield iter(pa.ipc.open_stream(file))

    def _end(self) -> None:
        for number, writer in self._writers.items():
            writer.close()
            self._files[number].close()
        self._writers, self._files = {}, {}

    def close(self) -> None:
        with contextlib.suppress(OSError):  # of a full disk; the files are deleted anyway
            self._end()
        self._made.cleanup()


def hash_partitions(keys: pa.RecordBatch, seed: int = 0) -> npt.NDArray[np.uint8]:
    """Return the hash partition of each key: equal keys have the same one.

    Args:
        keys: The columns of the key.
        seed: Another seed is another hash.
    """
    hashes = [value_hashes(column) for column in keys.columns]
    found = row_hashes(hashes, keys.num_rows, seed)
    return (found % np.uint64(HASH_PARTITIONS)).astype(np.uint8)
