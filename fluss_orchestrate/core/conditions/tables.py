"""Conditions on Fluss itself: a table or partition exists, offsets are reached, rows were added."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

from fluss_client import PartitionInfo, TableInfo, TablePath
from fluss_client.aio import FlussConnection as AsyncConnection
from fluss_client.engine import backend_of
from fluss_client.errors import ConfigError, DatabaseNotExistError, TableNotExistError
from fluss_orchestrate.core.conditions.base import Condition, Outcome
from fluss_orchestrate.core.errors import TableIdentityChangedError
from fluss_orchestrate.core.incremental.planning.observation import TableView, observe_table
from fluss_orchestrate.core.plan import BucketRange, Place, Position, behind_text
from fluss_orchestrate.core.polling import Look

SHOWN_MAX = 3
"""Names that a sentence lists."""


@dataclass(frozen=True)
class TableNow:
    """The question for a table; the answer is None if there is none."""

    path: TablePath

    async def ask(self, core: AsyncConnection) -> TableInfo | None:
        """Make one request."""
        try:
            return await backend_of(core).get_table_info(self.path)
        except (TableNotExistError, DatabaseNotExistError):
            return None


@dataclass(frozen=True)
class PartitionsFound:
    """The partitions of a table, and its partition columns."""

    partitions: Sequence[PartitionInfo]
    columns: frozenset[str]


@dataclass(frozen=True)
class PartitionsNow:
    """The question for the partitions of a table; the answer is None if there is no table."""

    path: TablePath

    async def ask(self, core: AsyncConnection) -> PartitionsFound | None:
        """Make one request, or two for a table that has no partitions yet, to get its columns."""
        try:
            found = await backend_of(core).list_partitions(self.path, None)
            if found:
                return PartitionsFound(found, frozenset(dict(found[0].spec)))
            info = await backend_of(core).get_table_info(self.path)
        except (TableNotExistError, DatabaseNotExistError):
            return None
        return PartitionsFound((), frozenset(info.partition_keys))


@dataclass(frozen=True)
class TableExists(Condition):
    """There is a table with this name."""

    kind: ClassVar[str] = "table_exists"
    path: TablePath
    unmet: ClassVar[str] = "there is no such table"

    def looks(self, interval_s: float) -> Sequence[Look]:
        """Return the request for the table."""
        return [Look(TableNow(self.path), self._decide, interval_s, steady=True)]

    @property
    def wanted(self) -> str:
        """Return the table."""
        return f"table {self.path} exists"

    def found(self, answer: TableInfo | None) -> str:
        """Return that there is no table."""
        return "there is no such table yet"

    def _decide(self, info: TableInfo | None) -> Outcome | None:
        if info is None:
            return None
        return {
            "table": str(self.path),
            "table_id": info.table_id,
            "created_time": info.created_time,
        }

    def values(self) -> dict[str, Any]:
        """Return nothing besides the table."""
        return {}

    @classmethod
    def of_values(cls, path: TablePath, values: Mapping[str, Any]) -> TableExists:
        """Return the condition from what `values` returned."""
        return cls(path)


@dataclass(frozen=True)
class PartitionExists(Condition):
    """There is a partition with these column values; columns may be left out."""

    kind: ClassVar[str] = "partition_exists"
    path: TablePath
    spec: Mapping[str, str] = field(hash=False)

    @property
    def unmet(self) -> str:
        """The partition that does not exist."""
        return f"there is no partition {dict(self.spec)}"

    def looks(self, interval_s: float) -> Sequence[Look]:
        """Return the request for all partitions, which all waiters for the table share."""
        return [Look(PartitionsNow(self.path), self._decide, interval_s, steady=True)]

    @property
    def wanted(self) -> str:
        """Return the table and the partition."""
        return f"{self.path} has a partition {dict(self.spec)}"

    def found(self, answer: PartitionsFound | None) -> str:
        """Return how many partitions there are, and the last ones by name."""
        if answer is None:
            return f"there is no table {self.path}"
        names = sorted(p.partition_name for p in answer.partitions)
        last = f", the last ones are {', '.join(names[-SHOWN_MAX:])}" if names else ""
        return f"it has {len(names)} partitions{last}"

    def _decide(self, there: PartitionsFound | None) -> Outcome | None:
        if there is None:
            return None
        unknown = sorted(self.spec.keys() - there.columns)
        if unknown:
            raise ConfigError(
                f"{self.path} is not partitioned by {', '.join(unknown)}, but by "
                f"{', '.join(sorted(there.columns))}: no partition {dict(self.spec)} can come"
            )
        found = [p for p in there.partitions if self.spec.items() <= dict(p.spec).items()]
        if not found:
            return None
        return {
            "table": str(self.path),
            "partitions": {p.partition_name: p.partition_id for p in found},
        }

    def values(self) -> dict[str, Any]:
        """Return the column values."""
        return {"spec": dict(self.spec)}

    @classmethod
    def of_values(cls, path: TablePath, values: Mapping[str, Any]) -> PartitionExists:
        """Return the condition from what `values` returned."""
        return cls(path, dict(values["spec"]))


@dataclass(frozen=True)
class EndsNow:
    """The question for the ends of a table's logs."""

    path: TablePath

    async def ask(self, core: AsyncConnection) -> TableView:
        """Make one request for the table, one for its partitions, one per partition and leader."""
        return await observe_table(core, self.path)


def ranges_after(view: TableView, since: Position) -> list[BucketRange]:
    """Return the ranges of a view after a position; places that it lacks begin at 0."""
    return [
        view.range_of(place, since.get(place, 0), latest)
        for place, latest in view.latest.items()
        if latest > since.get(place, 0)
    ]


@dataclass(frozen=True)
class _OffsetCondition(Condition):
    """A condition on the ends of a table's logs; `table_id` is the table that it was made for."""

    kind: ClassVar[str] = ""
    path: TablePath
    offsets: Position = field(hash=False)
    table_id: int | None = None

    def looks(self, interval_s: float) -> Sequence[Look]:
        """Return the request for the ends, which all waiters for the table share."""
        return [Look(EndsNow(self.path), self._decide, interval_s, steady=True)]

    def _decide(self, view: TableView) -> Outcome | None:
        if self.table_id is not None and view.info.table_id != self.table_id:
            expected = replace(view.identity, table_id=self.table_id)
            raise TableIdentityChangedError(expected, view.identity)
        return self._found(view)

    def _found(self, view: TableView) -> Outcome | None:
        raise NotImplementedError

    def values(self) -> dict[str, Any]:
        """Return the offsets, and the id of the table."""
        return {"offsets": position_to_json(self.offsets), "table_id": self.table_id}


@dataclass(frozen=True)
class RowsCame(_OffsetCondition):
    """The log has got a number of offsets after a position."""

    kind: ClassVar[str] = "rows_came"
    rows: int = 1

    @property
    def unmet(self) -> str:
        """The wanted number of offsets."""
        return f"fewer than {self.rows} new rows have come"

    @property
    def wanted(self) -> str:
        """Return how many offsets are wanted, and after which ones."""
        after = sum(self.offsets.values())
        since = f"{after} ({len(self.offsets)} buckets)" if self.offsets else "the beginning"
        return f"{self.path} has at least {self.rows} new offsets after {since}"

    def found(self, answer: TableView) -> str:
        """Return how many of them there are."""
        count = sum(r.count for r in ranges_after(answer, self.offsets))
        end = sum(answer.latest.values())
        return (
            f"{count} of {self.rows} new offsets have come, {self.rows - count} are missing; the "
            f"log ends at {end} ({len(answer.latest)} buckets)"
        )

    def _found(self, view: TableView) -> Outcome | None:
        ranges = ranges_after(view, self.offsets)
        count = sum(r.count for r in ranges)
        return _outcome(view, ranges, count) if count >= self.rows else None

    def values(self) -> dict[str, Any]:
        """Return the position and the number."""
        return {**super().values(), "rows": self.rows}

    @classmethod
    def of_values(cls, path: TablePath, values: Mapping[str, Any]) -> RowsCame:
        """Return the condition from what `values` returned."""
        offsets = position_from_json(values["offsets"])
        return cls(path, offsets, values["table_id"], int(values["rows"]))


@dataclass(frozen=True)
class OffsetsReached(_OffsetCondition):
    """The log of every named place has reached its offset."""

    kind: ClassVar[str] = "offsets_reached"
    unmet: ClassVar[str] = "the log has not come to the offsets"

    @property
    def wanted(self) -> str:
        """Return the offsets."""
        total = sum(self.offsets.values())
        return f"the log of {self.path} reaches {total} ({len(self.offsets)} buckets)"

    def found(self, answer: TableView) -> str:
        """Return which buckets are behind."""
        return behind_text("the log", self.missing(answer))

    def missing(self, view: TableView) -> dict[Place, tuple[int, int]]:
        """Return the end and the wanted offset of each bucket that is behind."""
        return {
            place: (view.latest.get(place, 0), wanted)
            for place, wanted in self.offsets.items()
            if view.latest.get(place, 0) < wanted
        }

    def _found(self, view: TableView) -> Outcome | None:
        if self.missing(view):
            return None
        ranges = ranges_after(view, self.offsets)
        return _outcome(view, ranges, sum(r.count for r in ranges))

    @classmethod
    def of_values(cls, path: TablePath, values: Mapping[str, Any]) -> OffsetsReached:
        """Return the condition from what `values` returned."""
        return cls(path, position_from_json(values["offsets"]), values["table_id"])


def position_to_json(position: Position) -> list[list[int | None]]:
    """Return `[partition id, bucket, offset]` of each place."""
    return [[partition, bucket, offset] for (partition, bucket), offset in position.items()]


def position_from_json(value: Sequence[Sequence[Any]]) -> dict[tuple[int | None, int], int]:
    """Return the position from what `position_to_json` returned."""
    return {(partition, int(bucket)): int(offset) for partition, bucket, offset in value}


def _outcome(view: TableView, ranges: list[BucketRange], rows: int) -> Outcome:
    return {
        "table": view.identity.to_json(),
        "uri": view.identity.uri,
        "ranges": [r.to_json() for r in ranges],
        "rows": rows,
    }
