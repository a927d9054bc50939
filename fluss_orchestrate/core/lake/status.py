"""The lag of the lake behind the log, for each bucket, in offsets and in time."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

from fluss_client import FlussConnection, LakeSnapshot, OffsetSpec, TablePath
from fluss_client.aio import FlussConnection as AsyncConnection
from fluss_client.engine import async_connection, backend_of, run_blocking
from fluss_orchestrate.core.checkpoints.events import now_ms
from fluss_orchestrate.core.checkpoints.report import CommitTimes, ask_each
from fluss_orchestrate.core.identity import TableIdentity
from fluss_orchestrate.core.incremental.planning.observation import (
    TableView,
    observe_table,
    offsets_of,
)
from fluss_orchestrate.core.incremental.time.timestamps import Prober
from fluss_orchestrate.core.lake.covers import LakeTarget, latest_snapshot
from fluss_orchestrate.core.metrics import record
from fluss_orchestrate.core.plan import Place


@dataclass(frozen=True, slots=True)
class BucketLag:
    """How far one bucket of the lake is behind its log."""

    partition_id: int | None
    partition: str | None
    bucket: int
    lake_offset: int | None
    """The first offset that is not in the lake; None if the bucket was never tiered."""
    earliest: int
    latest: int
    lag_ms: int | None
    """The age of the oldest row that is not in the lake; 0 without one, None if not known."""

    @property
    def lag_offsets(self) -> int:
        """The number of offsets of the log that are not in the lake."""
        held = self.earliest if self.lake_offset is None else self.lake_offset
        return max(0, self.latest - held)

    @property
    def place(self) -> Place:
        """The partition id and the bucket."""
        return self.partition_id, self.bucket


@dataclass(frozen=True, slots=True)
class LakeStatus:
    """The lake of a table at one moment.

    Attributes:
        table: The identity of the table.
        snapshot: The newest lake snapshot; None if there is none.
        buckets: How far each bucket is behind.
        observed_ms: When this was observed, in milliseconds since 1970.
    """

    table: TableIdentity
    snapshot: LakeSnapshot | None
    buckets: tuple[BucketLag, ...]
    observed_ms: int

    @property
    def snapshot_id(self) -> int | None:
        """The id of the newest snapshot; None before the first."""
        return None if self.snapshot is None else self.snapshot.snapshot_id

    @property
    def lag_offsets(self) -> int:
        """The number of offsets of all buckets that are not in the lake."""
        return sum(b.lag_offsets for b in self.buckets)

    @property
    def lag_ms(self) -> int | None:
        """The age of the oldest row that is not in the lake; None if it is not known."""
        ages = [b.lag_ms for b in self.buckets]
        return None if None in ages else max((a for a in ages if a is not None), default=0)

    def covers(self, target: LakeTarget) -> bool:
        """Return whether the snapshot holds everything up to a resolved `target`."""
        return target.covered_by(self.snapshot)

    def to_json(self) -> dict[str, Any]:
        """Return the status as plain values."""
        return {
            "table": self.table.to_json(),
            "snapshot_id": self.snapshot_id,
            "lag_offsets": self.lag_offsets,
            "lag_ms": self.lag_ms,
            "observed_ms": self.observed_ms,
            "buckets": [
                {
                    "partition_id": b.partition_id,
                    "partition": b.partition,
                    "bucket": b.bucket,
                    "lake_offset": b.lake_offset,
                    "latest": b.latest,
                    "lag_offsets": b.lag_offsets,
                    "lag_ms": b.lag_ms,
                }
                for b in self.buckets
            ],
        }


async def read_status(core: AsyncConnection, table: TablePath, times: bool = True) -> LakeStatus:
    """Read the status of the lake of a table. Runs on the event loop of the connection.

    `times` takes one more request per bucket that is behind. The log is read after the lake, so
    that the lake never seems to be ahead.
    """
    snapshot = await latest_snapshot(core, table)
    view = await observe_table(core, table)
    earliest = await offsets_of(
        backend_of(core), view.info, view.partition_ids(), OffsetSpec.earliest()
    )
    if not times:
        return await status_in(view, snapshot, earliest, None)
    prober = Prober(backend_of(core), core.config, view.info)

    async def commit_time(place: Place, offset: int) -> int | None:
        batch = await prober.batch_at(place, offset)
        return now_ms() if batch is None else batch.commit_ms

    return await status_in(view, snapshot, earliest, partial(ask_each, commit_time))


async def status_in(
    view: TableView,
    snapshot: LakeSnapshot | None,
    earliest: Mapping[Place, int],
    commit_times: CommitTimes | None,
) -> LakeStatus:
    """Return the status of the lake of a table as it was seen after the snapshot.

    Args:
        view: The table.
        snapshot: The newest lake snapshot, which was read before the table.
        earliest: The first offset of each place.
        commit_times: Returns when batches were committed; None to leave the ages out.
    """
    held: dict[Place, int] = {}
    if snapshot is not None:
        held = {
            (b.partition_id, b.bucket_id): offset
            for b, offset in snapshot.table_buckets_offset.items()
            if b.table_id == view.info.table_id
        }
    observed = now_ms()
    ages = await _ages(view, held, earliest, observed, commit_times) if commit_times else {}
    buckets = tuple(
        BucketLag(
            place[0],
            view.partition_name(place),
            place[1],
            held.get(place),
            earliest.get(place, 0),
            latest,
            ages.get(place),
        )
        for place, latest in view.latest.items()
    )
    return LakeStatus(view.identity, snapshot, buckets, observed)


async def _ages(
    view: TableView,
    held: Mapping[Place, int],
    earliest: Mapping[Place, int],
    now: int,
    commit_times: CommitTimes,
) -> dict[Place, int]:
    starts = {p: max(held.get(p, 0), earliest.get(p, 0)) for p in view.latest}
    ages = {place: 0 for place, latest in view.latest.items() if starts[place] >= latest}
    behind = {place: start for place, start in starts.items() if place not in ages}
    for place, committed_ms in (await commit_times(behind)).items():
        if committed_ms is not None:
            ages[place] = max(0, now - committed_ms)
    return ages


def lake_status(
    connection: FlussConnection, table: TablePath | str, *, times: bool = True
) -> LakeStatus:
    """Return the status of the lake of a table. Blocks.

    Args:
        connection: The connection to the cluster.
        table: The table, as a path or as `database.table`.
        times: Also find the commit time of the first row of each bucket that is not in the lake.
    """
    path = TablePath.parse(table) if isinstance(table, str) else table
    status = run_blocking(read_status(async_connection(connection), path, times))
    record("fluss.lake.lag", status.lag_offsets, table=status.table.uri)
    if status.lag_ms is not None:
        record("fluss.lake.age", status.lag_ms / 1000, table=status.table.uri)
    return status
