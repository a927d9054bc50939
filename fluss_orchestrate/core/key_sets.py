"""A set of keys, and the test which rows of a batch have one of them.

Numbers, dates and times are looked up in a table of bytes first, by a hash that takes one
multiplication. It finds most rows that have none of the keys; the others are searched among the
sorted numbers. Values of other types are hashed by Arrow, with all values of the set again for
each batch: such keys are compared with large batches.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

SLOTS_PER_NUMBER = 16
"""The size of the table that tells most rows from the deleted numbers: a byte per slot, at most 32
of them per number."""
_SPREAD = np.uint64(0x9E3779B97F4A7C15)

Bools = npt.NDArray[np.bool_]


class KeySet:
    """A set of keys, each with a sequence number, and the test which rows have one of them."""

    def __init__(
        self, columns: Sequence[pa.ChunkedArray], sequences: npt.NDArray[np.int64]
    ) -> None:
        """Build the set.

        Args:
            columns: The columns of the keys.
            sequences: The sequence number of each key. A key that occurs more than once has its
                highest one.
        """
        self._all_have: int | None = None
        if len(columns) == 1 and len(sequences) and (sequences == sequences[0]).all():
            values = _values_of(columns[0])
            if isinstance(values, _Numbers):
                # What matters is only whether a number is there, not which one it is.
                self._all_have = int(sequences[0])
                self._levels: list[tuple[_Numbers | _Values, npt.NDArray[np.int64] | None]]
                self._levels = [(values, None)]
                return
        # Of each column: its values, and which pairs of a key so far and a value there are. Of the
        # first column, every value is there.
        self._levels = []
        codes, count = np.zeros(len(sequences), np.int64), 0
        for column in columns:
            values = _values_of(column)
            known: npt.NDArray[np.int64] | None = None
            if not self._levels:
                codes, count = values.index(column), len(values)
            else:
                pairs = codes * len(values) + values.index(column)
                known, codes = np.unique(pairs, return_inverse=True)
                count = len(known)
            self._levels.append((values, known))
        self._sequences = np.full(count, -1, np.int64)
        np.maximum.at(self._sequences, codes, sequences)

    @property
    def is_quick(self) -> bool:
        """Whether a look-up costs the same per row in small batches as in large ones."""
        return all(isinstance(values, _Numbers) for values, _ in self._levels)

    def holds(self, columns: Sequence[pa.Array], sequence_number: int = -1) -> Bools:
        """Return which rows have a key whose sequence number is above `sequence_number`."""
        if self._all_have is not None:
            if self._all_have <= sequence_number:
                return np.zeros(len(columns[0]), np.bool_)
            (values, _), (column,) = self._levels[0], columns
            assert isinstance(values, _Numbers)
            return values.contains(column)
        found = np.zeros(len(columns[0]), np.bool_)
        rows = np.arange(len(found) if len(self._sequences) else 0)
        codes = np.zeros(len(rows), np.int64)
        for (values, known), column in zip(self._levels, columns, strict=True):
            if not len(rows):
                return found
            index = values.index(column if len(rows) == len(found) else column.take(pa.array(rows)))
            there = np.flatnonzero(index >= 0)
            if known is None:
                rows, codes = there, index[there]
                continue
            wanted = codes[there] * len(values) + index[there]
            places = np.minimum(np.searchsorted(known, wanted), len(known) - 1)
            same = known[places] == wanted
            rows, codes = rows[there[same]], places[same]
        found[rows[self._sequences[codes] > sequence_number]] = True
        return found


class _Values:
    """Different values of a column, in any type. Each look-up hashes all of them."""

    def __init__(self, values: pa.Array) -> None:
        self._values = values

    def __len__(self) -> int:
        return len(self._values)

    def index(self, column: pa.Array | pa.ChunkedArray) -> npt.NDArray[np.int64]:
        """Return the place of each value, -1 for a value that is not there."""
        found = pc.fill_null(pc.index_in(column, value_set=self._values), -1)
        return np.asarray(found.to_numpy(), np.int64)


class _Numbers:
    """Different numbers of a column; one look into a table finds most others."""

    def __init__(self, kind: pa.DataType, numbers: npt.NDArray[np.int64]) -> None:
        self._kind = kind
        # `np.unique` hashes the numbers first, which takes ten times as long.
        ordered = np.sort(numbers)
        self._sorted = ordered[
            np.concatenate([[True], ordered[1:] != ordered[:-1]])[: len(ordered)]
        ]
        self._low = int(self._sorted[0]) if len(self._sorted) else 0
        span = int(self._sorted[-1]) - self._low + 1 if len(self._sorted) else 0
        self._there: Bools | None = None
        if span <= 2 * SLOTS_PER_NUMBER * len(self._sorted):
            # A byte for every number between the lowest and the highest: the look is exact.
            self._there = np.zeros(span, np.bool_)
            self._there[self._sorted - self._low] = True
        size = SLOTS_PER_NUMBER * max(1, len(self._sorted))
        self._shift = np.uint64(64 - max(1, (size - 1).bit_length()))
        self._taken = np.zeros(1 << (64 - int(self._shift)), np.bool_)
        self._taken[self._slots(self._sorted)] = True

    def __len__(self) -> int:
        return len(self._sorted)

    def index(self, column: pa.Array | pa.ChunkedArray) -> npt.NDArray[np.int64]:
        """Return the place of each value, -1 for a value that is not there and for null."""
        if isinstance(column, pa.ChunkedArray):
            parts = [self.index(chunk) for chunk in column.chunks]
            return np.concatenate([np.zeros(0, np.int64), *parts])
        if column.type != self._kind:
            column = column.cast(self._kind)
        numbers = whole_numbers(column)
        found = np.full(len(numbers), -1, np.int64)
        if not len(self._sorted) or not len(numbers):
            return found
        maybe = np.flatnonzero(self._taken[self._slots(numbers)])
        candidates = numbers[maybe]
        places = np.minimum(np.searchsorted(self._sorted, candidates), len(self._sorted) - 1)
        same = self._sorted[places] == candidates
        found[maybe[same]] = places[same]
        if column.null_count:
            found[column.is_null().to_numpy(zero_copy_only=False)] = -1
        return found

    def contains(self, column: pa.Array) -> Bools:
        """Return which values are there; null is not."""
        there = self._there
        if there is None:
            return self.index(column) >= 0
        if column.type != self._kind:
            column = column.cast(self._kind)
        places = whole_numbers(column) - np.int64(self._low)
        # Numbers below the lowest wrap around to large ones.
        inside = places.view(np.uint64) < np.uint64(len(there))
        found: Bools
        if inside.all():
            found = there[places]
        else:
            found = np.zeros(len(places), np.bool_)
            found[inside] = there[places[inside]]
        if column.null_count:
            found[column.is_null().to_numpy(zero_copy_only=False)] = False
        return found

    def _slots(self, numbers: npt.NDArray[np.int64]) -> npt.NDArray[np.uint64]:
        return (numbers.view(np.uint64) * _SPREAD) >> self._shift


def _values_of(column: pa.ChunkedArray) -> _Numbers | _Values:
    kind = column.type
    if column.null_count or not is_whole_number(kind):
        return _Values(pc.unique(column))
    found = [whole_numbers(chunk) for chunk in column.chunks]
    return _Numbers(kind, np.concatenate([np.zeros(0, np.int64), *found]))


def is_whole_number(kind: pa.DataType) -> bool:
    """Return whether values of a type are whole numbers, dates or times: `whole_numbers` fits."""
    is_ = pa.types
    is_long_time = is_.is_timestamp(kind) or is_.is_time64(kind)
    return bool(is_.is_signed_integer(kind) or is_.is_date32(kind) or is_long_time)


def whole_numbers(column: pa.Array) -> npt.NDArray[np.int64]:
    """Return whole numbers, dates or times as numbers; those of nulls are arbitrary."""
    data, end = column.buffers()[1], column.offset + len(column)
    if data is None or not len(column):
        return np.zeros(len(column), np.int64)
    values = np.frombuffer(data, f"i{column.type.bit_width // 8}", end)
    return values[column.offset :].astype(np.int64, copy=False)
