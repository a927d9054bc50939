"""Plans: what one run of an incremental scan reads, frozen.

A position is the next offset of each (partition, bucket). A plan is a list of half-open ranges of
offsets with the schema, the columns and the metadata columns pinned. Its id is a hash of all that,
never a number that is counted: a store that lost its tail would give the number out again.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from fluss_client import TableBucket
from fluss_client.errors import CorruptDataError
from fluss_orchestrate.core import plain_values as plain
from fluss_orchestrate.core.identity import TableIdentity

PLAN_VERSION = 3
"""Version 2 has a generation, version 3 dropped partitions. A plan that has neither is written as
version 1, and keeps its id. An earlier release refuses what it would not take account of."""
METADATA_COLUMNS = ("_change_type", "_offset", "_timestamp", "_bucket", "_partition")

Place = tuple[int | None, int]
"""A partition's id (None without partitions) and a bucket."""
Position = Mapping[Place, int]
"""The next offset of each place."""


@dataclass(frozen=True, slots=True)
class Generation:
    """Which life of a checkpoint a plan belongs to.

    A reset, a table that was created again and rows that were given up begin a new generation, so
    that the same ranges can be written again on purpose, and never by accident. It is named by the
    sequence and the nonce of the event that began it; a checkpoint's first generation has no name.
    """

    sequence: int
    nonce: str

    def to_json(self) -> list[Any]:
        """`[sequence, nonce]`."""
        return [self.sequence, self.nonce]

    @classmethod
    def from_json(cls, value: Any) -> Generation | None:
        """The generation from `to_json`; None stays None, the first generation."""
        if value is None:
            return None
        with plain.reading("generation of a checkpoint"):
            sequence, nonce = value
            return cls(plain.number(sequence), plain.text(nonce))


def generation_json(generation: Generation | None) -> list[Any] | None:
    """The generation as plain values; None for the first one."""
    return None if generation is None else generation.to_json()


@dataclass(frozen=True, slots=True)
class BucketRange:
    """The offsets `[start, stop)` of one bucket.

    Attributes:
        partition_id: The id of the partition; None for a table without partitions.
        partition: The name of the partition; None for a table without partitions.
        bucket: The number of the bucket.
        start: The first offset.
        stop: The offset after the last one.
    """

    partition_id: int | None
    partition: str | None
    bucket: int
    start: int
    stop: int

    @property
    def place(self) -> Place:
        """The partition id and the bucket."""
        return self.partition_id, self.bucket

    @property
    def count(self) -> int:
        """How many offsets lie in it; a changelog has a few more offsets than rows."""
        return self.stop - self.start

    def table_bucket(self, table_id: int) -> TableBucket:
        """Return the bucket of this range in the table with the id `table_id`."""
        return TableBucket(table_id, self.bucket, partition_id=self.partition_id)

    def to_json(self) -> list[Any]:
        """`[partition id, partition, bucket, start, stop]`."""
        return [self.partition_id, self.partition, self.bucket, self.start, self.stop]

    @classmethod
    def from_json(cls, value: Sequence[Any]) -> BucketRange:
        """Return the range from the `value` that `to_json` returned."""
        with plain.reading("range of offsets"):
            partition_id, partition, bucket, start, stop = value
            return cls(
                plain.number_or_none(partition_id),
                plain.text_or_none(partition),
                plain.number(bucket),
                plain.number(start),
                plain.number(stop),
            )


@dataclass(frozen=True, slots=True)
class ScanPlan:
    """The rows that one run reads. Reading a plan again returns the same rows.

    Attributes:
        name: The name of the checkpoint.
        run_key: The name of the run that made the plan.
        table: The identity of the table.
        schema_id: The id of the schema in which the rows are read.
        columns: The columns to read.
        metadata_columns: Further columns, such as `__offset`.
        ranges: The ranges that are not empty, in the order of partition and bucket.
        kind: `log`, `changelog`, or `state` for the current rows of a key table as a first plan.
        sequence: The number of the event in the checkpoint's history; not part of the id.
        created_ms: When the plan was made, in milliseconds since 1970.
        generation: The generation of the checkpoint; None for the first one.
        begin: The position of every known place of the table before the plan, as the store recorded
            it; None if it is not known. It is not part of the id, and `to_json` leaves it out.
    """

    name: str
    run_key: str
    table: TableIdentity
    schema_id: int
    columns: tuple[str, ...]
    metadata_columns: tuple[str, ...]
    ranges: tuple[BucketRange, ...]
    kind: str = "log"
    sequence: int = -1
    created_ms: int = -1
    generation: Generation | None = None
    dropped: tuple[tuple[int, str], ...] = ()
    """Partitions (id and name) that were dropped since the plan before, in plans for a mirror: the
    sink deletes their rows before it writes those of the plan."""
    begin: Position | None = field(default=None, repr=False, compare=False)
    _known_id: str = field(default="", init=False, repr=False, compare=False)

    @property
    def plan_id(self) -> str:
        """A hash of the content: equal plans have equal ids, different ones do not."""
        if not self._known_id:
            object.__setattr__(self, "_known_id", self._hash())
        return self._known_id

    def _hash(self) -> str:
        content = {
            "name": self.name,
            "table": self.table.to_json(),
            "schema_id": self.schema_id,
            "columns": list(self.columns),
            "metadata_columns": list(self.metadata_columns),
            "ranges": [r.to_json() for r in self.ranges],
            "kind": self.kind,
        }
        if self.generation is not None:
            content["generation"] = self.generation.to_json()
        if self.dropped:
            content["dropped"] = [list(partition) for partition in self.dropped]
        text = json.dumps(content, sort_keys=True, separators=(",", ":"))
        return hashlib.sha256(text.encode()).hexdigest()[:32]

    @property
    def position(self) -> Position | None:
        """Where every known place is after the plan; None when it is not known."""
        if self.begin is None:
            return None
        return {**self.begin, **{r.place: r.stop for r in self.ranges}}

    @property
    def is_empty(self) -> bool:
        """Whether there is nothing to read, and nothing to delete."""
        return not self.ranges and not self.dropped

    @property
    def offsets(self) -> int:
        """How many offsets the ranges hold together."""
        return sum(r.count for r in self.ranges)

    def split(self, parts: int) -> list[ScanPlan]:
        """At most `parts` plans of about equal size that together, in order, read exactly this one.

        A log is cut anywhere between two offsets. A changelog and a state are cut between buckets
        only: parallel readers of one bucket would lose the order of the changes of a key.
        """
        groups = split_ranges(self.ranges, parts, whole=self.kind != "log")
        return [replace(self, ranges=group) for group in groups]

    def to_json(self) -> dict[str, Any]:
        """Return the plan as plain values."""
        value = {
            "version": self._version,
            "plan_id": self.plan_id,
            "name": self.name,
            "run_key": self.run_key,
            "table": self.table.to_json(),
            "schema_id": self.schema_id,
            "columns": list(self.columns),
            "metadata_columns": list(self.metadata_columns),
            "ranges": [r.to_json() for r in self.ranges],
            "kind": self.kind,
            "sequence": self.sequence,
            "created_ms": self.created_ms,
        }
        if self.generation is not None:
            value["generation"] = self.generation.to_json()
        if self.dropped:
            value["dropped"] = [list(partition) for partition in self.dropped]
        return value

    @property
    def _version(self) -> int:
        if self.dropped:
            return PLAN_VERSION
        return 1 if self.generation is None else 2

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> ScanPlan:
        """Return the plan from the `value` that `to_json` returned."""
        with plain.reading("plan"):
            plain.check_version(value, PLAN_VERSION, "a plan")
            plan = cls(
                name=plain.text(value["name"]),
                run_key=plain.text(value["run_key"]),
                table=TableIdentity.from_json(value["table"]),
                schema_id=plain.number(value["schema_id"]),
                columns=plain.texts(value["columns"]),
                metadata_columns=plain.texts(value["metadata_columns"]),
                ranges=tuple(BucketRange.from_json(r) for r in value["ranges"]),
                kind=plain.text(value["kind"]),
                sequence=plain.number(value["sequence"]),
                created_ms=plain.number(value["created_ms"]),
                generation=Generation.from_json(value.get("generation")),
                dropped=tuple(
                    (plain.number(number), plain.text(name))
                    for number, name in value.get("dropped", ())
                ),
            )
        if plan.plan_id != value.get("plan_id"):
            raise CorruptDataError("a plan's id does not fit its content: it was changed")
        return plan


def split_ranges(
    ranges: Sequence[BucketRange], parts: int, whole: bool = False
) -> list[tuple[BucketRange, ...]]:
    """At most `parts` groups of about equal size that together, in order, are these ranges.

    Cuts lie anywhere between two offsets; with `whole`, only between ranges.
    """
    target = max(1, -(-sum(r.count for r in ranges) // max(1, parts)))
    groups: list[list[BucketRange]] = [[]]
    room = target
    for one in ranges:
        start = one.start
        while start < one.stop:
            if room <= 0:
                groups.append([])
                room = target
            stop = one.stop if whole else min(one.stop, start + room)
            groups[-1].append(replace(one, start=start, stop=stop))
            room -= stop - start
            start = stop
    return [tuple(group) for group in groups if group]


def by_place(ranges: Iterable[BucketRange]) -> dict[Place, list[BucketRange]]:
    """The ranges of each place."""
    found: dict[Place, list[BucketRange]] = {}
    for r in ranges:
        found.setdefault(r.place, []).append(r)
    return found


def without(wanted: Iterable[BucketRange], taken: Iterable[BucketRange]) -> tuple[BucketRange, ...]:
    """The parts of `wanted` that are not in `taken`, in order."""
    others = by_place(taken)
    left: list[BucketRange] = []
    for r in wanted:
        start = r.start
        for other in sorted(others.get(r.place, ()), key=lambda o: o.start):
            if start < min(other.start, r.stop):
                left.append(replace(r, start=start, stop=min(other.start, r.stop)))
            start = max(start, other.stop)
        if start < r.stop:
            left.append(replace(r, start=start))
    return tuple(left)


BUCKETS_SHOWN_MAX = 3
"""Buckets that a sentence names."""


def behind_text(what: str, missing: Mapping[Place, tuple[int, int]]) -> str:
    """Say how far buckets are behind their targets.

    Args:
        what: What is behind: the log, the lake.
        missing: The offset that each bucket has, and the one that it should have.

    Returns:
        A sentence with the sum, and the buckets that are behind most.
    """
    behind = {place: wanted - max(0, held) for place, (held, wanted) in missing.items()}
    worst = sorted(behind, key=lambda place: -behind[place])[:BUCKETS_SHOWN_MAX]
    shown = ", ".join(
        f"bucket {bucket}"
        + ("" if partition is None else f" of partition {partition}")
        + f" at {max(0, missing[partition, bucket][0])} of {missing[partition, bucket][1]}"
        for partition, bucket in worst
    )
    more = "" if len(behind) <= BUCKETS_SHOWN_MAX else ", ..."
    return (
        f"{what} still lacks {sum(behind.values())} offsets in {len(behind)} bucket(s): "
        f"{shown}{more}"
    )
