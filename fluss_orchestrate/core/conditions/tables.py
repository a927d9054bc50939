"""Conditions on Fluss itself: a table or partition exists, offsets are reached, rows came."""

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
    """A table as the cluster describes it; None if there is none."""

    path: TablePath

    async def ask(self, core: AsyncConnection) -> TableInfo | None:
        """One request."""
        try:
            return await backend_of(core).get_table_info(self.path)
        except (TableNotExistError, DatabaseNotExistError):
            return None


@dataclass(frozen=True)
class PartitionsFound:
    """A table's partitions, and the columns that it is partitioned by."""

    partitions: Sequence[PartitionInfo]
    columns: frozenset[str]


@dataclass(frozen=True)
class PartitionsNow:
    """A table's partitions; None if there is no table."""

    path: TablePath

    async def ask(self, core: AsyncConnection) -> PartitionsFound | None:
        """One request; one more for a table without partitions, whose columns they would tell."""
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
    """There is a table of the name."""

    kind: ClassVar[str] = "table_exists"
    path: TablePath
    unmet: ClassVar[str] = "there is no such table"

    def looks(self, interval_s: float) -> Sequence[Look]:
        """Ask for the table."""
        return [Look(TableNow(self.path), self._decide, interval_s)]

    @property
    def wanted(self) -> str:
        """The table."""
        return f"table {self.path} exists"

    def found(self, answer: TableInfo | None) -> str:
        """Say that there is no table."""
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
        """Nothing beside the table."""
        return {}

    @classmethod
    def of_values(cls, path: TablePath, values: Mapping[str, Any]) -> TableExists:
        """The condition from `values`."""
        return cls(path)


@dataclass(frozen=True)
class PartitionExists(Condition):
    """There is a partition with these column values; columns may be left out."""

    kind: ClassVar[str] = "partition_exists"
    path: TablePath
    spec: Mapping[str, str] = field(hash=False)

    @property
    def unmet(self) -> str:
        """Which partition is not there."""
        return f"there is no partition {dict(self.spec)}"

    def looks(self, interval_s: float) -> Sequence[Look]:
        """Ask for all partitions: those who wait for others of the table share the answer."""
        return [Look(PartitionsNow(self.path), self._decide, interval_s)]

    @property
    def wanted(self) -> str:
        """The table and the partition."""
        return f"{self.path} has a partition {dict(self.spec)}"

    def found(self, answer: PartitionsFound | None) -> str:
        """Say how many partitions there are, and the last ones by name."""
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
        """The column values."""
        return {"spec": dict(self.spec)}

    @classmethod
    def of_values(cls, path: TablePath, values: Mapping[str, Any]) -> PartitionExists:
        """The condition from `values`."""
        return cls(path, dict(values["spec"]))


@dataclass(frozen=True)
class EndsNow:
    """Where a table's logs end."""

    path: TablePath

    async def ask(self, core: AsyncConnection) -> TableView:
        """One request for the table, one for its partitions, one per partition and leader."""
        return await observe_table(core, self.path)


def ranges_after(view: TableView, since: Position) -> list[BucketRange]:
    """What a view shows beyond a position; places that the position lacks begin at 0."""
    return [
        view.range_of(place, since.get(place, 0), latest)
        for place, latest in view.latest.items()
        if latest > since.get(place, 0)
    ]


@dataclass(frozen=True)
class _OffsetCondition(Condition):
    """About the ends of a table's logs; `table_id` keeps it to the table it was made for."""

    kind: ClassVar[str] = ""
    path: TablePath
    offsets: Position = field(hash=False)
    table_id: int | None = None

    def looks(self, interval_s: float) -> Sequence[Look]:
        """Ask for the ends; those who wait for other rows of the table share the answer."""
        return [Look(EndsNow(self.path), self._decide, interval_s)]

    def _decide(self, view: TableView) -> Outcome | None:
        if self.table_id is not None and view.info.table_id != self.table_id:
            expected = replace(view.identity, table_id=self.table_id)
            raise TableIdentityChangedError(expected, view.identity)
        return self._found(view)

    def _found(self, view: TableView) -> Outcome | None:
        raise NotImplementedError

    def values(self) -> dict[str, Any]:
        """The offsets, and the table's id."""
        return {"offsets": position_to_json(self.offsets), "table_id": self.table_id}


@dataclass(frozen=True)
class RowsCame(_OffsetCondition):
    """So many offsets have come after a position."""

    kind: ClassVar[str] = "rows_came"
    rows: int = 1

    @property
    def unmet(self) -> str:
        """How many were wanted."""
        return f"fewer than {self.rows} new rows have come"

    @property
    def wanted(self) -> str:
        """How many offsets, and after which ones."""
        after = sum(self.offsets.values())
        since = f"{after} ({len(self.offsets)} buckets)" if self.offsets else "the beginning"
        return f"{self.path} has at least {self.rows} new offsets after {since}"

    def found(self, answer: TableView) -> str:
        """Say how many of them have come."""
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
        """The position and the count."""
        return {**super().values(), "rows": self.rows}

    @classmethod
    def of_values(cls, path: TablePath, values: Mapping[str, Any]) -> RowsCame:
        """The condition from `values`."""
        offsets = position_from_json(values["offsets"])
        return cls(path, offsets, values["table_id"], int(values["rows"]))


@dataclass(frozen=True)
class OffsetsReached(_OffsetCondition):
    """The log of every named place has come to its offset."""

    kind: ClassVar[str] = "offsets_reached"
    unmet: ClassVar[str] = "the log has not come to the offsets"

    @property
    def wanted(self) -> str:
        """The offsets."""
        total = sum(self.offsets.values())
        return f"the log of {self.path} reaches {total} ({len(self.offsets)} buckets)"

    def found(self, answer: TableView) -> str:
        """Say which buckets are behind."""
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
        """The condition from `values`."""
        return cls(path, position_from_json(values["offsets"]), values["table_id"])


def position_to_json(position: Position) -> list[list[int | None]]:
    """`[partition id, bucket, offset]` of each place."""
    return [[partition, bucket, offset] for (partition, bucket), offset in position.items()]


def position_from_json(value: Sequence[Sequence[Any]]) -> dict[tuple[int | None, int], int]:
    """The position from `position_to_json`."""
    return {(partition, int(bucket)): int(offset) for partition, bucket, offset in value}


def _outcome(view: TableView, ranges: list[BucketRange], rows: int) -> Outcome:
    return {
        "table": view.identity.to_json(),
        "uri": view.identity.uri,
        "ranges": [r.to_json() for r in ranges],
        "rows": rows,
    }
