"""Rows as hashes, their sums per bucket, and the comparison of rows key by key.

A hash has 64 bits. The hashes of the rows of a bucket are added up, so that their order does not
count and a row that is there twice does.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from fluss_orchestrate.core.mirror.comparison import NO_BUCKET
from fluss_orchestrate.core.value_hashes import UInt64, row_hashes, value_hashes

SLICES = 64
"""Parts of a bucket, by a hash of the key. Rows are compared key by key for a few of them."""

Ints = npt.NDArray[np.int64]
Flags = npt.NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class HashedRows:
    """Rows of one side and their hashes.

    Attributes:
        batch: The rows.
        places: The number of each row's bucket, as `Places` counts them.
        keys: The hash of each row's key.
        columns: The hashes of each column's values.
        rows: The hash of each row.
    """

    batch: pa.RecordBatch
    places: Ints
    keys: UInt64
    columns: list[UInt64]
    rows: UInt64

    @classmethod
    def of(cls, batch: pa.RecordBatch, places: Ints, key: Sequence[int]) -> HashedRows:
        """Hash rows.

        Args:
            batch: The rows.
            places: The number of each row's bucket.
            key: Which columns are the key.
        """
        columns = [value_hashes(column) for column in batch.columns]
        keys = row_hashes([columns[at] for at in key], batch.num_rows, 1)
        return cls(batch, places, keys, columns, row_hashes(columns, batch.num_rows))

    @property
    def slots(self) -> Ints:
        """The number of each row's slice: that of its bucket, times `SLICES`, and a part of it."""
        return self.places * SLICES + (self.keys % np.uint64(SLICES)).astype(np.int64)


class Places:
    """Numbers for the buckets of partitions: partition * number of buckets + bucket.

    Partition 0 holds the rows of a mirror that have no bucket.
    """

    def __init__(self, bucket_count: int) -> None:
        self._bucket_count = bucket_count
        self._partitions: dict[str | None, int] = {}

    def base(self, partition: str | None) -> int:
        """Return the number of the first bucket of a partition, by its name."""
        number = self._partitions.setdefault(partition, len(self._partitions) + 1)
        return number * self._bucket_count

    @property
    def count(self) -> int:
        """The number after the last one."""
        return (len(self._partitions) + 1) * self._bucket_count

    def named(self) -> Iterator[tuple[int, str | None, int]]:
        """Return the number, the partition and the bucket of all places."""
        yield 0, None, NO_BUCKET
        for partition, number in self._partitions.items():
            for bucket in range(self._bucket_count):
                yield number * self._bucket_count + bucket, partition, bucket


class RowTally:
    """The count and the sum of the hashes of rows, per slice."""

    def __init__(self) -> None:
        self.counts: Ints = np.zeros(0, np.int64)
        self.sums: UInt64 = np.zeros(0, np.uint64)

    def add(self, rows: HashedRows, place_count: int) -> None:
        """Add rows whose places are below `place_count`."""
        self.grow(place_count)
        slots = rows.slots
        np.add.at(self.counts, slots, 1)
        np.add.at(self.sums, slots, rows.rows)

    def grow(self, place_count: int) -> None:
        """Make room for this many places."""
        more = place_count * SLICES - len(self.counts)
        if more > 0:
            self.counts = np.concatenate([self.counts, np.zeros(more, np.int64)])
            self.sums = np.concatenate([self.sums, np.zeros(more, np.uint64)])

    def by_place(self) -> tuple[Ints, UInt64]:
        """Return the counts and the sums per place."""
        counts = self.counts.reshape(-1, SLICES).sum(axis=1)
        return counts, self.sums.reshape(-1, SLICES).sum(axis=1, dtype=np.uint64)


@dataclass(frozen=True, slots=True)
class SelectedRows:
    """The rows of chosen slices: their places, keys and hashes, without their values."""

    places: Ints
    keys: pa.Table
    hashes: UInt64
    columns: npt.NDArray[np.uint64]
    """The hash of each value: one line per row."""

    @classmethod
    def of(
        cls, rows: Iterable[HashedRows], chosen: Flags, key: pa.Schema, column_count: int
    ) -> SelectedRows:
        """Keep the rows whose slices are chosen.

        Args:
            rows: The rows.
            chosen: Whether a slice is chosen, by its number.
            key: The columns of the key.
            column_count: How many columns the rows have.
        """
        places, hashes = [np.zeros(0, np.int64)], [np.zeros(0, np.uint64)]
        columns = [np.zeros((0, column_count), np.uint64)]
        keys = [key.empty_table()]
        for some in rows:
            slots = some.slots
            # A slice that the first pass did not see is not compared.
            kept = np.flatnonzero(
                (slots < len(chosen)) & chosen[np.minimum(slots, len(chosen) - 1)]
            )
            if kept.size:
                places.append(some.places[kept])
                hashes.append(some.keys[kept])
                columns.append(np.stack([column[kept] for column in some.columns], axis=1))
                taken = some.batch.select(key.names).take(pa.array(kept))
                keys.append(pa.Table.from_batches([taken]).cast(key))
        return cls(
            np.concatenate(places),
            pa.concat_tables(keys),
            np.concatenate(hashes),
            np.concatenate(columns),
        )

    def named(self, rows: Ints, kind: str) -> list[tuple[str, int, dict[str, Any]]]:
        """Return the kind, the place and the key of some rows."""
        keys = self.keys.take(pa.array(rows)).to_pylist()
        return [(kind, int(self.places[at]), key) for at, key in zip(rows, keys, strict=True)]


def compare_rows(
    table: SelectedRows, mirror: SelectedRows, shown_max: int
) -> Iterator[tuple[str, int, dict[str, Any], list[int]]]:
    """Compare rows key by key, by the hash of the key.

    Args:
        table: The rows of the table, each key once.
        mirror: The rows of the mirror.
        shown_max: How many differences of each kind are returned.

    Returns:
        The kind of the difference, the place, the key, and the columns with other values.
    """
    missing = np.flatnonzero(~np.isin(table.hashes, mirror.hashes))[:shown_max]
    for found in table.named(missing, "missing"):
        yield *found, []
    _, first = np.unique(mirror.hashes, return_index=True)
    is_extra = ~np.isin(mirror.hashes, table.hashes)
    repeated = np.ones(len(is_extra), np.bool_)
    repeated[first] = False  # a key that the mirror has twice
    for found in mirror.named(np.flatnonzero(is_extra | repeated)[:shown_max], "extra"):
        yield *found, []
    _, ours, theirs = np.intersect1d(table.hashes, mirror.hashes, return_indices=True)
    differs = table.columns[ours] != mirror.columns[theirs]
    rows = np.flatnonzero(differs.any(axis=1))[:shown_max]
    for found, columns in zip(table.named(ours[rows], "values"), differs[rows], strict=True):
        yield *found, np.flatnonzero(columns).tolist()
