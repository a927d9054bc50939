"""Limiting the size of a plan: a number of offsets, shared between places, cut between batches.

A batch is never cut, so an update's two halves (-U, +U), which lie in one batch, stay together.

A limit in bytes becomes a number of offsets by a sample of the log.

Servers report rows, not bytes, so a few batches are fetched and measured in Arrow's form, which is
what a reader keeps in memory. The result is an estimate: a limit in bytes is a hint, a limit in
offsets is exact.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

from fluss_client.errors import ConfigError, LogOffsetOutOfRangeError
from fluss_orchestrate.core.incremental.time.timestamps import Prober
from fluss_orchestrate.core.plan import Place

PLACES_AT_ONCE_MAX = 32


def share(backlogs: Mapping[Place, int], offsets_max: int) -> dict[Place, int]:
    """Return how many offsets of each backlog fit into `offsets_max` together.

    Small backlogs are taken whole, the others get equal shares. If there is less than one offset
    for each place, the largest backlogs get one, so that no place waits for ever.
    """
    if offsets_max < 1:
        raise ConfigError(f"max_offsets must be at least 1, not {offsets_max}")
    waiting = sorted(((n, p) for p, n in backlogs.items() if n > 0), key=lambda item: item[0])
    if len(waiting) > offsets_max:
        return {place: 1 for _, place in waiting[-offsets_max:]}
    shares: dict[Place, int] = {}
    left = offsets_max
    for at, (backlog, place) in enumerate(waiting):
        shares[place] = min(backlog, left // (len(waiting) - at))
        left -= shares[place]
    return shares


async def capped_stops(
    prober: Prober, starts: Mapping[Place, int], stops: Mapping[Place, int], offsets_max: int
) -> dict[Place, int]:
    """Return stops for at most `offsets_max` offsets, rounded up to the end of a batch."""
    shares = share({p: stop - starts[p] for p, stop in stops.items()}, offsets_max)
    gate = asyncio.Semaphore(PLACES_AT_ONCE_MAX)

    async def one(place: Place, count: int) -> int:
        start, stop = starts[place], stops[place]
        if count >= stop - start:
            return stop
        async with gate:
            try:
                mark = await prober.batch_at(place, start + count - 1)
            except LogOffsetOutOfRangeError:
                # Only the lake has it, and a lake has no batches: any offset is the end of a row.
                return start + count
        return stop if mark is None else min(stop, mark.stop)

    found = await asyncio.gather(*(one(p, n) for p, n in shares.items()))
    chosen = dict(zip(shares, found, strict=True))
    return {place: chosen.get(place, starts[place]) for place in stops}


async def whole_updates(
    prober: Prober,
    starts: Mapping[Place, int],
    stops: Mapping[Place, int],
    ends: Mapping[Place, int],
) -> dict[Place, int]:
    """Return stops that a user chose, each moved by one if it would cut an update in two."""
    moved = dict(stops)
    for place, stop in stops.items():
        if starts[place] < stop < ends[place] and await prober.is_update_before(place, stop - 1):
            moved[place] = stop + 1
    return moved


SAMPLED_PLACES_MAX = 8
SAMPLE_BYTES = 64 << 10
DEFAULT_ROW_BYTES = 100.0
"""The bytes per row that are assumed for rows that only the lake has: they cannot be sampled."""


async def row_bytes(
    prober: Prober, starts: Mapping[Place, int], stops: Mapping[Place, int]
) -> float:
    """Return the bytes per row, measured at the start and the middle of the largest ranges."""
    backlogs = {place: stop - starts.get(place, 0) for place, stop in stops.items()}
    largest = sorted(backlogs, key=lambda place: -backlogs[place])[:SAMPLED_PLACES_MAX]
    probes = [
        (place, starts.get(place, 0) + within)
        for place in largest
        if backlogs[place] > 0
        for within in dict.fromkeys((0, backlogs[place] // 2))
    ]

    async def one(place: Place, offset: int) -> tuple[int, int]:
        try:
            return await prober.sizes(place, offset, SAMPLE_BYTES)
        except LogOffsetOutOfRangeError:
            return 0, 0

    found = await asyncio.gather(*(one(place, offset) for place, offset in probes))
    rows, size = (sum(column) for column in zip(*found, strict=True)) if found else (0, 0)
    return size / rows if rows else DEFAULT_ROW_BYTES


async def offsets_of_bytes(
    prober: Prober, starts: Mapping[Place, int], stops: Mapping[Place, int], bytes_max: int
) -> int:
    """Return about how many offsets of these ranges take `bytes_max`; at least one."""
    return max(1, int(bytes_max / await row_bytes(prober, starts, stops)))
