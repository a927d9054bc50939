"""The last image of each key of a range of changes, in bounded memory.

Who applies a changelog to a target that replaces rows by key needs one row per key: the last one.
`LastImages` takes changes in their order and keeps the last change of each key. Beyond a limit, the
changes are spread by a hash of their key over files in a temporary folder. Each hash partition is
then reduced by itself; one that is still larger than the limit is spread again.

The first change of a key tells whether the key had a row before: an insert (`+I`) says that it had
none. So a target does not have to delete an earlier row of such a key.
"""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import Iterator, Sequence
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
from fluss_orchestrate.core.value_hashes import row_hashes, value_hashes

LIMIT_BYTES = 64 << 20
"""Changes beyond this are written to disk. Reducing them needs about three times as much memory."""
HASH_PARTITIONS = 32
"""How many files the changes are spread over."""
DEPTH_MAX = 4
"""How often a hash partition that is too large is spread again."""

# No column of a table begins with this character.
_STAYS, _WAS_ABSENT, _ROW = "\x01stays", "\x01was_absent", "\x01row"


@dataclass(frozen=True, slots=True)
class KeyImages:
    """The last images of the keys of one hash partition.

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
        limit_bytes: How many bytes of changes are kept in memory before they go to disk.
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
        self._change_type = change_type
        self._reduced = _Reduced(self._keys, limit_bytes, folder, depth=0)
        self._schema: pa.Schema | None = None
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
        if rows.num_rows:
            self._reduced.add(
                rows.append_column(_STAYS, pa.array(codes != ChangeType.Delete)).append_column(
                    _WAS_ABSENT, pa.array(codes == ChangeType.Insert)
                )
            )

    def images(self) -> Iterator[KeyImages]:
        """Return the last images, one hash partition after the other.

        Can be called again, and gives the same then; no changes are added after the first call.

        Raises:
            StorageError: The changes do not fit on the disk.
        """
        for batch in self._reduced.batches():
            stays, absent = batch.column(_STAYS), batch.column(_WAS_ABSENT)
            rows, gone = batch.drop_columns([_STAYS, _WAS_ABSENT]), pc.invert(stays)
            yield KeyImages(
                rows.filter(stays), rows.filter(gone), absent.filter(stays), absent.filter(gone)
            )

    def close(self) -> None:
        """Delete the temporary files."""
        self._reduced.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()


class _Reduced:
    """Rows of which the last one of each key is kept; whether it was absent says the first one."""

    def __init__(
        self, keys: Sequence[str], limit_bytes: int, folder: Path | str | None, depth: int
    ) -> None:
        self._keys = list(keys)
        self._limit_bytes = limit_bytes
        self._folder = folder
        self._depth = depth
        self._pending: list[pa.RecordBatch] = []
        self._pending_bytes = 0
        self._spilled: _Spilled | None = None

    def add(self, rows: pa.RecordBatch) -> None:
        self._pending.append(rows)
        self._pending_bytes += rows.nbytes
        if self._pending_bytes > self._limit_bytes:
            self._compact()

    def _compact(self) -> None:
        one = _one_per_key(self._pending, self._keys)
        self._pending, self._pending_bytes = [one], one.nbytes
        # Where the same keys change again and again, no disk is needed.
        if one.nbytes > self._limit_bytes // 2 and self._depth < DEPTH_MAX:
            self._spill()

    def _spill(self) -> None:
        if self._spilled is None:
            self._spilled = _Spilled(self._folder)
        for batch in self._pending:
            self._spilled.write(batch, hash_partitions(batch.select(self._keys), self._depth))
        self._pending, self._pending_bytes = [], 0

    def batches(self) -> Iterator[pa.RecordBatch]:
        if self._spilled is None:
            if self._pending:
                self._pending = [_one_per_key(self._pending, self._keys)]
                yield self._pending[0]
            return
        self._spill()
        for stored in self._spilled.partitions():
            # Another depth is another hash: rows of one hash partition are spread anew.
            inner = _Reduced(self._keys, self._limit_bytes, self._folder, self._depth + 1)
            try:
                for batch in stored:
                    inner.add(batch)
                yield from inner.batches()
            finally:
                inner.close()

    def close(self) -> None:
        self._pending = []
        if self._spilled is not None:
            self._spilled.close()


class _Spilled:
    """Rows in one file per hash partition."""

    def __init__(self, folder: Path | str | None) -> None:
        try:
            self._made = tempfile.TemporaryDirectory(prefix="fluss-last-images-", dir=folder)
        except OSError as error:
            raise StorageError(f"cannot make a folder for changes: {error}") from error
        self._folder = Path(self._made.name)
        self._numbers: set[int] = set()
        self._files: dict[int, pa.OSFile] = {}
        self._writers: dict[int, pa.ipc.RecordBatchStreamWriter] = {}

    def write(self, rows: pa.RecordBatch, partitions: npt.NDArray[np.uint8]) -> None:
        order = np.argsort(partitions, kind="stable")
        ordered = rows.take(pa.array(order))
        ends = np.cumsum(np.bincount(partitions, minlength=HASH_PARTITIONS))
        try:
            for number, end in enumerate(ends):
                start = int(ends[number - 1]) if number else 0
                if end > start:
                    self._writer(number, rows.schema).write_batch(ordered.slice(start, end - start))
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

    def partitions(self) -> Iterator[Iterator[pa.RecordBatch]]:
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


def _one_per_key(batches: Sequence[pa.RecordBatch], keys: Sequence[str]) -> pa.RecordBatch:
    """Return the last row of each key, in their order; its `_WAS_ABSENT` is that of the first."""
    rows = batches[0] if len(batches) == 1 else pa.concat_batches(batches)
    numbered = pa.table(
        [*(rows.column(key) for key in keys), pa.array(np.arange(rows.num_rows))],
        names=[*(f"k{at}" for at in range(len(keys))), _ROW],
    )
    groups = numbered.group_by(numbered.schema.names[:-1], use_threads=False).aggregate(
        [(_ROW, "min"), (_ROW, "max")]
    )
    if groups.num_rows == rows.num_rows:
        return rows
    first, last = (groups.column(f"{_ROW}_{end}").to_numpy() for end in ("min", "max"))
    order = np.argsort(last)
    absent = rows.column(_WAS_ABSENT).take(pa.array(first[order]))
    taken = rows.take(pa.array(last[order]))
    return taken.set_column(taken.schema.get_field_index(_WAS_ABSENT), _WAS_ABSENT, absent)


def hash_partitions(keys: pa.RecordBatch, seed: int = 0) -> npt.NDArray[np.uint8]:
    """Return the hash partition of each key: equal keys have the same one.

    Args:
        keys: The columns of the key.
        seed: Another seed is another hash.
    """
    hashes = [value_hashes(column) for column in keys.columns]
    found = row_hashes(hashes, keys.num_rows, seed)
    return (found % np.uint64(HASH_PARTITIONS)).astype(np.uint8)
