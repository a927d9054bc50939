"""Changes of a changelog, laid over the key state that they belong to.

`Changes` keeps one change per key: the last one, which takes a state forward, or the first one with
its old row, which takes a state back. Memory is bounded: beyond a limit, the changes are written to
a file as a run that is sorted by key. `take_until` then merges all runs in key order.

A change is *present* if its key has a row afterwards (or had one before, when going back), and is
not present if the key has none.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from fluss_client.errors import StorageError
from fluss_client.model.cluster import ChangeType

MEMORY_BYTES_MAX = 32 << 20
"""Changes beyond this are written to disk. Sorting them takes about five times as much memory."""
RUN_BATCH_ROWS = 1 << 14

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
    """

    def __init__(
        self,
        schema: pa.Schema,
        folder: Path,
        *,
        back: bool,
        memory_bytes_max: int = MEMORY_BYTES_MAX,
    ) -> None:
        self._schema = schema.append(pa.field(_KEY, pa.binary())).append(
            pa.field(_PRESENT, pa.bool_())
        )
        self._folder = folder
        self._back = back
        self._memory_bytes_max = memory_bytes_max
        self._kinds = np.full(256, -1, np.int8)
        for kind, present in (_BACK if back else _FORWARD).items():
            self._kinds[int(kind)] = present
        self._pending: list[pa.RecordBatch] = []
        self._pending_bytes = 0
        self._files: list[Path] = []
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
        one = self._one_per_key(self._pending)
        self._pending, self._pending_bytes = [one], one.nbytes
        if one.nbytes > self._memory_bytes_max // 2:
            path = self._folder / f"changes-{len(self._files)}.arrow"
            try:
                self._write(one, path)
            except OSError as error:
                raise StorageError(
                    f"cannot write {one.nbytes} bytes of changes into {self._folder}: {error}. Set "
                    "scanner.state.folder to a folder with more room, or read again after the "
                    "next KV snapshot, when there are fewer changes"
                ) from error
            self._files.append(path)
            self._pending, self._pending_bytes = [], 0

    def _write(self, run: pa.RecordBatch, path: Path) -> None:
        with pa.OSFile(str(path), "wb") as file, pa.ipc.new_file(file, self._schema) as writer:
            writer.write_table(pa.Table.from_batches([run]), RUN_BATCH_ROWS)

    def _one_per_key(self, batches: list[pa.RecordBatch]) -> pa.RecordBatch:
        """Return the change of each key that counts, in key order."""
        table = pa.concat_batches(batches)
        order = pc.array_sort_indices(table.column(_KEY))  # stable: equal keys keep their order
        ordered = table.take(order)
        return ordered.filter(pa.array(_counts(ordered.column(_KEY), first=self._back)))

    def _opened(self) -> list[_Run]:
        """All runs, from the one whose changes count least to the one whose changes count most."""
        if self._runs is None:
            runs = [_Run(_file_batches(path)) for path in self._files]
            if self._pending:
                one = self._one_per_key(self._pending)
                runs.append(_Run(_slices(one)))
                self._pending = []
            self._runs = runs[::-1] if self._back else runs
        return self._runs

    def take_until(self, bound: bytes) -> KeyedRows | None:
        """Remove and return the changes with keys up to and including `bound`.

        Returns:
            The changes in key order, or None if there are none.
        """
        return self._merged([run.take_until(bound) for run in self._opened()])

    def rest(self) -> Iterator[KeyedRows]:
        """Remove and return all changes that are left, in key order, in bounded batches."""
        while True:
            ends = [run.last_key() for run in self._opened()]
            bounds = [end for end in ends if end is not None]
            if not bounds:
                return
            found = self.take_until(min(bounds))
            if found is not None:
                yield found

    def _merged(self, parts: list[list[pa.RecordBatch]]) -> KeyedRows | None:
        batches = [batch for part in parts for batch in part]
        if not batches:
            return None
        if sum(1 for part in parts if part) > 1:
            table = pa.concat_batches(batches)
            ordered = table.take(pc.array_sort_indices(table.column(_KEY)))
            # Later runs count more, and a stable sort keeps them behind.
            batch = ordered.filter(pa.array(_counts(ordered.column(_KEY), first=False)))
        else:
            batch = pa.concat_batches(batches)
        names = self._schema.names[:-2]
        return KeyedRows(batch.column(_KEY), batch.select(names), batch.column(_PRESENT))


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
    for start in range(0, batch.num_rows, RUN_BATCH_ROWS):
        yield batch.slice(start, RUN_BATCH_ROWS)


def _file_batches(path: Path) -> Iterator[pa.RecordBatch]:
    with pa.memory_map(str(path)) as file:
        reader = pa.ipc.open_file(file)
        for number in range(reader.num_record_batches):
            yield reader.get_batch(number)


class _Run:
    """Changes that are sorted by key, with at most one per key, read batch by batch."""

    def __init__(self, batches: Iterator[pa.RecordBatch]) -> None:
        self._batches = batches
        self._batch: pa.RecordBatch | None = None
        self._advance()

    def _advance(self) -> None:
        self._batch = next(self._batches, None)

    def last_key(self) -> bytes | None:
        """Return the last key of the current batch, or None at the end."""
        return None if self._batch is None else self._batch.column(_KEY)[-1].as_py()

    def take_until(self, bound: bytes) -> list[pa.RecordBatch]:
        """Remove and return the changes with keys up to and including `bound`."""
        taken = []
        while self._batch is not None:
            # The keys ascend, so those up to the bound are the first ones.
            end = pc.sum(pc.less_equal(self._batch.column(_KEY), pa.scalar(bound))).as_py()
            if end:
                taken.append(self._batch.slice(0, end))
            if end < self._batch.num_rows:
                self._batch = self._batch.slice(end)
                break
            self._advance()
        return taken


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
