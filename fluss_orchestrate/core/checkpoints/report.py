"""Reports about checkpoints: the list of them, their history and their lag."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import asdict, dataclass
from typing import Any

from fluss_client import FlussConnection, OffsetSpec, TableInfo, TablePath
from fluss_client.aio import FlussConnection as AsyncConnection
from fluss_client.engine import async_connection, backend_of, duration_ms, run_blocking
from fluss_client.errors import ConfigError, LogOffsetOutOfRangeError
from fluss_orchestrate.core.checkpoints.events import Event, now_ms
from fluss_orchestrate.core.checkpoints.store import CheckpointStore
from fluss_orchestrate.core.incremental.planning.guards import check_identity
from fluss_orchestrate.core.incremental.planning.late_rows import covers_late_rows, is_late
from fluss_orchestrate.core.incremental.planning.observation import (
    TableView,
    observe_table,
    offsets_of,
)
from fluss_orchestrate.core.incremental.time.timestamps import Prober
from fluss_orchestrate.core.metrics import record
from fluss_orchestrate.core.plan import Place

LOG_TTL = "table.log.ttl"
LOG_TTL_DEFAULT = "7 d"
PLACES_AT_ONCE_MAX = 32


@dataclass(frozen=True, slots=True)
class CheckpointSummary:
    """One checkpoint in a list."""

    name: str
    table: str
    """The table's URI; empty before the first plan."""
    sequence: int
    last_event: str
    updated_ms: int
    pending_run_key: str
    pending_plan_id: str
    retired: bool

    def to_json(self) -> dict[str, Any]:
        """Return the summary as plain values."""
        return asdict(self)


@dataclass(frozen=True, slots=True)
class HistoryEntry:
    """One event in the history of a checkpoint."""

    sequence: int
    kind: str
    run_key: str
    plan_id: str
    created_ms: int
    ranges: int
    offsets: int
    """The number of offsets of the event's plan; 0 for events without a plan."""
    rows: int | None
    """The number of rows of a commit."""
    details: Mapping[str, Any]

    def to_json(self) -> dict[str, Any]:
        """Return the entry as plain values."""
        return {**asdict(self), "details": dict(self.details)}


@dataclass(frozen=True, slots=True)
class PlaceLag:
    """How far one place is behind."""

    partition: str | None
    bucket: int
    position: int
    latest: int
    offsets: int
    lost: int
    """The number of offsets that retention deleted before they were read."""
    age_ms: int | None
    """The time since the first unread batch was committed; None if everything was read."""
    expires_in_ms: int | None
    """The time until retention may delete that batch; None without a batch or retention."""
    committed_ms: int | None = None
    """When that batch was committed, in milliseconds since 1970; None if that is not known."""


@dataclass(frozen=True, slots=True)
class Lag:
    """How far a checkpoint is behind."""

    name: str
    table: str
    places: tuple[PlaceLag, ...]
    """The places that are behind."""

    @property
    def offsets(self) -> int:
        """The number of offsets that were not read."""
        return sum(place.offsets for place in self.places)

    @property
    def lost(self) -> int:
        """The number of offsets that cannot be read from the log any more."""
        return sum(place.lost for place in self.places)

    @property
    def age_ms(self) -> int:
        """The age of the oldest batch that was not read; 0 if everything was read."""
        return max((p.age_ms for p in self.places if p.age_ms is not None), default=0)

    @property
    def expires_in_ms(self) -> int | None:
        """The time until retention may delete the first unread batch; None if it never does."""
        return min(
            (p.expires_in_ms for p in self.places if p.expires_in_ms is not None), default=None
        )

    def to_json(self) -> dict[str, Any]:
        """Return the lag as plain values."""
        return {
            "name": self.name,
            "table": self.table,
            "offsets": self.offsets,
            "lost": self.lost,
            "age_ms": self.age_ms,
            "expires_in_ms": self.expires_in_ms,
            "places": [asdict(place) for place in self.places],
        }


def list_checkpoints(store: CheckpointStore) -> list[CheckpointSummary]:
    """Return all checkpoints of a store, ordered by name."""
    return [_summary(store.require(name)) for name in store.names()]


def _summary(head: Event) -> CheckpointSummary:
    state = head.state
    return CheckpointSummary(
        name=head.name,
        table="" if state.position is None else state.position.table.uri,
        sequence=head.sequence,
        last_event=str(head.kind),
        updated_ms=head.created_ms,
        pending_run_key="" if state.pending is None else state.pending.run_key,
        pending_plan_id="" if state.pending is None else state.pending.plan_id,
        retired=state.retired,
    )


def show_checkpoint(store: CheckpointStore, name: str, limit: int = 50) -> list[HistoryEntry]:
    """Return the newest events of one checkpoint, the newest first."""
    return [_entry(event) for event in store.history(name, limit)]


def _entry(event: Event) -> HistoryEntry:
    receipt, pending = event.receipt, event.state.pending
    ranges = receipt.ranges if receipt is not None else pending.ranges if pending else ()
    details = dict(event.details)
    if receipt is not None:
        details |= receipt.details
    return HistoryEntry(
        sequence=event.sequence,
        kind=str(event.kind),
        run_key=event.run_key,
        plan_id=event.plan_id,
        created_ms=event.created_ms,
        ranges=len(ranges),
        offsets=sum(r.count for r in ranges),
        rows=None if receipt is None else receipt.rows,
        details=details,
    )


def checkpoint_lag(connection: FlussConnection, store: CheckpointStore, name: str) -> Lag:
    """Return how far a checkpoint is behind its table, and how soon retention deletes rows."""
    head = store.require(name)
    if head.state.position is None:
        return Lag(name, "", ())
    lag = run_blocking(_lag(connection, head, head.state.position.table.path))
    record("fluss.checkpoint.lag", lag.offsets, table=lag.table, checkpoint=name)
    record("fluss.checkpoint.age", lag.age_ms / 1000, table=lag.table, checkpoint=name)
    return lag


async def _lag(connection: FlussConnection, head: Event, path: TablePath) -> Lag:
    core = async_connection(connection)
    return await lag_in(core, await observe_table(core, path), head)


CommitTime = Callable[[Place, int], Awaitable[int | None]]
"""Returns when the batch with an offset of a place was committed; None if that is not known."""
CommitTimes = Callable[[Mapping[Place, int]], Awaitable[Mapping[Place, int | None]]]
"""Returns it for one offset of each of some places; places of which it is not known may lack."""


async def lag_in(
    core: AsyncConnection,
    view: TableView,
    head: Event,
    *,
    times: bool = True,
    earliest: Mapping[Place, int] | None = None,
    commit_times: CommitTimes | None = None,
) -> Lag:
    """How far a checkpoint that has a position is behind a table as it was seen.

    Rows of expired partitions count unless the checkpoint leaves them out by its policy. Without
    `times`, ages are None, and no batch is asked for. A caller that looks at many checkpoints of
    one table gives the `earliest` offsets, and `commit_times` that keep answers.
    """
    position = head.state.position
    assert position is not None, "callers leave out checkpoints without one"
    check_identity(position.table, view.identity)
    read = position.offsets
    behind = [p for p, latest in view.latest.items() if latest > read.get(p, 0)]
    if not covers_late_rows(head):
        behind = [p for p in behind if not is_late(view, p)]
    if earliest is None:
        ids = list(dict.fromkeys(place[0] for place in behind))
        earliest = await offsets_of(backend_of(core), view.info, ids, OffsetSpec.earliest())
    firsts = {place: max(read.get(place, 0), earliest.get(place, 0)) for place in behind}
    committed: Mapping[Place, int | None] = {}
    if times:
        unread = {place: first for place, first in firsts.items() if first < view.latest[place]}
        if commit_times is None:
            prober = Prober(backend_of(core), core.config, view.info)
            committed = await ask_each(probing(prober), unread)
        else:
            committed = await commit_times(unread)
    ttl_ms, now = retention_ms(view.info), now_ms()
    places = (
        _place_lag(
            view, place, read.get(place, 0), firsts[place], committed.get(place), ttl_ms, now
        )
        for place in behind
    )
    return Lag(head.name, view.identity.uri, tuple(places))


async def ask_each(ask: CommitTime, offsets: Mapping[Place, int]) -> dict[Place, int | None]:
    """Ask for one offset of each place, for some places at the same time."""
    gate = asyncio.Semaphore(PLACES_AT_ONCE_MAX)

    async def one(place: Place, offset: int) -> int | None:
        async with gate:
            return await ask(place, offset)

    asked = (one(place, offset) for place, offset in offsets.items())
    found: dict[Place, int | None] = {}
    for place, answer in zip(
        offsets, await asyncio.gather(*asked, return_exceptions=True), strict=True
    ):
        if isinstance(answer, BaseException):
            raise answer
        found[place] = answer
    return found


def probing(prober: Prober) -> CommitTime:
    """Return the function that asks the servers for the batch."""

    async def ask(place: Place, offset: int) -> int | None:
        try:
            mark = await prober.batch_at(place, offset)
        except LogOffsetOutOfRangeError:
            # Retention deleted the batch during the request; the next report shows it.
            return None
        return None if mark is None else mark.commit_ms

    return ask


def _place_lag(
    view: TableView,
    place: Place,
    at: int,
    first: int,
    committed_ms: int | None,
    ttl_ms: int | None,
    now: int,
) -> PlaceLag:
    latest = view.latest[place]
    return PlaceLag(
        partition=view.partition_name(place),
        bucket=place[1],
        position=at,
        latest=latest,
        offsets=latest - at,
        lost=first - at,
        age_ms=None if committed_ms is None else max(0, now - committed_ms),
        expires_in_ms=None
        if committed_ms is None or ttl_ms is None
        else committed_ms + ttl_ms - now,
        committed_ms=committed_ms,
    )


def retention_ms(info: TableInfo) -> int | None:
    """Return the table's `table.log.ttl`; None if rows are kept for ever, or it is not valid."""
    try:
        found = duration_ms(0)(LOG_TTL, info.properties.get(LOG_TTL, LOG_TTL_DEFAULT))
    except ConfigError:
        return None
    return found or None
