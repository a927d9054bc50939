"""The lake: a new snapshot, one that covers a target, one that is fresh enough."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, ClassVar

from fluss_client import LakeSnapshot, TablePath
from fluss_client.aio import FlussConnection as AsyncConnection
from fluss_orchestrate.core.conditions.base import Condition, Outcome
from fluss_orchestrate.core.conditions.tables import position_to_json
from fluss_orchestrate.core.errors import NotYetError
from fluss_orchestrate.core.lake.covers import (
    LakeTarget,
    LatestSnapshot,
    awaited_snapshot,
    resolve_target,
    wait_for_snapshot,
)
from fluss_orchestrate.core.lake.status import LakeStatus, read_status
from fluss_orchestrate.core.plan import Place, behind_text
from fluss_orchestrate.core.polling import Look, LookReport


@dataclass(frozen=True)
class NewSnapshot(Condition):
    """There is a lake snapshot other than `after`; with None, any snapshot."""

    kind: ClassVar[str] = "new_snapshot"
    unmet: ClassVar[str] = "there is no new lake snapshot"
    path: TablePath
    after: int | None = None

    def looks(self, interval_s: float) -> Sequence[Look]:
        """Return the request for the newest snapshot."""
        return [Look(LatestSnapshot(self.path), self._decide, interval_s, steady=True)]

    @property
    def wanted(self) -> str:
        """Return the table, and the known snapshot."""
        known = "a lake snapshot" if self.after is None else f"a lake snapshot after {self.after}"
        return f"{self.path} has {known}"

    def found(self, answer: LakeSnapshot | None) -> str:
        """Return which snapshot there is."""
        return "it has none" if answer is None else f"the newest one is {answer.snapshot_id}"

    def _decide(self, snapshot: LakeSnapshot | None) -> Outcome | None:
        if snapshot is None or snapshot.snapshot_id == self.after:
            return None
        return snapshot_outcome(self.path, snapshot)

    def values(self) -> dict[str, Any]:
        """Return the known snapshot."""
        return {"after": self.after}

    @classmethod
    def of_values(cls, path: TablePath, values: Mapping[str, Any]) -> NewSnapshot:
        """Return the condition from what `values` returned."""
        return cls(path, values["after"])


@dataclass(frozen=True)
class LakeCovers(Condition):
    """The lake holds everything up to resolved offsets, or everything committed before a time."""

    kind: ClassVar[str] = "lake_covers"
    unmet: ClassVar[str] = "the lake does not hold the target"
    path: TablePath
    target: LakeTarget | int

    def looks(self, interval_s: float) -> Sequence[Look]:
        """Return nothing: `wait` uses `wait_for_snapshot`."""
        return []

    @property
    def wanted(self) -> str:
        """Return the offsets, or the time."""
        if isinstance(self.target, LakeTarget):
            total = sum(self.target.offsets.values())
            upto = f"offset {total} ({len(self.target.offsets)} buckets)"
        else:
            upto = f"{datetime.fromtimestamp(self.target / 1000, UTC).isoformat()}"
        return f"the lake of {self.path} holds everything up to {upto}"

    def found(self, answer: Mapping[Place, tuple[int, int]]) -> str:
        """Return which buckets are behind."""
        return behind_text("the lake", answer)

    async def wait(
        self,
        core: AsyncConnection,
        interval_s: float,
        timeout_s: float | None,
        report: LookReport | None = None,
    ) -> Outcome:
        """Wait for the snapshot. If a time cannot be resolved yet, try again later."""
        found = await wait_for_snapshot(
            core,
            self.path,
            self.target,
            timeout_s=timeout_s,
            poll_interval_s=interval_s,
            report=report,
        )
        return snapshot_outcome(self.path, found)

    async def check(
        self, core: AsyncConnection, report: LookReport | None = None
    ) -> Outcome | None:
        """Check once, now. A time that cannot be resolved yet is not covered."""
        try:
            target = await resolve_target(core, self.path, self.target)
        except NotYetError as error:
            if report is not None:
                report.look(lambda error=error: f"the time is not final yet: {error}")  # type: ignore[misc]
            return None
        snapshot = await awaited_snapshot(core, self.path)
        missing = target.missing(snapshot)
        if missing:
            if report is not None:
                report.look(lambda: self.found(missing))
            return None
        return snapshot_outcome(self.path, snapshot or LakeSnapshot(-1))

    def values(self) -> dict[str, Any]:
        """Return the resolved target, or the time."""
        if isinstance(self.target, LakeTarget):
            return {"target": self.target.to_json()}
        return {"until_ms": self.target}

    @classmethod
    def of_values(cls, path: TablePath, values: Mapping[str, Any]) -> LakeCovers:
        """Return the condition from what `values` returned."""
        if "target" in values:
            return cls(path, LakeTarget.from_json(values["target"]))
        return cls(path, int(values["until_ms"]))


@dataclass(frozen=True)
class LakeLagNow:
    """The question how far a table's lake is behind, also in time."""

    path: TablePath

    async def ask(self, core: AsyncConnection) -> LakeStatus:
        """Make several requests, and one more per bucket that is behind."""
        await awaited_snapshot(core, self.path)
        return await read_status(core, self.path)


@dataclass(frozen=True)
class LakeFresh(Condition):
    """The oldest row that is not in the lake is younger than `lag_ms`."""

    kind: ClassVar[str] = "lake_fresh"
    path: TablePath
    lag_ms: int

    @property
    def unmet(self) -> str:
        """The wanted freshness."""
        return f"the lake is more than {self.lag_ms} ms behind"

    def looks(self, interval_s: float) -> Sequence[Look]:
        """Return the request for the lag."""
        return [Look(LakeLagNow(self.path), self._decide, interval_s)]

    @property
    def wanted(self) -> str:
        """Return the wanted freshness."""
        return f"the lake of {self.path} is less than {self.lag_ms} ms behind"

    def found(self, answer: LakeStatus) -> str:
        """Return how far the lake is behind."""
        return (
            f"it is {answer.lag_ms} ms and {answer.lag_offsets} offsets behind; its snapshot is "
            f"{answer.snapshot_id}"
        )

    def _decide(self, status: LakeStatus) -> Outcome | None:
        if status.lag_ms is None or status.lag_ms >= self.lag_ms:
            return None
        return {
            "table": str(self.path),
            "snapshot_id": status.snapshot_id,
            "lag_ms": status.lag_ms,
            "lag_offsets": status.lag_offsets,
        }

    def values(self) -> dict[str, Any]:
        """Return the limit."""
        return {"lag_ms": self.lag_ms}

    @classmethod
    def of_values(cls, path: TablePath, values: Mapping[str, Any]) -> LakeFresh:
        """Return the condition from what `values` returned."""
        return cls(path, int(values["lag_ms"]))


def snapshot_outcome(path: TablePath, snapshot: LakeSnapshot) -> Outcome:
    """Return a snapshot as plain values; the id -1 means the lake of an empty table."""
    offsets = {
        (bucket.partition_id, bucket.bucket_id): offset
        for bucket, offset in snapshot.table_buckets_offset.items()
    }
    return {
        "table": str(path),
        "snapshot_id": snapshot.snapshot_id,
        "offsets": position_to_json(offsets),
    }
