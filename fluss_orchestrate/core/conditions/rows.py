"""Rows that have come: so many after a position, or up to given offsets."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

from fluss_client.aio.connection import FlussConnection as AsyncConnection
from fluss_client.model.table import TablePath
from fluss_orchestrate.core.conditions.base import Condition, Outcome
from fluss_orchestrate.core.errors import TableIdentityChangedError
from fluss_orchestrate.core.incremental.observe import TableView, observe
from fluss_orchestrate.core.plan import BucketRange, Position
from fluss_orchestrate.core.polling import Look


@dataclass(frozen=True)
class EndsNow:
    """Where a table's logs end."""

    path: TablePath

    async def ask(self, core: AsyncConnection) -> TableView:
        """One request for the table, one for its partitions, one per partition and leader."""
        return await observe(core.backend, core.config.resolved_alias(), self.path)


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

    def _found(self, view: TableView) -> Outcome | None:
        if any(view.latest.get(place, 0) < offset for place, offset in self.offsets.items()):
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
