"""The exact offset of a time in a log.

The server's answer for a timestamp is approximate, and moves when segments go to remote storage.
Here it is only a hint: the cut is the start of the first batch whose commit time is at or after
the timestamp, found by reading batch headers around the hint. Commit times never decrease within a
bucket, so the cut does not change once it is final.

It is not final while rows older than the timestamp may still appear: the timestamp is in the
future, rows wait to be replicated, or there is no newer row and too little time has passed.

`Prober` reads single batches of a log: where a batch ends, and when it was committed.

It fetches only the narrowest column, because only the headers are needed.

`last_commit_times` finds what a commit stores beside the offsets: the commit time of the last batch
of each range.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import pyarrow as pa

from fluss_client import (
    ChangeType,
    Config,
    FlussConnection,
    OffsetSpec,
    TableBucket,
    TableInfo,
)
from fluss_client.engine import (
    Backend,
    Deadline,
    Existence,
    FetchPosition,
    FetchRequest,
    LogSlice,
    async_connection,
    backend_of,
    retrying,
    run_blocking,
)
from fluss_client.errors import (
    FlussError,
    InvalidTimestampError,
    UnknownServerError,
    UnknownTableOrBucketError,
)
from fluss_orchestrate.core.checkpoints.events import now_ms
from fluss_orchestrate.core.errors import NotYetError
from fluss_orchestrate.core.incremental.planning.observation import TableView, offsets_of
from fluss_orchestrate.core.plan import BucketRange, Place, ScanPlan

ONE_BATCH_BYTES = 1
"""Servers send at least one batch, however small the limit is."""
WALK_BYTES = 256 << 10
FETCH_WAIT_MS = 10


@dataclass(frozen=True, slots=True)
class BatchMark:
    """The offsets [start, stop) of one batch, or of the rest of a probed batch; and its time."""

    start: int
    stop: int
    commit_ms: int


class Prober:
    """Reads single batches of one table. Its coroutines run on the I/O thread."""

    def __init__(
        self,
        backend: Backend,
        config: Config,
        info: TableInfo,
        columns: tuple[int, ...] | None = None,
    ) -> None:
        """Prepare it; `columns` are for `sizes`, otherwise the narrowest column is fetched."""
        self._backend = backend
        self._config = config
        self._info = info
        self._existence = Existence(backend, info)
        types = info.schema.wire.types
        narrowest = min(range(len(types)), key=lambda at: (_bit_width(types[at]), at))
        self._columns = columns or (narrowest,)

    async def batch_at(self, place: Place, offset: int) -> BatchMark | None:
        """Return the batch with an offset, from that offset on; None at the end of the log."""
        marks = await self.walk(place, offset, ONE_BATCH_BYTES)
        return marks[0] if marks else None

    async def walk(self, place: Place, offset: int, bytes_max: int = WALK_BYTES) -> list[BatchMark]:
        """Return some batches from an offset on; none at the end of the log."""
        slices = await self._slices(place, offset, bytes_max)
        return [BatchMark(s.base_offset, s.next_offset, s.timestamp) for s in slices]

    async def sizes(self, place: Place, offset: int, bytes_max: int) -> tuple[int, int]:
        """Return the number of rows from an offset on, and their size in Arrow's form."""
        slices = await self._slices(place, offset, bytes_max)
        batches = [(await asyncio.to_thread(s.decode))[0] for s in slices]
        return sum(b.num_rows for b in batches), sum(b.nbytes for b in batches)

    async def is_update_before(self, place: Place, offset: int) -> bool:
        """Return whether the record at an offset is the first half of an update (-U)."""
        slices = await self._slices(place, offset, ONE_BATCH_BYTES)
        if not slices or slices[0].base_offset != offset or not slices[0].row_count:
            return False
        _, changes = slices[0].decode()
        return changes is not None and int(changes[0]) == ChangeType.UpdateBefore

    async def _slices(self, place: Place, offset: int, bytes_max: int) -> Sequence[LogSlice]:
        info = self._info
        bucket = TableBucket(info.table_id, place[1], partition_id=place[0])

        async def ask() -> Sequence[LogSlice]:
            node = await self._backend.locate(info, bucket)
            request = FetchRequest(
                info,
                [FetchPosition(bucket, offset, bytes_max)],
                self._columns,
                bytes_max=bytes_max,
                wait_ms=FETCH_WAIT_MS,
            )
            answer = (await self._backend.fetch(node, request))[0]
            if answer.error is not None:
                raise answer.error
            return answer.slices

        async def forget(error: FlussError) -> None:
            if error.stale_metadata:
                await self._backend.forget_location(info, bucket)
            if isinstance(error, UnknownTableOrBucketError):
                dropped = await self._existence.find_dropped(bucket)
                if dropped is not None:
                    raise dropped

        def may_repeat(error: FlussError) -> bool:
            # Servers answer with this error if a segment is moved to remote storage meanwhile.
            return error.retriable or isinstance(error, UnknownServerError)

        deadline = Deadline(self._config.request_timeout_ms)
        return await retrying(ask, deadline, on_error=forget, retriable=may_repeat)


def _bit_width(arrow: pa.DataType) -> float:
    try:
        return float(arrow.bit_width)
    except ValueError:
        return math.inf


PLACES_AT_ONCE_MAX = 32
SETTLE_MS = 1_000
"""With one replica: the time from the commit time of a batch until readers see it."""
SETTLE_REPLICATED_MS = 30_000
"""With several replicas: servers do not wait for a replica that is slower than this."""
NOT_YET_RETRY_MS = 1_000
_REPLICATION = "table.replication.factor"


@dataclass(frozen=True, slots=True)
class Cut:
    """The offset of one log at which a time lies."""

    offset: int
    closed: bool
    """Whether there is a batch at or after the time, so that the cut is final."""


async def resolve_timestamp(
    backend: Backend,
    config: Config,
    view: TableView,
    timestamp_ms: int,
    settle_ms: int | None = None,
) -> dict[Place, int]:
    """Return the exact first offset committed at or after a time, for every place of the view.

    Raises:
        NotYetError: The offset of a place is not final yet.
    """
    now = now_ms()
    info = view.info
    try:
        hints, earliest = await asyncio.gather(
            offsets_of(backend, info, view.partition_ids(), OffsetSpec.timestamp(timestamp_ms)),
            offsets_of(backend, info, view.partition_ids(), OffsetSpec.earliest()),
        )
    except InvalidTimestampError:
        wait_ms = max(NOT_YET_RETRY_MS, timestamp_ms - now)
        raise NotYetError(
            f"{info.table_path}: {timestamp_ms} lies in the future of a server; ask again in "
            f"{wait_ms} ms",
            wait_ms,
        ) from None
    if settle_ms is None:
        settle_ms = settle_time_ms(info)
    prober = Prober(backend, config, info)
    cuts = await _cuts(prober, view, hints, earliest, timestamp_ms)
    wait_ms = timestamp_ms + settle_ms - now
    if not view.latest and wait_ms > 0:
        # The table has no bucket, so no server says that the time is in the future.
        raise NotYetError(
            f"{info.table_path} has no partitions yet, and one that is created now may hold rows "
            f"from before {timestamp_ms}; ask again in {wait_ms} ms",
            wait_ms,
        )
    open_ones = [place for place, cut in cuts.items() if not cut.closed]
    if open_ones and wait_ms > 0:
        raise NotYetError(
            f"{info.table_path}: {len(open_ones)} bucket(s) have no batch committed at or after "
            f"{timestamp_ms}, and one before it may still show; ask again in {wait_ms} ms",
            wait_ms,
            [view.range_of(p, cuts[p].offset, view.latest[p]) for p in open_ones],
        )
    return {place: cut.offset for place, cut in cuts.items()}


def settle_time_ms(info: TableInfo) -> int:
    """Return how long after a time servers may still show rows that were committed before it."""
    replicas = int(info.properties.get(_REPLICATION, "1"))
    return SETTLE_REPLICATED_MS if replicas > 1 else SETTLE_MS


async def _cuts(
    prober: Prober,
    view: TableView,
    hints: Mapping[Place, int],
    earliest: Mapping[Place, int],
    timestamp_ms: int,
) -> dict[Place, Cut]:
    limit = asyncio.Semaphore(PLACES_AT_ONCE_MAX)

    async def one(place: Place, latest: int) -> Cut:
        hint = hints.get(place, latest)
        if hint > latest:
            raise NotYetError(
                f"{view.info.table_path}: rows committed before {timestamp_ms} are not "
                "replicated yet; ask again soon",
                NOT_YET_RETRY_MS,
                [view.range_of(place, latest, hint)],
            )
        async with limit:
            return await find_cut(prober, place, hint, earliest.get(place, 0), latest, timestamp_ms)

    places = list(view.latest)
    answers = await asyncio.gather(
        *(one(place, view.latest[place]) for place in places), return_exceptions=True
    )
    cuts: dict[Place, Cut] = {}
    for place, answer in zip(places, answers, strict=True):
        if isinstance(answer, BaseException):
            raise answer
        cuts[place] = answer
    return cuts


async def find_cut(
    prober: Prober, place: Place, hint: int, earliest: int, latest: int, timestamp_ms: int
) -> Cut:
    """Return the exact cut of a log with the offsets [earliest, latest), wherever the hint is."""
    at = max(earliest, min(hint, latest))
    step = 1
    while at > earliest:
        before = await prober.batch_at(place, at - 1)
        if before is None or before.commit_ms < timestamp_ms:
            break
        at = max(earliest, at - step)
        step *= 2
    while at < latest:
        marks = await prober.walk(place, at)
        if not marks:
            break
        for mark in marks:
            if mark.commit_ms >= timestamp_ms:
                return Cut(at, closed=True)
            at = mark.stop
            if at >= latest:
                break
    return Cut(min(at, latest), closed=False)


def last_commit_times(
    connection: FlussConnection, plan: ScanPlan, known: Mapping[tuple[Place, int], int]
) -> dict[Place, int]:
    """Return the commit times of the batches with the last offset of each range.

    Those that the reader saw are `known`; the others, of a plan that something else read, are
    fetched. A time that cannot be fetched is left out: the next plan then checks the offsets only.
    """
    ends = [(r, (r.place, r.stop)) for r in plan.ranges]
    missing = [r for r, end in ends if end not in known]
    times = {r.place: known[end] for r, end in ends if end in known}
    if missing:
        times |= run_blocking(_ask(connection, plan, missing))
    return times


async def _ask(
    connection: FlussConnection, plan: ScanPlan, ranges: list[BucketRange]
) -> dict[Place, int]:
    core = async_connection(connection)
    try:
        info = await backend_of(core).get_table_info(plan.table.path)
    except FlussError:
        return {}
    if info.table_id != plan.table.table_id:
        return {}
    prober = Prober(backend_of(core), core.config, info)
    limit = asyncio.Semaphore(PLACES_AT_ONCE_MAX)

    async def one(r: BucketRange) -> tuple[Place, int] | None:
        async with limit:
            try:
                mark = await prober.batch_at(r.place, r.stop - 1)
            except FlussError:
                return None
        return None if mark is None else (r.place, mark.commit_ms)

    found = await asyncio.gather(*(one(r) for r in ranges))
    return dict(pair for pair in found if pair is not None)
