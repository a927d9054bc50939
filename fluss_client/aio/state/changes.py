"""Changes of a changelog, laid over the key state that they belong to.

`Changes` keeps one change per key: the last one, which takes a state forward, or the first one with
its old row, which takes a state back. Memory is bounded: beyond a limit, the changes are written to
a file as a run that is sorted by key. `parts_until` then merges all runs in key order, a batch of
each run at a time.

A change is *present* if its key has a row afterwards (or had one before, when going back), and is
not present if the key has none.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from fluss_client.errors import StorageError
from fluss_client.model.cluster import ChangeType

MEMORY_BYTES_MAX = 32 << 20
"""Changes beyond this are written to disk. Sorting them takes about twice as much memory more."""
RUN_BATCH_BYTES = 512 << 10
"""How much of each run is in memory while runs are merged."""
RUNS_MAX = 64
"""So many runs are merged into one, which bounds the files that are open."""

# No column of a table begins with this character.
_KEY = "\x01key"
_PRESENT = "\x01present"

Bools = npt.NDArray[np.bool_]

# Going forward, the row before an update says nothing; going back, the row after one does not.
_FORWARD = {
    ChangeType.AppendOnly: True,
    ChangeType.Insert: True,
    ChangeType.UpdateAfter: True,
    ChangeType.Delete: False,
}
_BACK = {ChangeType.Insert: False, ChangeType.UpdateBefore: True, ChangeType.Delete: True}


@dataclass(frozen=True, slots=True)
class KeyedRows:
    """Rows with their encoded keys, in ascending order of the keys.

    Attributes:
        keys: The encoded keys.
        rows: One row per key; the row of a key that is not present has no meaning.
        present: Which keys have a row.
    """

    keys: pa.Array
    rows: pa.RecordBatch
    present: pa.Array


class Changes:
    """One change per key of a range of the changelog.

    Args:
        schema: The schema of the rows.
        folder: Where sorted runs are written when the changes need more than `memory_bytes_max`.
        back: Keep the first change of each key and its old row, instead of the last change.
        memory_bytes_max: How many bytes of changes are kept in memory.
        runs_max: How many runs of one size are kept before they are merged into one.
    """

    def __init__(
        self,
        schema: pa.Schema,
        folder: Path,
        *,
        back: bool,
        memory_bytes_max: int = MEMORY_BYTES_MAX,
        runs_max: int = RUNS_MAX,
    ) -> None:
        self._schema = schema.append(pa.field(_KEY, pa.binary())).append(
            pa.field(_PRESENT, pa.bool_())
        )
        self._folder = folder
        self._back = back
        self._memory_bytes_max = memory_bytes_max
        self._runs_max = runs_max
        self._kinds = np.full(256, -1, np.int8)
        for kind, present in (_BACK if back else _FORWARD).items():
            self._kinds[int(kind)] = present
        self._pending: list[pa.RecordBatch] = []
        self._pending_bytes = 0
        # The files of each size, which is how often their changes were merged, in log order: all
        # files of a size are older than those of the sizes before it.
        self._files: list[list[Path]] = []
        self._file_count = 0
        self._runs: list[_Run] | None = None
        self.count = 0

    def add(self, keys: pa.Array, kinds: npt.NDArray[np.uint8], rows: pa.RecordBatch) -> None:
        """Add changes in the order of the changelog.

        Args:
            keys: The encoded key of each change.
            kinds: The change type of each change.
            rows: The row of each change.
        """
        self.count += rows.num_rows
        effect = self._kinds[kinds]
        if (effect < 0).any():
            used = pa.array(effect >= 0)
            keys, rows = keys.filter(used), rows.filter(used)
            effect = effect[effect >= 0]
        if not rows.num_rows:
            return
        columns = [*rows.columns, keys, pa.array(effect.astype(np.bool_))]
        batch = pa.RecordBatch.from_arrays(columns, schema=self._schema)
        self._pending.append(batch)
        self._pending_bytes += batch.nbytes
        if self._pending_bytes > self._memory_bytes_max:
            self._compact()

    def _compact(self) -> None:
        """Keep one change per key; write them to a file if they still need much memory."""
        one = self._take_pending()
        if one.nbytes > self._memory_bytes_max // 2:
            self._add_file(0, self._write(_slices(one)))
        else:
            self._pending, self._pending_bytes = [one], one.nbytes

    def _take_pending(self) -> pa.RecordBatch:
        """Remove the pending changes, and return the one of each key that counts, in key order."""
        pending, self._pending, self._pending_bytes = self._pending, [], 0
        together = pa.concat_batches(pending)
        del pending  # Not in memory twice while they are sorted.
        return _one_per_key(together, first=self._back)

    def _add_file(self, size: int, path: Path) -> None:
        if size == len(self._files):
            self._files.append([])
        files = self._files[size]
        files.append(path)
        if len(files) == self._runs_max:
            runs = [_Run(_file_batches(file)) for file in (files[::-1] if self._back else files)]
            parts = (_slices(self._rows_of(found)) for found in _merged_parts(runs, None))
            merged = self._write(itertools.chain.from_iterable(parts))
            for file in files:
                file.unlink()
            files.clear()
            self._add_file(size + 1, merged)

    def _write(self, batches: Iterator[pa.RecordBatch]) -> Path:
        path = self._folder / f"changes-{self._file_count}.arrow"
        self._file_count += 1
        try:
            with pa.OSFile(str(path), "wb") as file, pa.ipc.new_file(file, self._schema) as writer:
                for batch in batches:
                    writer.write_batch(batch)
        except OSError as error:
            raise StorageError(
                f"cannot write changes into {self._folder}: {error}. Set scanner.state.folder to a "
                "folder with more room, or read again after the next KV snapshot, when there are "
                "fewer changes"
            ) from error
        return path

    def _rows_of(self, found: KeyedRows) -> pa.RecordBatch:
        columns = [*found.rows.columns, found.keys, found.present]
        return pa.RecordBatch.from_arrays(columns, schema=self._schema)

    def parts_until(self, bound: bytes | None = None) -> Iterator[KeyedRows]:
        """Remove and return the changes with keys up to and including `bound`, by default all.

        Returns:
            Parts of bounded size, in key order. A part has at least one change, and the keys of the
            parts ascend.
        """
        if self._runs is None:
            files = [file for files in self._files[::-1] for file in files]
            self._runs = [_Run(_file_batches(file)) for file in files]
            if self._pending:
                self._runs.append(_Run(_slices(self._take_pending())))
            if self._back:
                self._runs.reverse()
        yield from _merged_parts(self._runs, bound)


def _one_per_key(changes: pa.RecordBatch, *, first: bool) -> pa.RecordBatch:
    """Return the first or the last change of each key, in key order."""
    keys = changes.column(_KEY)
    order = pc.array_sort_indices(keys)  # stable: equal keys keep their order
    return changes.take(order.filter(pa.array(_counts(keys.take(order), first=first))))


def _merged_parts(runs: Sequence[_Run], bound: bytes | None) -> Iterator[KeyedRows]:
    """Merge runs up to a key; of the changes of one key, that of the last run counts."""
    while True:
        ends = [run.last_key for run in runs if run.last_key is not None]
        if not ends:
            return
        # No run has a change up to the least of these keys beyond the batch that it has in memory.
        end = min(ends) if bound is None else min(*ends, bound)
        parts = [part for part in (run.take_until(end) for run in runs) if part is not None]
        if len(parts) > 1:
            # Later runs count more, and a stable sort keeps them behind.
            parts = [_one_per_key(pa.concat_batches(parts), first=False)]
        for part in parts:
            rows = part.select(part.schema.names[:-2])
            yield KeyedRows(part.column(_KEY), rows, part.column(_PRESENT))
        if end == bound:
            return


def _counts(keys: pa.Array, *, first: bool) -> Bools:
    """Which entries of sorted keys are the first, or the last, of their key."""
    counts = np.ones(len(keys), np.bool_)
    if len(keys) > 1:
        differs = pc.not_equal(keys[1:], keys[:-1]).to_numpy(zero_copy_only=False)
        if first:
            counts[1:] = differs
        else:
            counts[:-1] = differs
    return counts


def _slices(batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    rows = max(1, RUN_BATCH_BYTES * batch.num_rows // max(1, batch.nbytes))
    for start in range(0, batch.num_rows, rows):
        yield batch.slice(start, rows)


def _file_batches(path: Path) -> Iterator[pa.RecordBatch]:
    # Not mapped into memory: what was read would stay there.
    with pa.OSFile(str(path), "rb") as file:
        reader = pa.ipc.open_file(file)
        for number in range(reader.num_record_batches):
            yield reader.get_batch(number)


class _Run:
    """Changes that are sorted by key, with at most one per key, read batch by batch."""

    def __init__(self, batches: Iterator[pa.RecordBatch]) -> None:
        self._batches = batches
        self._advance()

    def _advance(self) -> None:
        self._batch = next(self._batches, None)
        self.last_key: bytes | None = None
        """The last key of the batch in memory, or None at the end."""
        if self._batch is not None:
            self.last_key = self._batch.column(_KEY)[-1].as_py()

    def take_until(self, bound: bytes) -> pa.RecordBatch | None:
        """Remove and return the changes of the batch in memory with keys up to `bound`."""
        batch = self._batch
        if batch is None:
            return None
        if bound == self.last_key:
            self._advance()
            return batch
        end = count_until(batch.column(_KEY), bound)
        self._batch = batch.slice(end)
        return batch.slice(0, end) if end else None


def count_until(keys: pa.Array, bound: bytes) -> int:
    """Return how many of some ascending keys are not greater than `bound`."""
    return pc.sum(pc.less_equal(keys, pa.scalar(bound, keys.type))).as_py() or 0


def lay_over(keys: pa.Array, rows: pa.RecordBatch, changes: KeyedRows) -> pa.RecordBatch:
    """Return rows with changes applied, in key order.

    Args:
        keys: The encoded keys of `rows`, ascending and distinct.
        rows: The rows.
        changes: Changes of keys in the same range of keys.

    Returns:
        The rows of all keys that are present afterwards.
    """
    all_keys = pa.concat_arrays([keys, changes.keys])
    order = pc.array_sort_indices(all_keys)  # stable: a change stands behind the row it replaces
    there = np.ones(len(all_keys), np.bool_)
    there[len(keys) :] = changes.present.to_numpy(zero_copy_only=False)
    kept = there[order.to_numpy()] & _counts(all_keys.take(order), first=False)
    both = pa.concat_batches([rows, changes.rows])
    return both.take(order.filter(pa.array(kept)))
