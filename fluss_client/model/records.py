"""What a scan returns: records or Arrow batches, with their offsets in the log."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any, NamedTuple, overload

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from fluss_client.model.cluster import ChangeType
from fluss_client.model.table import TableBucket


class ScanRecord(NamedTuple):
    """One record of a log. It is a tuple, because polling makes millions of them.

    Attributes:
        offset: The offset of the record.
        timestamp: When the server committed it, in milliseconds since 1970.
        change_type: How the row was changed; `APPEND_ONLY` for log tables.
        row: The values by column name.
    """

    offset: int
    timestamp: int
    change_type: ChangeType
    row: dict[str, Any]


@dataclass(frozen=True, slots=True)
class RecordBatch:
    """An Arrow batch with its bucket and offsets.

    Attributes:
        batch: The rows.
        bucket: The bucket that they are from.
    """

    batch: pa.RecordBatch
    bucket: TableBucket
    base_offset: int
    """The offset of the first row."""
    last_offset: int
    """The offset of the last row."""
    timestamp: int = -1
    """When the server committed the rows, in milliseconds since 1970; -1 if it is not known."""
    change_types: pa.Array | None = None
    """One `ChangeType` value per row, for changelogs of primary-key tables."""
    next_offset: int = -1
    """The offset at which the log continues: empty batches of a changelog use up offsets too."""
    offsets: npt.NDArray[np.int64] | None = None
    """The offset of each row, if rows in between were left out by a filter; else None."""


class ScanRecords:
    """Records grouped by bucket: a sequence of records and a mapping of buckets at once.

    The records of a bucket may be any collection that makes records as it is iterated; they become
    a list when a list is asked for.

    Args:
        by_bucket: The records of each bucket.
    """

    __slots__ = ("_by_bucket", "_count", "_flat")

    def __init__(self, by_bucket: Mapping[TableBucket, Collection[ScanRecord]]) -> None:
        self._by_bucket = {b: r for b, r in by_bucket.items() if len(r)}
        self._count = sum(len(r) for r in self._by_bucket.values())
        self._flat: list[ScanRecord] | None = None

    def buckets(self) -> list[TableBucket]:
        """Return the buckets that have records."""
        return list(self._by_bucket)

    keys = buckets

    def records(self, bucket: TableBucket) -> list[ScanRecord]:
        """Return the records of a `bucket`; an empty list if it has none."""
        found = self._by_bucket.get(bucket, [])
        if not isinstance(found, list):
            found = self._by_bucket[bucket] = list(found)
        return found

    def values(self) -> Iterator[list[ScanRecord]]:
        """Return the record lists, one per bucket."""
        return map(self.records, self.buckets())

    def items(self) -> Iterator[tuple[TableBucket, list[ScanRecord]]]:
        """Return `(bucket, records)` pairs."""
        return ((bucket, self.records(bucket)) for bucket in self.buckets())

    def count(self) -> int:
        """Return the number of records in all buckets."""
        return self._count

    def is_empty(self) -> bool:
        """Return whether there are no records."""
        return self._count == 0

    def _all(self) -> list[ScanRecord]:
        if self._flat is None:
            self._flat = list(chain.from_iterable(self.values()))
        return self._flat

    def __len__(self) -> int:
        return self._count

    def __iter__(self) -> Iterator[ScanRecord]:
        if self._flat is not None:
            return iter(self._flat)
        return chain.from_iterable(self._by_bucket.values())

    def __contains__(self, bucket: object) -> bool:
        return bucket in self._by_bucket

    @overload
    def __getitem__(self, index: int) -> ScanRecord: ...
    @overload
    def __getitem__(self, index: slice) -> list[ScanRecord]: ...
    @overload
    def __getitem__(self, index: TableBucket) -> list[ScanRecord]: ...
    def __getitem__(
        self, index: int | slice | TableBucket
    ) -> ScanRecord | Sequence[ScanRecord] | list[ScanRecord]:
        if isinstance(index, TableBucket):
            if index not in self._by_bucket:
                raise KeyError(index)
            return self.records(index)
        return self._all()[index]

    def __repr__(self) -> str:
        return f"ScanRecords({self._count} records, {len(self._by_bucket)} buckets)"
