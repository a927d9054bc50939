"""The exact offset at which a time cuts a log.

The server's answer for a timestamp is approximate, and moves when segments go to remote storage.
Here it is only a hint: the cut is the start of the first batch whose commit time is at or after
the timestamp, found by reading batch headers around the hint. Commit times never fall within a
bucket, so that cut is the same whenever it is asked for, once it is final.

It is not final yet when rows older than the timestamp may still appear: the timestamp lies in the
future, rows wait to be replicated, or nothing newer has come and too little time has passed.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass

from fluss_client.backend.contract import Backend
from fluss_client.config import Config
from fluss_client.errors import InvalidTimestampError
from fluss_client.model.cluster import OffsetSpec
from fluss_client.model.table import TableInfo
from fluss_orchestrate.core.checkpoints.events import now_ms
from fluss_orchestrate.core.errors import NotYetError
from fluss_orchestrate.core.incremental.observe import TableView, offsets_of
from fluss_orchestrate.core.incremental.probe import Prober
from fluss_orchestrate.core.plan import Place

PLACES_AT_ONCE_MAX = 32
SETTLE_MS = 1_000
"""With one replica: time for a batch between its commit time and its showing."""
SETTLE_REPLICATED_MS = 30_000
"""With several: a replica that is slower than this is no longer waited for by servers."""
NOT_YET_RETRY_MS = 1_000
_REPLICATION = "table.replication.factor"


@dataclass(frozen=True, slots=True)
class Cut:
    """Where a time cuts one log."""

    offset: int
    closed: bool
    """Whether a batch at or after the time has come, so that the cut stays for ever."""


async def resolve_timestamp(
    backend: Backend,
    config: Config,
    view: TableView,
    timestamp_ms: int,
    settle_ms: int | None = None,
) -> dict[Place, int]:
    """The first offset committed at or after a time, exactly, for every place of the view.

    `NotYetError` when one of them cannot be told yet. What retention has deleted is not seen: the
    answer is never before the earliest offset.
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
        # No bucket, hence no server that would say that the time lies in its future.
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
    """How long after a time the table's servers may still show rows committed before it."""
    replicas = int(info.properties.get(_REPLICATION, "1"))
    return SETTLE_REPLICATED_MS if replicas > 1 else SETTLE_MS


async def _cuts(
    prober: Prober,
    view: TableView,
    hints: Mapping[Place, int],
    earliest: Mapping[Place, int],
    timestamp_ms: int,
) -> dict[Place, Cut]:
    gate = asyncio.Semaphore(PLACES_AT_ONCE_MAX)

    async def one(place: Place, latest: int) -> Cut:
        hint = hints.get(place, latest)
        if hint > latest:
            raise NotYetError(
                f"{view.info.table_path}: rows committed before {timestamp_ms} are not "
                "replicated yet; ask again soon",
                NOT_YET_RETRY_MS,
                [view.range_of(place, latest, hint)],
            )
        async with gate:
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
    """The exact cut of one log that holds [earliest, latest), wherever the hint lies."""
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
