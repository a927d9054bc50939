"""What the comparison of a mirror with its table found, and the errors of mirrors."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from fluss_orchestrate.core.identity import TableIdentity
from fluss_orchestrate.core.sinks.errors import SinkError

BUCKETS_SHOWN_MAX = 100
"""Buckets that differ in the plain values of a comparison; there may be more."""

NO_BUCKET = -1
"""The bucket of rows that have null in their key, which no row of a table has."""


@dataclass(frozen=True, slots=True)
class BucketComparison:
    """The rows of one bucket in the table and in the mirror.

    Attributes:
        partition: The name of the partition; None if the table has none.
        bucket: The bucket; -1 for rows of the mirror whose key has a null.
        offset: The offset at which both are compared.
        rows: The rows of the table.
        mirror_rows: The rows of the mirror.
        checksum: The sum of the hashes of the table's rows.
        mirror_checksum: The sum of the hashes of the mirror's rows.
    """

    partition: str | None
    bucket: int
    offset: int
    rows: int
    mirror_rows: int
    checksum: int
    mirror_checksum: int

    @property
    def equal(self) -> bool:
        """Whether both have the same rows."""
        return (self.rows, self.checksum) == (self.mirror_rows, self.mirror_checksum)

    def to_json(self) -> dict[str, Any]:
        """Return it as plain values."""
        return {
            "partition": self.partition,
            "bucket": self.bucket,
            "offset": self.offset,
            "rows": self.rows,
            "mirror_rows": self.mirror_rows,
            "checksum": f"{self.checksum:016x}",
            "mirror_checksum": f"{self.mirror_checksum:016x}",
        }


@dataclass(frozen=True, slots=True)
class KeyDifference:
    """One key whose rows differ.

    Attributes:
        partition: The name of the partition; None if the table has none.
        bucket: The bucket.
        key: The columns of the primary key with their values.
        kind: `missing` in the mirror, `extra` in the mirror, or other `values`.
        columns: The columns with other values.
    """

    partition: str | None
    bucket: int
    key: Mapping[str, Any]
    kind: str
    columns: tuple[str, ...] = ()

    def __str__(self) -> str:
        shown = json.dumps(_plain(self.key), ensure_ascii=False)
        if self.kind == "values":
            return f"{shown} has another {', '.join(self.columns)}"
        return f"{shown} is {self.kind}"

    def to_json(self) -> dict[str, Any]:
        """Return it as plain values."""
        return {
            "partition": self.partition,
            "bucket": self.bucket,
            "key": _plain(self.key),
            "kind": self.kind,
            "columns": list(self.columns),
        }


@dataclass(frozen=True, slots=True)
class MirrorComparison:
    """The result of `verify_mirror`.

    Attributes:
        table: The table.
        sink: The identity of the sink.
        checkpoint: The checkpoint of the mirror.
        columns: The columns that were compared.
        buckets: Every bucket that the mirror has reached, and those in which it has rows.
        differences: The first keys that differ.
    """

    table: TableIdentity
    sink: str
    checkpoint: str
    columns: tuple[str, ...]
    buckets: tuple[BucketComparison, ...]
    differences: tuple[KeyDifference, ...] = ()

    @property
    def equal(self) -> bool:
        """Whether the mirror holds exactly the rows that the table had at these offsets."""
        return all(bucket.equal for bucket in self.buckets)

    @property
    def differing(self) -> tuple[BucketComparison, ...]:
        """The buckets that differ."""
        return tuple(bucket for bucket in self.buckets if not bucket.equal)

    @property
    def rows(self) -> int:
        """The rows of the table."""
        return sum(bucket.rows for bucket in self.buckets)

    @property
    def mirror_rows(self) -> int:
        """The rows of the mirror."""
        return sum(bucket.mirror_rows for bucket in self.buckets)

    def __str__(self) -> str:
        if self.equal:
            return (
                f"{self.sink} equals {self.table.path}: {self.rows} rows in "
                f"{len(self.buckets)} buckets"
            )
        first = "; ".join(str(difference) for difference in self.differences)
        return (
            f"{self.sink} differs from {self.table.path} in {len(self.differing)} of "
            f"{len(self.buckets)} buckets ({self.mirror_rows} rows where the table has "
            f"{self.rows})" + (f": {first}" if first else "")
        )

    def to_json(self) -> dict[str, Any]:
        """Return it as plain values; of the buckets only those that differ."""
        return {
            "uri": self.table.uri,
            "sink": self.sink,
            "checkpoint": self.checkpoint,
            "columns": list(self.columns),
            "equal": self.equal,
            "rows": self.rows,
            "mirror_rows": self.mirror_rows,
            "buckets": len(self.buckets),
            "buckets_differing": len(self.differing),
            "differing": [b.to_json() for b in self.differing[:BUCKETS_SHOWN_MAX]],
            "differences": [d.to_json() for d in self.differences],
        }

    def require_equal(self) -> None:
        """Do nothing if the mirror equals its table.

        Raises:
            MirrorDiffersError: It does not.
        """
        if not self.equal:
            raise MirrorDiffersError(self)


class MirrorDiffersError(SinkError):
    """A mirror does not hold the rows of its table.

    Attributes:
        comparison: What differs.
    """

    def __init__(self, comparison: MirrorComparison) -> None:
        super().__init__(
            comparison.sink,
            f"{comparison}. Find out who else writes into it; `reset` the checkpoint "
            f"'{comparison.checkpoint}' to start, and the next run writes all rows anew",
        )
        self.comparison = comparison


class MirrorAbsentError(SinkError):
    """The sink holds nothing of the checkpoint, so there is nothing to compare."""

    def __init__(self, sink: str, checkpoint: str) -> None:
        super().__init__(
            sink,
            f"it holds no plan of the checkpoint '{checkpoint}': run the mirror first, or give the "
            "checkpoint and the sink of that run",
        )
        self.checkpoint = checkpoint


class MirrorMovedError(SinkError):
    """The mirror was written again and again while it was compared; compare it later."""

    retriable = True

    def __init__(self, sink: str, attempts: int) -> None:
        super().__init__(
            sink,
            f"others wrote into the mirror during each of {attempts} comparisons; verify it in the "
            "same task chain as the mirror, after it",
        )


def _plain(key: Mapping[str, Any]) -> dict[str, Any]:
    return {
        name: value if isinstance(value, (str, int, bool)) or value is None else str(value)
        for name, value in key.items()
    }


def first_differences(found: Sequence[KeyDifference], shown_max: int) -> tuple[KeyDifference, ...]:
    """Return the first differences, in the order of partitions and buckets."""
    ordered = sorted(found, key=lambda d: (d.partition or "", d.bucket))
    return tuple(ordered[:shown_max])
